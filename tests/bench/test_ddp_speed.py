"""What many processes cost and gain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlseq.bench import ddp_speed
from rlseq.bench.ddp_speed import CORES_SHAPE, FREE, PINNED, TORCHRUN_SHAPES, measure_cores, measure_torchrun
from rlseq.bench.seq_training import Shape
from rlseq.errors import UsageError

SECONDS = {"rlseq": 3.0, FREE: 2.0, PINNED: 6.0}


def ignore(line: str) -> None:
    """Progress that nobody reads."""


class FakeWorkers:
    """Processes whose trainings take the `SECONDS` of their side."""

    started: list[tuple[str, int | None, Sequence[int] | None]]
    asked: list[tuple[str, list[int], dict[str, Any], int]]

    def __init__(self, name: str, size: int | None, cores: Sequence[int] | None = None) -> None:
        self.name = name
        self.started.append((name, size, cores))

    def __enter__(self) -> FakeWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert (request["do"], request["data"]) == ("time_seq", "a.txt")
        shape = Shape(*request["shape"])
        self.asked.append((self.name, list(shape), request["values"], request["seed"]))
        return {
            "seconds": SECONDS[self.name],
            "tokens": shape.updates * shape.batch_size * shape.context,
            "updates": shape.updates,
        }


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorkers]:
    monkeypatch.setattr(ddp_speed, "Workers", FakeWorkers)
    for name in ("started", "asked"):
        monkeypatch.setattr(FakeWorkers, name, [], raising=False)
    return FakeWorkers


def test_one_process_under_torchrun(workers: type[FakeWorkers], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp_speed, "PAIRS", 2)
    result = measure_torchrun(ignore, 2, Path("a.txt"))
    assert workers.started == [("rlseq", 1, None), (FREE, None, None)]
    assert list(result) == ["torchrun-128", "torchrun-384"]
    assert [TORCHRUN_SHAPES[name].width for name in result] == [128, 384]
    for name, row in result.items():
        shape = TORCHRUN_SHAPES[name]
        assert row["ratio"] == pytest.approx(2 / 3) and row["overhead"] == pytest.approx(0.5)
        assert len(row["ratios"]) == len(row["ours"]["seconds"]) == 4
        assert row["ours"]["steps"] == [shape.updates * shape.batch_size * shape.context] * 4
        assert (row["unit"], row["peer"]["name"]) == ("tokens", FREE)
        assert f"{shape.width} wide" in row["what"] and "4 pairs in turn" in row["what"]
    turns = [(name, seed) for name, shape, _, seed in workers.asked if shape == list(TORCHRUN_SHAPES["torchrun-384"])]
    assert turns[:4] == [("rlseq", 0), (FREE, 0), ("rlseq", 1), (FREE, 1)]
    assert all(values == {} for *_, values, _ in workers.asked)


def test_two_cores_against_one(workers: type[FakeWorkers], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp_speed, "allowed_cores", lambda: [3, 5, 7])
    (row,) = measure_cores(ignore, 2, Path("a.txt")).values()
    assert workers.started == [("rlseq", 2, [3, 5]), (PINNED, None, [3])]
    assert (row["ratio"], row["ratios"]) == (2.0, [2.0, 2.0])
    assert CORES_SHAPE.width == 384 and "384 wide" in row["what"]
    assert all(values == {"engine": {"threads": 1}} for *_, values, _ in workers.asked)
    warm, timed = workers.asked[:2], workers.asked[2:]
    assert [shape[-1] for _, shape, *_ in warm] == [ddp_speed.WARM_UP_UPDATES] * 2
    assert [(name, seed) for name, *_, seed in timed] == [("rlseq", 0), (PINNED, 0), ("rlseq", 1), (PINNED, 1)]


def test_a_single_core_is_refused(workers: type[FakeWorkers], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp_speed, "allowed_cores", lambda: [3])
    with pytest.raises(UsageError, match="compares two cores with one, and this process may use a single one"):
        measure_cores(ignore, 1, Path("a.txt"))
    assert workers.started == []
