"""The task sort."""

from __future__ import annotations

import pytest

from rlseq.sequence import Kind
from tests.seq.tasks.generated import KINDS, made, sampled


@pytest.mark.parametrize("kind", KINDS)
def test_answers_by_python(kind: Kind) -> None:
    pairs = sampled(made("sort", kind))
    assert all(answer == "".join(sorted(question)) and len(question) == 20 for question, answer in pairs)
    assert any(len(set(question)) < 20 for question, _ in pairs)  # the same symbol may come again
