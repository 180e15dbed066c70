"""Published results: their file, their table, and the rule that makes them stale."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlseq.bench import results
from rlseq.bench.measure import Timing, measurement
from rlseq.errors import RlseqError, UsageError

ROOT = Path(__file__).resolve().parents[2]
TIMES = ([Timing(2.0, 1000), Timing(2.5, 1000)], [Timing(10.0, 1000), Timing(11.0, 1000)])


def report(name: str = "dqn", command: str = "rlseq bench dqn", **changes: Any) -> dict[str, Any]:
    """A benchmark's report; ours 2 and 2.5 s, theirs 10 and 11 s."""
    measured = measurement("training", *TIMES, {"name": "them", "version": "1.0"})
    common = {"machine": {"cpu": "a chip", "cores": 2}, "versions": {"numpy": "2.0"}, "repeats": 2}
    return {"name": name, "command": command, "commit": "x", **common, **measured, **changes}


def row(commit: str, **changes: Any) -> dict[str, Any]:
    """A published row."""
    (one,) = results.rows_of(report(**changes), commit, "2026-01-31")
    return one


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit: code, README, an agent, no results."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = tmp_path / "tree"
    for file in ("rlseq/code.py", "README.md", "agents/toy-dqn/recipe.toml", "agents/toy-dqn/policy.onnx"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("first")
    write_rows(folder, [])
    git(folder, "init", "-q")
    commit(folder)
    return folder


def git(tree: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=tree, capture_output=True, text=True, check=True).stdout.strip()


def commit(tree: Path) -> str:
    """Commit everything; gives the short name."""
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "--allow-empty", "-m", "change")
    return git(tree, "rev-parse", "--short=10", "HEAD")


def write_rows(tree: Path, rows: list[dict[str, Any]]) -> None:
    (tree / results.RESULTS).parent.mkdir(parents=True, exist_ok=True)
    (tree / results.RESULTS).write_text(json.dumps({"format_version": 1, "rows": rows}))


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "rlseq/bench/results.json",
        "agents/a-dqn/card.md",
        "agents/a-dqn/card.json",
        "agents/a/policy.onnx",
        "agents/a/curves.png",
        "agents/a/play.gif",
    ],
)
def test_what_may_change(path: str) -> None:
    assert results.harmless(path)


@pytest.mark.parametrize(
    "path",
    [
        "rlseq/README.md",
        "CHANGELOG.md",
        "agents/a-dqn/recipe.toml",
        "rlseq/bench/dqn.py",
        "card.json",
        "tests/test_a.py",
        "pyproject.toml",
        "rlseq/bench/other.json",
        "readme.md",
    ],
)
def test_what_may_not(path: str) -> None:
    assert not results.harmless(path)


def test_a_row_holds_what_is_needed_to_measure_it_again() -> None:
    made = row("abc1234567")
    assert set(results.ROW_KEYS) <= made.keys()
    assert (made["name"], made["command"], made["commit"]) == ("dqn", "rlseq bench dqn", "abc1234567")
    assert [made["ratio"], *made["spread"]] == pytest.approx([10.5 / 2.25, 4.4, 5.0])
    assert (made["date"], made["repeats"]) == ("2026-01-31", 2)
    assert made["ours"] == {
        "seconds": [2.0, 2.5],
        "median": 2.25,
        "spread": [2.0, 2.5],
        "steps_per_second": 450.0,
    }
    assert (made["peer"]["name"], made["peer"]["version"], made["peer"]["seconds"]) == ("them", "1.0", [10.0, 11.0])


def test_each_measurement_of_a_report_is_a_row() -> None:
    parts = {name: measurement(name, *TIMES, {"name": "them"}) for name in ("single", "native")}
    rows = results.rows_of({**report("play"), "measurements": parts}, "abc1234567", "2026-01-31")
    assert [made["name"] for made in rows] == ["play-single", "play-native"]


def test_a_comparison_with_nobody_is_not_published() -> None:
    alone = report(**measurement("training", TIMES[0], None, None))
    with pytest.raises(UsageError, match="bench dqn compared with nobody"):
        results.rows_of(alone, "abc1234567", "2026-01-31")


def test_a_row_replaces_that_of_its_name_and_command() -> None:
    old = [row("1111111"), row("2222222", command="rlseq bench dqn --steps 9"), row("3333333", name="other")]
    merged = results.merged(old, [row("4444444", command="rlseq bench dqn --steps 9"), row("5555555", name="new")])
    assert [made["commit"] for made in merged] == ["1111111", "4444444", "3333333", "5555555"]


