"""The task `recall`: pairs of a key and a value; later, wherever a key comes again, its value is to follow.

The multi-query associative recall of Zoology (arXiv 2312.04927), and its distances: every key comes again once, at a
place drawn by a power law, nearer ones being likelier, and blanks fill the rest.

For `tokens` each value is due where its key comes again, and the row goes on with a blank. Were the value in it, half
of the values could be guessed from those that are left, and that is all a small model learns in 600 updates: 53 % of
the values are right. With blanks it is 99.7 % after 200.

For `translate` the row is the source, with the queries at its end, drawn anew for each place: a key may be asked
twice, so that none can be guessed from those before. The answer says each key and its value, for a value is found by
a key that has just been written; with values alone a small model has learnt nothing in 600 updates. It soon guesses by
what it has answered before (57 % of the values), and finds the pairs themselves with `net.mimetic` alone.

A row too short for all pairs and their queries has fewer: with `seq.min_length` a training has easy rows too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlseq.errors import UsageError
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.generated import GeneratedTask, Problem, alphabet_of
from rlseq.seq.tasks.holdout import Questions
from rlseq.sequence import Kind

BLANK = "."
POWER = 0.01  # Zoology's: a query's distance d has a probability proportional to d^(POWER - 1)


def recall(options: SeqOptions, kind: Kind) -> GeneratedTask:
    """`seq.pairs` keys and values of `seq.symbols` symbols, half of them keys: `aCbD..b.a.` is answered by `DC`.

    An encoder-decoder reads `aCbD..ba` and answers `bDaC`.
    """
    pairs, symbols = options.pairs or 4, options.symbols or 52
    keys = symbols // 2
    if keys < pairs or symbols - keys < pairs:
        raise UsageError(
            f"seq.symbols = {symbols} has too few keys for seq.pairs = {pairs}: a half are keys, each of which comes "
            f"once. Set seq.symbols={2 * pairs} or higher"
        )
    problem = Problem(
        name="recall",
        about=f"write the values of {pairs} keys",
        alphabet=alphabet_of(symbols) + BLANK,
        length=64,
        shortest=4,
        questions=rows_of(pairs, keys, symbols, together=kind == "translate"),
        answers=lambda questions: answered(questions, pairs, with_keys=kind == "translate"),
        places=lambda questions: asked(questions, pairs).places,
    )
    return GeneratedTask(problem, options, kind)


def rows_of(most: int, keys: int, symbols: int, *, together: bool) -> Questions:
    """Rows of at most `most` pairs, blanks and queries; symbols below `keys` are keys, those from there on values.

    The queries are the last symbols, or each stands at the beginning of a slot of two places, as Zoology has it.
    """

    def questions(rng: np.random.Generator, num: int, length: int) -> np.ndarray:
        pairs = fitting(most, length)
        whole = np.full((num, length), symbols)
        whole[:, 0 : 2 * pairs : 2] = some(rng, num, keys, pairs)
        whole[:, 1 : 2 * pairs : 2] = keys + some(rng, num, symbols - keys, pairs)
        if together:
            which = rng.integers(0, pairs, size=(num, pairs))
            whole[:, length - pairs :] = np.take_along_axis(whole[:, 0 : 2 * pairs : 2], which, 1)
            return whole
        slots = length // 2 - pairs
        weights = np.arange(1, slots + 1) ** (POWER - 1.0)
        # Without replacement, by the weights: the first arrivals of as many processes with these rates.
        arrivals = rng.standard_exponential((num, slots)) / weights
        slot = np.argsort(arrivals, axis=1)[:, :pairs]
        np.put_along_axis(whole, 2 * (pairs + slot), whole[:, 0 : 2 * pairs : 2], axis=1)
        return whole

    return questions


def fitting(most: int, length: int) -> int:
    """Pairs of a row: as many as are wanted, or as it has room for with their queries."""
    return min(most, length // 4)


def some(rng: np.random.Generator, num: int, among: int, count: int) -> np.ndarray:
    """`count` different numbers below `among` in each row, `[num, count]`, all equally likely."""
    return np.argsort(rng.random((num, among)), axis=1)[:, :count]


class Asked(NamedTuple):
    """The queries of rows, in their order.

    Attributes:
        places: `[B, pairs]`, where they stand.
        values: `[B, pairs]`, what is to be answered.
    """

    places: np.ndarray
    values: np.ndarray


def asked(questions: np.ndarray, most: int) -> Asked:
    """What is asked for behind the pairs, of which there are at most `most`."""
    pairs = fitting(most, questions.shape[1])
    keys, later = questions[:, 0 : 2 * pairs : 2], questions[:, 2 * pairs :]
    same_BTK = later[:, :, None] == keys[:, None]
    places = np.nonzero(same_BTK.any(2))[1].reshape(len(questions), pairs)
    which = np.take_along_axis(same_BTK.argmax(2), places, 1)
    return Asked(places + 2 * pairs, np.take_along_axis(questions[:, 1 : 2 * pairs : 2], which, 1))


def answered(questions: np.ndarray, most: int, *, with_keys: bool) -> np.ndarray:
    """The values, `[B, pairs]`, or each behind its key, `[B, 2 * pairs]`."""
    places, values = asked(questions, most)
    if not with_keys:
        return values
    keys = np.take_along_axis(questions, places, 1)
    return np.stack((keys, values), -1).reshape(len(questions), -1)
