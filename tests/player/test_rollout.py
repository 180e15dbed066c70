"""The one loop that plays episodes (cases R17-R19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlseq.envs.make import maker
from rlseq.envs.seeding import evaluation_seed
from rlseq.errors import EnvironmentFailed, RlseqError, UsageError
from rlseq.player.onnx_policy import OnnxPolicy, load_onnx
from rlseq.player.rollout import Rollout, rollout
from rlseq.spec import EnvSpec, PolicySpec, StepInput
from tests import graphs

WEIGHTS = np.array([[0.0, 0.1], [0.0, 0.5], [0.0, 1.0], [0.0, 1.0]], np.float32)


class Fixed:
    """Always the same action; keeps what it saw."""

    def __init__(self, spec: PolicySpec, action: int | None = None) -> None:
        self.spec = spec
        self.action = spec.action.start if action is None else action
        self.seen: list[StepInput] = []

    def initial_state(self, num_envs: int) -> tuple[int]:
        return (num_envs,)

    def act(self, step: StepInput, state: Any) -> tuple[np.ndarray, Any]:
        self.seen.append(StepInput(tuple(leaf.copy() for leaf in step.obs), step.reward.copy(), step.first.copy()))
        return np.full(len(step.first), self.action, np.int64), state


def fixed(env_id: str, **kwargs: Any) -> tuple[Fixed, Any]:
    spec = graphs.spec_of(env_id, kwargs=kwargs)
    return Fixed(spec), maker(spec.env)


def naive(policy: OnnxPolicy, spec: EnvSpec, episodes: int, seed: int) -> tuple[list[float], list[int]]:
    """One environment, one episode after the other, plain gymnasium."""
    env = gym.make(spec.id, **spec.kwargs)
    returns, lengths = [], []
    for episode in range(episodes):
        obs, _ = env.reset(seed=evaluation_seed(seed, episode))
        total, length, over = 0.0, 0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(policy(obs))
            total, length, over = total + float(reward), length + 1, terminated or truncated
        returns.append(total)
        lengths.append(length)
    env.close()
    return returns, lengths


@pytest.mark.parametrize("num_envs", [1, 2, 7, 64])
def test_equals_plain_gymnasium_for_any_number_of_environments(num_envs: int, tmp_path: Path) -> None:
    spec = graphs.spec_of("CartPole-v1")
    weights = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])  # looks at the angle only: varied episodes
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, weights))
    returns, lengths = naive(policy, spec.env, 12, seed=3)
    played = rollout(policy, maker(spec.env), episodes=12, seed=3, num_envs=num_envs)
    assert played.returns.tolist() == returns and played.lengths.tolist() == lengths
    assert played.returns.dtype == np.float64 and played.lengths.dtype == np.int64
    assert len(set(returns)) > 3 and played.steps == sum(lengths) and played.seconds > 0


def test_short_episodes_are_not_favoured() -> None:
    """R18: playing until 8 episodes have ended, over 4 environments, would count more of the short, bad ones."""
    policy, make = fixed("toy/Counting-v0", longest=50)
    one = rollout(policy, make, episodes=8, seed=0)
    four = rollout(policy, make, episodes=8, seed=0, num_envs=4)
    np.testing.assert_array_equal(one.returns, four.returns)
    assert four.returns.mean() == one.returns.mean()
    biased = first_to_end(make, episodes=8, num_envs=4, seed=0)
    assert biased < one.returns.mean() - 1  # the mistake would show here


def first_to_end(make: Any, episodes: int, num_envs: int, seed: int) -> float:
    """The wrong way: the mean of whichever episodes end first."""
    endless = rollout(fixed("toy/Counting-v0", longest=50)[0], make, episodes=200, seed=seed, num_envs=num_envs)
    ends: list[tuple[int, float]] = []
    for env in range(num_envs):
        clock = 0
        for number in range(env, 200, num_envs):
            clock += int(endless.lengths[number])
            ends.append((clock, endless.returns[number]))
    return float(np.mean([value for _, value in sorted(ends)[:episodes]]))


def test_more_environments_than_episodes() -> None:
    policy, make = fixed("toy/Counting-v0")
    few = rollout(policy, make, episodes=3, seed=0, num_envs=8)
    assert few.returns.tolist() == rollout(policy, make, episodes=3, seed=0).returns.tolist()
    assert {len(step.first) for step in policy.seen[: int(few.lengths.max())]} == {8}  # always all rows


def test_an_episode_does_not_depend_on_how_many_there_are() -> None:
    policy, make = fixed("toy/Counting-v0")
    many = rollout(policy, make, episodes=20, seed=5, num_envs=3)
    few = rollout(policy, make, episodes=4, seed=5, num_envs=2)
    np.testing.assert_array_equal(many.returns[:4], few.returns)
    other = rollout(policy, make, episodes=20, seed=6, num_envs=3)
    assert many.returns.tolist() != other.returns.tolist()


def test_the_time_limit_and_the_actions_numbering() -> None:
    policy, make = fixed("toy/Constant-v0")
    assert rollout(policy, make, episodes=2, seed=0).returns.tolist() == [10.0, 10.0]
    spec = graphs.spec_of("toy/Started-v0")  # actions 5, 6, 7; anything else raises
    for action in (5, 6, 7):
        played = rollout(Fixed(spec, action), maker(spec.env), episodes=2, seed=0, num_envs=2)
        assert played.lengths.tolist() == [8, 8]


@pytest.mark.parametrize("env_id", ["toy/Dict-v0", "toy/Tuple-v0"])
def test_nested_observations_reach_the_graph(env_id: str, tmp_path: Path) -> None:
    """The right answer is the sign of `speed[0]`: only a policy that sees it scores 6 of 6."""
    spec = graphs.spec_of(env_id)
    weights = np.zeros((graphs.width_of(spec), 2))
    speed = next(i for i, leaf in enumerate(spec.observation) if leaf.shape == (3,))
    weights[sum(leaf.width for leaf in spec.observation[:speed]), 1] = 1.0
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, weights))
    assert rollout(policy, maker(spec.env), episodes=5, seed=0, num_envs=2).returns.tolist() == [6.0] * 5


def test_a_reused_buffer_is_copied() -> None:
    policy, make = fixed("toy/ReusedBuffer-v0")
    kept: list[tuple[np.ndarray, ...]] = []
    played = rollout(
        policy, make, episodes=2, seed=0, num_envs=2, on_step=lambda i, step, actions, active: kept.append(step.obs)
    )
    assert played.returns.tolist() == [28.0, 28.0]
    assert [step.obs[0][:, 0].tolist() for step in policy.seen] == [[i, i] for i in range(7)]


def test_rewards_and_first_flags_that_a_policy_sees() -> None:
    policy, make = fixed("toy/Counting-v0", longest=6)
    played = rollout(policy, make, episodes=4, seed=0, num_envs=2)
    for env in range(2):
        lengths = played.lengths[env::2].tolist()
        first = [i == 0 for length in lengths for i in range(length)]
        rows = policy.seen[: len(first)]
        assert [bool(step.first[env]) for step in rows] == first
        assert [float(step.reward[env]) for step in rows] == [0.0 if begins else 1.0 for begins in first]


def test_on_step_sees_what_the_policy_saw() -> None:
    policy, make = fixed("toy/Counting-v0")
    recorded: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []

    def record(index: int, step: StepInput, actions: np.ndarray, active: np.ndarray) -> None:
        recorded.append((index, step.obs[0].copy(), actions.copy(), active.copy()))

    played = rollout(policy, make, episodes=3, seed=1, num_envs=3, on_step=record)
    assert [index for index, *_ in recorded] == list(range(int(played.lengths.max())))
    assert np.sum([active for *_, active in recorded]) == played.steps
    for (_, obs, actions, _), seen in zip(recorded, policy.seen, strict=True):
        np.testing.assert_array_equal(obs, seen.obs[0])
        assert actions.tolist() == [0, 0, 0]


def test_recurrent_state_over_staggered_ends(tmp_path: Path) -> None:
    """Each environment has a memory of its own, empty at every episode's start, whatever the others do."""
    spec = graphs.spec_of("toy/Counting-v0", kwargs={"longest": 9})
    weights = np.array([[4.0, 0.0], [0.0, 1.1]])  # action 0 once the summed steps outweigh the summed lengths
    policy = load_onnx(graphs.save_recurrent(tmp_path / "p.onnx", spec, weights))
    actions: dict[int, list[list[int]]] = {}
    for num_envs in (1, 3, 5):
        rows: list[list[int]] = [[] for _ in range(num_envs)]

        def record(index: int, step: StepInput, chosen: np.ndarray, active: np.ndarray, rows: Any = rows) -> None:
            for env in np.flatnonzero(active):
                rows[env].append(int(chosen[env]))

        played = rollout(policy, maker(spec.env), episodes=15, seed=2, num_envs=num_envs, on_step=record)
        actions[num_envs] = by_episode(rows, played)
    twin = []
    for length in played.lengths.tolist():
        sums = np.cumsum([[step, length] for step in range(length)], 0)
        twin.append((sums @ weights).argmax(1).tolist())
    assert actions[1] == actions[3] == actions[5] == twin
    assert {0, 1} == {action for episode in twin for action in episode}


