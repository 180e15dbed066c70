"""Which questions of a generated task are never trained on.

A question's own hash decides, so nothing has to be remembered: any process, at any time, tells the two sides apart, and
a training that goes on at another length, or with another seed, holds out the same ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlseq.errors import UsageError

Questions = Callable[[np.random.Generator, int, int], np.ndarray]
"""`(rng, n, length) -> [n, Q]` int64, symbols from 0."""
Key = Callable[[np.ndarray], np.ndarray]
"""`[n, Q] -> [n, K]`: what of a question decides on its side."""

FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that every symbol counts
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # the last steps of splitmix64
TRIES = 200  # of drawing a question of the wanted side again
AT_ONCE = 1 << 20  # symbols drawn at once
VALIDATION = 102  # the random stream of validation questions
PATIENCE = 20  # times as many questions as should be needed are looked at


def held_out(keys: np.ndarray, share: float) -> np.ndarray:
    """Which rows of `[n, K]` are of the held-out side, `[n]` bool: about `share` of all that there can be."""
    factors = np.cumprod(np.full(keys.shape[1], FACTOR), dtype=np.uint64)
    words = (keys.astype(np.uint64) + np.uint64(1)) @ factors
    for shift, factor in MIX:
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words < np.uint64(min(share, 1.0) * (2**64 - 2**11))


def training_questions(
    questions: Questions, key: Key, share: float, rng: np.random.Generator, num: int, length: int
) -> np.ndarray:
    """`num` questions that are not held out, `[num, Q]`: a held-out one is drawn again.

    Raises:
        UsageError: there seem to be none.
    """
    drawn = questions(rng, num, length)
    for _ in range(TRIES):
        wrong = np.flatnonzero(held_out(key(drawn), share))
        if not len(wrong):
            return drawn
        drawn[wrong] = questions(rng, len(wrong), length)
    raise UsageError(
        f"of the questions of length {length} all seem to be held out (seq.validation = {share:g}): set seq.validation "
        "lower, or seq.length or seq.symbols higher"
    )


def validation_questions(questions: Questions, key: Key, share: float, num: int, length: int) -> np.ndarray:
    """Up to `num` different held-out questions, `[<= num, Q]`, always the same; fewer where there are no more.

    Raises:
        UsageError: not one is found, as when there are only a handful of questions.
    """
    rng = np.random.default_rng(np.random.SeedSequence((VALIDATION, length)))
    found: dict[bytes, np.ndarray] = {}
    left = int(PATIENCE * num / share) + 1
    while left > 0 and len(found) < num:
        # No more at once than the patience allows, nor than memory does.
        drawn = questions(rng, min(left, max(1, AT_ONCE // max(1, length))), length)
        left -= len(drawn)
        for question in drawn[held_out(key(drawn), share)]:
            found.setdefault(question.tobytes(), question)
    if not found:
        raise UsageError(
            f"no question of length {length} is held out for validation (seq.validation = {share:g}): there are too "
            "few different ones. Set seq.length or seq.symbols higher, or seq.validation"
        )
    return np.stack(list(found.values())[:num])
