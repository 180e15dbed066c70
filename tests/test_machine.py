"""What a result says of the code it came from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rlseq import machine


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a package, an agent and a document, all committed."""
    for name in ("rlseq/machine.py", "pyproject.toml", "agents/mine/card.md", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "rlseq" / "machine.py"))
    return tmp_path


def test_the_commit_of_a_clean_tree(tree: Path) -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True, check=True).stdout
    assert machine.commit() == head[:10]


@pytest.mark.parametrize("name", ["agents/mine/card.md", "README.md", "runs/a/config.json"])
def test_what_no_result_depends_on_is_no_change(tree: Path, name: str) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("second\n")
    assert "+" not in str(machine.commit())


@pytest.mark.parametrize("name", ["rlseq/machine.py", "rlseq/new.py", "pyproject.toml"])
def test_changed_code_is_said(tree: Path, name: str) -> None:
    (tree / name).write_text("second\n")
    assert str(machine.commit()).endswith("+changes")


def test_outside_a_repository_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "rlseq" / "machine.py"))
    assert machine.commit() is None


@pytest.mark.parametrize(
    ("started", "command"),
    [("/usr/bin/rlseq", "rlseq train"), ("/x/rlseq/__main__.py", "rlseq train"), ("/x/my.py", "my.py train")],
)
def test_the_command_can_be_typed_again(started: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [started, "train"])
    assert machine.describe_machine()["command"] == command
