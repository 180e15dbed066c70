"""The loop that writes, with a model made of two lines."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from rlseq.errors import UsageError
from rlseq.player.generate import MAX_SOURCE, asked, generate, read
from rlseq.player.sampling import GREEDY, Sampling
from rlseq.sequence import SequenceSpec, Signature
from tests.countdown import START, Counter
from tests.kind_graphs import SUMMING

SPEC = SequenceSpec(task="text", model="hand", signature=Signature(vocabulary=7), context=4)


class Sum:
    """Its next token is the sum of all so far, modulo the vocabulary."""

    def __init__(self, spec: SequenceSpec = SPEC) -> None:
        self.spec = spec
        self.lengths: list[int] = []

    def initial_state(self, batch: int) -> tuple[Any, ...]:
        return (np.zeros(batch, np.int64),)

    def step(self, tokens_BT: np.ndarray, state: tuple[Any, ...]) -> tuple[np.ndarray, tuple[Any, ...]]:
        assert tokens_BT.dtype == np.int64
        self.lengths.append(tokens_BT.shape[1])
        sums_BT = state[0][:, None] + tokens_BT.cumsum(1)
        return np.eye(7, dtype=np.float32)[sums_BT % 7], (sums_BT[:, -1],)


def naive(prompt: list[int], num: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(num):
        tokens.append(sum(tokens) % 7)
    return tokens[len(prompt) :]


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 13])
def test_greedy_text_for_prompts_shorter_and_longer_than_the_context(length: int) -> None:
    prompt = np.random.default_rng(length).integers(0, 7, length).tolist()
    stepper = Sum()
    tokens = list(generate(stepper, np.array(prompt), 20, GREEDY, np.random.default_rng(0)))
    assert tokens == naive(prompt, 20)
    pieces = [4] * (length // 4) + ([length % 4] if length % 4 else [])
    assert stepper.lengths == pieces + [1] * 19  # the last token is not read: nothing follows it


def test_tokens_are_made_one_by_one_as_they_are_asked_for() -> None:
    stepper = Sum()
    tokens = generate(stepper, np.array([1], np.uint8), 1_000_000, GREEDY, np.random.default_rng(0))
    assert stepper.lengths == []
    assert [next(tokens) for _ in range(3)] == [1, 2, 4]
    assert stepper.lengths == [1, 1, 1]


def test_the_generator_decides_and_nothing_else() -> None:
    def text(seed: int) -> list[int]:
        return list(generate(Sum(), np.array([3]), 50, Sampling(temperature=2.0), np.random.default_rng(seed)))

    assert text(1) == text(1) != text(2)


def test_reading_gives_the_last_logits_and_the_state() -> None:
    logits_BV, (total,) = read(Sum(), np.array([[1, 2, 3, 4, 5]]), Sum().initial_state(1))
    assert logits_BV.shape == (1, 7) and logits_BV.argmax() == 15 % 7 and total == [15]


@pytest.mark.parametrize(
    ("prompt", "num", "sampling", "said"),
    [
        (np.array([], np.int64), 5, GREEDY, "a prompt is at least one token"),
        (np.array([[1, 2]]), 5, GREEDY, r"of shape \(1, 2\)"),
        (np.array([1.0]), 5, GREEDY, "this one is float64"),
        (np.array([0, 7]), 5, GREEDY, "tokens from 0 to 7; the model knows 0 to 6"),
        (np.array([-1]), 5, GREEDY, "tokens from -1 to -1"),
        (np.array([1]), 0, GREEDY, "0 tokens are nothing to generate"),
        (np.array([1]), -3, GREEDY, "-3 tokens"),
        (np.array([1]), 5, Sampling(top_k=0), "top_k 0"),
    ],
)
def test_what_cannot_be_continued_is_refused_at_once(
    prompt: np.ndarray, num: int, sampling: Sampling, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        generate(Sum(msgspec.structs.replace(SPEC)), prompt, num, sampling, np.random.default_rng(0))


# ---------------------------------------------------------------------------------------------------------- questions


def answered(kind: str, prompt: list[int], num: int = 20) -> list[int]:
    return list(generate(Counter(kind), np.array(prompt), num, GREEDY, np.random.default_rng(0)))


@pytest.mark.parametrize("kind", ["tokens", "translate"])
def test_a_question_is_answered_up_to_the_end_with_or_without_its_start_token(kind: str) -> None:
    assert answered(kind, [1, 1, 1]) == answered(kind, [1, 1, 1, START]) == [3, 2, 1, 0]
    assert answered(kind, [1] * 7) == [7, 6, 5, 4, 3, 2, 1, 0]  # longer than the context of 6
    assert answered(kind, [1, 1, 1], num=2) == [3, 2]


def test_a_text_without_questions_may_hold_any_token() -> None:
    assert list(generate(Sum(), np.array([3]), 3, GREEDY, np.random.default_rng(0))) == naive([3], 3)


def test_a_source_is_read_whole_and_not_of_any_length() -> None:
    model = Counter("translate")
    list(generate(model, np.ones(7, np.int64), 1, GREEDY, np.random.default_rng(0)))
    assert model.batches == [(1, 7)]
    with pytest.raises(UsageError, match=f"a question of {MAX_SOURCE + 1} tokens .* give at most {MAX_SOURCE}"):
        next(generate(model, np.ones(MAX_SOURCE + 1, np.int64), 1, GREEDY, np.random.default_rng(0)))


def test_only_a_start_token_is_no_source() -> None:
    with pytest.raises(UsageError, match="a prompt is at least one token"):
        answered("translate", [START])


def test_a_model_of_series_is_sent_to_predict() -> None:
    with pytest.raises(UsageError, match=r"\(lorenz\) reads numbers and writes no text: .* rlseq predict"):
        generate(Sum(SUMMING), np.array([1]), 5, GREEDY, np.random.default_rng(0))


@pytest.mark.parametrize("kind", ["tokens", "translate"])
def test_a_question_is_shown_with_its_start_token(kind: str) -> None:
    signature = Counter(kind).spec.signature
    assert asked(signature, "12") == asked(signature, "12=") == "12="
    assert asked(SPEC.signature, "12") == "12"
