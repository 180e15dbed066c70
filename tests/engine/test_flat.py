"""Parameters as views of one buffer."""

from __future__ import annotations

import copy
from typing import cast

import pytest
import torch
from torch import nn

from rlseq.engine.flat import FlatParameters


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
