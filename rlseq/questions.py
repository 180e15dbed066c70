"""Questions, one a line, answered by a sequence model: token by token, each time the likeliest."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlseq.errors import UsageError
from rlseq.player.answering import answer
from rlseq.player.generate import Stepper
from rlseq.sequence import Signature, Tokenizer


class Answered(NamedTuple):
    """A question and its answer."""

    question: str
    answer: str


def answered(model: Stepper, data: str) -> list[Answered]:
    """Every question of a file with its answer.

    Raises:
        UsageError: the model answers no questions, the file is no text, or a line is no question.
    """
    signature = model.spec.signature
    tokenizer, start = signature.tokenizer, signature.start
    if tokenizer is None or start is None:
        raise UsageError(
            f"the model was trained on the task {model.spec.task}, which knows no questions: rlseq generate lets it "
            "write."
        )
    questions = read_questions(data)
    tokens = [_encoded(text, tokenizer, signature, f"{data}, line {n}") for n, text in enumerate(questions, 1)]
    answers = map(tokenizer.decode, answer(model, tokens))
    return [Answered(*pair) for pair in zip(questions, answers, strict=True)]


def read_questions(data: str) -> list[str]:
    """The lines of a text file.

    Raises:
        UsageError: there is no such file, it is no UTF-8, has no lines, or an empty one between others.
    """
    try:
        text = Path(data).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{data} is no UTF-8 text ({error.reason}): save it as UTF-8.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {data!r}: {reason}. Give a text with one question a line: --data FILE") from None
    lines = text.rstrip("\n").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            raise UsageError(f"{data}, line {number} is empty: give one question a line.")
    return lines


def _encoded(text: str, tokenizer: Tokenizer, signature: Signature, where: str) -> np.ndarray:
    try:
        tokens = tokenizer.encode(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    for token in (signature.start, signature.end):
        if token is not None and token in tokens:
            shown = tokenizer.decode(np.array([token]))
            raise UsageError(f"{where}: {text!r} holds {shown!r}, which is no part of a question: leave it out.")
    return tokens
