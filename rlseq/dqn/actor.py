"""How DQN explores: epsilon-greedy, with epsilon falling linearly."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlseq.dqn.config import DqnOptions
from rlseq.nets.network import NetInput, QNetwork


def epsilon_at(options: DqnOptions, step: int, horizon: int) -> float:
    """Chance of a random action after `step` of `horizon` environment steps."""
    span = options.exploration_fraction * horizon
    progress = min(1.0, step / span) if span > 0 else 1.0
    return options.epsilon_start + (options.epsilon_end - options.epsilon_start) * progress


class EpsilonGreedy:
    """Actions for N environments; each tosses a coin of its own.

    Args:
        net: the online network.
        num_actions: A.
        rng: the exploration's own random stream.
    """

    def __init__(self, net: QNetwork, num_actions: int, rng: np.random.Generator) -> None:
        self._net = net
        self._num_actions = num_actions
        self._device = next(net.parameters()).device
        self.rng = rng

    def act(self, obs: tuple[np.ndarray, ...], epsilon: float) -> np.ndarray:
        """Actions `[N]` int64, indices from 0, for leaves `[N, ...]`."""
        num = len(obs[0])
        explore = self.rng.random(num) < epsilon
        actions = self.rng.integers(0, self._num_actions, num)
        if not explore.all():
            greedy = self._q_values(obs).argmax(dim=1).cpu().numpy()
            actions = np.where(explore, actions, greedy)
        return actions

    @torch.no_grad()
    def _q_values(self, obs: tuple[np.ndarray, ...]) -> Tensor:
        return self._net(NetInput(tuple(torch.from_numpy(leaf).to(self._device) for leaf in obs)))[0]
