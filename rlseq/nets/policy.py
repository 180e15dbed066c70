"""A torch network as a `Policy`: greedy, without gradients. The epsilon-greedy actor of training is another thing."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlseq.nets.network import NetInput, QNetwork, State
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

    def initial_state(self, num_envs: int) -> State:
        """Zeros for each recurrent array."""
        return tuple(torch.from_numpy(leaf.zeros(num_envs)).to(self._device) for leaf in self.spec.state)

    def act(self, step: StepInput[np.ndarray], state: State) -> tuple[np.ndarray, State]:
        """Actions `[B]` int64 in the environment's own numbering, and the next state."""
        q_BA, state = self.q_values(step.obs, step.first, state)
        return q_BA.argmax(dim=1).cpu().numpy() + self.spec.action.start, state

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
