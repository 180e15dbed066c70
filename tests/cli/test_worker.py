"""What a worker hands over."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rlseq.cli import worker
from rlseq.events import Event


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The report of a worker of this process' parent."""
    path = tmp_path / "report-0-0.json"
    monkeypatch.setenv(worker.REPORT, str(path))
    monkeypatch.setenv(worker.LAUNCHER, str(os.getppid()))
    return path


def test_the_run_is_known_before_the_end(file: Path) -> None:
    (callback,) = worker.callbacks()
    callback(Event("tick", 5, 10, {}, lambda: None))
    assert not file.exists()
    callback(Event("checkpoint", 5, 10, {"path": "runs/mine/checkpoints/5"}, lambda: None))
    assert json.loads(file.read_text()) == {"run": "runs/mine"}
    assert worker.hand_over({"error": "it failed", "exit_code": 1, "kind": "Error"})
    assert worker.read_report(file) == {"run": "runs/mine", "error": "it failed", "exit_code": 1, "kind": "Error"}


def test_without_a_launcher_everybody_speaks_for_himself(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(worker.LAUNCHER, "0")  # it is gone, or this was started by a worker

    assert not worker.hand_over({"summary": {}})
    monkeypatch.delenv(worker.REPORT)
    assert not worker.hand_over({"summary": {}})
    assert worker.callbacks() == [] and not file.exists()


def test_a_report_cut_off_is_none(file: Path) -> None:
    file.write_text('{"summary": {"ru')
    assert worker.read_report(file) == {}
    assert worker.hand_over({"summary": {}}) and worker.read_report(file) == {"summary": {}}


def test_wrong_variables_are_for_the_training_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "one")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert worker.rank() == 0


def test_the_first_error_counts(file: Path) -> None:
    """A second Ctrl-C, while the first one is being told, says less."""
    worker.hand_over({"error": "all is saved", "exit_code": 130, "kind": "Interrupted"})
    worker.hand_over({"error": "stopped by Ctrl-C.", "exit_code": 130, "kind": "Interrupted"})
    assert worker.read_report(file)["error"] == "all is saved"
