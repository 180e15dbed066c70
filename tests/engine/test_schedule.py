"""Courses of the learning rate, as properties; numbers at chosen updates stand in test_update.py."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rlseq.config import Layer, resolve
from rlseq.engine.config import OptimOptions
from rlseq.engine.schedule import COURSES, lr_factor
from rlseq.engine.update import Part
from tests.engine.test_update import batches, network, options, step_of


def course(total: int, length: int, **values: Any) -> list[float]:
    chosen = resolve(OptimOptions, Layer("test", values))
    return [lr_factor(chosen, update, total) for update in range(length)]


@pytest.mark.parametrize("schedule", COURSES)
@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_it_rises_in_the_warm_up_to_one_and_never_rises_again(schedule: str, warmup: int) -> None:
    factors = course(40, 60, schedule=schedule, warmup_updates=warmup, step_updates=10, final_factor=0.2)
    rise, fall = factors[: warmup + 1], factors[warmup:]
    assert all(a < b for a, b in itertools.pairwise(rise))
    assert rise == pytest.approx([(k + 1) / (warmup + 1) for k in range(warmup + 1)])
    assert fall[0] == 1.0
    assert all(a >= b > 0 for a, b in itertools.pairwise(fall))
    assert len(set(fall)) > 1 or schedule == "constant"


@pytest.mark.parametrize("schedule", ["linear", "cosine", "exponential"])
@pytest.mark.parametrize("warmup", [0, 7])
def test_the_end_is_the_final_factor_and_it_stays(schedule: str, warmup: int) -> None:
    factors = course(40, 90, schedule=schedule, warmup_updates=warmup, final_factor=0.2)
    assert factors[40:] == pytest.approx([0.2] * 50)
    assert factors[39] > 0.2


@pytest.mark.parametrize("schedule", COURSES)
@pytest.mark.parametrize(("total", "warmup"), [(0, 0), (1, 0), (5, 5), (5, 20)])
def test_a_training_without_room_for_a_course(schedule: str, total: int, warmup: int) -> None:
    assert all(0 < factor <= 1 for factor in course(total, 40, schedule=schedule, warmup_updates=warmup))


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
def test_the_optimiser_uses_the_rate_that_is_reported(name: str) -> None:
    update, step = step_of(network(), options(name=name, lr=0.1, schedule="linear", final_factor=0.5, weight_decay=0.1))
    for k, batch in enumerate(batches(6)):
        info = step(Part(batch, 1.0))
        assert info.lr == pytest.approx(0.1 * (1 - 0.5 * k / 100))
        assert {group["lr"] for group in update.optimizer.param_groups} == {info.lr}
        assert len(update.optimizer.param_groups) == 2
