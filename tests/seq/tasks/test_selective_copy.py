"""The task selective-copy."""

from __future__ import annotations

import numpy as np
import pytest

from rlseq.seq.tasks.selective_copy import scattered
from rlseq.sequence import Kind
from tests.seq.tasks.generated import KINDS, made, pairs_of, sampled


@pytest.mark.parametrize("kind", KINDS)
def test_answers_by_python(kind: Kind) -> None:
    for question, answer in sampled(made("selective-copy", kind)):
        assert answer == question.replace(".", "") and (len(question), len(answer)) == (100, 16)


def test_twice_the_length_is_more_blanks() -> None:
    task = made("selective-copy", "tokens", pairs=5, length=10, examples=40)
    for question, answer in pairs_of(task, list(task.validation(40))[1]):
        assert (len(question), question.count("."), len(answer)) == (21, 15, 6)


def test_every_place_and_symbol_is_equally_likely() -> None:
    questions = scattered(3, 2)(np.random.default_rng(0), 10_000, 5)
    filled = questions < 3
    assert (filled.sum(1) == 2).all()
    assert abs(filled.mean(0) - 0.4).max() < 0.02
    assert abs(np.bincount(questions[filled]) / 20_000 - 1 / 3).max() < 0.015
