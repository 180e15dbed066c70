"""The problem that an update of DQN solves, and its gradient in closed form where the network is a plain MLP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlseq.dqn.targets import td_loss, td_loss_slope
from rlseq.engine.flat import FlatParameters
from rlseq.engine.update import Loss, Part
from rlseq.nets.mlp_kernel import MlpKernel


class TdBatch(NamedTuple):
    """A regression of the value of B actions on their targets.

    Attributes:
        obs: leaves `[B, ...]`.
        action: `[B]` int64, indices from 0.
        target: `[B]` float32.
        weight: `[B]` importance weights of the loss, or None.
    """

    obs: tuple[Tensor, ...]
    action: Tensor
    target: Tensor
    weight: Tensor | None


def loss_of(q_BA: Tensor, batch: TdBatch, kind: str) -> Loss:
    """The temporal-difference loss of a batch, and the mean value of the actions taken."""
    return _loss(q_BA.gather(1, batch.action.unsqueeze(1)).squeeze(1), batch, kind)


def _loss(q_B: Tensor, batch: TdBatch, kind: str) -> Loss:
    loss_B = td_loss(q_B, batch.target, kind)
    if batch.weight is not None:
        loss_B = loss_B * batch.weight
    return Loss(loss_B.mean(), {"q_mean": q_B.detach().mean()})


class ClosedForm:
    """`engine.update.Gradients` of the temporal-difference loss for whole batches of a plain MLP, in float32.

    Args:
        kernel: of the online network.
        kind: of the loss.
    """

    def __init__(self, kernel: MlpKernel, kind: str) -> None:
        self._kernel, self._kind = kernel, kind
        self._share = torch.ones(()) / len(kernel.q)  # of an element in the mean

    def __call__(
        self, parts: Sequence[Part[TdBatch]], flat: FlatParameters, scale: Callable[[Tensor], Tensor]
    ) -> list[Loss]:
        batch, kernel = parts[0].batch, self._kernel
        action_B1 = batch.action.unsqueeze(1)
        q_B = kernel.forward(batch.obs).gather(1, action_B1).squeeze(1)
        share = self._share if batch.weight is None else self._share * batch.weight
        slope_B = td_loss_slope(q_B, batch.target, self._kind).mul_(share)
        kernel.q_grad.zero_().scatter_(1, action_B1, slope_B.unsqueeze(1))
        kernel.backward()
        return [_loss(q_B, batch, self._kind)]
