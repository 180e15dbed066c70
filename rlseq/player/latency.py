"""How long a policy takes to decide: ONNX Runtime alone, on one thread, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlseq.player.graph import head_of, new_state, open_graph
from rlseq.player.onnx_file import read_onnx_file
from rlseq.player.onnx_policy import load_onnx
from rlseq.spec import Leaf

WARM_UP = 200  # calls before the clock runs: the first ones allocate


class Latency(NamedTuple):
    """Speed of one policy on one machine.

    Attributes:
        calls: of one observation each, timed one by one.
        p50_us, p99_us: microseconds of a call that half, and 99 of 100, of the calls did not exceed.
        batch: observations in one call of the throughput.
        observations_per_second: decided in calls of `batch`, one call after the other.
    """

    calls: int
    p50_us: float
    p99_us: float
    batch: int
    observations_per_second: float


def measure_latency(path: Path, *, calls: int = 5_000, batch: int = 64, seconds: float = 1.0) -> Latency:
    """Time the calls that `play` makes, without the environment.

    Args:
        path: an .onnx file of rlseq.
        calls: with one observation, at least 1.
        batch: observations in a call of the throughput.
        seconds: for how long the throughput is measured.

    Raises:
        CorruptFile, NewerFormat, RlseqError: as `load_onnx`.
    """
    spec = load_onnx(path).spec
    session = open_graph(read_onnx_file(path)).session
    outputs = [head_of(spec), *(leaf.output for leaf in spec.state)]

    def call(size: int) -> Callable[[], Any]:
        feed = {leaf.name: example(leaf, size) for leaf in spec.observation}
        feed |= dict(zip([leaf.name for leaf in spec.state], new_state(spec.state, size), strict=True))
        return lambda: session.run(outputs, feed)

    one, many = call(1), call(batch)
    clock = time.perf_counter_ns
    for _ in range(WARM_UP):
        one()
    times = np.empty(calls, np.int64)
    for k in range(calls):
        begin = clock()
        one()
        times[k] = clock() - begin
    many()
    done, begin, end = 0, clock(), clock() + int(seconds * 1e9)
    while (now := clock()) < end or not done:
        many()
        done += batch
    p50, p99 = np.percentile(times, (50, 99)) / 1e3
    return Latency(calls, float(p50), float(p99), batch, done / max(1e-9, (now - begin) / 1e9))


def example(leaf: Leaf, batch: int) -> np.ndarray:
    """Observations `[batch, *leaf.shape]` of the leaf's dtype that a graph can take; always the same ones."""
    shape, dtype = (batch, *leaf.shape), np.dtype(leaf.dtype)
    if leaf.sizes:
        starts = np.array(leaf.starts).reshape(leaf.shape)
        return np.broadcast_to(starts, shape).astype(dtype)
    rng = np.random.default_rng(0)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)
