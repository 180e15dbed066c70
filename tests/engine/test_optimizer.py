"""Optimisers: every option reaches torch, flat equals ordinary bit for bit, state travels as arrays. Muon's are in
test_muon.py."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rlseq.engine.config import OptimOptions
from rlseq.engine.update import Part
from tests.engine.test_update import batches, network, new_gradients, options, step_of

Groups = list[dict[str, Any]]
TORCH: dict[str, Callable[[Groups, OptimOptions], torch.optim.Optimizer]] = {
    "adam": lambda g, o: torch.optim.Adam(g, lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps, fused=True),
    "adamw": lambda g, o: torch.optim.AdamW(g, lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps, fused=True),
    "sgd": lambda g, o: torch.optim.SGD(g, lr=o.lr, momentum=o.beta1, fused=True),
    "rmsprop": lambda g, o: torch.optim.RMSprop(g, lr=o.lr, alpha=o.beta2, eps=o.eps, momentum=o.beta1),
}


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", TORCH)
def test_flat_equals_torch_on_ordinary_parameters_bit_for_bit(name: str, decay: float) -> None:
    flat, plain = network(), network()
    chosen = options(name=name, lr=0.01, beta1=0.8, beta2=0.95, eps=1e-5, weight_decay=decay, schedule="linear")
    _, step = step_of(flat, chosen)
    groups: Groups = [
        {"params": [p for p in plain.parameters() if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in plain.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    reference = TORCH[name](groups, chosen)
    for batch in batches(15):
        info = step(Part(batch, 1.0))
        for group in reference.param_groups:
            group["lr"] = info.lr
        new_gradients(plain, reference, batch)
        reference.step()
    for a, b in zip(flat.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("adam", {"lr": 0.3, "betas": (0.7, 0.8), "eps": 1e-3}),
        ("adamw", {"lr": 0.3, "betas": (0.7, 0.8), "eps": 1e-3}),
        ("sgd", {"lr": 0.3, "momentum": 0.7, "nesterov": False, "dampening": 0}),
        ("rmsprop", {"lr": 0.3, "alpha": 0.8, "eps": 1e-3, "momentum": 0.7, "centered": False}),
    ],
)
def test_every_option_reaches_the_optimiser(name: str, settings: dict[str, Any]) -> None:
    update, _ = step_of(network(), options(name=name, lr=0.3, beta1=0.7, beta2=0.8, eps=1e-3, weight_decay=0.2))
    matrices, rest = update.optimizer.param_groups
    for group in (matrices, rest):
        assert {key: group[key] for key in settings} == settings
    assert (matrices["weight_decay"], rest["weight_decay"]) == (0.2, 0.0)


def test_adam_by_hand() -> None:
    """Two steps of Kingma & Ba 2015 in numpy, float64."""
    net = network()
    update, step = step_of(net, options(name="adam", lr=0.1, beta1=0.9, beta2=0.99, eps=1e-6))
    w = update.flat.data.double().numpy().copy()
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, batch in enumerate(batches(2), start=1):
        step(Part(batch, 1.0))
        g = update.flat.grad.double().numpy()
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        w -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)
        np.testing.assert_allclose(update.flat.data.numpy(), w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("adam", {"exp_avg", "exp_avg_sq", "step"}),
        ("adamw", {"exp_avg", "exp_avg_sq", "step"}),
        ("sgd", {"momentum_buffer"}),
        ("rmsprop", {"square_avg", "momentum_buffer", "step"}),
    ],
)
def test_state_is_arrays_by_name_and_loading_copies_them(name: str, entries: set[str]) -> None:
    a, step_a = step_of(network(), options(name=name, weight_decay=0.1))
    assert a.optimizer.arrays() == {}
    for batch in batches(3):
        step_a(Part(batch, 1.0))
    arrays = a.optimizer.arrays()
    assert set(arrays) == {f"{group}.{entry}" for group in (0, 1) for entry in entries}
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    kept = {key: array.copy() for key, array in arrays.items()}
    b, step_b = step_of(network(), options(name=name, weight_decay=0.1, lr=0.5))
    b.optimizer.load(kept)
    step_b(Part(batches(1)[0], 1.0))  # must not write into what it was loaded from
    for key, array in arrays.items():
        np.testing.assert_array_equal(kept[key], array, strict=True)
    assert b.optimizer.param_groups[0]["lr"] == 0.5  # of the options, not of a file


def test_a_state_that_was_never_stepped_loads_too() -> None:
    a, step_a = step_of(network(), options(name="adam"))
    b, step_b = step_of(network(), options(name="adam"))
    step_b(Part(batches(1)[0], 1.0))
    b.flat.data.copy_(a.flat.data)
    arrays, numbers = a.state()
    b.load(dict(arrays), copy.deepcopy(numbers))
    for batch in batches(3):
        assert torch.equal(step_a(Part(batch, 1.0)).loss, step_b(Part(batch, 1.0)).loss)
    assert torch.equal(a.flat.data, b.flat.data)


@pytest.mark.parametrize("change", [{"0.exp_avg": np.zeros(3, np.float32)}, {"1.exp_avg": np.zeros(3, np.float32)}])
def test_moments_of_another_network_are_refused(change: dict[str, np.ndarray]) -> None:
    """Before anything is changed."""
    a, step = step_of(network(), options(name="adam"))
    step(Part(batches(1)[0], 1.0))
    before = {name: array.copy() for name, array in a.optimizer.arrays().items()}
    with pytest.raises(ValueError, match="exp_avg"):
        a.optimizer.load({**before, **change})
    for name, array in a.optimizer.arrays().items():
        np.testing.assert_array_equal(array, before[name])
