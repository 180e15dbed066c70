"""What tasks take."""

from __future__ import annotations

from typing import Any

import pytest

from rlseq.errors import UsageError
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.table import COMMON, TASKS, check_taken

VALUES: dict[str, Any] = {
    **dict.fromkeys(("data", "label", "group", "target"), "x"),
    **dict.fromkeys(("length", "min_length", "symbols", "pairs", "examples", "context", "horizon", "buckets"), 7),
    **{"columns": ("x",), "pattern": "*.md", "unit": "byte"},
}


def test_every_option_is_of_some_task() -> None:
    of_tasks = {name for entry in TASKS.values() for name in entry.takes}
    assert of_tasks == set(VALUES)
    assert {*COMMON, *of_tasks} == set(SeqOptions.__struct_fields__)


@pytest.mark.parametrize("task", TASKS)
def test_what_means_nothing_for_a_task_is_refused(task: str) -> None:
    check_taken(SeqOptions(task=task))  # type: ignore[arg-type]
    for name, value in VALUES.items():
        options = SeqOptions(task=task, **{name: value})  # type: ignore[arg-type]
        if name in TASKS[task].takes:
            check_taken(options)
        else:
            shown = "x" if name == "columns" else value
            words = f"seq.{name} = {shown} means nothing for the task {task}: leave it out".replace("*", r"\*")
            with pytest.raises(UsageError, match=words):
                check_taken(options)
