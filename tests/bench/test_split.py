"""Each second is counted once, for the innermost call."""

from __future__ import annotations

import pytest

from rlseq.bench.split import Stopwatch


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Work:
    """Calls that take the time they are told."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def inner(self, seconds: float) -> str:
        self.clock.now += seconds
        return "done"

    def outer(self) -> str:
        self.clock.now += 1.0
        result = self.inner(2.0)
        self.clock.now += 4.0
        return result

    def fail(self) -> None:
        self.clock.now += 8.0
        raise ValueError("broken")


def watched() -> tuple[Work, Stopwatch, Clock]:
    clock = Clock()
    work, stopwatch = Work(clock), Stopwatch(("a", "b", "never"), clock)
    stopwatch.wrap(work, "outer", "a")
    stopwatch.wrap(work, "inner", "b")
    return work, stopwatch, clock


def test_an_inner_call_is_not_counted_twice() -> None:
    work, stopwatch, _ = watched()
    assert work.outer() == "done"
    assert stopwatch.seconds == {"a": 5.0, "b": 2.0, "never": 0.0}


def test_time_between_calls_is_nobodys() -> None:
    work, stopwatch, clock = watched()
    work.inner(3.0)
    clock.now += 10.0
    work.inner(3.0)
    assert stopwatch.seconds["b"] == 6.0


def test_an_exception_goes_through_and_is_counted() -> None:
    work, stopwatch, clock = watched()
    stopwatch.wrap(work, "fail", "a")
    with pytest.raises(ValueError, match="broken"):
        work.fail()
    clock.now += 100.0
    work.inner(1.0)
    assert stopwatch.seconds == {"a": 8.0, "b": 1.0, "never": 0.0}


def test_other_objects_of_the_class_are_left_alone() -> None:
    _, stopwatch, clock = watched()
    Work(clock).outer()
    assert stopwatch.seconds["a"] == 0.0


def test_shares_sum_to_one_with_the_rest_as_other() -> None:
    work, stopwatch, _ = watched()
    work.outer()
    result = stopwatch.shares(10.0)
    assert result["seconds"] == {"a": 5.0, "b": 2.0, "never": 0.0, "other": 3.0, "total": 10.0}
    assert result["shares"] == pytest.approx({"a": 0.5, "b": 0.2, "never": 0.0, "other": 0.3})
