"""How DQN explores: epsilon-greedy, with epsilon falling linearly."""

from __future__ import annotations

import numpy as np

from rlseq.dqn.config import DqnOptions
from rlseq.nets.values import Values


def epsilon_at(options: DqnOptions, step: int, horizon: int) -> float:
    """Chance of a random action after `step` of `horizon` environment steps."""
    span = options.exploration_fraction * horizon
    progress = min(1.0, step / span) if span > 0 else 1.0
    return options.epsilon_start + (options.epsilon_end - options.epsilon_start) * progress


class EpsilonGreedy:
    """Actions for N environments; each tosses a coin of its own.

    Args:
        values: action values of the online network for N observations, `nets.values.value_function`.
        num_actions: A.
        rng: the exploration's own random stream.
    """

    def __init__(self, values: Values, num_actions: int, rng: np.random.Generator) -> None:
        self._values = values
        self._num_actions = num_actions
        self.rng = rng

    def act(self, obs: tuple[np.ndarray, ...], epsilon: float) -> np.ndarray:
        """Actions `[N]` int64, indices from 0, for leaves `[N, ...]`."""
        num = len(obs[0])
        coin_N, choice_N = self.rng.random((2, num))
        explore_N = coin_N < epsilon
        exploring = int(np.count_nonzero(explore_N))
        if exploring == 0:
            return self._greedy(obs)
        random_N = (choice_N * self._num_actions).astype(np.int64)
        return random_N if exploring == num else np.where(explore_N, random_N, self._greedy(obs))

    def _greedy(self, obs: tuple[np.ndarray, ...]) -> np.ndarray:
        return self._values(obs).cpu().numpy().argmax(axis=1)
