"""A batch of environments: true last observations, seeds of their own, episodes that can be rebuilt."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlseq.envs.batch import EnvBatch
from rlseq.envs.make import maker, spaces_of
from rlseq.envs.seeding import evaluation_seed, training_seed
from rlseq.errors import EnvironmentFailed, ResumeMismatch, RlseqError
from rlseq.spec import EnvSpec
from tests import toy_envs  # noqa: F401  registers the toy environments


def batch(env_id: str, num: int = 1, seed: int = 0, fresh: bool = False, make: Any = None, **kwargs: Any) -> EnvBatch:
    make = make or maker(EnvSpec(id=env_id, kwargs=kwargs))
    leaves, action = spaces_of(make, env_id)
    return EnvBatch(
        make,
        num,
        leaves,
        action_start=action.start,
        seed_of=lambda env, episode: training_seed(seed, 0, env, episode),
        fresh=fresh,
    )


def test_the_first_observation_of_the_next_episode_and_the_last_one_of_this() -> None:
    envs = batch("toy/Counting-v0", 3)
    length = envs.obs[0][:, 1].copy()
    done = np.zeros(3, int)
    for _ in range(200):
        before = envs.obs[0].copy()
        moved = envs.step(np.zeros(3, np.int64))
        np.testing.assert_array_equal(moved.obs[0], before)
        np.testing.assert_array_equal(moved.next_obs[0][:, 0], before[:, 0] + 1)
        np.testing.assert_array_equal(moved.terminated, moved.next_obs[0][:, 0] == length)
        for episode in moved.finished:
            assert episode.length == length[episode.env] == episode.episode_return
            assert episode.number == done[episode.env]
            done[episode.env] += 1
            assert envs.obs[0][episode.env, 0] == 0
            assert envs.first[episode.env]
            length[episode.env] = envs.obs[0][episode.env, 1]
        going = ~moved.terminated
        np.testing.assert_array_equal(envs.obs[0][going], moved.next_obs[0][going])
        np.testing.assert_array_equal(envs.first, moved.terminated)
    assert done.min() > 3
    envs.close()


def test_a_time_limit_truncates_and_does_not_terminate() -> None:
    envs = batch("toy/Constant-v0")
    flags = [(m.terminated[0], m.truncated[0]) for m in (envs.step(np.zeros(1, np.int64)) for _ in range(20))]
    assert not any(terminated for terminated, _ in flags)
    assert [i for i, (_, truncated) in enumerate(flags) if truncated] == [9, 19]


class Both(gym.Env):
    """Terminates on the very step at which its time limit cuts it."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.ones(1, np.float32), 1.0, True, True, {}


def test_both_flags_count_as_terminated() -> None:
    moved = batch("both", make=Both).step(np.zeros(1, np.int64))
    assert moved.terminated[0]
    assert not moved.truncated[0]


def test_every_episode_has_a_seed_of_its_own_whatever_the_number_of_environments() -> None:
    firsts: dict[tuple[int, int], bytes] = {}
    for num in (1, 3):
        envs = batch("CartPole-v1", num)
        for i in range(num):
            firsts.setdefault((i, 0), envs.obs[0][i].tobytes())
            assert firsts[i, 0] == envs.obs[0][i].tobytes()
        envs.close()
    seeds = {
        training_seed(run, rank, env, ep)
        for run in range(4)
        for rank in range(2)
        for env in range(4)
        for ep in range(50)
    }
    assert len(seeds) == 4 * 2 * 4 * 50
    assert not seeds & {evaluation_seed(0, i) for i in range(1000)}
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_an_environment_without_further_episodes_stands_still() -> None:
    make = maker(EnvSpec(id="toy/Counting-v0"))
    leaves, _ = spaces_of(make, "x")
    envs = EnvBatch(make, 2, leaves, seed_of=lambda env, episode: 5 + env if episode == 0 else None)
    for _ in range(30):
        envs.step(np.zeros(2, np.int64))
    assert not envs.active.any()
    assert envs.step(np.zeros(2, np.int64)).finished == []


