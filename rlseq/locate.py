"""What PATH means, the same for every command: a run, a shipped agent, or an .onnx file; left out, the newest run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

from rlseq.errors import RlseqError, UsageError, check_name, did_you_mean
from rlseq.recipe import read_recipe
from rlseq.runs import Run, is_run, list_runs, newest_run, runs_folder, words_of
from rlseq.sequence import SEQUENCE_KEY
from rlseq.zoo import Agent, agent_in, agents, is_agent

WHAT = "a run's folder or name, a shipped agent's name, or an .onnx file"


class Located(NamedTuple):
    """What a PATH was found to be.

    Attributes:
        kind: run, agent or onnx.
        name: for people: the run's or agent's name, or the file's path as typed.
        path: a run's folder; for an agent and an .onnx file, the file.
        run: the run, if it is one.
    """

    kind: Literal["run", "agent", "onnx"]
    name: str
    path: Path
    run: Run | None

    def policy_file(self) -> Path:
        """The `.onnx` file.

        Raises:
            RlseqError: a run that was not exported yet.
        """
        if self.run is None:
            return self.path
        if not self.run.exported.exists():
            raise RlseqError(
                f"{self.run.path} has no {self.run.exported.name} yet: its training did not end. Export its best "
                f"checkpoint: rlseq export {self.run.path}"
            )
        return self.run.exported

    def is_sequence(self) -> bool:
        """Whether it is a sequence model, not a policy."""
        if self.run is not None:
            return self.run.algorithm == "seq"
        from rlseq.player.onnx_file import read_onnx_file

        return SEQUENCE_KEY in read_onnx_file(self.path).metadata


def locate(path: str | Path | None) -> Located:
    """Find what the user means.

    An existing path wins over a name, a run's name over an agent's; upper and lower case matter.

    Args:
        path: as typed; None for the newest run.

    Raises:
        UsageError: there is nothing of this name (the nearest are given), or what is there is none of the three.
        RlseqError: a shipped agent lacks its policy.
    """
    if path is None:
        return _run(newest_run())
    text = str(path)
    if not text.strip():
        raise UsageError(f"PATH is empty: give {WHAT}, or leave it out for the newest run.")
    check_name(text, "PATH")
    place = Path(path)
    found = _at(place, text) or _named(text)
    if found is not None:
        return found
    raise UsageError(_other(place) if place.exists() else _nothing(text))


def _at(place: Path, text: str) -> Located | None:
    """What stands at an existing path."""
    if is_run(place):
        return _run(Run(place))
    if is_agent(place):
        return _agent(agent_in(place.resolve()))
    if place.suffix.lower() == ".onnx" and place.is_file():
        return Located("onnx", text, place, None)
    return None


def _named(text: str) -> Located | None:
    """A run or an agent by its name."""
    if is_run(runs_folder() / text):
        return _run(Run(runs_folder() / text))
    agent = agents().get(text)
    return None if agent is None else _agent(agent)


def _run(run: Run) -> Located:
    return Located("run", run.name, run.path, run)


def _agent(agent: Agent) -> Located:
    if not agent.policy.is_file():
        algorithm = read_recipe(agent.recipe, agent.name).algorithm
        raise RlseqError(
            f"the agent {agent.name} has no {words_of(algorithm).exported} in {agent.folder}, only its recipe. Train "
            f"it: rlseq train {algorithm} --recipe {agent.recipe}"
        )
    return Located("agent", agent.name, agent.policy, None)


def _other(place: Path) -> str:
    """Why something that exists is not what PATH may be."""
    if place.name.isdecimal() and place.parent.name in ("checkpoints", "best") and is_run(place.parent.parent):
        return f"{place} is one checkpoint of a run; give the run: {place.parent.parent} --checkpoint {place.name}"
    if place.is_dir() and is_run(place.parent):
        return f"{place} is a folder inside a run; give the run: {place.parent}"
    what = "holds no run (there is no config.json in it)" if place.is_dir() else "is no .onnx file by its name"
    return f"{place} {what}. PATH may be {WHAT}; left out, it is the newest run."


def _nothing(text: str) -> str:
    """Why something that does not exist was not found."""
    if os.path.islink(text):
        return f"{text} is a link to {os.readlink(text)}, where there is nothing. Mend the link; PATH may be {WHAT}."
    if Path(text).suffix.lower() == ".onnx":
        folder = Path(text).parent
        files = [file.name for file in folder.glob("*.onnx")] if folder.is_dir() else []
        hint = did_you_mean(Path(text).name, files)
        return f"there is no file {text}.{hint} PATH may be {WHAT}."
    known = [*(run.name for run in list_runs()), *agents()]
    hint = did_you_mean(Path(text).name, known)
    return (
        f"there is no run, agent or file {text!r} (runs are looked for in {runs_folder()}).{hint} `rlseq list` shows "
        f"what there is; PATH may be {WHAT}."
    )
