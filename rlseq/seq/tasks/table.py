"""The sequence tasks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlseq.errors import UsageError
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
        takes: the `seq.*` options that mean something for it, beside `COMMON`.
        core: the network that it is learnt with if none is named; its recipe is then taken. None: the defaults are.
    """

    make: Callable[[SeqOptions, Kind], Task]
    kinds: tuple[Kind, ...]
    about: str
    takes: tuple[str, ...]
    core: str | None = None


ANSWERS: tuple[Kind, ...] = ("tokens", "translate")
COMMON = ("task", "batch_size", "validation", "loss", "label_smoothing", "focal_gamma", "huber_delta", "quantiles")
TEXT = ("data", "pattern", "unit", "context")
DRAWN = ("length", "min_length", "examples", "buckets")
SYMBOLS = (*DRAWN, "symbols")
PAIRS = (*SYMBOLS, "pairs")
CLASSES = ("data", "label", "group", "columns", "buckets")
FORECAST = ("data", "target", "columns", "horizon", "context")
COMPUTED = ("target", "horizon", "context")

TASKS: dict[str, Entry] = {
    "text": Entry(
        lambda options, _: TextTask(options), ("tokens",), "predict the next character, or byte, of a text", TEXT
    ),
    "copy": Entry(copying, ANSWERS, "write the question again", SYMBOLS, "gpt"),
    "reverse": Entry(reversing, ANSWERS, "write the question from its end to its beginning", SYMBOLS, "gpt"),
    "sort": Entry(sorting, ANSWERS, "write the question's symbols in their order", SYMBOLS, "gpt"),
    "addition": Entry(addition, ANSWERS, "add two numbers of as many digits, the sum's last digit first", DRAWN, "gpt"),
    "selective-copy": Entry(selective_copy, ANSWERS, "write the symbols again that stand among blanks", PAIRS, "gpt"),
    "induction": Entry(induction, ANSWERS, "write the symbol that stood behind the mark", SYMBOLS, "gpt"),
    "recall": Entry(recall, ANSWERS, "write the values of keys, which stood in pairs before", PAIRS, "gpt"),
    "classify": Entry(
        lambda options, _: read_classify(options),
        ("classify",),
        "the class of a series, of a CSV file",
        CLASSES,
        "encoder",
    ),
    "waveforms": Entry(
        lambda options, _: make_waveforms(options),
        ("classify",),
        "sine, square, triangle or sawtooth",
        DRAWN,
        "encoder",
    ),
    "forecast": Entry(
        lambda options, _: read_forecast(options), ("forecast",), "the next values, of a CSV file", FORECAST, "lstm"
    ),
    "mackey-glass": Entry(
        lambda options, _: make_mackey_glass(options), ("forecast",), "a chaotic series with a delay", COMPUTED, "lstm"
    ),
    "lorenz": Entry(
        lambda options, _: make_lorenz(options),
        ("forecast",),
        "Lorenz's chaotic system of three variables",
        COMPUTED,
        "lstm",
    ),
}


def check_taken(options: SeqOptions) -> None:
    """Refuse options that mean nothing for the task.

    Raises:
        UsageError: one of them is given.
    """
    known, defaults = {*COMMON, *TASKS[options.task].takes}, SeqOptions()
    for name in SeqOptions.__struct_fields__:
        value = getattr(options, name)
        if name not in known and value != getattr(defaults, name):
            shown = ",".join(value) if isinstance(value, tuple) else value
            raise UsageError(f"seq.{name} = {shown} means nothing for the task {options.task}: leave it out.")