def by_episode(rows: list[list[int]], played: Rollout) -> list[list[int]]:
    """An environment's actions cut at its episodes' ends, in the order of the episodes' numbers."""
    result: list[list[int]] = [[] for _ in played.lengths]
    for env, row in enumerate(rows):
        for number in range(env, len(played.lengths), len(rows)):
            length = int(played.lengths[number])
            result[number], row = row[:length], row[length:]
    return result


def test_fresh_environments_for_those_that_remember() -> None:
    policy, make = fixed("toy/Hidden-v0")
    worn = rollout(policy, make, episodes=4, seed=0)
    assert worn.returns.tolist() == [5.0, 10.0, 15.0, 20.0]
    for num_envs in (1, 3):
        assert rollout(policy, make, episodes=4, seed=0, num_envs=num_envs, fresh=True).returns.tolist() == [5.0] * 4


def test_nan_observations_are_refused(tmp_path: Path) -> None:
    spec = graphs.spec_of("toy/Nan-v0")
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, np.zeros((2, 2))))
    for at in (0, 3):
        make = maker(EnvSpec(id="toy/Nan-v0", kwargs={"at": at}))
        with pytest.raises(RlseqError, match="obs holds NaN; the policy cannot act on it"):
            rollout(policy, make, episodes=1, seed=0, num_envs=2)


