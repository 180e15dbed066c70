"""What every task has."""

from __future__ import annotations

import numpy as np

from rlseq.seq.batch import TokenBatch
from rlseq.seq.tasks.task import Answers, Showing, Shown


class Wordy(Showing):
    def prompt(self) -> str:
        return "Once"


def test_a_task_shows_nothing_but_what_it_defines() -> None:
    shown = Shown(TokenBatch(np.zeros((1, 1)), np.zeros((1, 1))), Answers())
    task = Wordy()
    assert (task.prompt(), task.examples(shown), task.pictures(np.zeros(1), shown)) == ("Once", "", {})
