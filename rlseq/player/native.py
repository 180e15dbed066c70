"""Playing on an environment's own vector version (its `vector_entry_point`): many times faster, but not comparable.

Such environments take one seed for all episodes and reset by themselves, so an episode cannot be played again by its
number; results are marked `native` and never used for selection or parity.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rlseq.envs.seeding import EVALUATION, derived_seed
from rlseq.errors import EnvironmentFailed, RlseqError, UsageError
from rlseq.player.rollout import Rollout, check_actions, check_counts
from rlseq.spec import Leaf, Policy, PolicySpec, StepInput, cast, pick


def rollout_native(policy: Policy[Any], spec: PolicySpec, *, episodes: int, seed: int, num_envs: int) -> Rollout:
    """Play episodes on the native vector environment of `spec.env`.

    Environment j plays episodes j, j + N, j + 2N ..., as many as that gives; what it plays beyond them is not counted,
    so short episodes are not favoured.

    Args:
        policy: as for `rollout`.
        spec: names the environment; it must be registered already.
        episodes: how many.
        seed: one for all.
        num_envs: N.

    Raises:
        UsageError: the environment has no native version, or one that cannot be counted right.
        RlseqError: the environment or the policy failed.
    """
    check_counts(episodes, seed, num_envs)
    env = _make(spec, num_envs)
    try:
        check_actions(spec, env.single_action_space)
        return _play(policy, spec, env, episodes, derived_seed(EVALUATION, seed))
    except RlseqError:
        raise
    except Exception as error:
        raise EnvironmentFailed(
            f"the native version of {spec.env.id} raised {type(error).__name__}: {error}. This is the environment's "
            "own code; play without --native."
        ) from error
    finally:
        env.close()


def _make(spec: PolicySpec, num_envs: int) -> VectorEnv:
    env_id = spec.env.id
    if ":" in env_id or env_id not in gym.registry:
        raise UsageError(f"there is no registered environment {env_id!r}. Your own: --import MODULE.")
    if gym.spec(env_id).vector_entry_point is None:
        raise UsageError(f"{env_id} has no native vector version (vector_entry_point): play without --native.")
    kwargs = dict(spec.env.kwargs)
    if spec.env.max_episode_steps is not None:
        kwargs["max_episode_steps"] = spec.env.max_episode_steps
    try:
        env = gym.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **kwargs)
    except Exception as error:
        given = f" with {kwargs}" if kwargs else ""
        raise RlseqError(
            f"the native version of {env_id} could not be made{given}: {type(error).__name__}: {error}. Play without "
            "--native."
        ) from error
    mode = env.metadata.get("autoreset_mode")
    if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        env.close()
        raise UsageError(
            f"the native version of {env_id} has autoreset_mode {mode}, which is not supported: play without --native."
        )
    return env


def _play(policy: Policy[Any], spec: PolicySpec, env: VectorEnv, episodes: int, seed: int) -> Rollout:
    n = env.num_envs
    next_step = env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    leaves = tuple((leaf, msgspec.structs.replace(leaf, shape=(n, *leaf.shape))) for leaf in spec.observation)
    played, wanted = np.zeros(n, np.int64), np.array([len(range(j, episodes, n)) for j in range(n)])
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    running, length = np.zeros(n), np.zeros(n, np.int64)
    first, last_reward = np.ones(n, np.bool_), np.zeros(n, np.float32)
    over = np.zeros(n, np.bool_)  # ended in the last step, so that this one only resets it
    state, missing = policy.initial_state(n), episodes
    begin = time.perf_counter()
    observation, _ = env.reset(seed=seed)
    while missing:
        actions, state = policy.act(StepInput(_leaves(observation, leaves), last_reward, first), state)
        observation, reward, terminated, truncated, _ = env.step(actions)
        if over.any():
            reward = np.where(over, 0.0, reward)
        running += reward
        length += ~over
        done = (terminated | truncated) & ~over
        for j in np.flatnonzero(done).tolist():
            if played[j] < wanted[j]:
                number = int(played[j]) * n + j
                returns[number], lengths[number] = running[j], length[j]
                played[j] += 1
                missing -= 1
            running[j], length[j] = 0.0, 0
        first = over if next_step else done
        last_reward = np.where(first, 0.0, reward).astype(np.float32)
        over = done if next_step else over
    return Rollout(returns, lengths, time.perf_counter() - begin, int(lengths.sum()))


def _leaves(observation: Any, leaves: tuple[tuple[Leaf, Leaf], ...]) -> tuple[np.ndarray, ...]:
    """A batched observation as leaves `[N, *leaf.shape]`."""
    return tuple(cast(pick(observation, leaf), batched) for leaf, batched in leaves)
