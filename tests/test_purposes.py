"""What sequence tasks are for."""

from __future__ import annotations

from rlseq.purposes import CLASSES, FORECASTS, PURPOSES, QUESTIONS, TEXTS, purpose_of
from rlseq.seq.tasks.table import TASKS


def test_every_task_has_a_purpose_that_suits_its_kind() -> None:
    assert PURPOSES.keys() == TASKS.keys()
    suits = {("tokens",): TEXTS, ("tokens", "translate"): QUESTIONS, ("classify",): CLASSES, ("forecast",): FORECASTS}
    for name, entry in TASKS.items():
        assert PURPOSES[name] is suits[entry.kinds], name


def test_what_names_no_task_or_one_that_is_not_known_is_of_text() -> None:
    assert purpose_of({"task": "addition"}) is QUESTIONS
    assert purpose_of({}) is purpose_of({"task": "of tomorrow"}) is TEXTS
