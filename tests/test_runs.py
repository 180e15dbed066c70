"""Run folders."""

from __future__ import annotations

import datetime
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlseq import checkpoints, runs
from rlseq.errors import CorruptFile, NewerFormat, RlseqError, UsageError
from tests.made_runs import made_task_run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path))
    return tmp_path


def made(name: str, age: int = 0) -> runs.Run:
    run = runs.create_run(name, "stem")
    run.write("config.json", {"algorithm": "dqn", "options": {}})
    os.utime(run.path / "config.json", ns=(10**18 - age, 10**18 - age))
    return run


def test_the_runs_folder_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert runs.runs_folder() == folder
    monkeypatch.setenv("RLSEQ_RUNS", "")
    assert runs.runs_folder() == Path("runs")


def test_names() -> None:
    a, b = runs.create_run(None, "stem"), runs.create_run(None, "stem")
    assert a.name.startswith("stem-2")
    assert a.path != b.path
    for bad in ("a/b", "..", ".hidden", " ", ""):
        with pytest.raises(UsageError, match=r"run\.name"):
            runs.create_run(bad, "stem")
    runs.create_run("taken", "stem")
    with pytest.raises(UsageError, match=r"taken is no run.*--name"):
        runs.create_run("taken", "stem")


def test_runs_are_found_by_path_and_name_the_newest_first(folder: Path) -> None:
    with pytest.raises(UsageError, match="no run in"):
        runs.newest_run()
    made("old", 5), made("new"), made("middle", 3)
    (folder / "no-run").mkdir()
    assert [run.name for run in runs.list_runs()] == ["new", "middle", "old"]
    assert runs.newest_run().name == "new"
    assert runs.open_run("old").path == runs.open_run(folder / "old").path == folder / "old"
    with pytest.raises(UsageError, match=r"'mddle'.*middle"):
        runs.open_run("mddle")


def test_files_of_other_formats_and_shapes(folder: Path) -> None:
    run = made("r")
    path = run.path / "config.json"
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "format_version": 2}))
    with pytest.raises(NewerFormat, match=r"config\.json has format_version 2"):
        run.config()
    for wrong in ({**value, "algorithm": 3}, {**value, "options": []}, {"format_version": 1}, {}):
        path.write_text(json.dumps(wrong))
        with pytest.raises(CorruptFile, match=r"config\.json"):
            run.config()
    for file, wrong in (("lineage.json", {"steps": ["x"]}), ("summary.json", {"mean_return": "high"})):
        run.write(file, wrong)
        with pytest.raises(CorruptFile, match=file.replace(".", r"\.")):
            run.lineage() if file == "lineage.json" else run.summary()


def test_the_summary_of_a_sequence_model_must_hold_the_score_of_its_task(folder: Path) -> None:
    run = made_task_run("r", "sort", [0.5], score=0.75)
    summary = run.summary()
    assert summary is not None and summary["exact_match"] == 0.75
    for wrong in ({"loss": 0.5}, {**summary, "exact_match": "all"}, {**summary, "exact_match": None}):
        run.write("summary.json", wrong)
        with pytest.raises(CorruptFile, match=r"summary\.json was changed or damaged: it lacks exact_match"):
            run.summary()
    run.write("summary.json", {"exact_match": 1})
    assert run.summary() is not None


def test_checkpoints_by_name(folder: Path) -> None:
    run = made("r")
    with pytest.raises(RlseqError, match="no checkpoint"):
        run.checkpoint("last")
    for step in (0, 9, 10):
        checkpoints.write_checkpoint(run.path / "checkpoints", step, {}, {})
    assert [run.checkpoint(which).name for which in ("last", "best", "9", "0")] == ["10", "10", "9", "0"]
    checkpoints.write_checkpoint(run.path / "best", 7, {}, {})
    assert run.checkpoint("best") == run.path / "best" / "7" == run.best()
    assert run.checkpoint("7") == run.path / "best" / "7"
    with pytest.raises(UsageError, match=r"'8'.*best, last, 0, 7, 9, 10"):
        run.checkpoint("8")


def test_status_and_disk_use(folder: Path) -> None:
    run = made("r")
    assert run.status() == "interrupted"
    run.write("summary.json", {"mean_return": 1.0, "std_return": 0.0, "episodes": 1})
    assert run.status() == "finished"
    assert run.disk_bytes() == sum(path.stat().st_size for path in run.path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock on Windows")
def test_a_lock_ends_with_its_process_however_that_ends(folder: Path) -> None:
    run = made("r")
    code = (
        "import sys, time; from pathlib import Path; from rlseq.runs import Run;"
        "held = Run(Path(sys.argv[1])).lock(); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RlseqError, match=f"process {process.pid}"):
            run.lock()
        process.send_signal(signal.SIGKILL)
        process.wait()
    run.lock().close()


class Noon(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Noon:
        return cls(2026, 3, 4, 12, 0, 0)


def test_runs_of_the_same_second_get_folders_of_their_own(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(runs, "datetime", Noon)
    made_up = [runs.create_run(None, "cart-s0").name for _ in range(3)]
    assert made_up == ["cart-s0-20260304-120000", "cart-s0-20260304-120000-2", "cart-s0-20260304-120000-3"]
    assert sorted(path.name for path in folder.iterdir()) == made_up


def test_processes_that_start_together_never_share_a_folder(folder: Path) -> None:
    code = "from rlseq.runs import create_run\nfor _ in range(20): print(create_run(None, 'stem').name)"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(2)
    ]
    names = [name for process in started for name in process.communicate()[0].split()]
    assert len(names) == len(set(names)) == 40
    assert {path.name for path in folder.iterdir()} == set(names)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800", "n" * 300, "a/", "/abs", "..", "."])
def test_names_that_no_folder_can_have_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(RlseqError):
        runs.create_run(name, "stem")
    assert not list(folder.iterdir())


def test_a_name_of_any_length_is_looked_up(folder: Path) -> None:
    with pytest.raises(UsageError, match="no file has so long a name"):
        runs.open_run("n" * 300)


def test_a_folder_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("RLSEQ_RUNS", str(folder / "file" / "runs"))
    with pytest.raises(RlseqError, match=r"cannot create .*file.runs"):
        runs.create_run(None, "stem")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setenv("RLSEQ_RUNS", str(folder / "new"))
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RlseqError, match=r"cannot create .*new: Permission denied.*RLSEQ_RUNS"):
        runs.create_run(None, "stem")


@pytest.mark.parametrize("file", ["config.json", "env.json", "lineage.json", "summary.json"])
def test_every_file_states_its_format(folder: Path, file: str) -> None:
    run = made("r")
    readers = {"config.json": run.config, "env.json": run.env, "lineage.json": run.lineage, "summary.json": run.summary}
    path = run.path / file
    for text, error in (
        ('{"format_version": 2}', NewerFormat),
        ('{"format_version": 0}', CorruptFile),
        ("{}", CorruptFile),
        ('{"format_version": 1, "threads": "two", "steps": 1, "mean_return": "x"}', CorruptFile),
        ("[1]", CorruptFile),
        ("{", CorruptFile),
        ("", CorruptFile),
    ):
        path.write_text(text)
        with pytest.raises(error, match=file.replace(".", r"\.")):
            readers[file]()


def test_a_second_run_may_be_locked_and_a_lock_may_be_taken_again(folder: Path) -> None:
    a, b = made("a"), made("b")
    with a.lock(), b.lock():
        pass
    with a.lock():
        assert (a.path / ".lock").read_text() == f"process {os.getpid()}"
