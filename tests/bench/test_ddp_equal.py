"""Two processes against one, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rlseq.bench import ddp_equal
from rlseq.bench.ddp_equal import CASES, check_side, measure_equality, relative
from rlseq.errors import RlseqError

WHOLE = np.array([3.0, 4.0])


def ignore(line: str) -> None:
    """Progress that nobody reads."""


class FakeWorkers:
    """Processes that know the result: a gradient of the norm that was asked for, and weights; those of two are off."""

    off: ClassVar[dict[str, float]] = {"gradient": 0.0, "weights": 0.0}
    asked: list[dict[str, Any]]

    def __init__(self, name: str, size: int | None) -> None:
        self.name, self.size = name, size or 1

    def __enter__(self) -> FakeWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append({**request, "size": self.size})
        clip = request["values"]["optim"]["clip_norm"] / 5.0
        off = {name: (1.0 + error * (self.size - 1)) for name, error in self.off.items()}
        np.savez(request["path"], gradient=WHOLE * clip * off["gradient"], weights=WHOLE * off["weights"])
        return {"processes": self.size, "same": True, "dtype": "torch.float64"}


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorkers]:
    monkeypatch.setattr(ddp_equal, "Workers", FakeWorkers)
    monkeypatch.setattr(FakeWorkers, "asked", [], raising=False)
    return FakeWorkers


def test_errors_are_those_of_the_worst_case(workers: type[FakeWorkers], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "off", {"gradient": 1e-12, "weights": 1e-9})
    told: list[str] = []
    result = measure_equality(told.append, 3, Path("a.txt"))
    assert list(result) == ["equal-seq", "equal-dqn"]
    for row in result.values():
        assert row["errors"]["gradient"] == pytest.approx(1e-12, rel=1e-3)
        assert row["errors"]["weights"] == row["ours"]["error"] == pytest.approx(1e-9, rel=1e-6)
        assert row["ratio"] == pytest.approx(1000.0, rel=1e-6)
        assert (row["unit"], row["peer"]) == ("error", {"name": "at most", "error": 1e-6})
        assert "gradient 1.0e-12 off, weights after 100 updates 1.0e-09 off (float64)" in row["what"]
    assert told[0] == "gpt: gradient 1.0e-12 off, weights 1.0e-09 off"
    lengths = [one["shape"][-1] if "shape" in one else one["updates"] for one in workers.asked]
    assert lengths == [1, 1, 100, 100] * len(CASES)
    assert [one["size"] for one in workers.asked] == [1, 2] * 2 * len(CASES)


def test_no_error_is_still_a_number(workers: type[FakeWorkers]) -> None:
    assert measure_equality(ignore, 1, Path("a.txt"))["equal-dqn"]["ratio"] == 1e-6 * 2**53


@pytest.mark.parametrize("name", ["gradient", "weights"])
def test_what_is_too_far_off_is_no_result(
    name: str, workers: type[FakeWorkers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "off", {"gradient": 0.0, "weights": 0.0, name: 2e-6})
    with pytest.raises(RlseqError, match=rf"gpt: 2 processes are .*'{name}': 2\.0\d*e-06.* off one after 1 updates"):
        measure_equality(ignore, 1, Path("a.txt"))


@pytest.mark.parametrize(
    ("change", "norm", "message"),
    [
        ({"dtype": "torch.float32"}, 0.25, "x: not 2 processes in float64"),
        ({"processes": 1}, 0.25, "x: not 2 processes in float64"),
        ({"same": False}, 0.25, "x: the processes have different weights"),
        ({}, 0.2, r"x: the gradient's norm is 0\.2, so nothing was clipped to 0\.25"),
    ],
)
def test_a_side_must_be_what_it_stands_for(change: dict[str, Any], norm: float, message: str) -> None:
    answer = {"processes": 2, "same": True, "dtype": "torch.float64"}
    check_side("x", answer, 2, 0.25, 0.25)
    with pytest.raises(RlseqError, match=message):
        check_side("x", {**answer, **change}, 2, norm, 0.25)


def test_relative_errors() -> None:
    assert relative(np.array([3.0, 4.5]), WHOLE) == pytest.approx(0.1)
    assert relative(WHOLE, WHOLE) == 0.0
