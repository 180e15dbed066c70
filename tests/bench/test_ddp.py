"""`rlseq bench ddp`: its parts, its text."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from rlseq.bench import ddp
from rlseq.bench.ddp import PARTS, bench_ddp
from rlseq.bench.ddp_killed import COMMAND
from rlseq.errors import UsageError


def ignore(line: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, Path]]:
    """The parts replaced; gives what they were called with."""
    made: list[tuple[int, int, Path]] = []

    def part(number: int) -> ddp.Part:
        def measure(tell: Any, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
            made.append((number, repeats, data))
            return {f"part-{number}": {"what": str(number)}}

        return measure

    for number in PARTS:
        monkeypatch.setitem(PARTS, number, part(number))
    return made


def test_all_parts_and_what_they_were_measured_on(calls: list[Any], book: Path) -> None:
    result = bench_ddp(ignore, repeats=2, data=str(book))
    assert calls == [(number, 2, book) for number in (1, 2, 3, 4)]
    assert list(result["measurements"]) == ["part-1", "part-2", "part-3", "part-4"]
    assert result["options"] == {
        "data": {"file": "book.txt", "sha256": hashlib.sha256(book.read_bytes()).hexdigest()},
        "command": " ".join(COMMAND),
    }


def test_one_part(calls: list[Any], book: Path) -> None:
    assert list(bench_ddp(ignore, repeats=1, data=str(book), part=3)["measurements"]) == ["part-3"]
    assert [number for number, *_ in calls] == [3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "no/such.txt"}, r"--data no/such\.txt: there is no such file. bench ddp takes one text file"),
        ({"part": 5}, r"--part 5: bench ddp has the parts 1, 2, 3, 4\."),
    ],
)
def test_what_is_typed_wrongly(calls: list[Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bench_ddp(ignore, repeats=1, **given)
    assert calls == []
