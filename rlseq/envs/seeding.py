"""Seeds: every episode, and every random stream, has its own, derived from few numbers by
`numpy.random.SeedSequence`."""

from __future__ import annotations

import numpy as np

TRAINING, EVALUATION, EXPLORATION, REPLAY, WEIGHTS = range(5)  # first word of a seed, so that no two streams meet


def derived_seed(*words: int) -> int:
    """A 32-bit seed from non-negative numbers; different words give unrelated seeds."""
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def training_seed(run_seed: int, rank: int, env: int, episode: int) -> int:
    """Seed of a training episode."""
    return derived_seed(TRAINING, run_seed, rank, env, episode)


def evaluation_seed(seed: int, episode: int) -> int:
    """Seed of evaluation episode number `episode`, whatever the number of environments."""
    return derived_seed(EVALUATION, seed, episode)


def generator(stream: int, run_seed: int, rank: int = 0, *more: int) -> np.random.Generator:
    """The random stream `EXPLORATION` or `REPLAY` of a process of a run; `more` tells it from an earlier one."""
    return np.random.default_rng(np.random.SeedSequence((stream, run_seed, rank, *more)))
