"""The clock around a policy."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from rlseq.player.latency import example, measure_latency
from rlseq.spec import Leaf
from tests import graphs


def test_a_policy_is_measured(tmp_path: Path) -> None:
    policy = graphs.save_linear(tmp_path / "policy.onnx", graphs.spec_of("CartPole-v1"), np.zeros((4, 2)))
    found = measure_latency(policy, calls=300, seconds=0.05)
    assert (found.calls, found.batch) == (300, 64)
    assert 0.5 < found.p50_us <= found.p99_us < 1e5
    assert found.observations_per_second > 1e4


def test_a_policy_with_a_memory_is_measured(tmp_path: Path) -> None:
    policy = graphs.save_recurrent(tmp_path / "policy.onnx", graphs.spec_of("CartPole-v1"), np.zeros((4, 2)))
    assert measure_latency(policy, calls=10, batch=3, seconds=0.0).batch == 3


def test_the_numbers_are_those_of_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is 1 ms later, but the call that takes 101 ms."""
    looks = 0

    def clock() -> int:
        nonlocal looks
        looks += 1
        return looks * 1_000_000 + (100_000_000 if looks >= 20 else 0)

    policy = graphs.save_linear(tmp_path / "policy.onnx", graphs.spec_of("CartPole-v1"), np.zeros((4, 2)))
    monkeypatch.setattr(time, "perf_counter_ns", clock)
    found = measure_latency(policy, calls=10, batch=5, seconds=0.01)
    assert found.p50_us == 1_000.0
    assert found.p99_us == pytest.approx(1_000 + 0.91 * 100_000)  # the tenth of ten, interpolated at 8.91
    # begin at 1, end at 2 + 10 looks: looks 3 to 11 each find time left, and look 12 does not
    assert found.observations_per_second == pytest.approx(9 * 5 / 0.011)


@pytest.mark.parametrize(
    "leaf",
    [
        Leaf(name="obs", shape=(3,)),
        Leaf(name="obs", shape=(2, 4, 4), dtype="uint8", scale=1 / 255),
        Leaf(name="obs", kind="discrete", shape=(), dtype="int64", sizes=(5,), starts=(-2,)),
        Leaf(name="obs", kind="multi_discrete", shape=(2, 2), dtype="int64", sizes=(5, 4, 3, 2), starts=(0, 1, 2, 3)),
        Leaf(name="obs", kind="multi_binary", shape=(6,), dtype="int8"),
    ],
    ids=lambda leaf: f"{leaf.kind}-{leaf.dtype}",
)
def test_examples_are_observations_of_the_leaf(leaf: Leaf) -> None:
    found = example(leaf, 7)
    assert (found.shape, found.dtype) == ((7, *leaf.shape), np.dtype(leaf.dtype))
    np.testing.assert_array_equal(found, example(leaf, 7))
    if leaf.sizes:
        np.testing.assert_array_equal(found[3].ravel(), leaf.starts)
