"""The task `induction`: a mark stood somewhere in the question; which symbol stood behind it?

The induction heads of H3 (arXiv 2212.14052) and Mamba (2312.00752): the mark comes once more at the end, and what
followed it the first time is to follow it again. The mark is the start token, so the second one is what a question ends
with anyway.
"""

from __future__ import annotations

import numpy as np

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.generated import GeneratedTask, Problem, alphabet_of
from rlseq.seq.tasks.holdout import Questions
from rlseq.sequence import Kind


def induction(options: SeqOptions, kind: Kind) -> GeneratedTask:
    """`seq.length` tokens of `seq.symbols`, both marks included: `ab=cd=` is answered by `c`."""
    symbols = options.symbols or 16
    problem = Problem(
        name="induction",
        about="write the symbol that stood behind the mark",
        alphabet=alphabet_of(symbols),
        length=64,
        shortest=3,
        questions=marked(symbols),
        answers=lambda questions: behind(questions, symbols),
    )
    return GeneratedTask(problem, options, kind)


def marked(num_symbols: int) -> Questions:
    """Questions of `length - 1` symbols, one of which, but not the last, became the mark (symbol `num_symbols`)."""

    def questions(rng: np.random.Generator, num: int, length: int) -> np.ndarray:
        whole = rng.integers(0, num_symbols, size=(num, length - 1))
        whole[np.arange(num), rng.integers(0, length - 2, size=num)] = num_symbols
        return whole

    return questions


def behind(questions: np.ndarray, mark: int) -> np.ndarray:
    """What stands behind the mark, `[B, 1]`."""
    place = (questions == mark).argmax(1)[:, None]
    return np.take_along_axis(questions, place + 1, 1)
