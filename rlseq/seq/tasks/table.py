"""The sequence tasks by name."""

from __future__ import annotations

from collections.abc import Callable

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.task import Task
from rlseq.seq.tasks.text import TextTask

TASKS: dict[str, Callable[[SeqOptions], Task]] = {"text": TextTask}
