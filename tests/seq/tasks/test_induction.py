"""The task induction."""

from __future__ import annotations

import numpy as np
import pytest

from rlseq.seq.tasks.induction import marked
from rlseq.sequence import Kind
from tests.seq.tasks.generated import KINDS, made, sampled


@pytest.mark.parametrize("kind", KINDS)
def test_answers_by_python(kind: Kind) -> None:
    for question, answer in sampled(made("induction", kind)):
        before, after = question.split("=")
        assert answer == after[0] and len(before) + len(after) == 62


def test_the_mark_ends_the_question_too() -> None:
    batch = made("induction", "tokens", length=8, symbols=5).sample(np.random.default_rng(0), 50)
    assert batch.mask is not None
    assert ((batch.inputs == 5).sum(1) == 2).all() and (batch.inputs[:, 7] == 5).all()
    assert (batch.mask.argmax(1) == 7).all() and (batch.mask.sum(1) == 2).all()


def test_every_place_is_equally_likely() -> None:
    questions = marked(4)(np.random.default_rng(0), 12_000, 6)
    places = np.nonzero(questions == 4)[1]
    assert len(places) == 12_000
    assert abs(np.bincount(places, minlength=5) - [3000, 3000, 3000, 3000, 0]).max() < 200
