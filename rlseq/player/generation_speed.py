"""How long a sequence model takes to write: ONNX Runtime with its cache, on one thread, on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlseq.player.generate import generate
from rlseq.player.sampling import Sampling
from rlseq.player.sequence import load_sequence

WARM_UP = 50  # tokens before the clock runs: the first ones allocate


class GenerationSpeed(NamedTuple):
    """Speed of one sequence model on one machine, one text at a time.

    Attributes:
        tokens: timed one by one, each with the choice among the model's logits.
        context: tokens read before, so that the cache is as full as it gets.
        p50_ms, p99_ms: milliseconds that half, and 99 of 100, of the tokens did not exceed.
        tokens_per_second: of all of them.
    """

    tokens: int
    context: int
    p50_ms: float
    p99_ms: float
    tokens_per_second: float


def measure_generation(path: Path, *, tokens: int = 2_000) -> GenerationSpeed:
    """Time what `generate` does after a prompt as long as the model's context.

    Args:
        path: an .onnx file of a sequence model.
        tokens: how many are timed, at least 1.

    Raises:
        UsageError, CorruptFile, NewerFormat, RlseqError: as `load_sequence`.
    """
    model = load_sequence(path)
    rng = np.random.default_rng(0)
    prompt_T = rng.integers(0, model.spec.vocabulary, model.spec.context)
    stream = generate(model, prompt_T, WARM_UP + tokens, Sampling(), rng)
    clock = time.perf_counter_ns
    for _ in range(WARM_UP):
        next(stream)
    looks = np.empty(tokens + 1, np.int64)
    looks[0] = clock()
    for k, _ in enumerate(stream, 1):
        looks[k] = clock()
    p50, p99 = np.percentile(np.diff(looks), (50, 99)) / 1e6
    seconds = max(1e-9, float(looks[-1] - looks[0]) / 1e9)
    return GenerationSpeed(tokens, model.spec.context, float(p50), float(p99), tokens / seconds)
