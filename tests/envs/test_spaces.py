"""Spaces as leaves, and what is refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlseq.envs.spaces import action_spec, observation_leaves
from rlseq.errors import UsageError
from rlseq.spec import ActionSpec, Leaf, cast, pick
from tests import toy_envs  # noqa: F401  registers the toy environments


@pytest.mark.parametrize(
    ("space", "leaf"),
    [
        (spaces.Box(-1, 1, (3, 2), np.float32), Leaf(name="obs", shape=(3, 2))),
        (spaces.Box(-1, 1, (3,), np.float64), Leaf(name="obs", shape=(3,))),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), Leaf(name="obs", shape=(8, 8, 3), dtype="uint8", scale=1 / 255)),
        (spaces.Box(0, 9, (2,), np.uint8), Leaf(name="obs", shape=(2,), dtype="uint8")),
        (spaces.Box(-5, 5, (2,), np.int32), Leaf(name="obs", shape=(2,), dtype="int32")),
        (spaces.Box(0, 5, (2,), np.uint32), Leaf(name="obs", shape=(2,), dtype="int64")),
        (spaces.Box(0, 1, (2,), np.bool_), Leaf(name="obs", shape=(2,), dtype="uint8")),
        (spaces.Discrete(4, start=-2), Leaf(name="obs", kind="discrete", dtype="int64", sizes=(4,), starts=(-2,))),
        (spaces.MultiBinary(5), Leaf(name="obs", kind="multi_binary", shape=(5,), dtype="int8")),
        (
            spaces.MultiDiscrete([[2, 3], [4, 5]]),
            Leaf(
                name="obs", kind="multi_discrete", shape=(2, 2), dtype="int64", sizes=(2, 3, 4, 5), starts=(0, 0, 0, 0)
            ),
        ),
    ],
)
def test_every_supported_space(space: gym.Space, leaf: Leaf) -> None:
    assert observation_leaves(space, "e") == (leaf,)


def test_nested_spaces_keep_their_order_and_name_their_inputs_by_key() -> None:
    space = spaces.Dict({"z": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]), "a": spaces.MultiBinary(1)})
    leaves = observation_leaves(space, "e")
    assert {leaf.name: leaf.path for leaf in leaves} == {"obs.z.0": ("z", 0), "obs.z.1": ("z", 1), "obs.a": ("a",)}
    assert [leaf.path[0] for leaf in leaves] == [key for key in space.spaces for _ in range(2 if key == "z" else 1)]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.Discrete(10**6),
    ],
)
def test_what_cannot_be_observed_is_refused_with_what_would_work(space: gym.Space) -> None:
    with pytest.raises(UsageError, match="TransformObservation"):
        observation_leaves(space, "e")


def test_actions() -> None:
    assert action_spec(spaces.Discrete(3, start=7), "e") == ActionSpec(n=3, start=7)
    for space, fix in (
        (spaces.Box(-1, 1, (2,)), "TransformAction"),
        (spaces.MultiDiscrete([2, 2]), "unravel_index"),
        (spaces.MultiBinary(2), "unravel_index"),
        (spaces.Text(3), "Only Discrete"),
    ):
        with pytest.raises(UsageError, match=fix):
            action_spec(space, "e")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(5), r"^e: observations of the space Text .*What works: Box, Discrete, MultiBinary, MultiDiscrete"),
        (spaces.Dict({"a": spaces.Box(0, 1, (1,)), "b": spaces.Text(3)}), r"^e: observations of the space Text"),
        (spaces.Tuple([spaces.Dict({"x": spaces.Sequence(spaces.Discrete(2))})]), r"^e: .*the space Sequence"),
        (spaces.OneOf([spaces.Discrete(2)]), r"the space OneOf"),
        (spaces.Discrete(65_537), r"^e: Discrete\(65537\) .*65537 features, more than 65536.*small Box"),
        (spaces.MultiDiscrete([40_000, 40_000]), r"80000 features"),
        (spaces.Dict({}), r"^e: .*is empty"),
        (spaces.Tuple([]), r"^e: .*is empty"),
        (spaces.Dict({"a": spaces.Tuple([])}), r"^e: .*is empty"),
        (spaces.Box(0, 1, (0,)), r"^e: .*is empty"),
        (spaces.Dict({"a.b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}), r"^e: .*obs\.a\.b"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, gym.Space) else "",
)
def test_every_refusal_says_what_and_why(space: gym.Space, message: str) -> None:
    """The last two: no number at all to learn from, and two parts whose ONNX inputs would bear one name."""
    with pytest.raises(UsageError, match=message):
        observation_leaves(space, "e")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-1, 1, (2,)), r"^e: DQN .*needs Discrete actions, not Box\(-1.0, 1.0.*Continuous.*TransformAction"),
        (spaces.MultiDiscrete([2, 3]), r"^e: .*not MultiDiscrete\(\[2 3\]\).*one Discrete action.*unravel_index"),
        (spaces.MultiBinary(3), r"^e: .*not MultiBinary\(3\).*unravel_index"),
        (spaces.Tuple([spaces.Discrete(2)]), r"^e: .*Only Discrete"),
        (spaces.Dict({"a": spaces.Discrete(2)}), r"^e: .*Only Discrete"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, gym.Space) else "",
)
def test_every_refused_action_space_says_what_would_work(space: gym.Space, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        action_spec(space, "e")


@pytest.mark.parametrize(
    ("space", "leaf"),
    [
        (spaces.Box(0, 1, ()), Leaf(name="obs")),
        (spaces.Box(-1, 1, (2,), np.float16), Leaf(name="obs", shape=(2,))),
        (spaces.Box(0, 60_000, (2,), np.uint16), Leaf(name="obs", shape=(2,), dtype="int32")),
        (spaces.Box(-9, 9, (2,), np.int8), Leaf(name="obs", shape=(2,), dtype="int8")),
        (spaces.Box(1, 255, (2,), np.uint8), Leaf(name="obs", shape=(2,), dtype="uint8")),
        (spaces.MultiBinary((2, 3)), Leaf(name="obs", kind="multi_binary", shape=(2, 3), dtype="int8")),
        (spaces.Discrete(65_536), Leaf(name="obs", kind="discrete", dtype="int64", sizes=(65_536,), starts=(0,))),
        (
            spaces.MultiDiscrete([2, 3], start=[1, -1]),
            Leaf(name="obs", kind="multi_discrete", shape=(2,), dtype="int64", sizes=(2, 3), starts=(1, -1)),
        ),
    ],
    ids=str,
)
def test_further_supported_spaces(space: gym.Space, leaf: Leaf) -> None:
    assert observation_leaves(space, "e") == (leaf,)


@pytest.mark.parametrize("env_id", ["toy/Dict-v0", "toy/Tuple-v0"])
def test_nested_leaves_cover_what_gymnasium_flattens(env_id: str) -> None:
    env = gym.make(env_id, disable_env_checker=True)
    leaves = observation_leaves(env.observation_space, env_id)
    assert sum(leaf.width for leaf in leaves) == spaces.flatdim(env.observation_space)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        for leaf in leaves:
            assert cast(pick(observation, leaf), leaf).shape == leaf.shape
    assert len({leaf.name for leaf in leaves}) == len(leaves)
