"""The task recall."""

from __future__ import annotations

import numpy as np
import pytest

from rlseq.seq.tasks.recall import asked, rows_of
from rlseq.sequence import Kind
from tests.seq.tasks.generated import KINDS, made, pairs_of, sampled


@pytest.mark.parametrize("kind", KINDS)
def test_answers_by_python(kind: Kind) -> None:
    for question, answer in sampled(made("recall", kind)):
        known = dict(zip(question[0:8:2], question[1:8:2], strict=True))
        later = question[8:].replace(".", "")
        assert len(question) == 64 and len(later) == len(known) == 4
        if kind == "tokens":
            assert sorted(later) == sorted(known) and answer == "".join(known[key] for key in later)
        else:
            assert answer == "".join(key + known[key] for key in later)
        assert set(known) <= set("abcdefghijklmnopqrstuvwxyz")
        assert set(known.values()) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ") and len(set(known.values())) == 4


def test_a_value_is_due_where_its_key_comes_again() -> None:
    task = made("recall", "tokens", pairs=2, length=12, symbols=6)
    batch = task.sample(np.random.default_rng(0), 50)
    assert batch.mask is not None and (batch.mask.sum(1) == 2).all()
    for row in range(50):
        known = dict(zip(batch.inputs[row, 0:4:2].tolist(), batch.inputs[row, 1:4:2].tolist(), strict=True))
        for place in np.flatnonzero(batch.mask[row]):
            assert place >= 4 and place % 2 == 0
            assert batch.targets[row, place] == known[batch.inputs[row, place]]
            assert batch.inputs[row, place + 1] == 6  # a blank, not the value
    assert task.signature.start is None and task.signature.end is None


def test_the_queries_of_a_source_are_its_end() -> None:
    pairs = sampled(made("recall", "translate", length=20), 300)
    assert all(set(question[8:16]) == {"."} and set(question[16:]) <= set(question[:8:2]) for question, _ in pairs)
    assert any(len(set(question[16:])) < 4 for question, _ in pairs)
    firsts = np.bincount([question[:8:2].index(question[16]) for question, _ in pairs], minlength=4)
    assert abs(firsts - 75).max() < 35


def test_near_places_are_likelier_by_the_power_law() -> None:
    questions = rows_of(1, 3, 6, together=False)(np.random.default_rng(0), 60_000, 12)  # five slots behind one pair
    places = asked(questions, 1).places[:, 0]
    shares = np.bincount((places - 2) // 2, minlength=5) / 60_000
    weights = np.arange(1, 6) ** -0.99
    assert abs(shares - weights / weights.sum()).max() < 0.01


@pytest.mark.parametrize("length", [16, 17])
def test_no_more_room_than_needed(length: int) -> None:
    task = made("recall", "tokens", length=length, examples=5)
    for question, answer in pairs_of(task, next(iter(task.validation(5)))):
        assert question[8::2].rstrip(".") == question[8:16:2] and len(answer) == 4 and len(question) == length
