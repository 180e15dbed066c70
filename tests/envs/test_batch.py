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
from rlseq.errors import CorruptFile, EnvironmentFailed, ResumeMismatch, RlseqError
from rlseq.spec import EnvSpec
from tests.toy_envs import Raises  # importing the module registers the toy environments


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


# ------------------------------------------------------------------------------------------- what the replay receives


def test_the_replay_receives_every_step_and_no_dummy() -> None:
    """R1: over many episode ends, each transition leads from one count to the next within one episode."""
    envs = batch("toy/Counting-v0", 4)
    episodes = 0
    for _ in range(150):
        moved = envs.step(np.zeros(4, np.int64))
        np.testing.assert_array_equal(moved.next_obs[0][:, 0], moved.obs[0][:, 0] + 1)
        np.testing.assert_array_equal(moved.next_obs[0][:, 1], moved.obs[0][:, 1])  # the same episode
        np.testing.assert_array_equal(moved.reward, np.ones(4, np.float32))
        episodes += len(moved.finished)
    assert episodes > 40
    envs.close()


def test_the_last_observation_of_a_truncated_episode_is_the_true_one() -> None:
    """R2: CartPole cut after 3 steps against the environment itself, with the same seed and actions."""
    make = maker(EnvSpec(id="CartPole-v1", max_episode_steps=3))
    leaves, _ = spaces_of(make, "CartPole-v1")
    envs = EnvBatch(make, 1, leaves, seed_of=lambda env, episode: 40 + episode)
    for episode in range(3):
        plain = gym.make("CartPole-v1")
        observation, _ = plain.reset(seed=40 + episode)
        np.testing.assert_array_equal(envs.obs[0][0], observation)
        for step in range(3):
            moved = envs.step(np.array([step % 2]))
            observation, *_ = plain.step(step % 2)
            np.testing.assert_array_equal(moved.next_obs[0][0], observation)
            assert (moved.terminated[0], moved.truncated[0]) == (False, step == 2)
        plain.close()
    envs.close()


def test_flags_of_one_step_are_gone_in_the_next() -> None:
    envs = batch("toy/Constant-v0", 2)
    for step in range(1, 31):
        moved = envs.step(np.zeros(2, np.int64))
        assert moved.truncated.tolist() == [step % 10 == 0] * 2
        assert envs.first.tolist() == [step % 10 == 0] * 2
        assert [episode.length for episode in moved.finished] == ([10, 10] if step % 10 == 0 else [])


def test_a_step_stays_as_it_is_while_the_next_one_is_taken() -> None:
    """`obs` of a step is not overwritten before the step after the next."""
    envs = batch("toy/ReusedBuffer-v0", 2)
    for _ in range(20):
        observed = envs.obs[0]
        kept = observed.copy()
        moved = envs.step(np.zeros(2, np.int64))
        assert moved.obs[0] is observed
        np.testing.assert_array_equal(observed, kept)
        assert not np.shares_memory(moved.obs[0], envs.obs[0])


