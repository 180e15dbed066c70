"""Runs side by side: grouped by what was trained, each group with its scores over seeds and its curve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rlseq.checkpoints import read_manifest
from rlseq.config import differences, value_at
from rlseq.curves import RETURN, Curve, curve_of, over_seeds
from rlseq.dqn.config import DqnTraining
from rlseq.errors import UsageError
from rlseq.intervals import estimate
from rlseq.locate import locate
from rlseq.plots import Series, check_picture, draw_curves
from rlseq.resolve import read_policy_options
from rlseq.runs import Run

OF_A_SEED = ("run.seed", "run.name")  # what may differ within a group


class Member(NamedTuple):
    """A run that is compared.

    Attributes:
        facts: seed, status, scores: what `--json` says of it; what an unfinished run does not have is None.
        origin: how its first weights came to be, as JSON; `[]` for a run from scratch.
    """

    run: Run
    algorithm: str
    options: DqnTraining
    recipe: str | None
    origin: str
    curve: Curve
    facts: dict[str, Any]


def compare(paths: Sequence[str | Path], *, tag: str = RETURN, out: str | Path | None = None) -> dict[str, Any]:
    """Compare runs; those whose options differ only in seed and name are one group.

    Args:
        paths: run folders or names.
        tag: the curve, by its TensorBoard name.
        out: a .png or .svg file to draw the curves into; None: no picture.

    Returns:
        JSON data: `tag`, `picture`, `warnings`, and `groups`, each with its `label`, what its score over the finished
        runs is, its `curve` at the steps that all its runs have, and its `runs`.

    Raises:
        UsageError: no run, a PATH that is none, an unknown tag, a picture's name of another kind.
        RlseqError: a run without evaluations, or with damaged files.
    """
    if not paths:
        raise UsageError("nothing to compare: name one run or more. `rlseq list runs` lists them.")
    if out is not None:
        check_picture(Path(out))
    runs, warnings = _runs(paths)
    groups = _grouped([_member(run, tag) for run in runs])
    labels = _labels(groups)
    envs = list(dict.fromkeys(group[0].options.env.id for group in groups))
    if len(envs) > 1:
        warnings.append(
            f"the runs are of different environments ({', '.join(envs)}): their returns are not comparable."
        )
    rows = [_row(label, group, _varying(groups)) for label, group in zip(labels, groups, strict=True)]
    if out is not None:
        series = [
            Series(f"{label} ({_count(row)})", [member.curve for member in group])
            for label, row, group in zip(labels, rows, groups, strict=True)
        ]
        draw_curves(Path(out), series, title=f"{', '.join(envs)}: mean and range over runs", tag=tag)
    return {"tag": tag, "picture": None if out is None else str(out), "warnings": warnings, "groups": rows}


def _runs(paths: Sequence[str | Path]) -> tuple[list[Run], list[str]]:
    """The runs, each once, and what is to be said about the others."""
    found: dict[Path, Run] = {}
    warnings = []
    for path in paths:
        located = locate(path)
        if located.run is None:
            what = "a shipped agent" if located.kind == "agent" else "an exported policy"
            raise UsageError(
                f"{path} is {what}, which has no curves; rlseq compare takes runs. `rlseq list runs` lists them, and "
                f"`rlseq eval {path}` scores it."
            )
        place = located.run.path.resolve()
        if place in found:
            warnings.append(f"{located.run.path} is named more than once, and compared once.")
        found.setdefault(place, located.run)
    return list(found.values()), warnings


def _member(run: Run, tag: str) -> Member:
    algorithm, options = run.config()["algorithm"], read_policy_options(run)
    curve, summary = curve_of(run, tag), run.summary()
    facts: dict[str, Any] = {"run": str(run.path), "seed": options.run.seed, "status": run.status()}
    if summary is not None:
        keys = ("mean_return", "best_evaluation", "training_seconds", "steps", "updates")
        facts |= {key: summary.get(key) for key in keys}
    else:
        facts |= {"mean_return": None, **_unfinished(run)}
    origin = [{k: v for k, v in step.items() if k not in ("run", "seed", "rlseq_version")} for step in run.lineage()]
    first = next((k for k, step in reversed(list(enumerate(origin))) if step.get("step") == "train"), 0)
    return Member(
        run, algorithm, options, run.config().get("recipe"), json.dumps(origin[:first], sort_keys=True), curve, facts
    )


def _unfinished(run: Run) -> dict[str, Any]:
    """How far an unfinished run has come: by its curves, and by its last checkpoint."""
    from rlseq.engine.numbers import session_numbers

    returns = curve_of(run, RETURN)
    facts: dict[str, Any] = {"best_evaluation": float(returns.values.max()), "steps": int(returns.steps[-1])}
    facts |= {"training_seconds": None, "updates": None}
    if run.checkpoints():
        checkpoint = run.checkpoint("last")
        numbers = session_numbers(read_manifest(checkpoint), str(checkpoint))
        facts |= {"training_seconds": numbers.seconds, "steps": max(facts["steps"], numbers.step)}
    return facts


def _grouped(members: Sequence[Member]) -> list[list[Member]]:
    """The members that were trained alike, in the order in which the first of each was named."""
    groups: list[list[Member]] = []
    for member in members:
        same = next((group for group in groups if _alike(group[0], member)), None)
        if same is None:
            groups.append([member])
        else:
            same.append(member)
    return groups


def _alike(a: Member, b: Member) -> bool:
    if a.algorithm != b.algorithm or a.origin != b.origin:
        return False
    return all(path in OF_A_SEED for path in differences(type(a.options), a.options, b.options))


def _varying(groups: Sequence[Sequence[Member]]) -> list[str]:
    """The options that are not the same in all groups, by name; the environment's has a place of its own."""
    first = groups[0][0]
    varying: list[str] = []
    for group in groups[1:]:
        if group[0].algorithm == first.algorithm:
            varying += differences(type(first.options), first.options, group[0].options)
    return [path for path in dict.fromkeys(varying) if path not in (*OF_A_SEED, "env.id")]


