"""The mathematics of DQN as pure functions of arrays. B batch, A actions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def bootstrap_value(target_q_BA: Tensor, online_q_BA: Tensor | None, legal_BA: Tensor | None = None) -> Tensor:
    """Value `[B]` of the next observation.

    Args:
        target_q_BA: the target network's values there.
        online_q_BA: the online network's values there: it chooses the action, the target network values it (Double DQN,
            van Hasselt et al. 2016, arXiv 1509.06461). None: the target network does both (Mnih et al. 2015).
        legal_BA: bool; forbidden actions are never chosen.
    """
    choosing_BA = target_q_BA if online_q_BA is None else online_q_BA
    if legal_BA is not None:
        choosing_BA = choosing_BA.masked_fill(~legal_BA, -torch.inf)
    return target_q_BA.gather(1, choosing_BA.argmax(dim=1, keepdim=True)).squeeze(1)


def td_target(reward_B: Tensor, discount_B: Tensor, value_B: Tensor) -> Tensor:
    """`reward + discount * value`, `[B]`; the discount is 0 where the episode terminated."""
    assert reward_B.shape == discount_B.shape == value_B.shape, (
        "shapes must agree: broadcasting would be silent nonsense"
    )
    return reward_B + discount_B * value_B


def td_loss(q_B: Tensor, target_B: Tensor, kind: str) -> Tensor:
    """Element-wise loss `[B]` of the temporal-difference error: `huber` (quadratic up to 1) or `mse`."""
    assert q_B.shape == target_B.shape, "shapes must agree: broadcasting would be silent nonsense"
    if kind == "mse":
        return F.mse_loss(q_B, target_B, reduction="none")
    return F.smooth_l1_loss(q_B, target_B, reduction="none")


def td_loss_slope(q_B: Tensor, target_B: Tensor, kind: str) -> Tensor:
    """Derivative `[B]` of `td_loss` with respect to `q_B`, rounded as autograd rounds it."""
    error_B = q_B - target_B
    return error_B.mul_(2.0) if kind == "mse" else error_B.clamp_(-1.0, 1.0)
