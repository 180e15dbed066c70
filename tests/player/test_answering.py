"""Many questions answered at once, by models made of two lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq.errors import RlseqError, UsageError
from rlseq.player.answering import PLACES, answer
from rlseq.player.sequence import load_sequence
from tests.countdown import START, Counter
from tests.kind_graphs import SUMMING, save
from tests.sequence_graphs import SPEC

KINDS = ("tokens", "translate")


def numbers(*lengths: int) -> list[np.ndarray]:
    return [np.zeros(length, np.int64) for length in lengths]


@pytest.mark.parametrize("kind", KINDS)
def test_each_question_has_its_own_answer_whatever_stands_beside_it(kind: str) -> None:
    lengths = [3, 0, 5, 3, 1, 7, 3]
    answers = answer(Counter(kind), numbers(*lengths))
    assert [made.tolist() for made in answers] == [list(range(length, -1, -1)) for length in lengths]
    assert all(made.dtype == np.int64 for made in answers)


@pytest.mark.parametrize("kind", KINDS)
def test_start_and_end_may_be_typed_and_are_not_given(kind: str) -> None:
    assert answer(Counter(kind), [np.array([1, 2, START], np.uint8)])[0].tolist() == [2, 1, 0]


def test_questions_of_one_length_are_read_together_and_a_source_is_padded() -> None:
    tokens, translate = Counter("tokens"), Counter("translate")
    for model in (tokens, translate):
        answer(model, numbers(3, 5, 3, 3))
    # Each is read a context of 6 at most at once.
    assert tokens.batches == [(3, 4), (1, 6)]
    assert translate.batches == [(4, 5)]


def test_no_more_than_memory_allows_are_read_at_once() -> None:
    model = Counter("translate", context=PLACES // 2)
    assert len(answer(model, numbers(1, 2, 1, 1, 2))) == 5
    assert model.batches == [(2, 1), (2, 2), (1, 2)]


class Endless(Counter):
    """It never ends."""

    def step(self, inputs: np.ndarray, state: tuple[Any, ...], **more: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
        logits_BTV, after = super().step(inputs, state, **more)
        logits_BTV[..., 7] = 2.0
        return logits_BTV, after


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_without_an_end_is_cut(kind: str) -> None:
    model = Endless(kind, context=6)
    assert [len(made) for made in answer(model, numbers(2, 4), limit=5)] == [5, 5]
    short, long = answer(model, numbers(2, 4))
    asked = 0 if kind == "translate" else 1  # with its start token
    assert (len(short), len(long)) == (6 + 2 + asked, 6 + 4 + asked)


def test_what_answers_no_questions_is_refused(tmp_path: Path) -> None:
    text = Counter("tokens")
    text.spec = SPEC
    with pytest.raises(UsageError, match=r"\(text\) answers no questions of tokens: .* rlseq generate"):
        answer(text, numbers(1))
    series = load_sequence(save(tmp_path / "model.onnx", "summing"))
    with pytest.raises(UsageError, match=rf"\({SUMMING.task}\) answers no questions of tokens: it reads series"):
        answer(series, numbers(1))


def test_questions_of_other_tokens_are_refused_by_number() -> None:
    with pytest.raises(UsageError, match=r"question 2: the prompt has tokens from 10 to 10; the model knows 0 to 9"):
        answer(Counter("tokens"), [np.array([1]), np.array([10])])
    with pytest.raises(UsageError, match=r"question 1: .* this one is float64"):
        answer(Counter("tokens"), [np.array([1.0])])


def test_broken_weights_are_named() -> None:
    class Broken(Counter):
        def step(self, inputs: np.ndarray, state: tuple[Any, ...], **more: Any) -> tuple[np.ndarray, tuple[Any, ...]]:
            logits_BTV, after = super().step(inputs, state, **more)
            return logits_BTV * np.nan, after

    with pytest.raises(RlseqError, match="its weights are broken"):
        answer(Broken("translate"), numbers(2))


def test_nothing_asked_is_nothing_answered() -> None:
    assert answer(Counter("tokens"), []) == []
