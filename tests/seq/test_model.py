"""A sequence model by itself: what several processes measure is what one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlseq.config import Layer, resolve
from rlseq.engine.distributed import World
from rlseq.ranks import Place
from rlseq.seq.config import SeqTraining
from rlseq.seq.evaluation import measure
from rlseq.seq.model import build_network
from rlseq.seq.tasks.table import TASKS
from tests.training import SMALL_SEQ, merged, write_text


class Part(World):
    """One of several processes, which gives its own numbers as those of all."""

    def gather(self, value: Any) -> list[Any]:
        return [value]


@pytest.mark.parametrize("size", [2, 3, 16])
def test_every_token_is_measured_once_whatever_the_number_of_processes(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the last batch's few windows some processes get none."""
    monkeypatch.setattr("rlseq.seq.answers.EVALUATION_PLACES", 60)  # batches of five windows, the last one of fewer
    changes: dict[str, Any] = {"seq": {"data": str(write_text(tmp_path / "text.txt"))}}
    options = resolve(SeqTraining, Layer("test", merged(SMALL_SEQ, changes)))
    task = TASKS[options.seq.task].make(options.seq, "tokens")
    net = build_network(options, task)
    assert [len(batch.inputs) for batch in task.validation(5)] == [5, 5, 5]
    whole = measure(net, task)
    assert whole is not None and whole.sums.shape == (2,)
    told: list[int] = []
    measure(net, task, told=told.append)
    assert len(told) == 3 and told == sorted(set(told)) and told[-1] == whole.sums[0]
    parts = [measure(net, task, world=Part(Place(k, size, k, size))) for k in range(size)]
    sums = sum(part.sums for part in parts if part is not None)
    assert sums[0] == whole.sums[0] > 100 and sums[1] == pytest.approx(whole.sums[1], rel=1e-6)


def test_one_process_that_is_told_to_stop_stops_all(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"seq": {"data": str(write_text(tmp_path / "text.txt"))}}
    options = resolve(SeqTraining, Layer("test", merged(SMALL_SEQ, changes)))
    task = TASKS[options.seq.task].make(options.seq, "tokens")
    net = build_network(options, task)

    class Told(World):
        def gather(self, value: Any) -> list[Any]:
            return [value, [True, []]]  # the other one was told

    assert measure(net, task, should_stop=lambda: False, world=Told(Place(0, 2, 0, 2))) is None
    assert measure(net, task, should_stop=lambda: True) is None
