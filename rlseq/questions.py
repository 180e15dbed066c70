"""Questions, one a line, answered by a sequence model: token by token, each time the likeliest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rlseq.errors import CorruptFile, UsageError
from rlseq.player.answering import answer
from rlseq.player.generate import Stepper
from rlseq.sequence import SequenceSpec

if TYPE_CHECKING:
    from rlseq.seq.tasks.forms import TrainedOn

SHOWN = 80  # characters of a question


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
    tokens = [_encoded(text, model.spec, f"{data}, line {number}") for number, text in enumerate(questions, 1)]
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


def asks(spec: SequenceSpec) -> bool:
    """Whether a model's prompt is a question whose form is known."""
    from rlseq.seq.tasks.forms import FORMS

    return spec.task in FORMS and spec.tokenizer is not None


def example(spec: SequenceSpec, where: object) -> str:
    """A question as a model takes it; "" where none is known.

    Raises:
        CorruptFile: the description makes no sense.
    """
    from rlseq.seq.tasks.forms import example_of

    return example_of(_trained_on(spec, where)) if asks(spec) else ""


def check_question(spec: SequenceSpec, question: str, what: str, where: object) -> None:
    """Refuse a question that the model's task does not have; a model of text takes everything.

    Args:
        spec: the model's description.
        question: with or without the start token behind it.
        what: how messages call it.
        where: the model, for messages.

    Raises:
        UsageError: the question, what is wrong with it, and an example of a right one.
        CorruptFile: the description makes no sense.
    """
    from rlseq.seq.tasks.forms import fault_of
    from rlseq.seq.tasks.generated import START

    if not asks(spec):
        return
    fault = fault_of(question.removesuffix(START), _trained_on(spec, where))
    if fault:
        shown = question if len(question) <= SHOWN else f"{question[:SHOWN]}..."
        right = example(spec, where)
        raise UsageError(f"{what} {shown!r} is no question of the task {spec.task}: {fault}. A right one is {right!r}.")


def _trained_on(spec: SequenceSpec, where: object) -> TrainedOn:
    from rlseq.seq.config import options_of
    from rlseq.seq.tasks.forms import trained_on

    assert spec.tokenizer is not None
    found = trained_on(spec.tokenizer.characters, options_of(spec, where), spec.signature.kind)
    if found is None:
        raise CorruptFile(f"{where} describes a task {spec.task} whose symbols are not those of such a task.")
    return found


def _encoded(text: str, spec: SequenceSpec, where: str) -> np.ndarray:
    check_question(spec, text, f"{where}:", "the model")
    assert spec.tokenizer is not None
    try:
        return spec.tokenizer.encode(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
