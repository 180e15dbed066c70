"""Commands as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlseq.bench import reference
from rlseq.bench.command import run_command
from rlseq.errors import RlseqError


def test_what_a_command_gets_and_gives(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run(words: list[str], env: dict[str, str], **how: Any) -> subprocess.CompletedProcess[str]:
        seen.append((words, env))
        return subprocess.CompletedProcess(words, 0, json.dumps({"loss": 1.25}), "")

    monkeypatch.setattr(subprocess, "run", run)
    ran = run_command(("--data", str(book), "--steps", "5"), 3)
    ((words, env),) = seen
    assert words == [
        *(sys.executable, "-m", "rlseq", "train", "seq", "--data", str(book), "--steps", "5", "--seed", "3"),
        *("--device", "cpu", "--json", "--quiet"),
    ]
    assert ran.summary == {"loss": 1.25}
    for name in ("RLSEQ_RUNS", "RLSEQ_CACHE"):
        assert not Path(env[name]).exists()  # it was the run's own
    run_command((), 0, runs=book.parent)
    assert seen[-1][1]["RLSEQ_RUNS"] == str(book.parent)


def test_a_command_that_fails_is_told(book: Path) -> None:
    with pytest.raises(RlseqError, match=r"rlseq train seq --data .*--net gpu.* failed, exit code 2:\n(.|\n)*gpu"):
        run_command(("--data", str(book), "--net", "gpu"), 0)


@pytest.mark.slow
def test_a_real_command(book: Path) -> None:
    words = ["--context", "16", "--batch-size", "4", "--steps", "3", "--size", "tiny", "--threads", "1"]
    words += ["--set", "seq.validation=0.1"]
    ran = run_command(["--data", str(book), *words], 0)
    assert (ran.summary["updates"], ran.summary["tokens"]) == (3, len(reference.read_text(book).validation) - 1)
    assert ran.seconds > ran.summary["training_seconds"] > 0.0
