"""The task addition."""

from __future__ import annotations

import numpy as np
import pytest

from rlseq.seq.tasks.addition import add, sums, unordered
from rlseq.sequence import Kind
from tests.seq.tasks.generated import KINDS, made, pairs_of, sampled


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 3, 30])
def test_answers_by_python(kind: Kind, length: int) -> None:
    for question, answer in sampled(made("addition", kind, length=length, examples=3), 300):
        first, second = question.split("+")
        assert len(first) == len(second) == length and len(answer) == length + 1
        assert int(answer[::-1]) == int(first) + int(second)


def test_the_example() -> None:
    question = np.array([[1, 2, 3, 10, 4, 5, 6], [9, 9, 9, 10, 0, 0, 1]])
    assert add(question).tolist() == [[9, 7, 5, 0], [0, 0, 0, 1]]


def test_all_numbers_are_equally_likely() -> None:
    questions = sums(np.random.default_rng(0), 40_000, 1)
    counts = np.bincount(questions[:, 0] * 10 + questions[:, 2], minlength=100)
    assert ((counts - 400) ** 2 / 400).sum() < 149  # 99 degrees of freedom, 0.1 %


def test_a_sum_stands_on_one_side_whichever_number_is_first() -> None:
    questions = sums(np.random.default_rng(1), 500, 2)
    swapped = np.hstack((questions[:, 3:], questions[:, 2:3], questions[:, :2]))
    np.testing.assert_array_equal(unordered(questions), unordered(swapped))
    for key, question in zip(unordered(questions).tolist(), questions.tolist(), strict=True):
        first, second = sorted((question[:2], question[3:]))
        assert key == [*first, 10, *second]
    task = made("addition", "tokens", length=1, validation=0.3)
    held = {question for question, _ in pairs_of(task, next(iter(task.validation(100))))}
    assert 20 < len(held) < 50 and {f"{question[2]}+{question[0]}=" for question in held} == held
