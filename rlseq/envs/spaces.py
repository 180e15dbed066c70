"""Gymnasium spaces as the leaves and actions of a `PolicySpec`."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlseq.errors import UsageError
from rlseq.spec import ActionSpec, Leaf

MAX_ONE_HOT = 65_536  # features; beyond it a one-hot vector is no sensible input


def observation_leaves(space: gym.Space, env_id: str) -> tuple[Leaf, ...]:
    """The leaves of an observation space, in the space's own order.

    Raises:
        UsageError: a space that DQN cannot learn on; says why and what would work.
    """
    leaves = tuple(_leaves(space, (), env_id))
    names = [leaf.name for leaf in leaves]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"{env_id}: two parts of the observation space would both be the input {name}: rename a key."
            )
    if not leaves or any(leaf.width == 0 for leaf in leaves):
        raise UsageError(f"{env_id}: the observation space {space} is empty; there is nothing to learn from.")
    return leaves


def _leaves(space: gym.Space, path: tuple[str | int, ...], env_id: str) -> Iterator[Leaf]:
    name = ".".join(["obs", *map(str, path)])
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key), env_id)
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, index), env_id)
    elif isinstance(space, spaces.Box):
        yield _box(space, name, path, env_id)
    elif isinstance(space, spaces.Discrete):
        _check_one_hot(int(space.n), space, env_id)
        yield Leaf(
            name=name, path=path, kind="discrete", dtype="int64", sizes=(int(space.n),), starts=(int(space.start),)
        )
    elif isinstance(space, spaces.MultiDiscrete):
        sizes = tuple(int(n) for n in np.ravel(space.nvec))
        _check_one_hot(sum(sizes), space, env_id)
        starts = tuple(int(n) for n in np.ravel(space.start))
        yield Leaf(
            name=name,
            path=path,
            kind="multi_discrete",
            shape=space.nvec.shape,
            dtype="int64",
            sizes=sizes,
            starts=starts,
        )
    elif isinstance(space, spaces.MultiBinary):
        yield Leaf(name=name, path=path, kind="multi_binary", shape=tuple(space.shape), dtype="int8")
    else:
        raise UsageError(
            f"{env_id}: observations of the space {type(space).__name__} ({space}) are not supported. What works: Box, "
            "Discrete, MultiBinary, MultiDiscrete, and Dict or Tuple of these. Wrap the environment with "
            "gymnasium.wrappers.TransformObservation to turn the observation into one of them."
        )


def _box(space: spaces.Box, name: str, path: tuple[str | int, ...], env_id: str) -> Leaf:
    kind = space.dtype.kind
    if kind not in "biuf":
        raise UsageError(f"{env_id}: a Box of {space.dtype} holds no numbers that a network could read.")
    dtype = "float32" if kind == "f" else "uint8" if kind == "b" else space.dtype.name
    # ONNX Runtime has few kernels for wide unsigned integers.
    dtype = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}.get(dtype, dtype)
    image = space.dtype == np.uint8 and bool(np.all(space.low == 0)) and bool(np.all(space.high == 255))
    return Leaf(
        name=name, path=path, kind="box", shape=tuple(space.shape), dtype=dtype, scale=1 / 255 if image else 1.0
    )


def _check_one_hot(width: int, space: gym.Space, env_id: str) -> None:
    if width > MAX_ONE_HOT:
        raise UsageError(
            f"{env_id}: {space} would be a one-hot vector of {width} features, more than {MAX_ONE_HOT}. "
            "Encode it as a small Box with gymnasium.wrappers.TransformObservation."
        )


def action_spec(space: gym.Space, env_id: str) -> ActionSpec:
    """The actions of a discrete action space.

    Raises:
        UsageError: any other space; says why and what would work.
    """
    if isinstance(space, spaces.Discrete):
        return ActionSpec(n=int(space.n), start=int(space.start))
    if isinstance(space, spaces.Box):
        fix = (
            "Continuous actions are not in rlseq's scope; choose a few levels and offer them as Discrete actions, with "
            "gymnasium.wrappers.TransformAction(env, lambda i: LEVELS[i], gymnasium.spaces.Discrete(len(LEVELS)))."
        )
    elif isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        fix = (
            "Number the combinations and offer them as one Discrete action, with gymnasium.wrappers.TransformAction "
            "and numpy.unravel_index."
        )
    else:
        fix = "Only Discrete actions work."
    raise UsageError(f"{env_id}: DQN takes a maximum over actions, so it needs Discrete actions, not {space}. {fix}")
