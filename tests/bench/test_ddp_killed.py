"""A training whose process is killed against one left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlseq.bench import ddp_killed
from rlseq.bench.ddp_killed import (
    CHECKPOINT_EVERY,
    LEFT_ALONE,
    STEPS,
    Ran,
    check_same_curve,
    kill_after,
    measure_killed,
    train,
)
from rlseq.curves import Curve
from rlseq.errors import RlseqError
from rlseq.runs import Run

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")


def ignore(line: str) -> None:
    """Progress that nobody reads."""


def curve(*values: float, start: int = 1) -> Curve:
    return Curve(np.arange(start, start + len(values)), np.array(values))


def test_every_repeat_strikes_another_process_at_another_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[tuple[int, int]] = []

    def ran(data: Path, seed: int, strike: Any = None) -> Ran:
        after = None if strike is None else strike(None, None)
        return Ran(8.0 if strike else 4.0, curve(3.0, 2.0, 1.5 + seed), after)

    monkeypatch.setattr(ddp_killed, "train", ran)
    monkeypatch.setattr(
        ddp_killed, "kill_after", lambda launcher, run, step, rank: struck.append((step, rank)) or step + 1
    )
    told: list[str] = []
    result = measure_killed(told.append, 3, Path("a.txt"))["killed"]
    assert struck == [(10, 0), (20, 1), (30, 0)]
    assert max(step for step, _ in struck) < STEPS - CHECKPOINT_EVERY
    assert result["killed_after"] == [11, 21, 31]
    assert result["ours"]["loss"] == result["peer"]["loss"] == [1.5, 2.5, 3.5]
    assert (result["ratio"], result["unit"], result["peer"]["name"]) == (0.5, "runs", LEFT_ALONE)
    assert "all 9 losses of 3 seeds" in result["what"]
    assert "process 1 killed after the checkpoint of update 21" in told


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (curve(3.0, 2.0), r"points at 1, 2, not at 1, 2, 3"),
        (curve(3.0, 2.0, 1.0, start=2), r"points at 2, 3, 4, not at 1, 2, 3"),
        (curve(3.0, 2.0, 1.0 + 1e-7), r"at update 3 the loss is 1\.0000001, not 1\.0"),
    ],
)
def test_another_curve_is_no_result(found: Curve, message: str) -> None:
    assert check_same_curve(curve(3.0, 2.0, 1.0), curve(3.0, 2.0, 1.0)) == 3
    with pytest.raises(RlseqError, match=f"not the same curve: {message}"):
        check_same_curve(found, curve(3.0, 2.0, 1.0))


@pytest.fixture
def launcher() -> Any:
    """A process with two sleeping children, ranks 0 and 1."""
    sleep = "import time; time.sleep(60)"
    start = (
        "import os, subprocess, sys\n"
        f"p = [subprocess.Popen([sys.executable, '-c', {sleep!r}], env={{**os.environ, 'RANK': r}}) for r in '01']\n"
        "print(*(q.pid for q in p), flush=True)\n"
        "print(*(q.wait() for q in p))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    time.sleep(0.3)  # until both have got their environment
    yield SimpleNamespace(process=process, pids=pids)
    for pid in pids:
        if (Path("/proc") / str(pid)).exists():
            os.kill(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def checkpoint(run: Run, step: int) -> None:
    (run.path / "checkpoints" / str(step)).mkdir(parents=True)


@linux
@pytest.mark.parametrize("rank", [0, 1])
def test_the_right_process_is_killed_after_the_checkpoint(rank: int, launcher: Any, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    checkpoint(run, 0)
    checkpoint(run, 20)
    assert kill_after(launcher.process, run, 20, rank) == 20
    os.kill(launcher.pids[1 - rank], signal.SIGTERM)
    assert launcher.process.stdout.read().split()[rank] == "-9"


@linux
def test_a_kill_that_comes_too_late_is_no_result(launcher: Any, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    checkpoint(run, STEPS)
    with pytest.raises(RlseqError, match=f"no process 1 to kill after update {STEPS} of {STEPS}"):
        kill_after(launcher.process, run, 20, 1)
    checkpoint(run, STEPS + 1)
    with pytest.raises(RlseqError, match="no process 7 to kill"):
        kill_after(launcher.process, run, 20, 7)
    for pid in launcher.pids:
        os.kill(pid, signal.SIGTERM)
    assert launcher.process.stdout.read().split() == ["-15", "-15"]
    launcher.process.wait()
    assert kill_after(launcher.process, Run(tmp_path / "none"), 20, 1) is None  # it ended by itself


def test_a_command_that_fails_or_hangs_is_told(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp_killed, "COMMAND", ("--net", "gpu"))
    with pytest.raises(RlseqError, match=r"rlseq train seq --data .* failed, exit code 2:\n(.|\n)*gpu"):
        train(book, 0)
    monkeypatch.setattr(ddp_killed, "LONGEST", 0.1)
    with pytest.raises(RlseqError, match=r"took more than 0\.1 s"):
        train(book, 0)
