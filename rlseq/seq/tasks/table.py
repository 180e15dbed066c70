"""The sequence tasks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.task import Task
from rlseq.seq.tasks.text import TextTask
from rlseq.sequence import Kind


class Entry(NamedTuple):
    """A task.

    Attributes:
        make: of the options, for one of its kinds.
        kinds: what it can be for a model.
        about: one line.
    """

    make: Callable[[SeqOptions, Kind], Task]
    kinds: tuple[Kind, ...]
    about: str


TASKS: dict[str, Entry] = {
    "text": Entry(lambda options, _: TextTask(options), ("tokens",), "predict the next character, or byte, of a text"),
}