class Spoiler(gym.Env):
    """Overwrites, when it is called again, the arrays that it gave before."""

    observation_space, action_space = spaces.Box(-100, 100, (2,)), spaces.Discrete(2)

    def __init__(self) -> None:
        self.given: list[np.ndarray] = []
        self.count = 0

    def give(self) -> np.ndarray:
        for array in self.given:
            array.fill(-99)
        self.given.append(np.full(2, self.count, np.float32))
        return self.given[-1]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self.give(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.give(), 0.0, self.count == 3, False, {}


def test_an_environment_cannot_change_what_it_has_given() -> None:
    """R4, also where the last observation is followed at once by the next episode's first."""
    envs = batch("x", make=Spoiler)
    for step in range(9):
        moved = envs.step(np.zeros(1, np.int64))
        assert moved.obs[0].tolist() == [[step % 3] * 2]
        assert moved.next_obs[0].tolist() == [[step % 3 + 1] * 2]


def test_seeds_are_asked_for_by_environment_and_episode() -> None:
    asked: list[tuple[int, int]] = []

    def seed_of(env: int, episode: int) -> int:
        asked.append((env, episode))
        return 7

    make = maker(EnvSpec(id="toy/Constant-v0"))
    leaves, _ = spaces_of(make, "x")
    envs = EnvBatch(make, 2, leaves, seed_of=seed_of)
    for _ in range(20):
        envs.step(np.zeros(2, np.int64))
    assert asked == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_fresh_environment_is_made_for_each_episode_and_the_worn_one_is_closed(fresh: bool) -> None:
    living: list[int] = []

    class Counted(Spoiler):
        def __init__(self) -> None:
            super().__init__()
            living.append(1)

        def close(self) -> None:
            living.append(-1)

    envs = EnvBatch(Counted, 2, spaces_of(Counted, "x")[0], seed_of=lambda env, episode: 0, fresh=fresh)
    before = len(living)
    for _ in range(9):
        envs.step(np.zeros(2, np.int64))
    assert len(living) - before == (2 * 2 * 3 if fresh else 0)  # both, 3 episodes ended, each time one made, one closed
    envs.close()
    assert sum(living) == 0


def test_nested_observations_arrive_leaf_by_leaf() -> None:
    make = maker(EnvSpec(id="toy/Dict-v0"))
    leaves, _ = spaces_of(make, "x")
    envs = EnvBatch(make, 1, leaves, seed_of=lambda env, episode: 5)
    plain = make()
    observation, _ = plain.reset(seed=5)
    for _ in range(5):
        for leaf, array in zip(leaves, envs.obs, strict=True):
            expected: Any = observation
            for key in leaf.path:
                expected = expected[key]
            np.testing.assert_array_equal(array[0], np.asarray(expected).astype(leaf.dtype))
            assert array.dtype == leaf.dtype
        observation, *_ = plain.step(1)
        envs.step(np.ones(1, np.int64))


# -------------------------------------------------------------------------------------------------- saved and rebuilt


@pytest.mark.parametrize("steps", [0, 1, 6, 7, 8, 20])
def test_episodes_are_rebuilt_at_any_moment(steps: int) -> None:
    """Also at the very beginning, and right before and after an end (ReusedBuffer's episodes have 7 steps)."""
    a, b = batch("toy/ReusedBuffer-v0", 2), batch("toy/ReusedBuffer-v0", 2)
    for _ in range(steps):
        a.step(np.zeros(2, np.int64))
    assert b.load(a.state()) == []
    assert b.episode.tolist() == a.episode.tolist() == [steps // 7] * 2
    assert b.first.tolist() == a.first.tolist() == [steps % 7 == 0] * 2
    np.testing.assert_array_equal(a.obs[0], b.obs[0])
    np.testing.assert_array_equal(a.reward, b.reward)
    for name, array in a.state().items():
        np.testing.assert_array_equal(array, b.state()[name], err_msg=name, strict=True)


def test_a_batch_that_has_played_may_load() -> None:
    a, b = batch("CartPole-v1", 2), batch("CartPole-v1", 2)
    for _ in range(30):
        a.step(np.array([1, 0]))
    for _ in range(77):
        b.step(np.array([0, 1]))
    assert b.load(a.state()) == []
    x, y = a.step(np.array([1, 1])), b.step(np.array([1, 1]))
    np.testing.assert_array_equal(x.next_obs[0], y.next_obs[0])


def test_the_saved_state_does_not_change_with_the_batch() -> None:
    envs = batch("CartPole-v1", 2)
    for _ in range(15):
        envs.step(np.array([1, 0]))
    state = envs.state()
    kept = {name: array.copy() for name, array in state.items()}
    for _ in range(15):
        envs.step(np.array([1, 0]))
    for name, array in kept.items():
        np.testing.assert_array_equal(array, state[name])


@pytest.mark.parametrize("what", ["obs.0", "returns", "actions.1"])
def test_a_changed_state_is_not_rebuilt(what: str) -> None:
    envs = batch("CartPole-v1", 2)
    for _ in range(5):
        envs.step(np.array([1, 0]))
    state = envs.state()
    if what == "actions.1":
        state[what] = np.ones(5, np.int64)  # other actions lead elsewhere
    else:
        state[what][1] += 1e-3
    with pytest.raises(ResumeMismatch, match="environment 1"):
        batch("CartPole-v1", 2).load(state)
    assert batch("CartPole-v1", 2).load(state, inexact=True) == [1]


def test_actions_that_end_an_episode_early_are_not_rebuilt() -> None:
    envs = batch("CartPole-v1")
    state = {**envs.state(), "actions.0": np.ones(200, np.int64)}
    with pytest.raises(ResumeMismatch):
        batch("CartPole-v1").load(state)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("episode", np.zeros(3, np.int64)),
        ("returns", np.zeros((2, 1))),
        ("obs.0", np.zeros((2, 5), np.float32)),
        ("obs.1", np.zeros((2, 4), np.float32)),
        ("actions.2", np.zeros(0, np.int64)),
        ("actions.0", np.zeros(3)),
        ("reward", None),
        ("actions.1", None),
    ],
)
def test_the_state_of_another_batch_is_refused(name: str, array: np.ndarray | None) -> None:
    state: dict[str, Any] = {**batch("CartPole-v1", 2).state(), name: array}
    if array is None:
        del state[name]
    with pytest.raises(CorruptFile, match="does not fit"):
        batch("CartPole-v1", 2).load(state)


# --------------------------------------------------------------------------------- environments that are not as agreed


def faulty(*stepped: Any, first: Any = None) -> EnvBatch:
    """A batch of one environment whose every step gives `stepped`."""

    class Faulty(Both):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed=seed) if first is None else (first, {})

        def step(self, action: Any) -> Any:
            return stepped

    return batch("x", make=Faulty)


FINE = np.ones(1, np.float32)


@pytest.mark.parametrize("reward", [None, "a", [1.0, 2.0], np.array([1.0, 2.0]), 1j], ids=repr)
def test_a_reward_that_is_no_number_is_the_environments_fault(reward: Any) -> None:
    with pytest.raises(EnvironmentFailed, match=r"environment 0 .*episode 0"):
        faulty(FINE, reward, False, False, {}).step(np.zeros(1, np.int64))


