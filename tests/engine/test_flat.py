"""Parameters as views of one buffer."""

from __future__ import annotations

import copy
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from rlseq.engine.flat import FlatParameters
from rlseq.engine.update import Autograd, Loss, Part, UpdateStep
from rlseq.nets.config import NetOptions
from rlseq.nets.network import NetInput, QNetwork, seeded
from rlseq.spec import Leaf
from tests.engine.test_update import CPU, PLAIN, options


class Mixed(nn.Module):
    """A vector before a matrix, a scalar, a parameter of three axes, a shared one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.vector = nn.Parameter(torch.randn(5, generator=generator))
        self.matrix = nn.Parameter(torch.randn(3, 5, generator=generator))
        self.scalar = nn.Parameter(torch.randn((), generator=generator))
        self.cube = nn.Parameter(torch.randn(2, 3, 5, generator=generator))
        self.again = self.matrix
        self.register_buffer("seen", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = (x * self.vector) @ self.matrix.T * self.scalar
        return (h.unsqueeze(2) * self.cube.sum(0)).sum(2) @ self.again


def test_matrices_come_first_and_every_number_has_one_place() -> None:
    net = Mixed()
    before = copy.deepcopy(net.state_dict())
    flat = FlatParameters(net)
    assert flat.matrices == 15 + 30
    assert flat.data.shape == flat.grad.shape == (15 + 30 + 5 + 1,)
    expected = [before["matrix"], before["cube"], before["vector"], before["scalar"]]
    torch.testing.assert_close(flat.data, torch.cat([part.flatten() for part in expected]), rtol=0, atol=0)
    assert list(net.state_dict()) == list(before)
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())


def test_output_and_gradients_are_those_of_the_ordinary_module() -> None:
    plain, net, x = Mixed(), Mixed(), torch.linspace(-1, 1, 20).reshape(4, 5)
    flat = FlatParameters(net)
    assert torch.equal(net(x), plain(x))
    for _ in range(2):  # gradients accumulate, as torch's do
        net(x).square().sum().backward()
        plain(x).square().sum().backward()
    parts = [plain.matrix, plain.cube, plain.vector, plain.scalar]
    expected = torch.cat([cast(torch.Tensor, p.grad).flatten() for p in parts])
    assert torch.equal(flat.grad, expected)
    assert float(flat.grad.abs().min()) > 0


def test_what_is_written_into_the_buffer_is_what_the_module_uses() -> None:
    net = Mixed()
    flat = FlatParameters(net)
    flat.data.copy_(torch.arange(51.0))
    assert net.matrix[0].tolist() == [0, 1, 2, 3, 4]
    assert (net.vector.tolist(), net.scalar.item()) == ([45, 46, 47, 48, 49], 50.0)
    with torch.no_grad():
        net.vector.zero_()
    assert float(flat.data[45:50].abs().sum()) == 0


def test_only_an_optimiser_with_decay_needs_two_groups() -> None:
    flat = FlatParameters(Mixed())
    (one,) = flat.groups(0.0)
    two = flat.groups(0.1)
    assert [len(cast(list[nn.Parameter], group["params"])[0]) for group in (one, *two)] == [51, 45, 6]
    assert [group["weight_decay"] for group in (one, *two)] == [0.0, 0.1, 0.0]
    for group in (one, *two):
        (parameter,) = cast(list[nn.Parameter], group["params"])
        assert cast(torch.Tensor, parameter.grad).untyped_storage().data_ptr() == flat.grad.untyped_storage().data_ptr()


def test_modules_with_matrices_or_vectors_alone() -> None:
    assert [g["weight_decay"] for g in FlatParameters(nn.Linear(2, 3, bias=False)).groups(0.1)] == [0.1]
    assert [g["weight_decay"] for g in FlatParameters(nn.LayerNorm(4)).groups(0.1)] == [0.0]


def test_master_weights_are_float32() -> None:
    with pytest.raises(AssertionError, match="float32"):
        FlatParameters(nn.Linear(2, 2).half())


def test_hidden_matrices_come_before_all() -> None:
    """Those of two axes below `core.`, in their order; then other matrices; then vectors."""
    net = nn.Module()
    names = ["embedding", "head", "bias"]
    shapes = [(4, 2), (3, 2), (3,)]
    for name, shape in zip(names, shapes, strict=True):
        net.register_parameter(name, nn.Parameter(torch.full(shape, float(len(name)))))
    net.core = nn.Module()
    for name, shape in {"first": (2, 5), "gain": (2,), "cube": (2, 2, 2), "second": (5, 2)}.items():
        net.core.register_parameter(name, nn.Parameter(torch.full(shape, 10.0 + len(name))))
    flat = FlatParameters(net)
    assert (flat.hidden, flat.hidden_shapes, flat.matrices) == (20, [(2, 5), (5, 2)], 20 + 8 + 6 + 8)
    order = [15.0] * 10 + [16.0] * 10 + [9.0] * 8 + [4.0] * 6 + [14.0] * 8 + [4.0] * 3 + [14.0] * 2
    assert flat.data.tolist() == order
    rest, vectors = (cast(list[nn.Parameter], g["params"])[0].tolist() for g in flat.groups(0.1, start=flat.hidden))
    assert rest == order[20:42]
    assert vectors == order[42:]
    (one,) = flat.groups(0.0, start=flat.hidden)
    assert cast(list[nn.Parameter], one["params"])[0].tolist() == order[20:]


def q_network() -> QNetwork:
    build = seeded(0, lambda: QNetwork((Leaf(name="obs", shape=(3,)),), 2, NetOptions(hidden=(16, 24, 16))))
    return cast(QNetwork, build)


def old_layout(net: nn.Module, values: dict[nn.Parameter, torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """Matrices and vectors as checkpoints held them before hidden matrices were told apart: in the order of names."""
    parameters = list(net.parameters())
    matrices = [values[p].flatten() for p in parameters if p.ndim >= 2]
    return torch.cat(matrices).numpy(), torch.cat([values[p].flatten() for p in parameters if p.ndim < 2]).numpy()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_an_old_checkpoints_moments_fit_a_plain_q_network_and_go_on_exactly(decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator)) for _ in range(8)]

    def loss(net: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return (net(NetInput((batch[0],)))[0] - batch[1]).square().mean()

    plain = q_network()
    groups: list[dict[str, Any]] = [
        {"params": [p for p in plain.parameters() if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in plain.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    adam = torch.optim.Adam(groups, lr=0.01, fused=True)

    def learn(batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for batch in batches:
            adam.zero_grad()
            loss(plain, batch).backward()
            adam.step()

    learn(data[:4])
    arrays: dict[str, np.ndarray] = {}
    for name in ("exp_avg", "exp_avg_sq"):
        parts = old_layout(plain, {p: state[name] for p, state in cast(dict[nn.Parameter, Any], adam.state).items()})
        parts = parts if decay else (np.concatenate(parts),)  # type: ignore[assignment]
        arrays |= {f"{index}.{name}": part for index, part in enumerate(parts)}
        arrays |= {f"{index}.step": np.array(4, np.float32) for index in range(len(parts))}
    net = q_network()
    net.load_state_dict(plain.state_dict())
    update = UpdateStep(net, options(name="adam", lr=0.01, weight_decay=decay), total_updates=9, precision=PLAIN)
    update.load(arrays, {"updates": 4, "skipped": 0, "scaler": {}})
    learn(data[4:])
    gradients = Autograd(lambda batch: Loss(loss(net, batch), {}), PLAIN, CPU)
    for batch in data[4:]:
        update([Part(batch, 1.0)], gradients)
    for (name, p), q in zip(net.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(p, q), name
