"""The closed form against autograd, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from rlseq.engine.device import cpu_settings
from rlseq.engine.flat import FlatParameters
from rlseq.nets.config import NetOptions
from rlseq.nets.mlp_kernel import MlpKernel, fits
from rlseq.nets.network import NetInput, QNetwork, seeded
from rlseq.nets.values import value_function
from rlseq.spec import Leaf


def network(
    hidden: tuple[int, ...] = (16, 8), activation: str = "relu", features: int = 4, actions: int = 2
) -> QNetwork:
    leaf = Leaf(name="obs", shape=(features,))
    options = NetOptions(hidden=hidden, activation=activation)  # type: ignore[arg-type]
    return seeded(0, lambda: QNetwork((leaf,), actions, options))  # type: ignore[return-value]


SHAPES = [
    ((256, 256), 4, 2, 64, "relu"),
    ((64,), 6, 3, 33, "tanh"),
    ((), 4, 2, 64, "relu"),
    ((7, 5, 3), 9, 4, 128, "tanh"),  # odd widths: the gradients of later layers lie unaligned in the flat buffer
    ((128, 128), 6, 3, 1, "tanh"),
]


@pytest.mark.parametrize("threads", [1, 2])  # MKL chooses other code paths
@pytest.mark.parametrize(("hidden", "features", "actions", "rows", "activation"), SHAPES)
def test_values_and_gradients_are_autograds(
    hidden: tuple[int, ...], features: int, actions: int, rows: int, activation: str, threads: int
) -> None:
    with cpu_settings(threads):
        compare(hidden, features, actions, rows, activation)


def compare(hidden: tuple[int, ...], features: int, actions: int, rows: int, activation: str) -> None:
    net = network(hidden, activation, features, actions)
    flat = FlatParameters(net)
    kernel = MlpKernel(net, rows, with_grad=True)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        obs, aim = torch.randn(rows, features, generator=generator), torch.randn(rows, actions, generator=generator)
        flat.grad.zero_()
        q, _ = net(NetInput((obs,)))
        q.retain_grad()
        (q - aim).square().mean().backward()
        expected = flat.grad.clone()
        flat.grad.fill_(torch.nan)  # everything must be written
        assert torch.equal(kernel.forward((obs,)), q.detach())
        kernel.q_grad.copy_(q.grad)
        kernel.backward()
        assert torch.equal(flat.grad, expected)


def test_it_follows_the_weights() -> None:
    net = network()
    FlatParameters(net)
    values = value_function(net, 3)
    obs = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    before = values((obs,)).clone()
    with torch.no_grad():
        net.head.bias.add_(2.0)
    torch.testing.assert_close(values((obs,)), before + 2.0)


ENCODED = [
    Leaf(name="obs", shape=(2, 3), dtype="uint8", scale=1 / 255),
    Leaf(name="obs", shape=(1,), dtype="int64", sizes=(5,), starts=(1,)),
]


@pytest.mark.parametrize("leaf", ENCODED)
def test_observations_that_are_encoded_first(leaf: Leaf) -> None:
    net = seeded(0, lambda: QNetwork((leaf,), 2, NetOptions(hidden=(8,))))
    obs = np.random.default_rng(0).integers(1, 5, (4, *leaf.shape)).astype(leaf.dtype)
    expected = net(NetInput((torch.from_numpy(obs),)))[0].detach()
    assert torch.equal(value_function(net, 4)((obs,)), expected)  # type: ignore[arg-type]


def test_what_it_does_not_fit_is_left_to_autograd() -> None:
    assert fits(network())
    assert fits(network(activation="tanh"))
    assert not fits(network(activation="gelu"))
    assert not fits(network().double())

    class Other(QNetwork):
        pass

    other = Other((Leaf(name="obs", shape=(4,)),), 2, NetOptions(hidden=(8,)))
    assert not fits(other)
    normed = network()
    normed.core.layers.append(nn.LayerNorm(8))
    assert not fits(normed)
    obs = np.zeros((2, 4), np.float32)
    gelu = network(activation="gelu")
    expected = gelu(NetInput((torch.from_numpy(obs),)))[0].detach()
    assert torch.equal(value_function(gelu, 2)((obs,)), expected)
