"""A few environments stepped side by side, without autoreset and without copies.

Resets are explicit: when an episode ends, its true last observation is in `next_obs` and the first one of the next
episode in `obs`, so no dummy transition can arise. Every episode has a seed of its own. A half-played episode can be
rebuilt from its seed and actions, which is what makes an exact resume possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rlseq.envs.make import MakeEnv
from rlseq.errors import CorruptFile, EnvironmentFailed, ResumeMismatch, RlseqError
from rlseq.spec import Leaf, cast, check_finite, pick

SeedOf = Callable[[int, int], int | None]
"""(environment, its episode number) -> seed, or None when the environment has no further episode to play."""


FLAG = (bool, np.bool_, int)
LARGEST = float(np.finfo(np.float32).max)  # rewards are kept as float32


class Episode(NamedTuple):
    """A finished episode."""

    env: int
    number: int
    episode_return: float
    length: int


class Step(NamedTuple):
    """What one step of N environments gave; the arrays are overwritten by the next step, and some of them are one.

    Attributes:
        obs: leaves `[N, ...]` that the actions answered.
        next_obs: leaves `[N, ...]` after the actions; the true last observation where an episode ended.
        reward: `[N]` float32.
        terminated: `[N]` bool; wins over truncated.
        truncated: `[N]` bool.
        finished: the episodes that ended.
    """

    obs: tuple[np.ndarray, ...]
    next_obs: tuple[np.ndarray, ...]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    finished: list[Episode]


class EnvBatch:
    """N environments.

    Args:
        make: makes one.
        num_envs: N.
        leaves: of its observations.
        action_start: smallest action of the environment.
        seed_of: seed of each episode.
        fresh: make a new environment for every episode.
    """

    def __init__(
        self,
        make: MakeEnv,
        num_envs: int,
        leaves: Sequence[Leaf],
        *,
        action_start: int = 0,
        seed_of: SeedOf,
        fresh: bool = False,
    ) -> None:
        self._make = make
        self._leaves = tuple(leaves)
        self._start = action_start
        self._seed_of = seed_of
        self._fresh = fresh
        self.num_envs = num_envs
        self.envs: list[gym.Env] = [make() for _ in range(num_envs)]
        self.episode = np.full(num_envs, -1, np.int64)
        self.active = np.zeros(num_envs, np.bool_)
        self.first = np.ones(num_envs, np.bool_)
        self.reward = np.zeros(num_envs, np.float32)
        self._returns = [0.0] * num_envs
        self._actions: list[list[int]] = [[] for _ in range(num_envs)]
        self.obs, self._spare, self._last = (self._new_leaves() for _ in range(3))
        self._dtypes = tuple(array.dtype for array in self.obs)
        self._floats = [(k, leaf) for k, leaf in enumerate(self._leaves) if self._dtypes[k].kind == "f"]
        self._terminated, self._truncated = np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        for i in range(num_envs):
            self._begin(i, self.obs)

    def _new_leaves(self) -> tuple[np.ndarray, ...]:
        return tuple(np.zeros((self.num_envs, *leaf.shape), leaf.dtype) for leaf in self._leaves)

    def _begin(self, i: int, into: tuple[np.ndarray, ...], *, renew: bool = True) -> None:
        """Start environment i's next episode, if it has one; its first observation goes into row i."""
        self.episode[i] += 1
        seed = self._seed_of(i, int(self.episode[i]))
        self.active[i] = seed is not None
        self._actions[i] = []
        self._returns[i] = 0.0
        self.first[i] = True
        if seed is None:
            return
        if self._fresh and renew and self.episode[i] > 0:
            self.envs[i].close()
            self.envs[i] = self._make()
        try:
            observation, _ = self.envs[i].reset(seed=seed)
        except Exception as error:
            raise self._failure(i, error, f"reset(seed={seed})") from error
        self._write(observation, into, i)
        self._check_finite(tuple(array[i : i + 1] for array in into))

    def _write(self, observation: Any, into: tuple[np.ndarray, ...], i: int) -> None:
        """Copy an observation into row i: the environment may reuse its buffer."""
        for leaf, array, dtype in zip(self._leaves, into, self._dtypes, strict=True):
            value = pick(observation, leaf) if leaf.path else observation
            plain = type(value) is np.ndarray and value.dtype == dtype and value.shape == leaf.shape and not leaf.sizes
            array[i] = value if plain else cast(value, leaf)

    def _check_finite(self, arrays: tuple[np.ndarray, ...]) -> None:
        """Of all environments at once: a look at a small array costs what a call does."""
        for k, leaf in self._floats:
            check_finite(arrays[k], leaf)

    def _failure(self, i: int, error: BaseException, call: str) -> RlseqError:
        if isinstance(error, RlseqError):
            return error
        return EnvironmentFailed(
            f"environment {i} ({self.envs[i]}) raised {type(error).__name__}: {error} - in {call}, episode "
            f"{self.episode[i]}, after {len(self._actions[i])} steps. This is the environment's own code."
        )

    def step(self, actions: np.ndarray) -> Step:
        """Apply actions `[N]` (indices from 0) to the active environments; a finished one begins its next episode."""
        before, after, next_obs = self.obs, self._spare, self._spare
        finished = []
        for i, action in enumerate(actions.tolist()):
            if not self.active[i]:
                continue
            try:
                observation, reward, terminated, truncated, _ = self.envs[i].step(action + self._start)
            except (Exception, SystemExit) as error:
                raise self._failure(i, error, f"step({action + self._start})") from error
            self._actions[i].append(action)
            if type(reward) is not float or not -LARGEST <= reward <= LARGEST:
                reward = self._checked_reward(i, reward)
            if terminated is not False or truncated is not False:  # the plain case costs two comparisons
                self._check_flags(i, terminated, truncated)
            self._returns[i] += reward
            self.reward[i] = reward
            self._terminated[i] = terminated
            self._truncated[i] = truncated and not terminated
            self._write(observation, after, i)
            if terminated or truncated:
                finished.append(Episode(i, int(self.episode[i]), self._returns[i], len(self._actions[i])))
            else:
                self.first[i] = False
        self._check_finite(after)
        if finished:  # only then do the last observations and the next ones differ
            next_obs = self._last
            for last, new in zip(next_obs, after, strict=True):
                last[...] = new
            for episode in finished:
                self._begin(episode.env, after)
        self.obs, self._spare = after, before
        return Step(before, next_obs, self.reward, self._terminated, self._truncated, finished)

    def _check_flags(self, i: int, terminated: Any, truncated: Any) -> None:
        if not isinstance(terminated, FLAG) or not isinstance(truncated, FLAG):
            raise EnvironmentFailed(
                f"environment {i} ({self.envs[i]}) gave terminated = {terminated!r:.60} and truncated = "
                f"{truncated!r:.60}; each must be True or False. Mend the environment."
            )

    def _checked_reward(self, i: int, reward: Any) -> float:
        value = _number(reward)
        if not abs(value) <= LARGEST:
            raise EnvironmentFailed(
                f"environment {i} ({self.envs[i]}) gave the reward {_brief(reward)} in episode {self.episode[i]}, "
                f"step {len(self._actions[i])}; nothing can be learnt from that. Mend the environment's reward."
            )
        return value

    def state(self) -> dict[str, np.ndarray]:
        """Everything that the half-played episodes can be rebuilt from."""
        arrays = {"episode": self.episode.copy(), "returns": np.array(self._returns), "reward": self.reward.copy()}
        for i, actions in enumerate(self._actions):
            arrays[f"actions.{i}"] = np.array(actions, np.int64)
        for index, leaf in enumerate(self.obs):
            arrays[f"obs.{index}"] = leaf.copy()
        return arrays

    def load(self, state: dict[str, np.ndarray], *, inexact: bool = False) -> list[int]:
        """Rebuild the half-played episodes by replaying their actions from their seeds.

        Args:
            state: from `state()`.
            inexact: begin an episode that cannot be rebuilt anew instead of refusing.

        Returns:
            The environments whose episode was begun anew.

        Raises:
            ResumeMismatch: an episode came out differently: the environment hides state from its seed.
        """
        renewed = []
        _check(state, self.obs)
        for i in range(self.num_envs):
            self.episode[i] = state["episode"][i] - 1
            if self._fresh:  # whatever the episode: the environment made at the start was reset already
                self.envs[i].close()
                self.envs[i] = self._make()
            self._begin(i, self.obs, renew=False)
            if self._rebuilt(i, state):
                continue
            if not inexact:
                hint = "" if self._fresh else " Try --set env.fresh=true in a new run."
                raise ResumeMismatch(
                    f"environment {i} ({self.envs[i]}): replaying its half-played episode gave other observations, so "
                    f"it keeps state that its seed does not set.{hint} Or accept an "
                    "inexact resume, which begins that episode anew: --set run.inexact_resume=true"
                )
            self._begin(i, self.obs)
            renewed.append(i)
        return renewed

    def skip_to(self, episodes: np.ndarray) -> None:
        """Begin these episodes, `[N]`, anew: other environments were in the middle of others."""
        for i in range(self.num_envs):
            self.episode[i] = episodes[i] - 1
            self._begin(i, self.obs)

    def _rebuilt(self, i: int, state: dict[str, np.ndarray]) -> bool:
        for action in state[f"actions.{i}"].tolist():
            try:
                observation, reward, terminated, truncated, _ = self.envs[i].step(action + self._start)
            except Exception as error:
                raise self._failure(i, error, f"step({action + self._start}), replayed for a resume") from error
            if terminated or truncated:
                return False
            self._actions[i].append(action)
            self._returns[i] += float(reward)
            self.first[i] = False
            self._write(observation, self.obs, i)
        self.reward[i] = state["reward"][i]
        same = all(np.array_equal(leaf[i], state[f"obs.{k}"][i], equal_nan=True) for k, leaf in enumerate(self.obs))
        return same and self._returns[i] == state["returns"][i]

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def _number(reward: Any) -> float:
    """The reward as a float, NaN if it is no number."""
    if isinstance(reward, (str, bytes)):
        return float("nan")
    try:
        return float(reward)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _brief(value: Any) -> str:
    text = f"{value}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _check(state: dict[str, np.ndarray], obs: tuple[np.ndarray, ...]) -> None:
    """The state must be one of as many environments with the same observations."""
    num = len(obs[0])
    expected = {"episode": (num,), "returns": (num,), "reward": (num,)}
    expected |= {f"obs.{k}": leaf.shape for k, leaf in enumerate(obs)}
    actions = {f"actions.{i}" for i in range(num)}
    found = {name: array.shape for name, array in state.items() if name not in actions}
    if found != expected or not actions <= state.keys() or any(state[name].dtype.kind != "i" for name in actions):
        raise CorruptFile(
            f"the environments' saved state does not fit: it holds {sorted(state)}, of the shapes {found}."
        )
