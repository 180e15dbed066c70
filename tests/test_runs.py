"""Run folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlseq import checkpoints, runs
from rlseq.errors import CorruptFile, NewerFormat, RlseqError, UsageError


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
    with pytest.raises(UsageError, match=r"taken exists.*--name.*--resume"):
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
