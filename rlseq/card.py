"""An agent's card: its recipe trained over seeds, measured, and written down beside the policy that is shipped."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rlseq import zoo
from rlseq.card_text import card_text
from rlseq.checkpoints import read_arrays, read_manifest
from rlseq.curves import RETURN, curve_of
from rlseq.errors import CorruptFile, RlseqError, UsageError, did_you_mean, require
from rlseq.files import explained, read_json, sha256_file, write_bytes, write_json
from rlseq.intervals import estimate
from rlseq.machine import describe_machine
from rlseq.player.latency import measure_latency
from rlseq.plots import Series as Lines
from rlseq.plots import draw_curves
from rlseq.recipe import read_recipe
from rlseq.resolve import read_policy_options
from rlseq.runs import Run
from rlseq.series import Series, Watch, train_series

CARD_FORMAT = 1
KEPT = (
    *("mean_return", "std_return", "min_return", "max_return", "mean_length", "steps", "updates", "stopped"),
    *("best_step", "best_evaluation", "training_seconds", "scoring_seconds", "export_seconds"),
)


class Card(NamedTuple):
    """A card as it was written: where, and what its `card.json` holds."""

    folder: Path
    data: dict[str, Any]


class Baseline(msgspec.Struct, forbid_unknown_fields=True):
    """A result to hold the agent's against: texts, as the card shows them."""

    what: str
    result: str
    source: str


class _Baselines(msgspec.Struct):
    baselines: list[Baseline]


def make_card(
    name: str,
    *,
    seeds: Sequence[int],
    episodes: int | None = None,
    jobs: int = 1,
    out: str | Path | None = None,
    baselines: str | Path | None = None,
    command: str,
    watch: Watch,
    note: Callable[[str], None],
) -> Card:
    """Train a shipped recipe over seeds, and write `card.md`, `card.json`, `curve.png` and `policy.onnx`.

    Args:
        name: of a shipped agent, one that has a recipe.
        seeds: of the runs, which are `card-<name>-s<seed>`.
        episodes: of the final score; None: as the recipe says.
        jobs: trainings side by side.
        out: the folder to write into; None: the agent's own.
        baselines: a JSON file, `{"baselines": [{"what": ..., "result": ..., "source": ...}]}`.
        command: what the card says prints it again.
        watch, note: as in `train_series`.

    Raises:
        UsageError: no such agent, a folder that cannot be written, or runs in the way.
        RlseqError: a training failed or was interrupted.
    """
    for module in ("torch", "matplotlib"):
        require(module, "making a card")
    agent = _agent(name)
    folder = _writable(agent, out)
    others = [] if baselines is None else _baselines(Path(baselines))
    machine = {key: value for key, value in describe_machine().items() if key != "command"}
    if "+" in str(machine["commit"]):
        note("The code has uncommitted changes, and the card will say so; commit them for one that can be made again.")
    algorithm = read_recipe(agent.recipe, name).algorithm
    values = {} if episodes is None else {"eval": {"final_episodes": episodes}}
    series = Series(algorithm, name, seeds, values, f"card-{name}")
    runs = train_series(series, jobs=jobs, watch=watch, note=note)
    note("\nMeasuring and drawing ...")
    data = {
        "format_version": CARD_FORMAT,
        "name": name,
        "command": command,
        **_measured(runs),
        "jobs": jobs,
        "machine": machine,
        "baselines": msgspec.to_builtins(others),
        "recipe": agent.recipe.read_text(encoding="utf-8"),
    }
    _write(folder, data, runs)
    return Card(folder, data)


def _agent(name: str) -> zoo.Agent:
    agents = zoo.agents()
    if name not in agents:
        raise UsageError(
            f"there is no shipped agent {name!r} in {zoo.agents_folder()}.{did_you_mean(name, agents)} Shipped: "
            f"{', '.join(agents) or 'none'}. A new one begins with agents/{name or 'NAME'}/recipe.toml."
        )
    return agents[name]