def test_a_failing_environment_is_named_and_all_are_closed() -> None:
    closed: list[int] = []

    class Closing(gym.Wrapper):
        def close(self) -> None:
            closed.append(1)
            super().close()

    policy, make = fixed("toy/Raises-v0")
    with pytest.raises(
        EnvironmentFailed, match=r"raised RuntimeError: the wheel came off - in step\(0\), episode 0, after 2"
    ):
        rollout(policy, lambda: Closing(make()), episodes=2, seed=0, num_envs=2)
    assert len(closed) == 2


def test_another_environment_than_the_policys() -> None:
    policy = Fixed(graphs.spec_of("toy/Identity-v0", kwargs={"n": 4}))
    with pytest.raises(UsageError, match="has 3 actions from 5 on, the policy chooses among 4 from 0 on"):
        rollout(policy, maker(EnvSpec(id="toy/Started-v0")), episodes=1, seed=0)
    with pytest.raises(RlseqError, match=r"obs has shape \(6,\), the policy was trained on shape \(4,\)"):
        rollout(Fixed(graphs.spec_of("CartPole-v1")), maker(EnvSpec(id="Acrobot-v1")), episodes=1, seed=0)


@pytest.mark.parametrize(("name", "value"), [("episodes", 0), ("episodes", -1), ("num_envs", 0), ("seed", -1)])
def test_numbers_that_mean_nothing(name: str, value: int) -> None:
    policy, make = fixed("toy/Constant-v0")
    with pytest.raises(UsageError, match=f"{name} = {value} is not allowed"):
        rollout(policy, make, **{"episodes": 1, "seed": 0, "num_envs": 1, name: value})


