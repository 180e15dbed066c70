"""The task `recall`: pairs of a key and a value; later, wherever a key comes again, its value is to follow.

The multi-query associative recall of Zoology (arXiv 2312.04927), and its distances: every key comes again once, at a
place drawn by a power law, nearer ones being likelier. Unlike there a value follows the key that comes again, in a
blank's stead, so that a row is a text that can be written on.

For `tokens` answers stand in the row. For `translate` the source is the row with blanks for the answers, and the answer
is the values in the order in which they were asked for.
"""

from __future__ import annotations

import numpy as np

from rlseq.errors import UsageError
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.generated import GeneratedTask, Problem, alphabet_of
from rlseq.seq.tasks.holdout import Questions
from rlseq.seq.tasks.layout import InRow
from rlseq.sequence import Kind

BLANK = "."
POWER = 0.01  # Zoology's: a query's distance d has a probability proportional to d^(POWER - 1)


def recall(options: SeqOptions, kind: Kind) -> GeneratedTask:
    """`seq.pairs` keys and values of `seq.symbols` symbols, half of them keys: `aCbD..b.a.` is answered by `DC`."""
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
        shortest=4 * pairs,
        questions=rows_of(pairs, keys, symbols),
        answers=lambda questions: values(questions, pairs)[0],
        in_row=lambda questions, answers: answered(questions, answers, pairs),
    )
    return GeneratedTask(problem, options, kind)


def rows_of(pairs: int, keys: int, symbols: int) -> Questions:
    """Rows of pairs, then queries among blanks; symbols below `keys` are keys, those from there on values.

    A query and its answer take two places, and so do blanks: distances are counted in twos.
    """

    def questions(rng: np.random.Generator, num: int, length: int) -> np.ndarray:
        whole = np.full((num, length), symbols)
        whole[:, 0 : 2 * pairs : 2] = some(rng, num, keys, pairs)
        whole[:, 1 : 2 * pairs : 2] = keys + some(rng, num, symbols - keys, pairs)
        slots = length // 2 - pairs
        weights = np.arange(1, slots + 1) ** (POWER - 1.0)
        # Without replacement, by the weights: the first arrivals of as many processes with these rates.
        arrivals = rng.standard_exponential((num, slots)) / weights
        slot = np.argsort(arrivals, axis=1)[:, :pairs]
        np.put_along_axis(whole, 2 * (pairs + slot), whole[:, 0 : 2 * pairs : 2], axis=1)
        return whole

    return questions


def some(rng: np.random.Generator, num: int, among: int, count: int) -> np.ndarray:
    """`count` different numbers below `among` in each row, `[num, count]`, all equally likely."""
    return np.argsort(rng.random((num, among)), axis=1)[:, :count]


def values(questions: np.ndarray, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """The values in the order of the queries, and the queries' places; both `[B, pairs]`."""
    later = questions[:, 2 * pairs :]
    asked_BTK = later[:, :, None] == questions[:, None, 0 : 2 * pairs : 2]
    places = np.nonzero(asked_BTK.any(2))[1].reshape(len(questions), pairs)
    which = np.take_along_axis(asked_BTK.argmax(2), places, 1)
    return np.take_along_axis(questions[:, 1 : 2 * pairs : 2], which, 1), places + 2 * pairs


def answered(questions: np.ndarray, answers: np.ndarray, pairs: int) -> InRow:
    """The rows with each answer behind its query."""
    places = values(questions, pairs)[1] + 1
    tokens, marks = questions.copy(), np.zeros(questions.shape, bool)
    np.put_along_axis(tokens, places, answers, axis=1)
    np.put_along_axis(marks, places, True, axis=1)
    return InRow(tokens, marks)
