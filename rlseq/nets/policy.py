"""A torch network as a `Policy`: greedy, without gradients. The epsilon-greedy actor of training is another thing."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlseq.nets.network import NetInput, QNetwork, State
from rlseq.nets.values import Values, value_function
from rlseq.spec import PolicySpec, StepInput


class TorchPolicy:
    """Greedy actions of a Q-network.

    Args:
        net: the network; it is evaluated as it stands, on the device it is on.
        spec: what it takes.
    """

    def __init__(self, net: QNetwork, spec: PolicySpec) -> None:
        self.net = net
        self.spec = spec
        self._device = next(net.parameters()).device
        self._kept: tuple[int, Values] | None = None

    def initial_state(self, num_envs: int) -> State:
        """Zeros for each recurrent array."""
        return tuple(torch.from_numpy(leaf.zeros(num_envs)).to(self._device) for leaf in self.spec.state)

    def act(self, step: StepInput[np.ndarray], state: State) -> tuple[np.ndarray, State]:
        """Actions `[B]` int64 in the environment's own numbering, and the next state."""
        if self.net.state_leaves:
            q_BA, state = self.q_values(step.obs, step.first, state)
        else:
            q_BA = self._values(len(step.obs[0]))(step.obs)
        return q_BA.cpu().numpy().argmax(axis=1) + self.spec.action.start, state

    def _values(self, num_rows: int) -> Values:
        """Acting asks again and again for as many rows, so what computes them is kept."""
        if self._kept is None or self._kept[0] != num_rows:
            self._kept = (num_rows, value_function(self.net, num_rows))
        return self._kept[1]

    @torch.no_grad()
    def q_values(self, obs: tuple[np.ndarray, ...], first: np.ndarray, state: State) -> tuple[Tensor, State]:
        """Action values `[B, A]` for leaves `[B, ...]`, and the next state."""
        x = tuple(torch.from_numpy(leaf).to(self._device) for leaf in obs)
        was_training = self.net.training
        if was_training:
            self.net.eval()
        try:
            return self.net(NetInput(x, first=torch.from_numpy(first).to(self._device)), state)
        finally:
            if was_training:
                self.net.train()
