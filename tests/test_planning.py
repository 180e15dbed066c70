"""What is checked before anything is trained."""

from __future__ import annotations

import pytest

from rlseq.errors import UsageError
from rlseq.planning import Request, plan_training


@pytest.mark.parametrize("task", ["classify", "forecast"])
@pytest.mark.parametrize(("source", "how"), [("command line", "--data FILE"), ("arguments", 'data="FILE.csv"')])
def test_who_names_no_data_is_told_so_in_the_words_of_the_command_line_or_of_python(
    task: str, source: str, how: str
) -> None:
    with pytest.raises(UsageError, match=f"the task {task} is about a CSV file, and none was named: {how}$"):
        plan_training(Request("seq", everyday={"task": task}, source=source))
