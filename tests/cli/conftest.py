"""A command line in a folder of the test's own."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rlseq import zoo
from rlseq.cli.main import app

Cli = Callable[..., Result]


@pytest.fixture
def cli(place: Path) -> Cli:
    """`cli("eval --json")` or `cli("eval", path)` runs a command; the result has exit_code, stdout, stderr."""

    def run(*words: Any) -> Result:
        typed = shlex.split(words[0]) if len(words) == 1 else [str(word) for word in words]
        return CliRunner().invoke(app, typed, prog_name="rlseq")

    return run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: empty, without runs and agents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLSEQ_RUNS", raising=False)
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "agents")
    return tmp_path


def only_json(result: Result) -> dict[str, Any]:
    """Stdout, which must be one JSON object and nothing else."""
    value = json.loads(result.stdout)
    assert isinstance(value, dict)
    return value


def failed(result: Result, code: int, *words: str) -> None:
    """The command ended with a code and a message with these words, and without a traceback."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr, result.stderr
