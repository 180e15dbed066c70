"""Peers for tests, which must run without any installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlseq.bench.measure import Timing
from rlseq.bench.peers import Layer, Peer, Player
from rlseq.dqn.config import DqnTraining


def forward(layers: Sequence[Layer], obs: np.ndarray) -> np.ndarray:
    """A ReLU network in numpy."""
    for layer in layers[:-1]:
        obs = np.maximum(obs @ layer.weight.T + layer.bias, 0)
    return obs @ layers[-1].weight.T + layers[-1].bias


def numpy_player(env_id: str, layers: Sequence[Layer]) -> Player:
    """Acts rightly, and plays 100 steps in half a second."""
    return Player(lambda obs: forward(layers, obs).argmax(1), lambda episodes, seed: Timing(0.5, 100))


def no_training(options: DqnTraining) -> Timing:
    raise AssertionError("nothing is trained here")


def fake_peer(
    train: Callable[[DqnTraining], Timing] = no_training,
    player: Callable[[str, Sequence[Layer]], Player] = numpy_player,
) -> Peer:
    """A peer whose package is pytest, which is surely installed."""
    return Peer("pytest", "pytest", train, player)


class FakeDqn:
    """Stands in for stable_baselines3.DQN: remembers how it was made, and counts as the real one does."""

    made: list[FakeDqn]

    def __init__(self, policy: str, env: Any, **arguments: Any) -> None:
        self.policy, self.env, self.arguments = policy, env, arguments
        self.num_timesteps = self._n_updates = 0
        type(self).made.append(self)

    def learn(self, total_timesteps: int) -> None:
        self.learnt = total_timesteps
        rollout = self.arguments["train_freq"]
        while self.num_timesteps < total_timesteps:
            self.num_timesteps += rollout
            if self.num_timesteps > self.arguments["learning_starts"]:
                self._n_updates += self.arguments["gradient_steps"]

    def get_env(self) -> Any:
        return SimpleNamespace(close=lambda: None)


@pytest.fixture
def sb3(monkeypatch: pytest.MonkeyPatch) -> type[FakeDqn]:
    """A stable_baselines3 with nothing but a fake DQN."""
    module = ModuleType("stable_baselines3")
    FakeDqn.made = []
    module.DQN = FakeDqn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stable_baselines3", module)
    return FakeDqn
