"""What a question of a generated task looks like: a mistyped one is told from one that can be answered.

Any length will do, beyond those of training too. All that is needed stands in a model's description.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks import recall, selective_copy
from rlseq.seq.tasks.generated import END, START
from rlseq.sequence import Kind

SHOWN = 60  # characters of an alphabet


class TrainedOn(NamedTuple):
    """What a model of a generated task was trained on.

    Attributes:
        alphabet: the symbols of a question.
        options: of the task.
        kind: `tokens` or `translate`.
    """

    alphabet: str
    options: SeqOptions
    kind: Kind


class Form(NamedTuple):
    """The form of a task's questions.

    Attributes:
        fault: what is wrong with a question that is made of the model's symbols; "": nothing.
        example: a right one.
        marked: the start token may stand within a question.
    """

    fault: Callable[[str, TrainedOn], str]
    example: Callable[[TrainedOn], str]
    marked: bool = False


def trained_on(characters: str, options: SeqOptions, kind: Kind) -> TrainedOn | None:
    """What a model was trained on, by its vocabulary; None: a generated task has no such one."""
    alphabet = characters.removesuffix(START + END)
    blanks = sum(alphabet.endswith(blank) for blank in {recall.BLANK, selective_copy.BLANK})
    if alphabet == characters or len(alphabet) - blanks < 2:
        return None
    return TrainedOn(alphabet, options, kind)


def fault_of(question: str, model: TrainedOn) -> str:
    """What is wrong with a question, without the start token behind it; "": nothing."""
    form = FORMS[model.options.task]
    if not question:
        return "it is empty"
    if END in question:
        return "it holds a line break, which is the end of an answer"
    foreign = sorted(set(question) - {*model.alphabet, START})
    if foreign:
        known = model.alphabet if len(model.alphabet) <= SHOWN else f"{model.alphabet[:SHOWN]}..."
        return f"it holds {', '.join(map(repr, foreign[:10]))}, and its symbols are {known!r}"
    if START in question and not form.marked:
        return f"it holds {START!r}, which ends a question"
    return form.fault(question, model)


def example_of(model: TrainedOn) -> str:
    """A question as it should be."""
    return FORMS[model.options.task].example(model)


def _any(question: str, model: TrainedOn) -> str:
    return ""


def _some(model: TrainedOn) -> str:
    return model.alphabet[:4][::-1]


def _addition(question: str, model: TrainedOn) -> str:
    first, *others = question.split("+")
    if len(others) != 1:
        return f"it holds {len(others) or 'no'} '+', and needs one"
    second = others[0]
    if not first or not second:
        return f"there is no number {'behind' if first else 'before'} its '+'"
    if len(first) != len(second):
        digits = max(len(first), len(second))
        return (
            f"its numbers have {len(first)} and {len(second)} digits: fill the shorter one with zeros, "
            f"{first.zfill(digits)}+{second.zfill(digits)}"
        )
    return ""


def _induction(question: str, model: TrainedOn) -> str:
    marks = question.count(START)
    if marks > 1:
        return f"it holds {marks} marks {START!r} beside the one that may end it, and needs one"
    if not marks or question.endswith(START):
        return f"it holds no mark {START!r} with a symbol behind it"
    return ""


def _kept(model: TrainedOn) -> int:
    return model.options.pairs or selective_copy.KEPT


def _selective_copy(question: str, model: TrainedOn) -> str:
    count, kept = len(question) - question.count(selective_copy.BLANK), _kept(model)
    if count != kept:
        return f"it has {count} symbols among its blanks {selective_copy.BLANK!r}, and the model was trained on {kept}"
    return ""


def _scattered(model: TrainedOn) -> str:
    symbols = itertools.cycle(model.alphabet.replace(selective_copy.BLANK, ""))
    return "".join(next(symbols) + selective_copy.BLANK * (place % 2) for place in range(_kept(model)))


def _keys_and_values(model: TrainedOn) -> tuple[str, str]:
    symbols = model.alphabet.replace(recall.BLANK, "")
    return symbols[: len(symbols) // 2], symbols[len(symbols) // 2 :]


def _recall(question: str, model: TrainedOn) -> str:
    keys, values = _keys_and_values(model)
    couples = zip(question[0::2], question[1::2], strict=False)
    pairs = len(list(itertools.takewhile(lambda two: two[0] in keys and two[1] in values, couples)))
    stored, rest = question[0 : 2 * pairs : 2], question[2 * pairs :]
    if not pairs:
        return f"it does not begin with a pair of a key, one of {keys!r}, and a value, one of {values!r}"
    if len(set(stored)) < pairs:
        twice = next(key for key in stored if stored.count(key) > 1)
        return f"the key {twice!r} has two values"
    strange = next((symbol for symbol in rest if symbol not in (recall.BLANK, *stored)), None)
    if strange is not None:
        return (
            f"behind its {pairs} pair{'s' * (pairs > 1)} stands {strange!r}, which is neither a blank {recall.BLANK!r} "
            "nor one of their keys"
        )
    if not rest or rest[-1] == recall.BLANK:
        return "it does not end with a query: one of the keys of its pairs, whose value is then written"
    if model.kind == "translate" and recall.BLANK in rest.lstrip(recall.BLANK):
        return f"there are blanks {recall.BLANK!r} among its queries, which all stand at its end"
    return ""


def _two_pairs(model: TrainedOn) -> str:
    keys, values = _keys_and_values(model)
    pairs = list(zip(keys, values, strict=False))[:2]
    return "".join(key + value for key, value in pairs) + 2 * recall.BLANK + pairs[-1][0]


FORMS = {
    "copy": Form(_any, _some),
    "reverse": Form(_any, _some),
    "sort": Form(_any, _some),
    "addition": Form(_addition, lambda _: "123+456"),
    "selective-copy": Form(_selective_copy, _scattered),
    "induction": Form(_induction, lambda model: f"{model.alphabet[:2]}{START}{model.alphabet[:3][::-1]}", marked=True),
    "recall": Form(_recall, _two_pairs),
}
