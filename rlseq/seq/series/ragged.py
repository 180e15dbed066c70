"""Sequences of different lengths, cut to a few padded lengths, so that shapes do not vary without end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MAX_CANDIDATES = 512  # lengths among which padded lengths are chosen: exact below, every so-manieth above


class Padded(NamedTuple):
    """B sequences of one length.

    Attributes:
        values: `[B, T, F]` float32, zero where nothing was given.
        given: `[B, T]` bool, false for padding, which stands at the right.
    """

    values: np.ndarray
    given: np.ndarray


class Ragged:
    """N sequences of F features.

    Args:
        values: `[sum of lengths, F]` float32, one sequence after the other.
        lengths: `[N]` int64, each at least 1.

    Attributes: the arguments.
    """

    def __init__(self, values: np.ndarray, lengths: np.ndarray) -> None:
        self.values, self.lengths = values, lengths
        self._starts = np.cumsum(lengths) - lengths

    def padded(self, which: np.ndarray, length: int) -> Padded:
        """The sequences `which` `[B]`, padded to `length`."""
        place_T = np.arange(length)
        given_BT = place_T < self.lengths[which][:, None]
        index_BT = np.minimum(self._starts[which][:, None] + place_T, len(self.values) - 1)
        return Padded(self.values[index_BT] * given_BT[..., None], given_BT)

    def rows_of(self, which: np.ndarray) -> np.ndarray:
        """All values `[M, F]` of the sequences `which`."""
        wanted = np.zeros(len(self.lengths), np.bool_)
        wanted[which] = True
        return self.values[np.repeat(wanted, self.lengths)]


def padded_lengths(lengths: np.ndarray, count: int) -> tuple[int, ...]:
    """At most `count` lengths, the longest among them, that together need the least padding.

    Each sequence is padded to the smallest that holds it. By dynamic programming over the different lengths.

    Args:
        lengths: `[N]` of the sequences.
        count: how many padded lengths there may be.

    Returns:
        Ascending.
    """
    unique, number = np.unique(lengths, return_counts=True)
    below = np.concatenate(([0], np.cumsum(number)))  # sequences shorter than each
    if len(unique) > MAX_CANDIDATES:
        keep = np.linspace(0, len(unique) - 1, MAX_CANDIDATES).round().astype(int)
        below = np.concatenate(([0], below[1:][keep]))
        unique = unique[keep]
    if count >= len(unique):
        return tuple(unique.tolist())
    # cost[j]: values in all sequences up to length j, padded, with the padded lengths that are allowed so far.
    cost = unique * below[1:]
    choices = []
    for _ in range(count - 1):
        # row j, column i: the longest bucket holds what is longer than i - 1 and not longer than j.
        table = np.concatenate(([0], cost[:-1]))[None] + unique[:, None] * (below[1:, None] - below[None, :-1])
        table = np.where(np.tri(len(unique), dtype=np.bool_), table, np.iinfo(np.int64).max)
        choices.append(table.argmin(axis=1))
        cost = table.min(axis=1)
    chosen, last = [], len(unique) - 1
    for choice in reversed(choices):
        chosen.append(int(unique[last]))
        last = int(choice[last]) - 1
        if last < 0:
            break
    else:
        chosen.append(int(unique[last]))
    return tuple(reversed(chosen))


def bucket_of(lengths: np.ndarray, buckets: tuple[int, ...]) -> np.ndarray:
    """`[N]` int64, the index of the smallest of `buckets` that holds each length."""
    return np.searchsorted(np.array(buckets), lengths)


def padding_share(lengths: np.ndarray, buckets: tuple[int, ...]) -> float:
    """Which share of the padded sequences is padding."""
    padded = np.array(buckets)[bucket_of(lengths, buckets)]
    return float(1 - lengths.sum() / padded.sum())
