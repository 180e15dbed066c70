"""How long a sequence model takes to write, or to answer a series: ONNX Runtime on one thread, on this machine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlseq.player.generate import as_prompt, check_writes, endless
from rlseq.player.sampling import Sampling
from rlseq.player.sequence import OnnxSequence, load_sequence

WARM_UP = 50  # tokens before the clock runs: the first ones allocate
WARM_UP_PREDICTIONS = 5


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


class PredictionSpeed(NamedTuple):
    """Speed of one sequence model on one machine, one prediction at a time.

    Attributes:
        calls: predictions, timed one by one: answers, each with all its tokens, or series.
        p50_ms, p99_ms: milliseconds that half, and 99 of 100, of them did not exceed.
        per_second: of all of them.
    """

    calls: int
    p50_ms: float
    p99_ms: float
    per_second: float


def measure_generation(path: Path, *, tokens: int = 2_000) -> GenerationSpeed:
    """Time what `generate` does after a prompt, or in answer to a source, as long as the model's context.

    Args:
        path: an .onnx file of a model that writes.
        tokens: how many are timed, at least 1. Those that end an answer do not end this one.

    Raises:
        UsageError, CorruptFile, NewerFormat, RlseqError: as `load_sequence`; or it writes nothing.
    """
    model = load_sequence(path)
    check_writes(model.spec)
    stream = _texts(model) if model.spec.signature.kind == "translate" else _text(model, WARM_UP + tokens)
    return GenerationSpeed(tokens, model.spec.context, *_timed(itertools.islice(stream, WARM_UP + tokens), WARM_UP))


def _text(model: OnnxSequence, num_tokens: int) -> Iterator[int]:
    rng = np.random.default_rng(0)
    prompt_T = as_prompt(model.spec, rng.integers(0, model.spec.vocabulary, model.spec.context))
    return endless(model, prompt_T, num_tokens, Sampling(), rng)


def _texts(model: OnnxSequence) -> Iterator[int]:
    """Answers of a context's length one after the other, without the first token of each, which waits for the source.

    What has been answered has no window, so that one long answer would take ever longer.
    """
    rng, spec = np.random.default_rng(0), model.spec
    while True:
        source_T = rng.integers(0, spec.vocabulary, spec.context)
        answer = endless(model, source_T, max(2, spec.context), Sampling(), rng)
        next(answer)
        yield from answer


def measure_prediction(predict: Callable[[], object], *, calls: int = 500) -> PredictionSpeed:
    """Time a prediction.

    Args:
        predict: makes one.
        calls: how many are timed, at least 1.
    """
    made = (predict() for _ in range(WARM_UP_PREDICTIONS + calls))
    return PredictionSpeed(calls, *_timed(made, WARM_UP_PREDICTIONS))


def _timed(stream: Iterator[object], warm_up: int) -> tuple[float, float, float]:
    """p50 and p99 in milliseconds, and how many a second, of what follows the first `warm_up` of a stream."""
    clock = time.perf_counter_ns
    for _ in range(warm_up):
        next(stream)
    looks = [clock()]
    for _ in stream:
        looks.append(clock())
    p50, p99 = np.percentile(np.diff(looks), (50, 99)) / 1e6
    seconds = max(1e-9, (looks[-1] - looks[0]) / 1e9)
    return float(p50), float(p99), (len(looks) - 1) / seconds
