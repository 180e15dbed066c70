"""The task reverse."""

from __future__ import annotations

import pytest

from rlseq.sequence import Kind
from tests.seq.tasks.generated import KINDS, made, sampled


@pytest.mark.parametrize("kind", KINDS)
def test_answers_by_python(kind: Kind) -> None:
    pairs = sampled(made("reverse", kind, symbols=10))
    assert all(answer == question[::-1] and len(question) == 20 for question, answer in pairs)
    assert {symbol for question, _ in pairs for symbol in question} == set("abcdefghij")