def test_publishing_writes_rows_of_the_commit(tree: Path) -> None:
    at = results.clean_commit(tree)
    assert at == git(tree, "rev-parse", "--short=10", "HEAD")
    assert results.publish(report(), tree, at) == tree / results.RESULTS
    results.publish(report("play", "rlseq bench play"), tree, at)  # the results that were just written are no hindrance
    assert [(made["name"], made["commit"]) for made in results.read_rows(tree)] == [("dqn", at), ("play", at)]
    assert [path.name for path in (tree / "rlseq/bench").iterdir()] == ["results.json"]
    assert results.check(tree) == []


@pytest.mark.parametrize("file", ["rlseq/code.py", "rlseq/new.py", "agents/toy-dqn/recipe.toml"])
def test_changed_files_forbid_publishing(tree: Path, file: str) -> None:
    at = results.clean_commit(tree)
    (tree / file).write_text("second")
    with pytest.raises(UsageError, match=f"--publish: {file} differ from the commit. Commit first"):
        results.publish(report(), tree, at)
    assert results.read_rows(tree) == []


@pytest.mark.parametrize("file", ["README.md", "agents/toy-dqn/policy.onnx", "agents/toy-dqn/card.json"])
def test_harmless_files_do_not(tree: Path, file: str) -> None:
    (tree / file).write_text("second")
    assert results.clean_commit(tree) == git(tree, "rev-parse", "--short=10", "HEAD")


def test_a_commit_while_it_was_measured_forbids_it_too(tree: Path) -> None:
    at = results.clean_commit(tree)
    (tree / "rlseq/code.py").write_text("second")
    now = commit(tree)
    with pytest.raises(UsageError, match=f"the commit changed from {at} to {now} while it was measured"):
        results.publish(report(), tree, at)


