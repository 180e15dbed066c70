"""Spaces as leaves, and what is refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlseq.envs.spaces import action_spec, observation_leaves
from rlseq.errors import UsageError
from rlseq.spec import ActionSpec, Leaf


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
