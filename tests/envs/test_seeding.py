"""Seeds: each episode and each stream has its own, and none depends on anything but its words."""

from __future__ import annotations

import numpy as np
import pytest

from rlseq.envs.seeding import (
    EVALUATION,
    EXPLORATION,
    REPLAY,
    TRAINING,
    WEIGHTS,
    derived_seed,
    evaluation_seed,
    generator,
    training_seed,
)


def test_seeds_stay_what_they_are_in_every_release() -> None:
    """A run resumed by a later version replays its episodes: changing these numbers breaks every saved run."""
    assert (TRAINING, EVALUATION, EXPLORATION, REPLAY, WEIGHTS) == (0, 1, 2, 3, 4)
    for words in ((0, 0, 0, 0, 0), (1, 7, 99), (4, 2**53)):
        assert derived_seed(*words) == int(np.random.SeedSequence(words).generate_state(1)[0])
    assert training_seed(3, 0, 2, 5) == derived_seed(0, 3, 0, 2, 5)
    assert evaluation_seed(3, 5) == derived_seed(1, 3, 5)


def test_neighbours_are_unrelated() -> None:
    words = [(a, b, c) for a in range(20) for b in range(20) for c in range(20)]
    assert len({derived_seed(*word) for word in words}) == len(words)


@pytest.mark.parametrize("stream", [EXPLORATION, REPLAY])
def test_a_stream_is_its_own(stream: int) -> None:
    first = generator(stream, 5).integers(0, 2**60, 8)
    np.testing.assert_array_equal(first, generator(stream, 5).integers(0, 2**60, 8))
    for other in (generator(stream, 6), generator(stream, 5, rank=1), generator(EXPLORATION + REPLAY - stream, 5)):
        assert not set(first) & set(other.integers(0, 2**60, 8))
