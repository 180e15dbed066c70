"""Native vector environments: next-step autoreset, no bias to short episodes (case R18)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlseq.errors import EnvironmentFailed, RlseqError, UsageError
from rlseq.player.native import rollout_native
from rlseq.player.onnx_policy import load_onnx
from rlseq.spec import ActionSpec, EnvSpec, PolicySpec, StepInput
from tests import graphs
from tests.player.test_rollout import Fixed
from tests.toy_envs import VectorCounting


def counting(**kwargs: Any) -> PolicySpec:
    spec = graphs.spec_of("toy/Counting-v0")
    return graphs.spec_of("toy/Counting-v0", env=EnvSpec(id=spec.env.id, kwargs=kwargs))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[VectorCounting]:
    """The vector environments that were made."""
    kept: list[VectorCounting] = []
    make_vec = gym.make_vec

    def make(*args: Any, **kwargs: Any) -> Any:
        kept.append(make_vec(*args, **kwargs))
        return kept[-1]

    monkeypatch.setattr(gym, "make_vec", make)
    return kept


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize(("episodes", "num_envs"), [(1, 1), (7, 1), (10, 4), (3, 8), (64, 64)])
def test_each_environment_plays_its_own_number_of_episodes(
    autoreset: str, episodes: int, num_envs: int, made: list[VectorCounting]
) -> None:
    spec = counting(autoreset=autoreset)
    played = rollout_native(Fixed(spec), spec, episodes=episodes, seed=0, num_envs=num_envs)
    (env,) = made
    for j in range(num_envs):  # the first ones that environment j really played, and no others
        own = played.lengths[j::num_envs].tolist()
        assert own == env.lengths_played[j][: len(own)]
    # A reward of 100 is paid on every reset step; none of it may be counted.
    assert played.returns.tolist() == played.lengths.tolist()
    assert played.steps == played.lengths.sum()


def test_what_a_policy_sees() -> None:
    """The step after an end is a reset: its result is the first observation, with no reward."""
    spec = counting(longest=4)
    policy = Fixed(spec)
    rollout_native(policy, spec, episodes=12, seed=1, num_envs=3)
    for step in policy.seen:
        begins = step.first
        assert (step.reward[begins] == 0).all() and (step.reward[~begins] == 1).all()
        np.testing.assert_array_equal(step.obs[0][:, 0] == 0, begins)


def test_recurrent_state_starts_empty(tmp_path: Path) -> None:
    spec = counting(longest=5)
    weights = np.array([[1.0, 0.0], [0.0, 1.1]])
    policy = load_onnx(graphs.save_recurrent(tmp_path / "p.onnx", spec, weights))
    states: list[np.ndarray] = []
    act = policy.act

    def spy(step: StepInput, state: Any) -> Any:
        actions, new = act(step, state)
        for row in np.flatnonzero(step.first):
            np.testing.assert_array_equal(new[0][row], step.obs[0][row])  # the sum of one observation
        states.append(new[0])
        return actions, new

    policy.act = spy  # type: ignore[method-assign]
    rollout_native(policy, spec, episodes=20, seed=0, num_envs=4)
    assert len(states) > 10


def test_cartpole_and_its_time_limit(tmp_path: Path) -> None:
    spec = graphs.spec_of("CartPole-v1")
    weights = np.array([[0.0, 0.1], [0.0, 0.5], [0.0, 1.0], [0.0, 1.0]])
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, weights))
    played = rollout_native(policy, spec, episodes=20, seed=0, num_envs=8)
    assert played.returns.mean() > 450
    np.testing.assert_array_equal(played.returns, played.lengths)
    short = graphs.spec_of("CartPole-v1", env=EnvSpec(id="CartPole-v1", max_episode_steps=17))
    assert rollout_native(policy, short, episodes=9, seed=0, num_envs=4).lengths.tolist() == [17] * 9


def test_the_seed_decides() -> None:
    spec = counting()
    first, again, other = (
        rollout_native(Fixed(spec), spec, episodes=20, seed=seed, num_envs=4).returns.tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


def test_refusals() -> None:
    acrobot = graphs.spec_of("Acrobot-v1")
    with pytest.raises(UsageError, match="Acrobot-v1 has no native vector version"):
        rollout_native(Fixed(acrobot), acrobot, episodes=1, seed=0, num_envs=1)
    disabled = counting(autoreset="disabled")
    with pytest.raises(UsageError, match=r"has autoreset_mode AutoresetMode\.DISABLED, which is not supported"):
        rollout_native(Fixed(disabled), disabled, episodes=1, seed=0, num_envs=1)
    wrong = counting(gravity=3)
    with pytest.raises(RlseqError, match=r"could not be made with \{'gravity': 3\}"):
        rollout_native(Fixed(wrong), wrong, episodes=1, seed=0, num_envs=1)
    for env_id in ("toy/Nowhere-v0", "evil:Env-v0"):
        spec = graphs.spec_of("toy/Counting-v0", env=EnvSpec(id=env_id))
        with pytest.raises(UsageError, match="there is no registered environment"):
            rollout_native(Fixed(spec), spec, episodes=1, seed=0, num_envs=1)
    with pytest.raises(UsageError, match="episodes = 0 is not allowed"):
        rollout_native(Fixed(acrobot), acrobot, episodes=0, seed=0, num_envs=1)


def test_failures_are_named() -> None:
    spec = counting()
    with pytest.raises(EnvironmentFailed, match="native version of toy/Counting-v0 raised AssertionError"):
        rollout_native(Fixed(spec, action=9), spec, episodes=1, seed=0, num_envs=2)
    more = graphs.spec_of("toy/Counting-v0", action=ActionSpec(n=3))
    with pytest.raises(UsageError, match="has 2 actions from 0 on, the policy chooses among 3"):
        rollout_native(Fixed(more), more, episodes=1, seed=0, num_envs=1)
