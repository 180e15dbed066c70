"""Exploration."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlseq.dqn.actor import EpsilonGreedy, epsilon_at
from rlseq.dqn.config import DqnOptions
from rlseq.nets.config import NetOptions
from rlseq.nets.network import QNetwork
from rlseq.nets.values import value_function
from rlseq.spec import Leaf


@pytest.mark.parametrize(("step", "epsilon"), [(0, 1.0), (50, 0.55), (100, 0.1), (101, 0.1), (10_000, 0.1)])
def test_epsilon_at_0_50_and_100_percent_of_its_fall(step: int, epsilon: float) -> None:
    options = DqnOptions(epsilon_start=1.0, epsilon_end=0.1, exploration_fraction=0.1)
    assert epsilon_at(options, step, 1000) == pytest.approx(epsilon)


def test_no_exploration_phase_at_all() -> None:
    assert epsilon_at(DqnOptions(exploration_fraction=0.0, epsilon_end=0.3), 0, 1000) == pytest.approx(0.3)


def actor(seed: int = 0, rows: int = 5) -> EpsilonGreedy:
    net = QNetwork((Leaf(name="obs", shape=(1,)),), 3, NetOptions(hidden=()))
    with torch.no_grad():
        net.head.weight.zero_()
        net.head.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    return EpsilonGreedy(value_function(net, rows), 3, np.random.default_rng(seed))


def test_greedy_and_random_ends() -> None:
    obs = (np.zeros((5, 1), np.float32),)
    assert actor().act(obs, 0.0).tolist() == [1] * 5
    drawn = np.concatenate([actor(seed).act(obs, 1.0) for seed in range(200)])
    assert np.allclose(np.bincount(drawn) / 1000, 1 / 3, atol=0.05)


def test_every_environment_tosses_a_coin_of_its_own() -> None:
    """With one coin for all, the rows of a step would be all greedy or all random."""
    chooser, obs = actor(rows=64), (np.zeros((64, 1), np.float32),)
    not_greedy = np.array([(chooser.act(obs, 0.5) != 1).sum() for _ in range(200)])
    assert not_greedy.mean() / 64 == pytest.approx(0.5 * 2 / 3, abs=0.02)
    assert not_greedy.std() < 8  # binomial: 3.8; one coin for all: 21


def test_one_environment() -> None:
    actions = actor(rows=1).act((np.zeros((1, 1), np.float32),), 0.0)
    assert actions.shape == (1,)
    assert actions.dtype == np.int64


def test_random_actions_reach_every_action_and_no_other() -> None:
    chooser = actor(rows=1000)
    drawn = chooser.act((np.zeros((1000, 1), np.float32),), 1.0)
    assert np.unique(drawn).tolist() == [0, 1, 2]