@pytest.mark.parametrize(
    "reward",
    [float("inf"), float("-inf"), np.float32("nan"), 1e300, -1e39, 10**400],
    ids=["inf", "-inf", "nan", "1e300", "-1e39", "10**400"],
)
def test_a_reward_that_is_not_finite_as_float32_is_refused(reward: Any) -> None:
    with pytest.raises(EnvironmentFailed, match=r"gave the reward .*episode 0, step 1.*Mend"):
        faulty(FINE, reward, False, False, {}).step(np.zeros(1, np.int64))


@pytest.mark.parametrize(
    "stepped",
    [(FINE, 1.0, False, {}), (), (FINE, 1.0, False, False, {}, {}), None, 3],
    ids=["old-api", "empty", "six", "none", "number"],
)
def test_a_step_of_the_wrong_form_is_the_environments_fault(stepped: Any) -> None:
    envs = faulty(*stepped) if isinstance(stepped, tuple) else batch("x", make=Both)
    if not isinstance(stepped, tuple):
        envs.envs[0].step = lambda action: stepped  # type: ignore[method-assign]
    with pytest.raises(EnvironmentFailed, match=r"step\(0\).*after 0 steps"):
        envs.step(np.zeros(1, np.int64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_nan_in_an_observation_is_refused_in_any_dtype(dtype: type) -> None:
    with pytest.raises(RlseqError, match="NaN"):
        faulty(np.array([np.nan], dtype), 0.0, False, False, {}).step(np.zeros(1, np.int64))
    with pytest.raises(RlseqError, match="NaN"):
        faulty(FINE, 0.0, False, False, {}, first=np.array([np.nan], dtype))


def test_a_reset_that_raises_is_named_with_its_seed() -> None:
    make = maker(EnvSpec(id="toy/Raises-v0", kwargs={"in_reset": True}))
    leaves, _ = spaces_of(make, "x")
    with pytest.raises(EnvironmentFailed, match=r"RuntimeError: the door is stuck - in reset\(seed=3\), episode 0"):
        EnvBatch(make, 1, leaves, seed_of=lambda env, episode: 3)


def test_the_failing_environment_of_several_is_named_with_the_action_it_was_given() -> None:
    def make() -> gym.Env:
        made.append(Raises(at=2 if len(made) == 1 else 99))
        return made[-1]

    made: list[gym.Env] = []
    envs = EnvBatch(make, 3, spaces_of(Raises, "x")[0], action_start=0, seed_of=lambda env, episode: 0)
    envs.step(np.array([0, 1, 0]))
    with pytest.raises(EnvironmentFailed, match=r"environment 1 .*the wheel came off - in step\(1\), .*after 1 steps"):
        envs.step(np.array([0, 1, 0]))


def test_a_fresh_environment_is_rebuilt_within_its_first_episode_too() -> None:
    a = batch("toy/Hidden-v0", 1, fresh=True)
    for _ in range(3):
        a.step(np.zeros(1, np.int64))
    assert a.episode[0] == 0
    assert batch("toy/Hidden-v0", 1, fresh=True).load(a.state()) == []


@pytest.mark.parametrize("flag", [None, np.array([True]), "yes", 1.0])
def test_flags_that_are_neither_true_nor_false(flag: Any) -> None:
    class Odd(Both):
        def step(self, action: Any) -> Any:
            return np.ones(1, np.float32), 1.0, flag, False, {}

    with pytest.raises(EnvironmentFailed, match=r"terminated = .*True or False"):
        batch("x", make=Odd).step(np.zeros(1, np.int64))


def test_infinite_observations_are_refused() -> None:
    class Infinite(Both):
        def step(self, action: Any) -> Any:
            return np.float32([np.inf]), 1.0, False, False, {}

    with pytest.raises(RlseqError, match="obs holds infinity"):
        batch("x", make=Infinite).step(np.zeros(1, np.int64))


def test_an_environment_that_exits_is_named() -> None:
    class Exits(Both):
        def step(self, action: Any) -> Any:
            raise SystemExit(3)

    with pytest.raises(EnvironmentFailed, match="SystemExit"):
        batch("x", make=Exits).step(np.zeros(1, np.int64))


def test_skipping_begins_the_named_episodes() -> None:
    asked: list[tuple[int, int]] = []

    def seed_of(env: int, episode: int) -> int:
        asked.append((env, episode))
        return 100 * env + episode

    leaves, _ = spaces_of(lambda: gym.make("CartPole-v1"), "CartPole-v1")
    batch = EnvBatch(lambda: gym.make("CartPole-v1"), 2, leaves, seed_of=seed_of)
    batch.step(np.array([0, 1]))
    batch.skip_to(np.array([4, 9]))
    assert asked[-2:] == [(0, 4), (1, 9)] and batch.episode.tolist() == [4, 9] and batch.first.all()
    first, _ = gym.make("CartPole-v1").reset(seed=109)
    assert (batch.obs[0][1] == first).all()
    batch.close()
