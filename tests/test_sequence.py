"""What a tokenizer says to text that is none."""

from __future__ import annotations

import os

import pytest

from rlseq.errors import UsageError
from rlseq.sequence import Tokenizer


@pytest.mark.parametrize("tokenizer", [Tokenizer(unit="byte"), Tokenizer(unit="char", characters="ab")])
def test_a_byte_of_a_command_line_that_is_no_utf8(tokenizer: Tokenizer) -> None:
    typed = os.fsdecode(b"ab\xff")
    with pytest.raises(UsageError, match=r"the text holds '\\udcff', "):
        tokenizer.encode(typed)
