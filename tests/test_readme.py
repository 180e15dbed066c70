"""README's Python example runs, and its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(example, "README.md", "exec"), {})


def test_the_option_tables_are_printed_from_the_code() -> None:
    from rlseq.cli.options import headed, markdown_tables, matching

    for text in headed(matching(None), markdown_tables, "### "):
        assert text.strip() in README


def test_the_published_results_stand_in_the_table() -> None:
    """Those of `rlseq/bench/results.json`, with their ratio and commit, and no others."""
    from rlseq.bench.results import markdown, read_rows

    rows = read_rows(Path(__file__).parent.parent)
    assert markdown(rows) in README
    assert README.count("| `rlseq bench ") == len(rows)


def test_it_names_no_command_that_does_not_exist() -> None:
    from typer.main import get_command

    from rlseq.cli.main import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    named = set(re.findall(r"^ *rlseq ([a-z]+)", README, re.M)) | set(re.findall(r"`rlseq ([a-z]+)", README))
    assert named <= known, named - known
