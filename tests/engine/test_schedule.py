"""Courses of the learning rate, as properties; numbers at chosen updates stand in test_update.py."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from rlseq.config import Layer, resolve
from rlseq.engine.config import OptimOptions
from rlseq.engine.schedule import COURSES, Plateau, lr_factor
from rlseq.engine.update import Part
from rlseq.errors import UsageError
from tests.engine.test_update import batches, network, options, step_of

FALLING = sorted(COURSES.keys() - {"one_cycle"})


def course(total: int, length: int, **values: Any) -> list[float]:
    chosen = resolve(OptimOptions, Layer("test", values))
    return [lr_factor(chosen, update, total) for update in range(length)]


@pytest.mark.parametrize("schedule", FALLING)
@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_it_rises_in_the_warm_up_to_one_and_never_rises_again(schedule: str, warmup: int) -> None:
    factors = course(40, 60, schedule=schedule, warmup_updates=warmup, step_updates=10, final_factor=0.2)
    rise, fall = factors[: warmup + 1], factors[warmup:]
    assert all(a < b for a, b in itertools.pairwise(rise))
    assert rise == pytest.approx([(k + 1) / (warmup + 1) for k in range(warmup + 1)])
    assert fall[0] == 1.0
    assert all(a >= b > 0 for a, b in itertools.pairwise(fall))
    assert len(set(fall)) > 1 or schedule in ("constant", "plateau")


@pytest.mark.parametrize("schedule", ["linear", "cosine", "exponential", "wsd"])
@pytest.mark.parametrize("warmup", [0, 7])
def test_the_end_is_the_final_factor_and_it_stays(schedule: str, warmup: int) -> None:
    factors = course(40, 90, schedule=schedule, warmup_updates=warmup, final_factor=0.2)
    assert factors[40:] == pytest.approx([0.2] * 50)
    assert factors[39] > 0.2


@pytest.mark.parametrize("schedule", FALLING)
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


def test_one_cycle_by_hand() -> None:
    """Half a wave up from 0.1 in 30 of 100 updates, half a wave down to 0.2."""
    factors = course(100, 130, schedule="one_cycle", start_factor=0.1, rise_fraction=0.3, final_factor=0.2)
    half = 0.1 + 0.9 * 0.5 * (1 - 0.5)  # a third of the way: cos(pi / 3) = 1/2
    at = {0: 0.1, 10: half, 15: 0.55, 20: 0.1 + 0.9 * 0.75, 30: 1.0, 65: 0.6, 100: 0.2, 129: 0.2}
    assert {update: factors[update] for update in at} == pytest.approx(at)
    assert all(a < b for a, b in itertools.pairwise(factors[:31]))
    assert all(a > b for a, b in itertools.pairwise(factors[30:101]))
    assert course(0, 3, schedule="one_cycle") == pytest.approx([0.04, 0.01, 0.01])


def test_one_cycle_has_a_rise_of_its_own() -> None:
    with pytest.raises(UsageError, match=r"optim.warmup_updates = 5 .*one_cycle exclude each other.*rise_fraction"):
        course(10, 1, schedule="one_cycle", warmup_updates=5)


def test_warm_up_stable_decay_by_hand() -> None:
    """10 updates up, 60 at the peak, the last 40 of the other 100 straight down to a tenth."""
    factors = course(110, 130, schedule="wsd", warmup_updates=10, decay_fraction=0.4, final_factor=0.1)
    at = {0: 1 / 11, 9: 10 / 11, 10: 1.0, 70: 1.0, 71: 0.9775, 80: 0.775, 90: 0.55, 109: 0.1225, 110: 0.1, 129: 0.1}
    assert {update: factors[update] for update in at} == pytest.approx(at)
    assert course(4, 5, schedule="wsd", decay_fraction=1.0, final_factor=0.5) == [1.0, 0.875, 0.75, 0.625, 0.5]


PLATEAU = {"schedule": "plateau", "plateau_patience": 2, "step_factor": 0.5, "final_factor": 0.2}


def test_a_plateau_lowers_the_rate_by_hand() -> None:
    plateau = Plateau(options(**PLATEAU))
    seen = [
        (3.0, 1.0),
        (2.0, 1.0),
        (2.0, 1.0),  # the same is no improvement
        (1.5, 1.0),  # in time
        (1.6, 1.0),
        (float("nan"), 0.5),  # two in a row
        (1.7, 0.5),
        (1.5, 0.25),
        (9.0, 0.25),
        (float("-inf"), 0.2),  # never below final_factor
        (1.0, 0.2),
    ]
    for value, factor in seen:
        plateau.see(value, lower_is_better=True)
        assert plateau.factor == factor, value


def test_a_plateau_of_a_metric_that_should_be_high() -> None:
    plateau = Plateau(options(**PLATEAU))
    for value, factor in [(1.0, 1.0), (2.0, 1.0), (1.9, 1.0), (1.8, 0.5), (2.1, 0.5), (0.0, 0.5), (0.0, 0.25)]:
        plateau.see(value, lower_is_better=False)
        assert plateau.factor == factor, value


def test_the_update_step_uses_the_plateaus_rate_and_resumes_it() -> None:
    """The warm-up counts too; what was seen, waited for and lowered survives, whichever evaluation it stopped after."""
    chosen = options(name="sgd", lr=0.1, warmup_updates=1, **PLATEAU)
    values = [3.0, 4.0, 5.0, 2.0, 2.5, 2.6, 2.7, 2.8]
    expected = [0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.02]
    batch = batches(1)[0]
    for stop in range(len(values)):
        update, step = step_of(network(), chosen)
        assert step(Part(batch, 1.0)).lr == 0.05
        for value in values[:stop]:
            update.see_metric(value, lower_is_better=True)
        other, step = step_of(network(), chosen)
        arrays, numbers = update.state()
        other.load(arrays, json.loads(json.dumps(numbers)))
        for value, lr in zip(values[stop:], expected[stop:], strict=True):
            other.see_metric(value, lower_is_better=True)
            assert step(Part(batch, 1.0)).lr == pytest.approx(lr)


def test_other_schedules_have_no_use_for_an_evaluation() -> None:
    update, step = step_of(network(), options(lr=0.1, schedule="linear"))
    before = update.state()[1]
    for _ in range(10):
        update.see_metric(1.0, lower_is_better=True)
    assert update.state()[1] == before
    assert step(Part(batches(1)[0], 1.0)).lr == 0.1


def test_a_plateaus_state_is_missed_if_it_is_not_there() -> None:
    update, _ = step_of(network(), options(**PLATEAU))
    numbers = update.state()[1]
    del numbers["plateau"]
    with pytest.raises(KeyError, match="plateau"):
        update.load({}, numbers)