def _writable(agent: zoo.Agent, out: str | Path | None) -> Path:
    """The folder of the card; made if it was typed.

    Raises:
        UsageError: it cannot be written, or belongs to an installed package.
    """
    if out is not None:
        folder = Path(out)
        with explained(folder, "create"):
            folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = agent.folder
        if folder.parent.name == "_agents":
            raise UsageError(
                f"{folder} belongs to an installed package, and an update would take the card away. Work in a checkout "
                f'(pip install -e ".[test]"), or give a folder: --out {agent.name}'
            )
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} is not writable. Make it so, or give another folder: --out {agent.name}")
    return folder


def _baselines(path: Path) -> list[Baseline]:
    try:
        return msgspec.convert(read_json(path), _Baselines).baselines
    except msgspec.ValidationError as error:
        raise UsageError(
            f'--baselines {path}: {error}. Write {{"baselines": [{{"what": "...", "result": "...", "source": "..."}}]}}'
        ) from None


def _measured(runs: Sequence[Run]) -> dict[str, Any]:
    """Everything that comes out of the finished runs."""
    options = read_policy_options(runs[0])
    rows = [_run_row(run) for run in runs]
    shipped = rows[shipped_index([row["mean_return"] for row in rows], [row["seed"] for row in rows])]
    run = next(run for run in runs if run.name == shipped["run"])
    summary = run.summary()
    assert summary is not None, "the series is finished"
    if sha256_file(run.exported) != summary["policy"]["sha256"]:
        raise CorruptFile(f"{run.exported} is not the file that its training exported: it was changed. Train it again.")
    return {
        "algorithm": summary["algorithm"],
        "env_id": options.env.id,
        "episodes": options.eval.final_episodes,
        "final_seed": options.eval.final_seed,
        "selection_seed": options.eval.seed,
        "score": estimate([row["mean_return"] for row in rows])._asdict(),
        "runs": rows,
        "shipped": {
            **{key: shipped[key] for key in ("seed", "run", "mean_return")},
            **{key: summary["policy"][key] for key in ("checkpoint", "bytes", "sha256")},
            "parameters": _parameters(run),
            "parity": summary["parity"],
        },
        "latency": measure_latency(run.exported)._asdict(),
        "seconds": {
            key: _spread([row[key] for row in rows])
            for key in ("training_seconds", "scoring_seconds", "export_seconds")
        },
        "curves": [_curve(run) for run in runs],
    }


def shipped_index(scores: Sequence[float], seeds: Sequence[int]) -> int:
    """Which run is shipped: the one with the median score (of an even number the lower of the two in the middle); of
    equal ones, that of the lowest seed."""
    median = sorted(scores)[(len(scores) - 1) // 2]
    return min((k for k, score in enumerate(scores) if score == median), key=lambda k: seeds[k])


def _run_row(run: Run) -> dict[str, Any]:
    summary = run.summary()
    if summary is None:
        raise RlseqError(f"{run.path} is not finished.")
    missing = [key for key in (*KEPT, "policy", "parity") if key not in summary]
    if missing:
        raise CorruptFile(f"{run.path / 'summary.json'} lacks {', '.join(missing)}: it was changed. Train it again.")
    return {"seed": read_policy_options(run).run.seed, "run": run.name, **{key: summary[key] for key in KEPT}}


def _parameters(run: Run) -> int:
    best = run.checkpoint("best")
    return sum(array.size for array in read_arrays(best, read_manifest(best), "model").values())


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def _curve(run: Run) -> dict[str, list[float]]:
    curve = curve_of(run, RETURN)
    return {"steps": curve.steps.tolist(), "return_mean": curve.values.tolist()}


def _write(folder: Path, data: Mapping[str, Any], runs: Sequence[Run]) -> None:
    policy = next(run for run in runs if run.name == data["shipped"]["run"]).exported
    draw_curves(
        folder / "curve.png",
        [Lines(f"mean of {len(runs)} runs" if len(runs) > 1 else "1 run", [curve_of(run, RETURN) for run in runs])],
        title=f"{data['name']}: evaluations on {data['env_id']}",
        tag=RETURN,
        interval=True,
    )
    write_bytes(folder / "policy.onnx", policy.read_bytes())
    write_bytes(folder / "card.md", card_text(data).encode())
    write_json(folder / "card.json", data)