def test_global_random_streams_are_untouched() -> None:
    """R17: evaluation draws from nothing that training draws from."""
    policy, make = fixed("toy/Counting-v0")
    np.random.seed(0)
    expected = np.random.get_state()[1].tolist()
    rollout(policy, make, episodes=5, seed=0, num_envs=2)
    assert np.random.get_state()[1].tolist() == expected


def test_summary_has_plain_numbers() -> None:
    played = Rollout(np.array([1.0, 3.0]), np.array([10, 20]), 2.0, 30)
    summary = played.summary(7, "CartPole-v1")
    assert summary == {
        "mean_return": 2.0,
        "std_return": 1.0,  # of the population
        "min_return": 1.0,
        "max_return": 3.0,
        "episodes": 2,
        "mean_length": 15.0,
        "steps_per_second": 15.0,
        "seed": 7,
        "env_id": "CartPole-v1",
    }
    assert [type(value) for value in summary.values()] == [float] * 4 + [int, float, float, int, str]


def test_a_torch_policy_plays_the_same_episodes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Torch:
        def __init__(self, spec: PolicySpec) -> None:
            self.spec = spec

        def initial_state(self, num_envs: int) -> tuple[Any, ...]:
            return (torch.zeros(num_envs, 1),)

        def act(self, step: StepInput, state: Any) -> tuple[np.ndarray, Any]:
            values = torch.from_numpy(step.obs[0]) @ torch.from_numpy(WEIGHTS)
            return values.argmax(1).numpy() + self.spec.action.start, state

    spec = graphs.spec_of("CartPole-v1")
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, WEIGHTS))
    expected = rollout(policy, maker(spec.env), episodes=4, seed=0, num_envs=2)
    played = rollout(Torch(spec), maker(spec.env), episodes=4, seed=0, num_envs=2)
    assert played.returns.tolist() == expected.returns.tolist()


def test_frames_of_environment_0(tmp_path: Path) -> None:
    """One frame after every reset and step, the last one of an episode before the next one's first."""
    policy, _ = fixed("toy/Counting-v0")
    make = maker(EnvSpec(id="toy/Counting-v0"), render_mode="rgb_array")
    for fresh in (False, True):
        frames: list[tuple[int, int, int]] = []
        played = rollout(
            policy,
            make,
            episodes=5,
            seed=0,
            num_envs=2,
            fresh=fresh,
            on_frame=lambda env, episode, frame, frames=frames: frames.append((env, episode, int(frame[0, 0, 0]))),
        )
        expected = [(0, episode, step) for episode in (0, 2, 4) for step in range(played.lengths[episode] + 1)]
        assert frames == expected


def test_frames_need_the_render_mode() -> None:
    policy, make = fixed("toy/Counting-v0")
    with pytest.raises(RlseqError, match="rendered NoneType, not an image"):
        rollout(policy, make, episodes=1, seed=0, on_frame=lambda env, episode, frame: None)


@pytest.mark.parametrize(("episodes", "size", "num_envs"), [(7, 2, 3), (7, 3, 1), (2, 4, 2)])
def test_shares_of_the_episodes_are_those_of_one_player(episodes: int, size: int, num_envs: int) -> None:
    policy, make = fixed("CartPole-v1")
    whole = rollout(policy, make, episodes=episodes, seed=5, num_envs=num_envs)
    assert len(set(whole.lengths.tolist())) > 1
    for k in range(size):
        own = rollout(policy, make, episodes=episodes, seed=5, num_envs=num_envs, share=(k, size))
        assert own.returns.tolist() == whole.returns[k::size].tolist()
        assert own.lengths.tolist() == whole.lengths[k::size].tolist()
        assert own.steps == own.lengths.sum()
