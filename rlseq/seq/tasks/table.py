"""The sequence tasks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.addition import addition
from rlseq.seq.tasks.classify import make_waveforms, read_classify
from rlseq.seq.tasks.copying import copying
from rlseq.seq.tasks.forecast import make_lorenz, make_mackey_glass, read_forecast
from rlseq.seq.tasks.induction import induction
from rlseq.seq.tasks.recall import recall
from rlseq.seq.tasks.reversing import reversing
from rlseq.seq.tasks.selective_copy import selective_copy
from rlseq.seq.tasks.sorting import sorting
from rlseq.seq.tasks.task import Task
from rlseq.seq.tasks.text import TextTask
from rlseq.sequence import Kind


class Entry(NamedTuple):
    """A task.

    Attributes:
        make: of the options, for one of its kinds.
        kinds: what it can be for a model.
        about: one line.
        core: the network that it is learnt with if none is named; its recipe is then taken. None: the defaults are.
    """

    make: Callable[[SeqOptions, Kind], Task]
    kinds: tuple[Kind, ...]
    about: str
    core: str | None = None


ANSWERS: tuple[Kind, ...] = ("tokens", "translate")

TASKS: dict[str, Entry] = {
    "text": Entry(lambda options, _: TextTask(options), ("tokens",), "predict the next character, or byte, of a text"),
    "copy": Entry(copying, ANSWERS, "write the question again", core="gpt"),
    "reverse": Entry(reversing, ANSWERS, "write the question from its end to its beginning", core="gpt"),
    "sort": Entry(sorting, ANSWERS, "write the question's symbols in their order", core="gpt"),
    "addition": Entry(addition, ANSWERS, "add two numbers of as many digits, the sum's last digit first", core="gpt"),
    "selective-copy": Entry(selective_copy, ANSWERS, "write the symbols again that stand among blanks", core="gpt"),
    "induction": Entry(induction, ANSWERS, "write the symbol that stood behind the mark", core="gpt"),
    "recall": Entry(recall, ANSWERS, "write the values of keys, which stood in pairs before", core="gpt"),
    "classify": Entry(
        lambda options, _: read_classify(options), ("classify",), "the class of a series, of a CSV file", core="encoder"
    ),
    "waveforms": Entry(
        lambda options, _: make_waveforms(options), ("classify",), "sine, square, triangle or sawtooth", core="encoder"
    ),
    "forecast": Entry(
        lambda options, _: read_forecast(options), ("forecast",), "the next values, of a CSV file", core="lstm"
    ),
    "mackey-glass": Entry(
        lambda options, _: make_mackey_glass(options), ("forecast",), "a chaotic series with a delay", core="lstm"
    ),
    "lorenz": Entry(
        lambda options, _: make_lorenz(options),
        ("forecast",),
        "Lorenz's chaotic system of three variables",
        core="lstm",
    ),
}
