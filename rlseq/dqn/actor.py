"""How DQN explores: epsilon-greedy, with epsilon falling linearly."""

from __future__ import annotations

import copy

import numpy as np

from rlseq.dqn.config import DqnOptions
from rlseq.engine.flat import FlatParameters
from rlseq.engine.transfer import WeightMirror
from rlseq.nets.network import QNetwork
from rlseq.nets.values import Values, value_function


def epsilon_at(options: DqnOptions, step: int, horizon: int) -> float:
    """Chance of a random action after `step` of `horizon` environment steps."""
    span = options.exploration_fraction * horizon
    progress = min(1.0, step / span) if span > 0 else 1.0
    return options.epsilon_start + (options.epsilon_end - options.epsilon_start) * progress


def mirrored_values(net: QNetwork, flat: FlatParameters, num_rows: int) -> tuple[Values, WeightMirror]:
    """The action values of a network on a GPU by a copy of it on the CPU, one burst behind.

    A few observations take less time there than the start of a kernel, and nothing waits for the GPU.

    Args:
        net: the network.
        flat: its parameters.
        num_rows: N observations at a time.
    """
    twin = copy.deepcopy(net).to("cpu").requires_grad_(False)
    mirror = WeightMirror(flat.weights, FlatParameters(twin, flat.selection).weights)
    return value_function(twin, num_rows), mirror


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
