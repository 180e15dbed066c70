"""A shipped agent's or model's card: its recipe trained over seeds, measured, and written down beside the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rlseq import zoo
from rlseq.algorithms import ALGORITHMS
from rlseq.card_data import measured, pictures_of
from rlseq.card_text import card_text
from rlseq.card_words import metrics_in
from rlseq.curves import curve_of
from rlseq.errors import UsageError, did_you_mean, require
from rlseq.files import explained, read_json, write_bytes, write_json
from rlseq.machine import describe_machine
from rlseq.plots import Series as Lines
from rlseq.plots import axis_of, draw_curves
from rlseq.recipe import read_recipe
from rlseq.runs import Run
from rlseq.series import Series, Watch, train_series

CARD_FORMAT = 1


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
    """Train a shipped recipe over seeds, and write `card.md`, `card.json`, `curve.png` and the file that is shipped.

    That is `policy.onnx`, or `model.onnx` of a sequence model, with pictures of what it says to series.

    Args:
        name: of a shipped agent, one that has a recipe.
        seeds: of the runs, which are `card-<name>-s<seed>`.
        episodes: of a policy's final score; None: as the recipe says.
        jobs: trainings side by side.
        out: the folder to write into; None: the agent's own.
        baselines: a JSON file, `{"baselines": [{"what": ..., "result": ..., "source": ...}]}`.
        command: what the card says prints it again.
        watch, note: as in `train_series`.

    Raises:
        UsageError: no such agent, episodes for a sequence model, a folder that cannot be written, or runs in the way.
        RlseqError: a training failed or was interrupted.
    """
    for module in ("torch", "matplotlib"):
        require(module, "making a card")
    agent = _agent(name)
    algorithm = read_recipe(agent.recipe, name).algorithm
    values = _score_options(algorithm, name, episodes)
    folder = _writable(agent, out)
    others = [] if baselines is None else _baselines(Path(baselines))
    machine = {key: value for key, value in describe_machine().items() if key != "command"}
    if "+" in str(machine["commit"]):
        note("The code has uncommitted changes, and the card will say so; commit them for one that can be made again.")
    series = Series(algorithm, name, seeds, values, f"card-{name}")
    runs = train_series(series, jobs=jobs, watch=watch, note=note)
    note("\nMeasuring and drawing ...")
    found = measured(runs)
    pictures = pictures_of(_shipped(found, runs))
    data = {
        "format_version": CARD_FORMAT,
        "name": name,
        "command": command,
        **found,
        **({"pictures": list(pictures)} if pictures else {}),
        "jobs": jobs,
        "machine": machine,
        "baselines": msgspec.to_builtins(others),
        "recipe": agent.recipe.read_text(encoding="utf-8"),
    }
    _write(folder, data, runs, pictures)
    return Card(folder, data)


def _agent(name: str) -> zoo.Agent:
    agents = zoo.agents()
    if name not in agents:
        raise UsageError(
            f"there is no shipped agent {name!r} in {zoo.agents_folder()}.{did_you_mean(name, agents)} Shipped: "
            f"{', '.join(agents) or 'none'}. A new one begins with agents/{name or 'NAME'}/recipe.toml."
        )
    return agents[name]


def _score_options(algorithm: str, name: str, episodes: int | None) -> dict[str, Any]:
    """What is laid over the recipe."""
    if episodes is None:
        return {}
    if algorithm != "dqn":
        raise UsageError(
            f"--episodes {episodes}: {name} is a sequence model, which plays no episodes; it is scored on its whole "
            "validation split. Leave it out."
        )
    return {"eval": {"final_episodes": episodes}}


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


def _shipped(data: Mapping[str, Any], runs: Sequence[Run]) -> Run:
    """The run whose file is shipped."""
    return next(run for run in runs if run.name == data["shipped"]["run"])


def _write(folder: Path, data: Mapping[str, Any], runs: Sequence[Run], pictures: Mapping[str, bytes]) -> None:
    exported = _shipped(data, runs).exported
    tag = metrics_in(data)[0].curve
    draw_curves(
        folder / "curve.png",
        [Lines(f"mean of {len(runs)} runs" if len(runs) > 1 else "1 run", [curve_of(run, tag) for run in runs])],
        title=f"{data['name']}: evaluations on {data.get('env_id', 'the validation split')}",
        axis=axis_of(tag, data.get("task", data["algorithm"])),
        interval=True,
        steps=ALGORITHMS[data["algorithm"]].steps,
    )
    for picture, png in pictures.items():
        write_bytes(folder / f"{picture}.png", png)
    write_bytes(folder / exported.name, exported.read_bytes())
    write_bytes(folder / "card.md", card_text(data).encode())
    write_json(folder / "card.json", data)