def test_observations_are_copies() -> None:
    envs = batch("toy/ReusedBuffer-v0")
    first = envs.step(np.zeros(1, np.int64))
    kept = first.obs[0].copy(), first.next_obs[0].copy()
    assert not np.array_equal(*kept)
    envs.envs[0].unwrapped.step(0)  # the environment writes into its buffer again
    np.testing.assert_array_equal(first.obs[0], kept[0])
    np.testing.assert_array_equal(first.next_obs[0], kept[1])


def test_actions_are_given_in_the_environments_numbering() -> None:
    envs = batch("toy/Started-v0")
    for _ in range(8):
        moved = envs.step(envs.obs[0].copy())
        assert moved.reward[0] == 1.0


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0", "Acrobot-v1", "toy/Dict-v0", "toy/Counting-v0"])
def test_half_played_episodes_are_rebuilt_bit_for_bit(env_id: str) -> None:
    rng = np.random.default_rng(0)
    a, b = batch(env_id, 3), batch(env_id, 3)
    num_actions = int(a.envs[0].action_space.n)  # type: ignore[attr-defined]
    for _ in range(137):
        a.step(rng.integers(0, num_actions, 3))
    state = {name: array.copy() for name, array in a.state().items()}
    assert b.load(state) == []
    for _ in range(150):
        actions = rng.integers(0, num_actions, 3)
        x, y = a.step(actions), b.step(actions)
        for p, q in zip((*x.obs, *x.next_obs, x.reward, x.terminated), (*y.obs, *y.next_obs, y.reward, y.terminated)):  # noqa: B905
            np.testing.assert_array_equal(p, q)
        assert x.finished == y.finished
        np.testing.assert_array_equal(a.first, b.first)


def test_hidden_state_is_noticed_refused_or_begun_anew() -> None:
    a = batch("toy/Hidden-v0", 2)
    for _ in range(60):
        a.step(np.zeros(2, np.int64))
    state = a.state()
    with pytest.raises(ResumeMismatch, match=r"environment 0.*env.fresh=true.*run.inexact_resume=true"):
        batch("toy/Hidden-v0", 2).load(state)
    b = batch("toy/Hidden-v0", 2)
    assert b.load(state, inexact=True) == [0, 1]
    np.testing.assert_array_equal(b.episode, state["episode"] + 1)
    fresh = batch("toy/Hidden-v0", 2, fresh=True)
    for _ in range(60):
        fresh.step(np.zeros(2, np.int64))
    assert batch("toy/Hidden-v0", 2, fresh=True).load(fresh.state()) == []


def test_an_environment_that_raises_is_named() -> None:
    envs = batch("toy/Raises-v0", at=3)
    with pytest.raises(EnvironmentFailed, match=r"environment 0 .*step\(1\).*after [23] steps"):
        for _ in range(10):
            envs.step(np.ones(1, np.int64))


class BadReward(Both):
    def step(self, action: Any) -> Any:
        return np.ones(1, np.float32), float("nan"), False, False, {}


class BadShape(Both):
    def step(self, action: Any) -> Any:
        return np.ones(2, np.float32), 0.0, False, False, {}


class Lists(Both):
    def step(self, action: Any) -> Any:
        return [0.25], np.float64(2.0), np.bool_(False), np.bool_(False), {}


def test_rewards_and_observations_that_nothing_can_be_learnt_from() -> None:
    with pytest.raises(EnvironmentFailed, match="reward nan"):
        batch("x", make=BadReward).step(np.zeros(1, np.int64))
    with pytest.raises(RlseqError, match=r"\(2,\).*\(1,\)"):
        batch("x", make=BadShape).step(np.zeros(1, np.int64))
    moved = batch("x", make=Lists).step(np.zeros(1, np.int64))
    assert moved.next_obs[0].tolist() == [[0.25]]
    assert moved.reward.tolist() == [2.0]
