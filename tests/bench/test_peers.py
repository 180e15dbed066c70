"""Who is measured against, and that stable-baselines3 gets our numbers."""

from __future__ import annotations

import sys

import pytest

from rlseq.bench.dqn import job_for
from rlseq.bench.measure import Timing
from rlseq.bench.peers import PEERS, find_peer
from rlseq.errors import MissingExtra, UsageError
from tests.bench.fakes import FakeDqn, sb3

__all__ = ["sb3"]


def test_none_is_nobody() -> None:
    assert find_peer("none") is None


def test_an_unknown_peer_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"--peer sb: Did you mean sb3\? It is one of sb3, none\."):
        find_peer("sb")


def test_a_missing_peer_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(MissingExtra, match=r'stable_baselines3, which is not installed: pip install "rlseq\[bench\]"'):
        find_peer("sb3")


def test_the_installed_one_is_found(sb3: type[FakeDqn]) -> None:
    assert find_peer("sb3") is PEERS["sb3"]


def test_sb3_trains_with_the_preset_of_the_zoo(sb3: type[FakeDqn]) -> None:
    timing = PEERS["sb3"].train_dqn(job_for(50_000, 3, {}).options)
    (made,) = sb3.made
    assert (made.policy, made.env, made.learnt) == ("MlpPolicy", "CartPole-v1", 50_000)
    assert made.arguments == {
        "learning_rate": 2.3e-3,
        "buffer_size": 100_000,
        "learning_starts": 1_000,
        "batch_size": 64,
        "gamma": 0.99,
        "train_freq": 256,
        "gradient_steps": 128,
        "target_update_interval": 10,
        "exploration_fraction": 0.16,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.04,
        "max_grad_norm": 10.0,
        "policy_kwargs": {"net_arch": [256, 256]},
        "seed": 3,
        "device": "cpu",
        "verbose": 0,
    }
    assert (timing.steps, timing.updates) == (50_176, 193 * 128)


@pytest.mark.slow
def test_the_real_one_does_as_many_steps_and_updates() -> None:
    pytest.importorskip("stable_baselines3")
    timing = PEERS["sb3"].train_dqn(job_for(1_100, 0, {}).options)
    assert timing[1:] == Timing(0.0, 1_280, 256)[1:]
