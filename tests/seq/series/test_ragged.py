"""Padding: what it leaves untouched, and that it is the least."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlseq.seq.series.ragged import MAX_CANDIDATES, Ragged, bucket_of, padded_lengths, padding_share


def test_padding_stands_at_the_right_and_is_marked() -> None:
    series = Ragged(np.arange(1, 13, dtype=np.float32).reshape(6, 2), np.array([3, 1, 2]))
    padded = series.padded(np.array([1, 0, 1, 2]), 4)
    assert padded.values.dtype == np.float32 and padded.given.dtype == np.bool_
    assert padded.given.tolist() == [
        [True, False, False, False],
        [True, True, True, False],
        [True, False, False, False],
        [True, True, False, False],
    ]
    assert padded.values[0].tolist() == [[7, 8], [0, 0], [0, 0], [0, 0]]
    assert padded.values[1].tolist() == [[1, 2], [3, 4], [5, 6], [0, 0]]
    assert padded.values[3].tolist() == [[9, 10], [11, 12], [0, 0], [0, 0]]


def test_the_rows_of_some() -> None:
    series = Ragged(np.arange(6, dtype=np.float32)[:, None], np.array([3, 1, 2]))
    assert series.rows_of(np.array([2, 0]))[:, 0].tolist() == [0, 1, 2, 4, 5]


def best_by_trial(lengths: np.ndarray, count: int) -> float:
    unique = np.unique(lengths).tolist()
    count = min(count, len(unique))
    return min(padding_share(lengths, (*some, unique[-1])) for some in itertools.combinations(unique[:-1], count - 1))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 5))
def test_no_other_lengths_need_less_padding(lengths: list[int], count: int) -> None:
    values = np.array(lengths)
    chosen = padded_lengths(values, count)
    assert list(chosen) == sorted(set(chosen)) and len(chosen) <= count and chosen[-1] == max(lengths)
    assert abs(padding_share(values, chosen) - best_by_trial(values, count)) < 1e-12


def test_lengths_by_hand() -> None:
    lengths = np.array([10, 10, 10, 11, 50, 52, 100])
    assert padded_lengths(lengths, 3) == (11, 52, 100)
    assert padded_lengths(lengths, 1) == (100,)
    assert padded_lengths(lengths, 9) == (10, 11, 50, 52, 100)
    assert bucket_of(lengths, (11, 52, 100)).tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert abs(padding_share(lengths, (11, 52, 100)) - 5 / 248) < 1e-12


def test_very_many_lengths_are_thinned_out() -> None:
    """Twenty thousand different lengths would take four hundred million cells."""
    lengths = np.arange(1, 20_001)
    chosen = padded_lengths(lengths, 4)
    assert len(chosen) == 4 and chosen[-1] == 20_000 and MAX_CANDIDATES == 512
    np.testing.assert_allclose(chosen, [5000, 10_000, 15_000, 20_000], atol=60)
