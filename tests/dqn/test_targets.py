"""The mathematics by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, tensor

from rlseq.dqn.targets import bootstrap_value, td_loss, td_loss_slope, td_target


def close(a: Tensor, b: list[float]) -> None:
    torch.testing.assert_close(a, tensor(b))


def test_plain_dqn_takes_the_targets_maximum() -> None:
    close(bootstrap_value(tensor([[1.0, 5.0, 3.0], [-2.0, -9.0, -4.0]]), None), [5.0, -2.0])


def test_double_dqn_values_the_online_choice_by_the_target() -> None:
    target, online = tensor([[1.0, 5.0, 3.0], [-2.0, -9.0, -4.0]]), tensor([[0.0, 1.0, 2.0], [0.0, 9.0, 1.0]])
    close(bootstrap_value(target, online), [3.0, -9.0])


def test_forbidden_actions_are_never_chosen() -> None:
    target, online = tensor([[1.0, 5.0, 3.0]]), tensor([[0.0, 7.0, 2.0]])
    legal = tensor([[True, False, True]])
    close(bootstrap_value(target, None, legal), [3.0])
    close(bootstrap_value(target, online, legal), [3.0])


def test_a_termination_does_not_bootstrap() -> None:
    close(td_target(tensor([1.0, 1.0]), tensor([0.5, 0.0]), tensor([10.0, 10.0])), [6.0, 1.0])


def test_losses() -> None:
    q, target = tensor([0.0, 0.0, 0.0]), tensor([0.5, -3.0, 1.0])
    close(td_loss(q, target, "huber"), [0.125, 2.5, 0.5])
    close(td_loss(q, target, "mse"), [0.25, 9.0, 1.0])


@pytest.mark.parametrize("wrong", [torch.zeros(4, 1), torch.zeros(1), torch.zeros(())])
def test_shapes_never_broadcast_silently(wrong: Tensor) -> None:
    right = torch.zeros(4)
    with pytest.raises(AssertionError, match="shapes"):
        td_loss(right, wrong, "huber")
    for arguments in ((wrong, right, right), (right, wrong, right), (right, right, wrong)):
        with pytest.raises(AssertionError, match="shapes"):
            td_target(*arguments)


def test_a_batch_of_one() -> None:
    close(bootstrap_value(tensor([[1.0, 2.0]]), tensor([[3.0, 0.0]])), [1.0])
    assert td_loss(tensor([1.0]), tensor([2.0]), "mse").shape == (1,)


@pytest.mark.parametrize("kind", ["huber", "mse"])
def test_the_slope_is_autograds(kind: str) -> None:
    q = torch.tensor([-3.0, -1.0, -0.3, 0.0, 1e-9, 0.7, 1.0, 5.0], requires_grad=True)
    target = torch.full((8,), 0.25)
    (expected,) = torch.autograd.grad(td_loss(q, target, kind).sum(), q)
    assert torch.equal(td_loss_slope(q.detach(), target, kind), expected)
