"""The task copy."""

from __future__ import annotations

import pytest

from rlseq.sequence import Kind
from tests.seq.tasks.generated import KINDS, made, sampled


@pytest.mark.parametrize("kind", KINDS)
def test_answers_by_python(kind: Kind) -> None:
    pairs = sampled(made("copy", kind))
    assert all(answer == question and len(question) == 20 for question, answer in pairs)
    assert {symbol for question, _ in pairs for symbol in question} == set("abcdefghijklmnopqrstuvwxyz")
