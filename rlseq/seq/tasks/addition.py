"""The task `addition`: add two numbers of as many digits.

Both are padded with zeros, and the sum is written from its last digit on: every digit then needs the two digits above
it and the carry of the one that was written just before, whereas the first digit of a sum depends on all others at once
(as minGPT's adder does, and arXiv 2307.03381).
"""

from __future__ import annotations

import string

import numpy as np

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.generated import GeneratedTask, Problem
from rlseq.sequence import Kind

BASE = 10
PLUS = 10  # the symbol behind the digits


def addition(options: SeqOptions, kind: Kind) -> GeneratedTask:
    """Numbers of `seq.length` digits: `123+456` is answered by `9750`, which is 0579 from its end."""
    problem = Problem(
        name="addition",
        about="add two numbers, the sum's last digit first",
        alphabet=string.digits + "+",
        length=3,
        shortest=1,
        questions=sums,
        answers=add,
        key=unordered,
    )
    return GeneratedTask(problem, options, kind)


def sums(rng: np.random.Generator, num: int, length: int) -> np.ndarray:
    """Two numbers of `length` digits with a plus between them, `[num, 2 * length + 1]`; all equally likely."""
    questions = rng.integers(0, BASE, size=(num, 2 * length + 1))
    questions[:, length] = PLUS
    return questions


def add(questions: np.ndarray) -> np.ndarray:
    """The sums' digits, the last one first, `[B, length + 1]`; of any length, for no number is ever formed."""
    length = questions.shape[1] // 2
    columns = (questions[:, :length] + questions[:, length + 1 :])[:, ::-1]
    answers = np.empty((len(questions), length + 1), np.int64)
    carry = np.zeros(len(questions), np.int64)
    for place in range(length):
        carry, answers[:, place] = np.divmod(columns[:, place] + carry, BASE)
    answers[:, length] = carry
    return answers


def unordered(questions: np.ndarray) -> np.ndarray:
    """The questions with the smaller number first: a held-out sum is not trained on the other way round either."""
    length = questions.shape[1] // 2
    first, second = questions[:, :length], questions[:, length + 1 :]
    differing = first != second
    place = differing.argmax(1)[:, None]  # the first digit that tells them apart; 0 if none does
    swapped = np.take_along_axis(first, place, 1) > np.take_along_axis(second, place, 1)
    return np.where(swapped, np.hstack((second, questions[:, length : length + 1], first)), questions)
