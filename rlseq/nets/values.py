"""Action values for acting: without gradients, by the quickest way that gives the network's own numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rlseq.nets.mlp_kernel import MlpKernel, fits
from rlseq.nets.network import NetInput, QNetwork

Values = Callable[[tuple[np.ndarray, ...]], Tensor]
"""Leaves `[N, ...]` -> action values `[N, A]` on the network's device, overwritten by the next call."""


def value_function(net: QNetwork, num_rows: int) -> Values:
    """The action values of a feed-forward network for `num_rows` observations at a time.

    It follows the network's weights, as long as they stay where they lie in memory.
    """
    if fits(net):
        forward = MlpKernel(net, num_rows, with_grad=False).forward
        return lambda obs: forward(tuple(map(torch.from_numpy, obs)))
    device = next(net.parameters()).device

    @torch.no_grad()
    def values(obs: tuple[np.ndarray, ...]) -> Tensor:
        return net(NetInput(tuple(torch.from_numpy(leaf).to(device) for leaf in obs)))[0]

    return values
