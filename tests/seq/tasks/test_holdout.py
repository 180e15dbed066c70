"""Held-out questions: the same for all, never trained on, and said when there are too few."""

from __future__ import annotations

import numpy as np
import pytest

from rlseq.errors import UsageError
from rlseq.seq.tasks.generated import uniform
from rlseq.seq.tasks.holdout import held_out, training_questions, validation_questions

BITS = uniform(2)


def every_question(num_symbols: int, length: int) -> np.ndarray:
    return np.stack(np.meshgrid(*[np.arange(num_symbols)] * length), -1).reshape(-1, length)


def test_a_known_side() -> None:
    """A change here would let a training that goes on see what it had held out."""
    sides = held_out(every_question(2, 4), 0.5)
    assert "".join(map(str, sides.astype(int))) == "1001100110101000"


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("length", [5, 6])
def test_about_the_share_is_held_out(share: float, length: int) -> None:
    sides = held_out(every_question(8, length), share)
    assert abs(sides.mean() - share) < 4 * (share * (1 - share) / len(sides)) ** 0.5


def test_every_symbol_and_its_place_count() -> None:
    questions = np.random.default_rng(0).integers(0, 10, size=(4000, 30))
    sides = held_out(questions, 0.5)
    for place in (0, 13, 29):
        other = questions.copy()
        other[:, place] = (other[:, place] + 1) % 10
        assert abs((held_out(other, 0.5) == sides).mean() - 0.5) < 0.04
    assert abs((held_out(questions[:, ::-1], 0.5) == sides).mean() - 0.5) < 0.04
    assert (held_out(questions.copy(order="F"), 0.5) == sides).all()


def test_no_question_is_both_trained_on_and_validated() -> None:
    held = validation_questions(BITS, np.asarray, 0.2, 500, 8)
    rng = np.random.default_rng(1)
    trained = np.concatenate([training_questions(BITS, np.asarray, 0.2, rng, 500, 8) for _ in range(20)])
    seen = {tuple(question) for question in trained.tolist()}
    asked = {tuple(question) for question in held.tolist()}
    assert len(asked) == len(held)  # no question twice
    assert not seen & asked
    assert len(seen) + len(asked) == 2**8  # and none is forgotten


def test_training_questions_are_otherwise_equally_likely() -> None:
    questions = training_questions(BITS, np.asarray, 0.3, np.random.default_rng(2), 40_000, 4)
    counts = np.bincount(questions @ np.array([8, 4, 2, 1]), minlength=16)
    possible = int((~held_out(every_question(2, 4), 0.3)).sum())
    expected = 40_000 / possible
    assert (counts > 0).sum() == possible
    assert ((counts[counts > 0] - expected) ** 2 / expected).sum() < 38  # at most 15 degrees of freedom, 0.1 %


def test_validation_questions_are_always_the_same() -> None:
    first, again = (validation_questions(uniform(10), np.asarray, 0.05, 50, 12) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (50, 12)
    np.testing.assert_array_equal(validation_questions(uniform(10), np.asarray, 0.05, 20, 12), first[:20])


def test_too_few_questions() -> None:
    with pytest.raises(
        UsageError, match=r"no question of length 1 is held out .*seq.validation = 0.001.*seq.length or"
    ):
        validation_questions(BITS, np.asarray, 0.001, 10, 1)
    with pytest.raises(UsageError, match=r"length 1 all seem to be held out .*0.999.*seq.validation lower"):
        training_questions(BITS, np.asarray, 0.999, np.random.default_rng(0), 5, 1)
