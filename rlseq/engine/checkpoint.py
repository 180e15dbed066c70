"""When checkpoints are written and which are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlseq import checkpoints
from rlseq.files import explained
from rlseq.runs import Run

Arrays = Mapping[str, np.ndarray]


class Snapshot(NamedTuple):
    """Everything from which training goes on exactly.

    Attributes:
        model: the weights, under their names in the module; alone enough to act.
        trainer: target network, optimiser, environments.
        replay: the replay memory, kept with the last checkpoint only.
        numbers: counters, random streams, accumulators: JSON data.
        others: what processes beside the first one have of their own, by the names of its files (`of_rank`).
    """

    model: Arrays
    trainer: Arrays
    replay: Arrays
    numbers: Mapping[str, Any]
    others: Mapping[str, Arrays] = {}


NOTHING = Snapshot({}, {}, {}, {})  # of a process that writes none


def of_rank(name: str, rank: int) -> str:
    """The file, without its ending, that holds `trainer` or `replay` of a process."""
    return name if rank == 0 else f"{name}-{rank}"


class Checkpoints:
    """The checkpoints of a run.

    Args:
        run: its folder.
        keep: how many besides step 0 and the best.
    """

    def __init__(self, run: Run, keep: int) -> None:
        self._regular, self._best, self._keep = run.path / "checkpoints", run.path / "best", keep

    def prepare(self, step: int | None) -> None:
        """Remove what a killed process left: half-written files and folders, what it had not yet let go of, and
        everything later than `step`."""
        for path in self._regular.parent.glob(".*.tmp"):
            path.unlink(missing_ok=True)
        for folder in (self._regular, self._best):
            with explained(folder, "create"):
                folder.mkdir(exist_ok=True)
            checkpoints.sweep(folder)
            for path in checkpoints.numbered(folder):
                if step is not None and int(path.name) > step:
                    checkpoints.remove(path)
        self._let_go()

    def save(self, step: int, snapshot: Snapshot) -> Path:
        """Write a checkpoint, then let go of what it makes superfluous."""
        own = {"model": snapshot.model, "trainer": snapshot.trainer, checkpoints.REPLAY: snapshot.replay}
        arrays = {**own, **snapshot.others}
        path = checkpoints.write_checkpoint(self._regular, step, snapshot.numbers, arrays)
        self._let_go()
        return path

    def _let_go(self) -> None:
        """Only the last checkpoint holds the replay; of the older ones a few stay, of the best ones the last."""
        older = checkpoints.numbered(self._regular)[:-1]
        for old in older:
            for file in old.glob(f"{checkpoints.REPLAY}*.safetensors"):
                file.unlink(missing_ok=True)
        for old in [p for p in older if p.name != "0"][: -self._keep + 1 or None]:
            checkpoints.remove(old)
        for old in checkpoints.numbered(self._best)[:-1]:
            checkpoints.remove(old)

    def save_best(self, step: int, model: Arrays, numbers: Mapping[str, Any]) -> Path:
        """Write the best weights so far. The best before stays until the next `save`, to which a resume returns."""
        return checkpoints.write_checkpoint(self._best, step, numbers, {"model": model})
