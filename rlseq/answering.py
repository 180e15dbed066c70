"""Questions, one a line, answered by a sequence model: token by token, each time the likeliest."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from rlseq.errors import UsageError
from rlseq.seq.answers import rows_at_once
from rlseq.sequence import SequenceSpec, Signature, Tokenizer


class Model(Protocol):
    """A sequence model that reads whole sequences.

    Attributes:
        spec: its description.
    """

    spec: SequenceSpec

    def whole(
        self, inputs: np.ndarray, given: np.ndarray | None = None, source: np.ndarray | None = None
    ) -> np.ndarray:
        """Outputs `[B, P, N]` float32; the arguments are those of `rlseq.seq.batch.TokenBatch`."""


class Answered(NamedTuple):
    """A question and its answer."""

    question: str
    answer: str


def answered(model: Model, data: str) -> list[Answered]:
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
    answers: list[str] = [""] * len(tokens)
    # All of one length together: no question needs padding.
    for length in sorted({len(question) for question in tokens}):
        which = [index for index, question in enumerate(tokens) if len(question) == length]
        step = rows_at_once(length + model.spec.context)
        for first in range(0, len(which), step):
            some = which[first : first + step]
            made = greedy(model, np.stack([tokens[index] for index in some]), start)
            for index, answer in zip(some, made, strict=True):
                answers[index] = tokenizer.decode(answer)
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


def greedy(model: Model, questions_BQ: np.ndarray, start: int) -> list[np.ndarray]:
    """Answers, the likeliest token at each place, without the end.

    Args:
        model: of kind `tokens` or `translate`.
        questions_BQ: `[B, Q]` int64.
        start: the token that an answer's inputs begin with, or that ends a question.

    Returns:
        Of each question `[A]`; one that does not end is as long as question and context together.
    """
    signature, (batch, length) = model.spec.signature, questions_BQ.shape
    first = np.full((batch, 1), start)
    read = signature.kind == "translate"
    inputs = first if read else np.concatenate((questions_BQ, first), axis=1)
    begin, ended = inputs.shape[1], np.zeros(batch, np.bool_)
    while not ended.all() and inputs.shape[1] - begin < length + model.spec.context:
        logits_BTV = model.whole(inputs, None, questions_BQ) if read else model.whole(inputs)
        token = logits_BTV[:, -1].argmax(-1)
        inputs = np.concatenate((inputs, token[:, None]), axis=1)
        ended |= token == signature.end
    made = inputs[:, begin:]
    ends = np.where((made == signature.end).any(1), (made == signature.end).argmax(1), made.shape[1])
    return [row[:end] for row, end in zip(made, ends.tolist(), strict=True)]
