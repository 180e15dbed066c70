"""Right and wrong questions of each generated task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.forms import FORMS, TrainedOn, example_of, fault_of, trained_on
from rlseq.seq.tasks.generated import GeneratedTask
from rlseq.seq.tasks.table import ANSWERS, TASKS
from rlseq.sequence import Kind

LENGTHS = (16, 32)
OPTIONS: dict[str, dict[str, Any]] = {"selective-copy": {"pairs": 3}, "recall": {"pairs": 2, "symbols": 8}}
EITHER: tuple[Kind, ...] = ("tokens", "translate")


def model_of(task: str, kind: Kind) -> tuple[GeneratedTask, TrainedOn]:
    options = SeqOptions(task=task, length=16, examples=20, **OPTIONS.get(task, {}))  # type: ignore[arg-type]
    made = TASKS[task].make(options, kind)
    assert isinstance(made, GeneratedTask) and made.signature.tokenizer is not None
    model = trained_on(made.signature.tokenizer.characters, options, kind)
    assert model is not None
    return made, model


def test_every_task_of_questions_has_a_form() -> None:
    assert set(FORMS) == {name for name, entry in TASKS.items() if entry.kinds == ANSWERS}


@pytest.mark.parametrize("kind", EITHER)
@pytest.mark.parametrize("task", FORMS)
def test_what_a_task_asks_and_its_example_are_right(task: str, kind: Kind) -> None:
    """Twice as long as in training too."""
    made, model = model_of(task, kind)
    assert fault_of(example_of(model), model) == ""
    tokenizer = made.signature.tokenizer
    assert tokenizer is not None
    for length in LENGTHS:
        for row in made._problem.questions(np.random.default_rng(length), 20, length):
            question = tokenizer.decode(row)
            if task == "recall" and kind == "tokens":
                question = question.rstrip(".")  # a prompt ends where the model is to write
            assert fault_of(question, model) == "", question


WRONG: list[tuple[str, Kind | None, str, str]] = [
    ("copy", None, "", "it is empty"),
    ("copy", None, "abC", "it holds 'C', and its symbols are 'abcdefghijklmnopqrstuvwxyz'"),
    ("reverse", None, "ab\nc", "it holds a line break"),
    ("sort", None, "ab=c", "it holds '=', which ends a question"),
    ("addition", None, "123456", "it holds no '+', and needs one"),
    ("addition", None, "1+2+3", "it holds 2 '+', and needs one"),
    ("addition", None, "+3", "there is no number before its '+'"),
    ("addition", None, "3+", "there is no number behind its '+'"),
    ("addition", None, "12+345", "its numbers have 2 and 3 digits: fill the shorter one with zeros, 012+345"),
    ("selective-copy", None, "a.b.", "it has 2 symbols among its blanks '.', and the model was trained on 3"),
    ("selective-copy", None, "ab.cd", "it has 4 symbols"),
    ("induction", None, "abcd", "it holds no mark '=' with a symbol behind it"),
    ("induction", None, "abcd=", "it holds no mark '=' with a symbol behind it"),
    ("induction", None, "a=b=c", "it holds 2 marks '='"),
    ("recall", None, "..a", "it does not begin with a pair of a key, one of 'abcd', and a value, one of 'efgh'"),
    ("recall", None, "aebf..", "it does not end with a query"),
    ("recall", None, "aebf", "it does not end with a query"),
    ("recall", None, "aebf..c", "behind its 2 pairs stands 'c', which is neither a blank '.' nor one of their keys"),
    ("recall", None, "ae..f", "behind its 1 pair stands 'f'"),
    ("recall", None, "aeaf..a", "the key 'a' has two values"),
    ("recall", "translate", "aebf..b.a", "there are blanks '.' among its queries"),
    ("recall", "tokens", "aebf..b.a.", "it does not end with a query"),
]


@pytest.mark.parametrize(("task", "kind", "question", "fault"), WRONG)
def test_a_wrong_question_is_told_what_is_wrong(task: str, kind: Kind | None, question: str, fault: str) -> None:
    for each in EITHER if kind is None else (kind,):
        assert fault_of(question, model_of(task, each)[1]).startswith(fault)


def test_symbols_that_no_such_task_has_are_told() -> None:
    options = SeqOptions(task="recall")
    assert trained_on("abcd", options, "tokens") is None  # without start and end
    assert trained_on("a.=\n", options, "tokens") is None
    assert trained_on("ab.=\n", options, "tokens") == TrainedOn("ab.", options, "tokens")