def _labels(groups: Sequence[Sequence[Member]]) -> list[str]:
    """Environment, recipe, and what sets a group apart; of groups that no option sets apart, their first weights."""
    varying = _varying(groups)
    labels = []
    for first, *_ in groups:
        parts = [first.options.env.id]
        if len({group[0].algorithm for group in groups}) > 1:
            parts.append(first.algorithm)
        if first.recipe is not None:
            parts.append(f"recipe {first.recipe}")
        parts += [f"{path}={_text(value_at(first.options, path))}" for path in varying]
        if first.origin != "[]":
            parts.append("from other weights")
        labels.append(" ".join(parts))
    return [
        label if labels.count(label) == 1 else f"{label} ({group[0].run.name})"
        for label, group in zip(labels, groups, strict=True)
    ]


def _text(value: Any) -> str:
    """An option's value as it is typed after `--set NAME=`."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


def _row(label: str, group: Sequence[Member], varying: Sequence[str]) -> dict[str, Any]:
    """A group in numbers: its score over the finished runs; of the rest, means over the runs that have it."""
    first = group[0]
    scores = [float(member.facts["mean_return"]) for member in group if member.facts["mean_return"] is not None]
    score = estimate(scores) if scores else None
    common = over_seeds([member.curve for member in group])
    return {
        "label": label,
        "env_id": first.options.env.id,
        "algorithm": first.algorithm,
        "recipe": first.recipe,
        "options": {path: msgspec.to_builtins(value_at(first.options, path)) for path in varying},
        "num_runs": len(group),
        "num_finished": len(scores),
        "mean_return": None if score is None else score.mean,
        "half_width": None if score is None else score.half_width,
        "lowest": None if score is None else score.lowest,
        "highest": None if score is None else score.highest,
        **{key: _mean(group, key) for key in ("best_evaluation", "training_seconds", "steps", "updates")},
        "curve": {name: None if part is None else part.tolist() for name, part in common._asdict().items()},
        "runs": [member.facts for member in group],
    }


def _mean(group: Sequence[Member], key: str) -> float | None:
    values = [float(member.facts[key]) for member in group if member.facts[key] is not None]
    return estimate(values).mean if values else None


def _count(row: dict[str, Any]) -> str:
    """`5 runs`, `1 run`, `3 of 5 runs finished`; a legend does not break it over two lines."""
    total, done = row["num_runs"], row["num_finished"]
    runs = f"{total} run{'s' if total > 1 else ''}"
    text = runs if done == total else f"{runs}, unfinished" if total == 1 else f"{done} of {runs} finished"
    return text.replace(" ", "\N{NO-BREAK SPACE}")
