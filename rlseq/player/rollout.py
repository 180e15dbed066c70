"""Playing episodes with a policy: the one loop of training's evaluation, `eval`, `play`, cards and parity.

Episode i has seed f(seed, i) and is always played by environment i % N, so the number of episodes of an environment is
fixed beforehand: playing until enough episodes have ended would favour the short ones (stable-baselines3#402).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rlseq.envs.batch import EnvBatch
from rlseq.envs.make import MakeEnv
from rlseq.envs.seeding import evaluation_seed
from rlseq.envs.spaces import action_spec
from rlseq.errors import EnvironmentFailed, RlseqError, UsageError
from rlseq.spec import Policy, PolicySpec, StepInput

OnStep = Callable[[int, StepInput[np.ndarray], np.ndarray, np.ndarray], None]
"""(step, what the policy saw, its actions [N] in the environment's numbering, active [N] bool), before the environments
step. The arrays are overwritten later: copy what is to be kept."""

OnFrame = Callable[[int, int, np.ndarray], None]
"""(environment, episode, frame `[H, W, 3]` uint8) after every reset and step of environment 0."""


class Abandoned(Exception):
    """The episodes were given up because `should_stop` said so."""


class Rollout(NamedTuple):
    """Played episodes.

    Attributes:
        returns: `[E]` float64, undiscounted, in the order of the episodes' numbers.
        lengths: `[E]` int64, steps.
        seconds: wall time of acting and stepping, without the making of environments.
        steps: of the counted episodes, over all environments.
    """

    returns: np.ndarray
    lengths: np.ndarray
    seconds: float
    steps: int

    def summary(self, seed: int, env_id: str) -> dict[str, Any]:
        """What `eval` and `play` print, as plain Python numbers; `std_return` is the population's."""
        return {
            "mean_return": float(self.returns.mean()),
            "std_return": float(self.returns.std()),
            "min_return": float(self.returns.min()),
            "max_return": float(self.returns.max()),
            "episodes": len(self.returns),
            "mean_length": float(self.lengths.mean()),
            "steps_per_second": self.steps / max(self.seconds, 1e-9),
            "seed": int(seed),
            "env_id": env_id,
        }


def rollout(
    policy: Policy[Any],
    make: MakeEnv,
    *,
    episodes: int,
    seed: int,
    num_envs: int = 1,
    fresh: bool = False,
    on_step: OnStep | None = None,
    on_frame: OnFrame | None = None,
    should_stop: Callable[[], bool] | None = None,
    share: tuple[int, int] = (0, 1),
) -> Rollout:
    """Play episodes with a policy.

    The policy always sees `num_envs` rows; those without an episode left keep an observation they had. So the result
    does not depend on which episodes end when.

    Args:
        policy: torch or ONNX; it gets numpy arrays and gives actions `[num_envs]` in the environment's own numbering.
        make: makes an environment.
        episodes: how many.
        seed: episode i is reset with `evaluation_seed(seed, i)`.
        num_envs: environments side by side.
        fresh: make a new environment for every episode.
        on_step: recorder, see `OnStep`.
        should_stop: asked before every step; once it says yes, `Abandoned` is raised.
        on_frame: gets the frames of environment 0, which must have the render mode rgb_array.
        share: (k, n): play the episodes k, k + n, k + 2n ... alone, as one of n that share the work.

    Raises:
        UsageError: no episodes or no environments, or the environment has other actions than the policy.
        RlseqError: the environment or the policy failed.
    """
    check_counts(episodes, seed, num_envs)
    offset, stride = share
    episodes = len(range(offset, episodes, stride))
    if not episodes:
        return Rollout(np.zeros(0), np.zeros(0, np.int64), 0.0, 0)

    def seed_of(env: int, number: int) -> int | None:
        episode = number * num_envs + env
        return evaluation_seed(seed, offset + stride * episode) if episode < episodes else None

    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    start = policy.spec.action.start
    batch = EnvBatch(make, num_envs, policy.spec.observation, action_start=start, seed_of=seed_of, fresh=fresh)
    try:
        check_actions(policy.spec, batch.envs[0].action_space)
        state = policy.initial_state(num_envs)
        act, step, first, reward, active = policy.act, batch.step, batch.first, batch.reward, batch.active
        missing, steps = episodes, 0
        begin = time.perf_counter()
        if on_frame is not None:
            _tap(batch, on_frame)
        while missing:
            if should_stop is not None and should_stop():
                raise Abandoned
            seen = StepInput(batch.obs, reward, first)
            actions, state = act(seen, state)
            if on_step is not None:
                on_step(steps, seen, actions, active)
            finished = step(actions - start if start else actions).finished
            steps += 1
            for episode in finished:
                number = episode.number * num_envs + episode.env
                returns[number], lengths[number] = episode.episode_return, episode.length
                reward[episode.env] = 0.0  # the next episode starts without one
                missing -= 1
                if on_frame is not None and episode.env == 0:
                    _tap(batch, on_frame)
        return Rollout(returns, lengths, time.perf_counter() - begin, int(lengths.sum()))
    finally:
        batch.close()


def check_counts(episodes: int, seed: int, num_envs: int) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        UsageError: names the number.
    """
    for name, value, least, most in (
        ("episodes", episodes, 1, 1_000_000),
        ("seed", seed, 0, 2**53),
        ("num_envs", num_envs, 1, 65_536),
    ):
        if not least <= value <= most:
            raise UsageError(f"{name} = {value} is not allowed: it must be from {least} to {most}.")


def check_actions(spec: PolicySpec, space: gym.Space) -> None:
    """The environment must have the actions that the policy was trained on.

    Raises:
        UsageError: both are named.
    """
    found = action_spec(space, spec.env.id)
    if found != spec.action:
        raise UsageError(
            f"{spec.env.id} has {found.n} actions from {found.start} on, the policy chooses among {spec.action.n} from "
            f"{spec.action.start} on: this is not the environment it was trained on."
        )


class _FrameTap(gym.Wrapper):
    """Renders after every reset and step, so that an episode's last frame is seen before the next one begins."""

    def __init__(self, env: gym.Env, on_frame: OnFrame, episode: int, stride: int) -> None:
        super().__init__(env)
        self._on_frame, self._episode, self._stride = on_frame, episode, stride
        self._show()

    def _show(self) -> None:
        try:
            frame = self.env.render()
        except Exception as error:
            raise EnvironmentFailed(
                f"{self.env} could not be rendered: {type(error).__name__}: {error}. Leave --render out, or see "
                "whether the environment needs a screen (SDL_VIDEODRIVER=dummy does without)."
            ) from error
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise RlseqError(f"{self.env} rendered {type(frame).__name__}, not an image [height, width, 3].")
        self._on_frame(0, self._episode, frame)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(**kwargs)
        self._episode += self._stride
        self._show()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._show()
        return result


def _tap(batch: EnvBatch, on_frame: OnFrame) -> None:
    """Tap environment 0, unless it is (a fresh environment for the next episode is not)."""
    if batch.active[0] and not isinstance(batch.envs[0], _FrameTap):
        batch.envs[0] = _FrameTap(batch.envs[0], on_frame, int(batch.episode[0]) * batch.num_envs, batch.num_envs)