def test_outside_a_repository_nothing_is_published(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no git checkout"):
        results.clean_commit(tmp_path)


def test_changes_make_a_result_stale(tree: Path) -> None:
    at = results.clean_commit(tree)
    results.publish(report(), tree, at)
    (tree / "README.md").write_text("with the result")
    (tree / "agents/toy-dqn/policy.onnx").write_text("second")
    commit(tree)
    assert results.check(tree) == []
    (tree / "rlseq/code.py").write_text("second")
    (tree / "agents/toy-dqn/recipe.toml").unlink()
    commit(tree)
    (finding,) = results.check(tree)
    assert (finding.what, finding.broken) == ("dqn (rlseq bench dqn)", False)
    assert finding.text == f"2 files changed since {at}: agents/toy-dqn/recipe.toml, rlseq/code.py"
    for n in range(4):
        (tree / f"rlseq/more{n}.py").write_text("new")
    commit(tree)
    (finding,) = results.check(tree)
    assert (
        finding.text
        == f"6 files changed since {at}: agents/toy-dqn/recipe.toml, rlseq/code.py, rlseq/more0.py and 3 more"
    )


def test_a_renamed_file_is_two_changes(tree: Path) -> None:
    at = results.clean_commit(tree)
    results.publish(report(), tree, at)
    git(tree, "mv", "rlseq/code.py", "moved.png")
    commit(tree)
    (finding,) = results.check(tree)
    assert finding.text == f"1 file changed since {at}: rlseq/code.py"


@pytest.mark.parametrize("stated", ["0123456789", "1234567+changes", None, "HEAD", "--all", ""])
def test_no_such_commit(tree: Path, stated: Any) -> None:
    write_rows(tree, [row(stated)])
    (finding,) = results.check(tree)
    assert finding.broken
    assert str(stated) in finding.text


def test_a_commit_of_another_branch(tree: Path) -> None:
    git(tree, "checkout", "-q", "-b", "side")
    at = commit(tree)
    git(tree, "checkout", "-q", "-")
    write_rows(tree, [row(at)])
    (finding,) = results.check(tree)
    assert finding == ("dqn (rlseq bench dqn)", True, f"commit {at} is no ancestor of HEAD.")


@pytest.mark.parametrize("nested", [False, True])
def test_cards_follow_the_same_rule(tree: Path, nested: bool) -> None:
    at = results.clean_commit(tree)
    card = {"machine": {"commit": at}} if nested else {"commit": at}
    (tree / "agents/toy-dqn/card.json").write_text(json.dumps(card))
    commit(tree)
    assert results.check(tree) == []
    (tree / "rlseq/code.py").write_text("second")
    commit(tree)
    (finding,) = results.check(tree)
    assert finding == ("agents/toy-dqn/card.json", False, f"1 file changed since {at}: rlseq/code.py")
    (tree / "agents/toy-dqn/card.json").write_text("{}")
    with pytest.raises(RlseqError, match=r"card\.json states no commit"):
        results.check(tree)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format_version": 2, "rows": []}', '{"rows": [{}]}'])
def test_a_damaged_file_of_results(tree: Path, text: str) -> None:
    (tree / results.RESULTS).write_text(text)
    with pytest.raises(RlseqError, match=r"results\.json"):
        results.read_rows(tree)


def test_the_table() -> None:
    assert results.markdown([]) == ""
    lines = results.markdown([row("abc1234567"), row("abc1234568")]).splitlines()
    assert lines[4:] == ["", "Measured on: a chip, 2 cores."]
    assert lines[2] == (
        "| training | `rlseq bench dqn` | 2.25 s, 450 steps/s | them 1.0: 10.50 s, 95 steps/s "
        "| 4.67 (4.40 to 5.00), repeats: 2 | `abc1234567` |"
    )


def test_the_table_in_other_units() -> None:
    runs = measurement("a command", [Timing(20.0, 1), Timing(30.0, 1)], [Timing(75.0, 1)] * 2, {"name": "them"}, "runs")
    runs["ours"]["loss"], runs["peer"]["loss"] = [1.8612, 1.8499], [1.88, 1.87]
    saved = {
        "what": "memory",
        "unit": "bytes",
        "ours": {"bytes": 3 * 2**20},
        "peer": {"name": "all", "bytes": 2**23},
        "ratio": 2.5,
        "spread": [2.5, 2.5],
    }
    tokens = measurement("speed", TIMES[0], TIMES[1], {"name": "them"}, "tokens")
    off = {**saved, "unit": "error", "ours": {"error": 3.2e-16}, "ratio": 3.125e9, "spread": [3.125e9, 3.125e9]}
    off["peer"] = {"name": "at most", "error": 1e-6}
    parts = {"third": runs, "memory": saved, "shape": tokens, "equal": off}
    rows = results.rows_of({**report("seq"), "measurements": parts}, "abc1234567", "2026-01-31")
    third, memory, shape, equal = results.markdown(rows).splitlines()[2:6]
    assert "| 25.00 s, loss 1.850 to 1.861 | them: 75.00 s, loss 1.870 to 1.880 | 3.00 (2.50 to 3.75)" in third
    assert "| 3.0 MiB | all: 8.0 MiB | 2.50 (2.50 to 2.50)" in memory
    assert "| 2.25 s, 450 tokens/s | them: 10.50 s, 95 tokens/s |" in shape
    assert "| 3.2e-16 off | at most: 1.0e-06 off | 3.1e+09 (3.1e+09 to 3.1e+09)" in equal
    assert rows[0]["ours"]["loss"] == [1.8612, 1.8499]


def test_rows_of_the_time_before_units_count_steps() -> None:
    old = row("abc1234567")
    del old["unit"]
    assert results.markdown([old]) == results.markdown([row("abc1234567")])


def script(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`.ci/results` of a copy that holds no more than it may need, by a Python without any package."""
    for file in (".ci/results", "rlseq/__init__.py", "rlseq/version.py", "rlseq/errors.py", "rlseq/machine.py"):
        (tree / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tree / file)
    for file in ("__init__.py", "results.py", "measure.py"):
        shutil.copy(ROOT / "rlseq/bench" / file, tree / "rlseq/bench" / file)
    command = [sys.executable, "-I", "-S", str(tree / ".ci/results"), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=tree.parent, timeout=60)


def test_the_script_lists_what_is_stale_and_fails_only_if_strict(tree: Path) -> None:
    assert script(tree).returncode == 0
    at = commit(tree)
    write_rows(tree, [row(at)])
    (tree / "rlseq/code.py").write_text("second")
    commit(tree)
    done = script(tree)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"stale: dqn (rlseq bench dqn): 1 file changed since {at}: rlseq/code.py",
        "1 rows; 1 results broken or stale",
    ]
    assert script(tree, "--strict").returncode == 1
    write_rows(tree, [row(git(tree, "rev-parse", "--short=10", "HEAD"))])
    assert script(tree, "--strict").returncode == 0
    assert script(tree, "--markdown").stdout.strip() == results.markdown(results.read_rows(tree))


def test_the_script_fails_on_what_no_commit_holds(tree: Path) -> None:
    write_rows(tree, [row("0123456789")])
    done = script(tree)
    assert done.returncode == 1
    assert done.stdout.startswith("broken: dqn (rlseq bench dqn): there is no commit 0123456789")
    (tree / results.RESULTS).write_text("{}")
    assert script(tree).returncode == 1


def test_the_file_of_this_tree_can_be_read() -> None:
    assert isinstance(results.read_rows(ROOT), list)
