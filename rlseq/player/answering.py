"""Many questions answered at once: the likeliest token each time, until the end token.

Shapes: B questions, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rlseq.errors import RlseqError, UsageError
from rlseq.player.generate import Stepper, as_prompt, as_question, begin

PLACES = 16_384  # tokens of all questions that are answered at once


def answer(stepper: Stepper, questions: Sequence[np.ndarray], limit: int | None = None) -> list[np.ndarray]:
    """Answer questions greedily.

    Args:
        stepper: a model that answers questions.
        questions: tokens `[T]` each, of any lengths, with or without the start token behind them; none at all is a
            question too.
        limit: most tokens of an answer; None: the question's and as many as the longest sequence that the model was
            trained or measured on.

    Returns:
        Tokens `[A]` int64 of each answer, without start and end.

    Raises:
        UsageError: the model answers no questions, or does not know a token.
    """
    spec = stepper.spec
    if spec.signature.start is None or spec.signature.end is None:
        other = "its text goes on by rlseq generate" if spec.signature.reads_tokens else "it reads series of numbers"
        raise UsageError(f"the model ({spec.task}) answers no questions of tokens: {other}.")
    asked = [_question(stepper, tokens, number) for number, tokens in enumerate(questions, 1)]
    answers: list[np.ndarray] = [np.zeros(0, np.int64)] * len(asked)
    for numbers in _together(stepper, asked):
        limits = [spec.context + len(asked[n]) if limit is None else limit for n in numbers]
        made_BT = _greedy(stepper, [asked[n] for n in numbers], max(limits))
        for number, made_T, most in zip(numbers, made_BT, limits, strict=True):
            ends = np.flatnonzero(made_T == spec.signature.end)
            answers[number] = made_T[: min(most, *ends[:1].tolist(), len(made_T))]
    return answers


def _question(stepper: Stepper, tokens: np.ndarray, number: int) -> np.ndarray:
    if not len(tokens):
        return as_question(stepper.spec.signature, np.zeros(0, np.int64))
    try:
        return as_prompt(stepper.spec, tokens)
    except UsageError as error:
        raise UsageError(f"question {number}: {error}") from None


def _together(stepper: Stepper, questions: Sequence[np.ndarray]) -> Iterator[list[int]]:
    """Numbers of questions that are answered at once: of similar lengths, or of one where a model takes no padding."""
    padded = stepper.spec.signature.kind == "translate"
    order = sorted(range(len(questions)), key=lambda number: len(questions[number]))
    group: list[int] = []
    for number in order:
        length = len(questions[number])
        many = (len(group) + 1) * max(length, stepper.spec.context) > PLACES
        if group and (many or not (padded or length == len(questions[group[0]]))):
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def _greedy(stepper: Stepper, questions: Sequence[np.ndarray], limit: int) -> np.ndarray:
    """Tokens `[B, A]` until every row has ended, or `limit` of them; what follows a row's end means nothing."""
    lengths_B = np.array([len(question) for question in questions])
    given_BT = np.arange(max(1, lengths_B.max())) < lengths_B[:, None]
    questions_BT = np.zeros(given_BT.shape, np.int64)
    questions_BT[given_BT] = np.concatenate(questions)
    logits_BV, state = begin(stepper, questions_BT, given_BT)
    made: list[np.ndarray] = []
    running_B = np.ones(len(questions), np.bool_)
    for left in range(limit, 0, -1):
        if not np.isfinite(logits_BV.max(-1)).all():
            raise RlseqError("the model's largest logit is no finite number: its weights are broken.")
        made.append(logits_BV.argmax(-1))
        running_B &= made[-1] != stepper.spec.signature.end
        if left == 1 or not running_B.any():
            break
        logits_BTV, state = stepper.step(made[-1][:, None], state)
        logits_BV = logits_BTV[:, -1]
    return np.stack(made, 1)
