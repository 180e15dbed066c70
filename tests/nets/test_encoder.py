"""Observations as features, against gymnasium's own flattening and against numpy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlseq.envs.spaces import observation_leaves
from rlseq.nets.encoder import ObservationEncoder, encode_leaf
from rlseq.spec import ActionSpec, EnvSpec, Leaf, PolicySpec, encode_observations

NESTED = {
    "z": spaces.Box(-1, 1, (2, 3), np.float64),
    "d": spaces.Discrete(5, start=-2),
    "a": spaces.MultiBinary((2, 2)),
    "m": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "n": spaces.Tuple([spaces.Dict({"u": spaces.Box(0, 9, (2,), np.uint8)}), spaces.Discrete(2)]),
}


@pytest.mark.parametrize(
    "space",
    [*NESTED.values(), spaces.Dict(NESTED), spaces.Tuple(list(NESTED.values()))],
    ids=lambda space: type(space).__name__,
)
def test_features_are_those_of_gymnasiums_flatten(space: gym.Space) -> None:
    """Same order of keys, same one-hot vectors, starts taken off; only 8-bit images are scaled besides."""
    leaves = observation_leaves(space, "e")
    space.seed(0)
    observations = [space.sample() for _ in range(9)]
    spec = PolicySpec(env=EnvSpec(id="e"), observation=leaves, action=ActionSpec(n=2))
    arrays = encode_observations(observations, spec)
    features = ObservationEncoder(leaves)(tuple(map(torch.from_numpy, arrays))).numpy()
    expected = np.stack([spaces.flatten(space, observation) for observation in observations]).astype(np.float32)
    np.testing.assert_array_equal(features, expected, strict=True)


def test_the_order_of_the_leaves_is_the_order_of_the_features() -> None:
    leaves = (Leaf(name="obs.b", shape=(1,)), Leaf(name="obs.a", shape=(2,)))
    x = torch.tensor([[1.0]]), torch.tensor([[2.0, 3.0]])
    assert ObservationEncoder(leaves)(x).tolist() == [[1, 2, 3]]
    assert ObservationEncoder(leaves[::-1])(x[::-1]).tolist() == [[2, 3, 1]]


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_images_are_scaled_once_and_other_bytes_are_not(batch: int) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (batch, 3, 2)).astype(np.uint8)
    for scale in (1 / 255, 1.0):
        leaf = Leaf(name="obs", shape=(3, 2), dtype="uint8", scale=scale)
        features = encode_leaf(leaf, torch.from_numpy(raw)).numpy()
        np.testing.assert_array_equal(features, raw.reshape(batch, 6).astype(np.float32) * np.float32(scale))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float32"])
def test_every_dtype_becomes_float32(dtype: str) -> None:
    leaf = Leaf(name="obs", shape=(2,), dtype=dtype)
    found = encode_leaf(leaf, torch.from_numpy(np.array([[1, 100]], dtype)))
    assert (found.dtype, found.tolist()) == (torch.float32, [[1.0, 100.0]])


@pytest.mark.parametrize("value", [-3, 3])
def test_a_number_outside_of_its_range_is_no_silent_nonsense(value: int) -> None:
    leaf = Leaf(name="obs", kind="discrete", dtype="int64", sizes=(5,), starts=(-2,))
    with pytest.raises(RuntimeError, match=r"[Cc]lass values"):
        encode_leaf(leaf, torch.tensor([value]))


def test_missing_leaves_are_no_silent_nonsense() -> None:
    encoder = ObservationEncoder((Leaf(name="obs.a"), Leaf(name="obs.b")))
    x: Any = (torch.zeros(1),)
    with pytest.raises(ValueError, match="shorter"):
        encoder(x)


def test_the_encoder_has_nothing_to_learn_or_to_save() -> None:
    encoder = ObservationEncoder(observation_leaves(spaces.Dict(NESTED), "e"))
    assert list(encoder.parameters()) == []
    assert encoder.state_dict() == {}
