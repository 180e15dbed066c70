"""`rlseq bench seq`: its five parts, its text, its commands."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq.bench import reference, seq
from rlseq.bench.seq import COMMANDS, PARTS, bench_seq, text_file
from rlseq.errors import UsageError
from rlseq.seq import corpus
from rlseq.seq.corpus import Corpus
from rlseq.sequence import Tokenizer


def ignore(line: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, Path]]:
    """The five parts replaced; gives what they were called with."""
    made: list[tuple[int, int, Path]] = []

    def part(number: int) -> seq.Part:
        def measure(tell: Any, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
            made.append((number, repeats, data))
            return {f"part-{number}": {"what": str(number)}}

        return measure

    for number in PARTS:
        monkeypatch.setitem(PARTS, number, part(number))
    return made


def test_all_parts_and_what_they_were_measured_on(calls: list[Any], book: Path) -> None:
    result = bench_seq(ignore, repeats=2, data=str(book))
    assert calls == [(number, 2, book) for number in (1, 2, 3, 4, 5)]
    assert list(result["measurements"]) == ["part-1", "part-2", "part-3", "part-4", "part-5"]
    assert result["options"]["data"] == {
        "file": "book.txt",
        "sha256": hashlib.sha256(book.read_bytes()).hexdigest(),
    }
    assert result["options"]["commands"].keys() == COMMANDS.keys()


def test_one_part(calls: list[Any], book: Path) -> None:
    assert list(bench_seq(ignore, repeats=1, data=str(book), part=4)["measurements"]) == ["part-4"]
    assert [number for number, *_ in calls] == [4]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "no/such.txt"}, r"--data no/such\.txt: there is no such file. bench seq takes one text file"),
        ({"data": "."}, r"--data \.: there is no such file"),
        ({"part": 6}, r"--part 6: bench seq has the parts 1, 2, 3, 4, 5\."),
    ],
)
def test_what_is_typed_wrongly(calls: list[Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bench_seq(ignore, repeats=1, **given)
    assert calls == []


def test_without_data_the_standard_library_becomes_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    content = "# é\r\nimport os\n" * 9
    tokens = np.frombuffer(content.encode(), np.uint8)
    monkeypatch.setattr(
        corpus, "read_corpus", lambda data: Corpus(Tokenizer(unit="byte"), tokens, "", "", ()) if data is None else None
    )
    with text_file(None) as path:
        assert path.name == "standard-library.txt"
        assert path.read_bytes() == content.encode()
        assert len(reference.read_text(path).train) == int(0.9 * len(content))
    assert not path.exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_have_the_references_context_and_score_all_of_the_split(name: str) -> None:
    words = COMMANDS[name]
    assert words[words.index("--context") + 1] == str(reference.Shape().context)
    assert "seq.validation=0.1" in words  # the reference's split
    assert not [word for word in words if "--data" in word or "--seed" in word]
