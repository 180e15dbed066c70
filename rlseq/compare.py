"""Runs side by side: grouped by what was trained, each group with its scores over seeds and its curve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rlseq.checkpoints import read_manifest
from rlseq.compared import OF_A_SEED, Member, data_of, grouped, incomparable, independent, repeated
from rlseq.config import Layer, differences, resolve, value_at
from rlseq.curves import curve_of, over_seeds
from rlseq.errors import UsageError
from rlseq.intervals import estimate
from rlseq.locate import locate
from rlseq.plots import Series, axis_of, check_picture, draw_curves
from rlseq.recipe import read_recipe
from rlseq.resolve import Training, read_options
from rlseq.runs import Run, words_of
from rlseq.scores import Metric, best_of, metrics_of
from rlseq.seq.config import SeqTraining
from rlseq.zoo import shipped_recipes


def compare(paths: Sequence[str | Path], *, tag: str | None = None, out: str | Path | None = None) -> dict[str, Any]:
    """Compare runs; those whose options differ only in seed and name are one group.

    Args:
        paths: run folders or names.
        tag: the curve, by its TensorBoard name; None: the evaluations of what the runs are judged by.
        out: a .png or .svg file to draw the curves into; None: no picture.

    Returns:
        JSON data: `metric` (the score: see `rlseq.scores.Metric`), `tag`, `picture`, `warnings`, and `groups`, each
        with its `label`, what its score over the finished runs is (the mean under the metric's key), its `curve` at the
        steps that all its runs have, and its `runs`.

    Raises:
        UsageError: no run, a PATH that is none, runs that are judged by different numbers, an unknown tag, a picture's
            name of another kind.
        RlseqError: a run without evaluations, or with damaged files.
    """
    if not paths:
        raise UsageError("nothing to compare: name one run or more. `rlseq list runs` lists them.")
    if out is not None:
        check_picture(Path(out))
    runs, warnings = _runs(paths)
    metric = _common_metric(runs)
    tag = tag or metric.curve
    groups = grouped([_member(run, tag, metric) for run in runs])
    labels = _labels(groups)
    warnings += [*repeated(groups), *incomparable(groups)]
    rows = [_row(label, group, _varying(groups), metric) for label, group in zip(labels, groups, strict=True)]
    if out is not None:
        series = [
            Series(f"{label} ({_count(row)})", [sample[0].curve for sample in independent(group)])
            for label, row, group in zip(labels, rows, groups, strict=True)
        ]
        learnt = ", ".join(dict.fromkeys(group[0].learnt for group in groups))
        steps = words_of(groups[0][0].algorithm).steps
        axis = axis_of(tag, groups[0][0].judged)
        draw_curves(Path(out), series, title=f"{learnt}: mean and range over runs", axis=axis, steps=steps)
    picture = None if out is None else str(out)
    return {"metric": metric._asdict(), "tag": tag, "picture": picture, "warnings": warnings, "groups": rows}


def _runs(paths: Sequence[str | Path]) -> tuple[list[Run], list[str]]:
    """The runs, each once, and what is to be said about the others."""
    found: dict[Path, Run] = {}
    warnings = []
    for path in paths:
        located = locate(path)
        if located.run is None:
            what = "a shipped agent" if located.kind == "agent" else "an exported file"
            raise UsageError(
                f"{path} is {what}, which has no curves; rlseq compare takes runs. `rlseq list runs` lists them, and "
                f"`rlseq eval {path}` scores it."
            )
        place = located.run.path.resolve()
        if place in found:
            warnings.append(f"{located.run.path} is named more than once, and compared once.")
        found.setdefault(place, located.run)
    return list(found.values()), warnings


def _common_metric(runs: Sequence[Run]) -> Metric:
    """What all runs are judged by.

    Raises:
        UsageError: not by the same.
    """
    first, *others = [(run, metrics_of(read_options(run)[1])[0]) for run in runs]
    for run, metric in others:
        if metric != first[1]:
            raise UsageError(
                f"{first[0].path} is judged by its {first[1].words} and {run.path} by its {metric.words}: they cannot "
                "be compared. Compare each kind by itself."
            )
    return first[1]


def _member(run: Run, tag: str, metric: Metric) -> Member:
    algorithm, options = read_options(run)
    curve, summary = curve_of(run, tag), run.summary()
    facts: dict[str, Any] = {"run": str(run.path), "seed": options.run.seed, "status": run.status()}
    if summary is not None:
        keys = (metric.key, "best_evaluation", "training_seconds", "steps", "updates")
        facts |= {key: summary.get(key) for key in keys}
    else:
        facts |= {metric.key: None, **_unfinished(run, metric)}
    # Its own best may be of another metric.
    if isinstance(options, SeqTraining) and options.eval.metric not in ("auto", metric.key):
        facts["best_evaluation"] = best_of(curve_of(run, metric.curve).values.tolist(), metric)
    lineage = run.lineage()
    origin = [{k: v for k, v in step.items() if k not in ("run", "seed", "rlseq_version")} for step in lineage]
    first = next((k for k, step in reversed(list(enumerate(origin))) if step.get("step") == "train"), 0)
    data = lineage[first].get("data_sha256") if lineage else None
    born = json.dumps(origin[:first], sort_keys=True)
    seeds = tuple(step.get("seed") for step in lineage[:first])
    recipe = run.config().get("recipe")
    return Member(run, algorithm, options, recipe, born, (*seeds, options.run.seed), data, curve, facts)


def _unfinished(run: Run, metric: Metric) -> dict[str, Any]:
    """How far an unfinished run has come: by its curves, and by its last checkpoint."""
    from rlseq.engine.numbers import session_numbers

    scores = curve_of(run, metric.curve)
    facts: dict[str, Any] = {"best_evaluation": best_of(scores.values.tolist(), metric), "steps": int(scores.steps[-1])}
    facts |= {"training_seconds": None, "updates": None}
    if run.checkpoints():
        checkpoint = run.checkpoint("last")
        numbers = session_numbers(read_manifest(checkpoint), str(checkpoint))
        facts |= {"training_seconds": numbers.seconds, "steps": max(facts["steps"], numbers.step)}
    return facts


def _varying(groups: Sequence[Sequence[Member]]) -> list[str]:
    """The options that are not the same in all groups, by name; environment, task and data have their own places."""
    first = groups[0][0]
    varying: list[str] = []
    for group in groups[1:]:
        if group[0].algorithm == first.algorithm:
            varying += differences(type(first.options), first.options, group[0].options)
    return [path for path in dict.fromkeys(varying) if path not in (*OF_A_SEED, "env.id", "seq.task")]


def _labels(groups: Sequence[Sequence[Member]]) -> list[str]:
    """Environment or task, recipe, and what sets a group apart: options that are not as usual, data, first weights;
    else a run's name."""
    varying = _varying(groups)
    labels = []
    for first, *_ in groups:
        parts = [first.learnt]
        if len({group[0].data_sha256 for group in groups}) > 1 and (where := data_of(first)):
            parts.append(f"on {where}")
        if len({group[0].algorithm for group in groups}) > 1:
            parts.append(first.algorithm)
        if first.recipe is not None:
            parts.append(f"recipe {first.recipe}")
        usual = _usual(first)
        changed = differences(type(usual), usual, first.options)
        parts += [f"{path}={_text(value_at(first.options, path))}" for path in varying if path in changed]
        if first.origin != "[]":
            parts.append("from other weights")
        labels.append(" ".join(parts))
    return [
        label if labels.count(label) == 1 else f"{label} ({group[0].run.name})"
        for label, group in zip(labels, groups, strict=True)
    ]


def _usual(member: Member) -> Training:
    """The options that a run has of itself: those of its recipe where that is a shipped one, else the defaults."""
    shipped = shipped_recipes()
    if member.recipe not in shipped:
        return type(member.options)()
    recipe = read_recipe(shipped[member.recipe], member.recipe)
    return resolve(type(member.options), Layer(member.recipe, recipe.values))


def _text(value: Any) -> str:
    """An option's value as it is typed after `--set NAME=`."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


def _row(label: str, group: Sequence[Member], varying: Sequence[str], metric: Metric) -> dict[str, Any]:
    """A group in numbers: its score over the finished runs, those of one seed counted once; of the rest, means over the
    runs that have it."""
    first = group[0]
    done = [member for member in group if member.facts[metric.key] is not None]
    samples = [_mean(sample, metric.key) for sample in independent(done)]
    score = estimate([sample for sample in samples if sample is not None]) if samples else None
    common = over_seeds([sample[0].curve for sample in independent(group)])
    return {
        "label": label,
        **_learnt(first),
        "algorithm": first.algorithm,
        "recipe": first.recipe,
        "options": {path: msgspec.to_builtins(value_at(first.options, path)) for path in varying},
        "num_runs": len(group),
        "num_finished": len(done),
        "num_samples": len(samples),
        metric.key: None if score is None else score.mean,
        "half_width": None if score is None else score.half_width,
        "lowest": None if score is None else score.lowest,
        "highest": None if score is None else score.highest,
        **{key: _mean(group, key) for key in ("best_evaluation", "training_seconds", "steps", "updates")},
        "curve": {name: None if part is None else part.tolist() for name, part in common._asdict().items()},
        "runs": [member.facts for member in group],
    }


def _learnt(first: Member) -> dict[str, Any]:
    if isinstance(first.options, SeqTraining):
        return {"task": first.learnt, "data_sha256": first.data_sha256}
    return {"env_id": first.learnt}


def _mean(group: Sequence[Member], key: str) -> float | None:
    values = [float(member.facts[key]) for member in group if member.facts[key] is not None]
    return estimate(values).mean if values else None


def _count(row: dict[str, Any]) -> str:
    """`5 runs`, `1 run`, `3 of 5 runs finished`; a legend does not break it over two lines."""
    total, done = row["num_runs"], row["num_finished"]
    runs = f"{total} run{'s' if total > 1 else ''}"
    text = runs if done == total else f"{runs}, unfinished" if total == 1 else f"{done} of {runs} finished"
    return text.replace(" ", "\N{NO-BREAK SPACE}")
