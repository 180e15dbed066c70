"""The average of the weights: by hand, in and out of the network, over a resume, and not after a skipped update."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch

from rlseq.engine.ema import WeightAverage
from rlseq.engine.update import Part
from tests.engine.test_update import PLAIN, SCALED, batches, network, options, step_of


def averaging(**values: Any) -> tuple[Any, Any]:
    return step_of(network(), options(**{"name": "adam", "lr": 0.05, "ema": 0.8, **values}))


def test_by_hand() -> None:
    """Weights 8, 4, 2 at decay 1/2: 8, then (8/2 + 4) / (3/2), then (8/4 + 4/2 + 2) / (7/4)."""
    weights = torch.tensor([100.0])  # what a training begins with does not count
    average = WeightAverage(weights, 0.5)
    for update, (value, expected) in enumerate([(8.0, 8.0), (4.0, 16 / 3), (2.0, 24 / 7)], start=1):
        weights.fill_(value)
        average.update(average.share(update))
        assert average.value.item() == pytest.approx(expected)


def test_it_is_the_weighted_mean_of_the_weights_after_each_update() -> None:
    update, step = averaging(ema=0.9)
    history = []
    for batch in batches(12):
        step(Part(batch, 1.0))
        history.append(update.flat.data.double().numpy().copy())
    shares = 0.9 ** np.arange(11, -1, -1)
    with update.averaged():
        found = update.flat.data.double().numpy().copy()
    np.testing.assert_allclose(found, np.average(history, axis=0, weights=shares), rtol=1e-5, atol=1e-6)
    assert np.abs(found - history[-1]).max() > 0.01


def test_the_module_computes_with_the_average_within_and_with_its_own_weights_after_a_failure_too() -> None:
    net, other, x = network(), network(), torch.ones(2, 3)
    update, step = step_of(net, options(name="adam", lr=0.05, ema=0.8))
    for batch in batches(5):
        step(Part(batch, 1.0))
    raw, before = update.flat.data.clone(), net(x)
    with pytest.raises(RuntimeError, match="stop"), update.averaged():
        other.load_state_dict(net.state_dict())
        assert torch.equal(net(x), other(x))
        raise RuntimeError("stop")
    assert torch.equal(update.flat.data, raw)
    assert torch.equal(net(x), before)
    assert not torch.equal(net(x), other(x))


def test_averaging_changes_nothing_about_the_training() -> None:
    a, step_a = averaging()
    b, step_b = averaging(ema=None)
    for batch in batches(6):
        step_a(Part(batch, 1.0)), step_b(Part(batch, 1.0))
        with a.averaged(), b.averaged():
            pass
    assert torch.equal(a.flat.data, b.flat.data)
    assert "raw" not in b.state()[0]


def test_before_the_first_update_the_average_is_what_was_loaded() -> None:
    update, _ = averaging()
    update.flat.data.fill_(3.0)
    with update.averaged():
        assert update.flat.data.unique().tolist() == [3.0]


@pytest.mark.parametrize("done", [0, 1, 6])
@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop"])
def test_a_resume_goes_on_bit_for_bit(done: int, name: str) -> None:
    """A checkpoint's model is the average; the raw weights are among the optimiser's arrays."""
    a, step_a = averaging(name=name)
    for batch in batches(done):
        step_a(Part(batch, 1.0))
    with a.averaged():
        model = a.flat.data.clone()
    arrays, numbers = a.state()
    arrays = {key: array.copy() for key, array in arrays.items()}
    for batch in batches(4, size=7):
        step_a(Part(batch, 1.0))  # must not write into what was saved
    b, step_b = averaging(name=name)
    b.flat.data.copy_(model)
    b.load(arrays, json.loads(json.dumps(numbers)))
    for batch in batches(4, size=7):
        step_b(Part(batch, 1.0))
    assert torch.equal(a.flat.data, b.flat.data)
    with a.averaged(), b.averaged():
        assert torch.equal(a.flat.data, b.flat.data)


def test_a_skipped_fp16_update_is_not_averaged() -> None:
    """T4."""
    update, step = step_of(network(), options(name="adam", lr=0.05, ema=0.8, schedule="linear"), SCALED)
    good = batches(1)[0]
    for _ in range(3):
        step(Part(good, 1.0))
    with update.averaged():
        before = update.flat.data.clone()
    lr = update.lr
    assert step(Part((good[0] * torch.inf, good[1]), 1.0)).skipped
    with update.averaged():
        assert torch.equal(update.flat.data, before)
    assert (update.updates, update.skipped, update.lr) == (3, 1, lr)
    step(Part(good, 1.0))
    with update.averaged():
        assert not torch.equal(update.flat.data, before)


@pytest.mark.parametrize("change", ["missing", "short", "unexpected"])
def test_raw_weights_that_do_not_fit_are_refused(change: str) -> None:
    a, step = averaging()
    step(Part(batches(1)[0], 1.0))
    arrays, numbers = copy.deepcopy(a.state())
    if change == "missing":
        del arrays["raw"]
    elif change == "short":
        arrays["raw"] = arrays["raw"][1:]
    b, _ = step_of(network(), options(name="adam", ema=None if change == "unexpected" else 0.8), PLAIN)
    before = b.flat.data.clone()
    with pytest.raises(ValueError, match=r"optimizer\.raw"):
        b.load(arrays, numbers)
    assert torch.equal(b.flat.data, before)
