"""`rlseq train --nproc`: real processes, most of them toys that end as they are told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlseq import pipeline, runs
from rlseq.cli import blame, launch
from rlseq.cli.blame import Launch, ProcessFailed, without
from rlseq.cli.launch import plan_launch
from rlseq.errors import Elsewhere, Interrupted, PeerLost, RlseqError
from tests.cli.conftest import Cli, failed, only_json
from tests.shared_trainings import on_two
from tests.training import SMALL_SEQ, assert_same_run, settings, write_text

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 55  # no test waits longer for a process

# A worker: its first word says how each process ends, `0=ok,1=kill`, or all of them, `ok`; attempts stand between
# semicolons.
TOY = """
import os, signal, sys, time
from pathlib import Path
from rlseq.cli.worker import follow_launcher, hand_over

rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
follow_launcher()
got = []
for signum in (signal.SIGTERM, signal.SIGINT):
    signal.signal(signum, lambda signum, frame: got.append(signum))
Path(f"here-{attempt}-{rank}").write_text(str(os.getpid()))
plan = sys.argv[1].split(";")[attempt]
hand_over({"run": "runs/x"})
end = plan if "=" not in plan else dict(part.split("=") for part in plan.split(","))[str(rank)]
os.write(1, f"stdout of {rank}\\n".encode())  # in one piece: workers run unbuffered
if end == "wait":  # for a signal; then stop as a training does, process 1 a little later
    until = time.monotonic() + 40
    while not got and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.2 + 0.3 * rank)
    Path(f"got-{rank}").write_text(str(list(map(int, got))))
    message = "stopped at step 5. Go on with:\\n  rlseq train seq --resume runs/x"
    hand_over({"error": message, "exit_code": 128 + got[0], "kind": "Interrupted"})
    sys.exit(128 + got[0])
if end == "stop":
    hand_over({"error": "stopped at step 5", "exit_code": 143, "kind": "Interrupted"})
    time.sleep(1)  # the agent ends the other one as soon as this one leaves
    sys.exit(143)
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if end == "else":  # fell with another one, and saw it before the agent did
    hand_over({"error": "another process is gone", "exit_code": 1, "kind": "Elsewhere"})
    sys.exit(1)
if end == "usage":
    hand_over({"error": "wrongly typed", "exit_code": 2, "kind": "Error"})
    sys.exit(2)
if end == "fail":
    hand_over({"error": "it failed", "exit_code": 1, "kind": "Error"})
    sys.exit(1)
if end.isdecimal():
    sys.exit(int(end))
hand_over({"summary": {"run": "runs/x", "rank": rank, "attempt": attempt, "words": sys.argv[1:]}})
"""


@pytest.fixture
def toy(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command of a toy worker."""
    (place / "toy.py").write_text(TOY)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return [sys.executable, "toy.py"]


def attempts(place: Path) -> str:
    """Which attempts were started, "01"; one of their processes may have been ended before it could say so."""
    return "".join(sorted({path.name.split("-")[1] for path in place.glob("here-*")}))


# -------------------------------------------------------------------------------------------------------- what is typed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nproc 0", "Invalid value for '--nproc'"),
        ("--nproc -2", "Invalid value for '--nproc'"),
        ("--nproc 1025", "Invalid value for '--nproc'"),
        ("--nproc two", "(typed: two)"),
        ("--nproc 2 --max-restarts -1", "Invalid value for '--max-restarts'"),
        ("--max-restarts 2", "--max-restarts 2 is for processes that --nproc starts: add --nproc N."),
        ("--nproc 2 --seed 1 --seeds 0:2", "--seeds 0:2 and --seed 1: give one of them."),
    ],
)
@pytest.mark.parametrize("algorithm", ["dqn", "seq"])
def test_wrong_usage(cli: Cli, algorithm: str, words: str, message: str) -> None:
    failed(cli(f"train {algorithm} {words}"), 2, message)
    assert only_json(cli(f"train {algorithm} {words} --json"))["exit_code"] == 2


def test_under_torchrun_there_is_nothing_to_start(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    failed(
        cli("train seq --nproc 2 --data nothing"),
        2,
        "--nproc 2: this is already one of several processes (RANK=3",
        "Leave --nproc",
    )


def test_what_the_workers_are_given() -> None:
    words = ["train", "seq", "--nproc", "2", "--data", "a.txt", "--max-restarts=3", "--json", "--", "--nproc"]
    planned = plan_launch(words, 2, 3)
    assert planned == Launch(("train", "seq", "--data", "a.txt", "--json", "--", "--nproc"), 2, 3)
    assert plan_launch(words, None, None) is None
    assert plan_launch(["train", "dqn", "X", "--nproc=4"], 4, None) == Launch(("train", "dqn", "X"), 4, 0)
    assert without(["a", "--seeds"], ["--seeds"]) == ("a",)


def test_each_seed_is_launched_in_turn(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Launch] = []

    def run(start: Launch) -> dict[str, Any]:
        started.append(start)
        return {"run": f"runs/{len(started)}", "loss": float(len(started))}

    monkeypatch.setattr("rlseq.cli.training.run", run)
    done = cli("train seq --nproc 2 --seeds 3:5 --data a.txt --name b --json")
    assert done.exit_code == 0, done.output
    assert [start.nproc for start in started] == [2, 2]
    assert [" ".join(start.words) for start in started] == [
        "train seq --seed 3 --name b-s3 --data a.txt --json",
        "train seq --seed 4 --name b-s4 --data a.txt --json",
    ]
    assert only_json(done)["mean_loss"] == 1.5
    cli("train seq --nproc 2 --seeds 3:4")
    assert " ".join(started[-1].words) == "train seq --seed 3"


# ---------------------------------------------------------------------------------------------------- how workers end


def test_the_summary_is_that_of_process_0(toy: list[str], place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    summary = launch.run(Launch(("ok", "a$$b", "${local_rank}"), 3), toy)
    assert summary == {"run": "runs/x", "rank": 0, "attempt": 0, "words": ["ok", "a$$b", "${local_rank}"]}
    assert sorted(path.name for path in place.glob("here-*")) == ["here-0-0", "here-0-1", "here-0-2"]
    assert {number: signal.getsignal(number) for number in before} == before
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == ["stdout of 0", "stdout of 1", "stdout of 2"]
    assert err == ""


@pytest.mark.parametrize(
    ("plan", "code", "message"),
    [
        ("0=else,1=kill", 137, "process 1 of 2 (counted from 0) was killed by SIGKILL. Where nobody did that"),
        (
            "0=ok,1=7",
            7,
            "process 1 of 2 (counted from 0) left with exit code 7; what it said, if anything, stands above.",
        ),
    ],
)
def test_a_failure_is_for_the_launcher_to_tell(
    toy: list[str], capfd: pytest.CaptureFixture[str], plan: str, code: int, message: str
) -> None:
    with pytest.raises(ProcessFailed) as caught:
        launch.run(Launch((plan,), 2), toy)
    assert caught.value.exit_code == code
    assert str(caught.value).startswith(message)
    assert capfd.readouterr().err == ""  # the agent's log and its report stay away


def report(error: str, code: int = 1, kind: str = "Error") -> dict[str, Any]:
    """What a process hands over that failed."""
    return {"error": error, "exit_code": code, "kind": kind}


@pytest.mark.parametrize(
    ("codes", "reports", "code", "message"),
    [
        # Those that fell with another one, and those that the agent ended because of it, are not to blame.
        ({0: 1, 1: -9}, {0: report("lost", kind="Elsewhere")}, 137, "process 1 of 2 (counted from 0) was killed by"),
        ({0: -15, 1: -11}, {}, 139, "process 1 of 2 (counted from 0) was killed by SIGSEGV."),
        ({0: 143, 1: -9}, {0: report("stopped", 143, "Interrupted")}, 137, "process 1 of 2 (counted from 0) was"),
        ({1: -15, 0: 1}, {0: report("it failed")}, 1, "it failed"),
        ({0: 1, 1: 1}, {0: report("lost", kind="Elsewhere"), 1: report("it failed")}, 1, "process 1: it failed"),
        # The first of several, in the order in which the agent saw them.
        ({1: 1, 0: 1}, {0: report("a"), 1: report("b")}, 1, "process 1: b"),
        ({1: 2, 0: 2}, {0: report("wrong", 2), 1: report("wrong", 2)}, 2, "wrong"),
        ({0: 1, 1: 1}, {0: report("lost", kind="Elsewhere"), 1: report("lost", kind="Elsewhere")}, 1, "lost"),
        ({1: -15, 0: 1}, {0: report("lost", kind="Elsewhere")}, 1, "lost"),
        ({0: -64}, {}, 192, "process 0 of 2 (counted from 0) was killed by SIG"),
        ({}, {}, 1, "a process failed; what it said stands above."),
    ],
)
def test_who_is_to_blame(codes: dict[int, int], reports: dict[int, dict[str, Any]], code: int, message: str) -> None:
    error = blame.failed(codes, reports, Launch((), 2))
    assert (error.exit_code, str(error)[: len(message)]) == (code, message)


def test_what_was_killed_can_be_gone_on_with() -> None:
    start = Launch(("train", "seq", "--data", "x"), 2)
    error = blame.failed({1: -9}, {}, start, "runs/a b")
    assert str(error).endswith("Go on from the last checkpoint with:\n  rlseq train seq --resume 'runs/a b' --nproc 2")
    told = blame.failed({0: 1}, {0: report("it failed")}, start, "runs/a")
    assert str(told) == "it failed"  # a failure that explains itself also says what to do


def test_who_does_not_answer_is_named() -> None:
    """Not as killed by somebody: the agent did that, after it had waited."""
    lost = {0: report("another process has ended", kind="Elsewhere")}
    told = str(blame.failed({0: 1, 1: -9}, lost, Launch(("train", "seq"), 2), "runs/a", waited=True))
    assert told.startswith("process 1 of 2 (counted from 0) did not answer the others for engine.wait_seconds")
    assert told.endswith("rlseq train seq --resume runs/a --nproc 2")
    error = blame.failed({0: 1, 1: -9}, lost, Launch((), 2), None, waited=False)
    assert "was killed by SIGKILL" in str(error)


def test_stopped_without_a_word_but_with_a_run() -> None:
    error = blame.stopped({0: {"run": "runs/a", "pid": 1}}, Launch(("train", "dqn", "X"), 3), 1)
    assert str(error).startswith("stopped by SIGHUP; the training is saved up to its last checkpoint")
    assert str(error).endswith("rlseq train dqn --resume runs/a --nproc 3")


def test_stopped() -> None:
    two = Launch((), 2)
    both = {k: report("saved.\n  rlseq train dqn --resume runs/x", 130, "Interrupted") for k in (0, 1)}
    error = blame.stopped(both, two, 2)
    assert (str(error), error.exit_code) == ("saved.\n  rlseq train dqn --resume runs/x --nproc 2", 130)
    error = blame.stopped({}, two, 15)
    assert (str(error), error.exit_code) == ("stopped by SIGTERM before there was anything to save.", 143)
    error = blame.stopped({0: report("lost", kind="Elsewhere")}, two, 15)
    assert (str(error), error.exit_code) == ("stopped by SIGTERM. lost", 143)
    error = blame.stopped({0: both[0], 1: report("the disk is full")}, two, 15)
    assert (str(error), error.exit_code) == ("process 1: the disk is full", 1)


def test_a_restart(toy: list[str], place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    summary = launch.run(Launch(("0=ok,1=kill;1=kill,0=wait;ok",), 2, 2), toy)
    assert (summary["attempt"], summary["rank"]) == (2, 0)
    assert attempts(place) == "012"
    told = capfd.readouterr().err.splitlines()
    assert [line.partition(". ")[0] for line in told] == [
        "Warning: process 1 of 2 (counted from 0) was killed by SIGKILL",
        "Restart 1 of 2.",
        "Warning: process 1 of 2 (counted from 0) was killed by SIGKILL",
        "Restart 2 of 2.",
    ]


def test_restarts_come_to_an_end(toy: list[str], place: Path) -> None:
    with pytest.raises(ProcessFailed) as caught:
        launch.run(Launch(("fail;0=ok,1=5",), 2, 1), toy)
    assert caught.value.exit_code == 5
    assert attempts(place) == "01"


@pytest.mark.parametrize(
    ("plan", "error", "code", "message"),
    [("usage", ProcessFailed, 2, "wrongly typed"), ("stop", Interrupted, 143, "stopped at step 5")],
)
def test_no_restart_where_it_would_end_the_same_or_is_not_wanted(
    toy: list[str],
    place: Path,
    capfd: pytest.CaptureFixture[str],
    plan: str,
    error: type[RlseqError],
    code: int,
    message: str,
) -> None:
    """A mistake in what was typed, and a signal to a worker that all have obeyed."""
    with pytest.raises(error) as caught:
        launch.run(Launch((f"0={plan},1={plan}",), 2, 2), toy)
    assert (caught.value.exit_code, str(caught.value)) == (code, message)
    assert attempts(place) == "0"
    assert capfd.readouterr().err == ""


def test_signals_that_are_ignored_stay_ignored(toy: list[str], place: Path) -> None:
    """As `nohup` and a shell's `&` ask for."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        handled = launch._config(Launch((), 1), launch.Attempts(place, Launch((), 1))).signals_to_handle
        assert handled == "SIGTERM,SIGINT"
        launch.run(Launch(("ok",), 1), toy)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# ---------------------------------------------------------------------------------------------- signals to the launcher

LAUNCHER = """
import sys
from rlseq.cli import blame, launch, train, main
launch.run.__defaults__ = ([sys.executable, "toy.py"],)
train.plan_launch = lambda words, nproc, restarts: blame.Launch((words[2],), nproc, restarts or 0)
sys.argv[0] = "rlseq"
main.main()
"""


@contextlib.contextmanager
def launcher(place: Path, plan: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """`rlseq train seq --nproc 2` with toys, once both are there."""
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, "train", "seq", plan, "--nproc", "2", *flags],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(place / "here-0-0", place / "here-0-1")
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(*paths: Path) -> None:
    """Until there are such files, with something in them."""
    until = time.monotonic() + SECONDS
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < until, f"none of {paths}"
        time.sleep(0.02)


def pids(place: Path) -> list[int]:
    return [int(path.read_text()) for path in sorted(place.glob("here-*"))]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_reaches_the_workers_once(toy: list[str], place: Path, signum: int, code: int) -> None:
    with launcher(place, "wait", "--json", "--max-restarts", "3") as process:
        os.kill(process.pid, signum)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code
    assert [(place / f"got-{rank}").read_text() for rank in (0, 1)] == [f"[{int(signum)}]"] * 2
    message = "stopped at step 5. Go on with:\n  rlseq train seq --resume runs/x --nproc 2"
    assert err == f"Interrupted: {message}\n"
    assert json.loads(out.removeprefix("stdout of 0\nstdout of 1\n").removeprefix("stdout of 1\nstdout of 0\n")) == {
        "error": message,
        "exit_code": code,
    }
    assert attempts(place) == "0"
    assert not any(map(alive, pids(place)))


def test_a_worker_is_killed(toy: list[str], place: Path) -> None:
    with launcher(place, "wait") as process:
        os.kill(pids(place)[1], signal.SIGKILL)
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 137
    assert err.startswith("Error: process 1 of 2 (counted from 0) was killed by SIGKILL.")
    assert err.endswith("Go on from the last checkpoint with:\n  rlseq wait --resume runs/x --nproc 2\n")
    assert "Traceback" not in err and err.count("\n") == 2
    assert not any(map(alive, pids(place)))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_without_their_launcher_the_workers_stop(toy: list[str], place: Path) -> None:
    with launcher(place, "wait") as process:
        process.kill()
        process.communicate()
        wait_for(place / "got-0", place / "got-1")
        assert (place / "got-0").read_text() == "[15]"
        until = time.monotonic() + SECONDS
        while any(map(alive, pids(place))):
            assert time.monotonic() < until
            time.sleep(0.02)


# -------------------------------------------------------------------------------- what a process under torchrun prints


def under_torchrun(monkeypatch: pytest.MonkeyPatch, rank: int, error: Exception | None) -> None:
    """As process `rank` of 2, with a training that is over at once."""

    def train(*_: Any, **__: Any) -> pipeline.TrainingResult:
        print("hello from an environment")
        if error is not None:
            raise error
        return pipeline.TrainingResult(Path("runs/x"), {"run": "runs/x", "loss": 1.0})

    monkeypatch.setattr(pipeline, "train", train)
    monkeypatch.setattr("rlseq.cli.main.WORD_SECONDS", 0.01)
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")


@pytest.mark.parametrize(
    ("rank", "error", "code", "said"),
    [
        (0, None, 0, ""),
        (1, None, 0, ""),
        (0, RlseqError("it failed"), 1, "Error: it failed\n"),
        (1, RlseqError("it failed"), 1, "process 1: Error: it failed\n"),
        (0, Elsewhere("process 1 failed"), 1, "Error: process 1 failed\n"),
        (1, Elsewhere("process 0 failed"), 1, ""),
        (1, PeerLost("process 0 is gone"), 1, ""),
        (0, Interrupted("stopped", 15), 143, "Interrupted: stopped\n"),
        (1, Interrupted("stopped", 15), 143, ""),
    ],
)
def test_process_0_speaks_and_others_of_their_own_failures(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, rank: int, error: Exception | None, code: int, said: str
) -> None:
    under_torchrun(monkeypatch, rank, error)
    done = cli("train seq --json")
    assert (done.exit_code, done.stderr) == (code, "hello from an environment\n" + said)
    if rank == 0:
        expected = {"run": "runs/x", "loss": 1.0} if error is None else {"error": str(error), "exit_code": code}
        assert only_json(done) == expected
    else:
        assert done.stdout == ""
        assert cli("train seq --quiet").stdout == "hello from an environment\n"
        done = cli("train seq --seeds 0:1")
        assert (done.stdout, done.stderr) == ("hello from an environment\n", said)


def test_only_a_training_has_processes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever RANK says, another command speaks."""
    under_torchrun(monkeypatch, 1, None)
    failed(cli("eval nothing"), 2, "Error: ")
    failed(cli("evall"), 2, "No such command 'evall'")
    assert cli("train seq --stepz 3").output == ""  # process 0 says it


# ------------------------------------------------------------------------------------------------------ real trainings


# The real launcher and the real training; its workers do not export, which takes longer than all the rest.
TRAINING = """
import sys
from rlseq.cli import launch, main
launch.run.__defaults__ = ([sys.executable, "worker.py"],)
sys.argv[0] = "rlseq"
main.main()
"""
WORKER = """
from pathlib import Path
from rlseq import trained_sequence
from rlseq.cli.main import main

def no_export(*arguments):
    next(path for path in arguments if isinstance(path, Path) and path.suffix == ".onnx").write_bytes(b"")
    return {"bytes": 0}

trained_sequence.export_sequence_run = no_export
main()
"""


@contextlib.contextmanager
def training(place: Path, *words: str, **changes: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """`rlseq train seq --nproc 2` on a small text."""
    write_text(place / "a.txt")
    (place / "worker.py").write_text(WORKER)
    typed = [
        "train",
        "seq",
        "--data",
        "a.txt",
        *settings([changes], SMALL_SEQ),
        "--nproc",
        "2",
        "--name",
        "mine",
        *words,
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, *typed],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def workers(process: subprocess.Popen[str]) -> dict[int, int]:
    """Process number of each worker, by its rank."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    environments = {int(pid): Path(f"/proc/{pid}/environ").read_text().split("\0") for pid in children}
    ranks = {word: pid for pid, words in environments.items() for word in words if word.startswith("RANK=")}
    return {int(word.removeprefix("RANK=")): pid for word, pid in ranks.items()}


def wait_for_step(place: Path, step: int) -> None:
    """Until there is a checkpoint of this step."""
    wait_for(place / "runs" / "mine" / "checkpoints" / str(step) / "checkpoint.json")


@pytest.mark.slow
def test_sigterm_saves_once_for_all(place: Path) -> None:
    with training(place, "--json", run={"steps": 100_000}) as process:
        wait_for_step(place, 12)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    run = runs.open_run("mine")
    step = int(run.checkpoint("last").name)
    message = f"stopped at step {step} of 100000; everything is saved. Go on with:\n"
    message += "  rlseq train seq --resume runs/mine --nproc 2"
    assert err.endswith(f"Interrupted: {message}\n")
    assert json.loads(out) == {"error": message, "exit_code": 143}
    assert [run.name for run in runs.list_runs()] == ["mine"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_killed_process_comes_back(place: Path) -> None:
    """And what is trained is, to the bit, what two processes train that nobody kills."""
    dropout = {"net": {"dropout": 0.2}, "run": {"steps": 60}}
    with training(place, "--json", "--max-restarts", "2", **dropout) as process:
        wait_for_step(place, 12)
        os.kill(workers(process)[1], signal.SIGKILL)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert (Path(summary["run"]).name, summary["steps"], summary["stopped"]) == ("mine", 60, "all steps done")
    assert "Warning: process 1 of 2 (counted from 0) was killed by SIGKILL." in err and "Restart 1 of 2.\n" in err
    assert "Traceback" not in err and "torch/distributed" not in err
    whole, _ = on_two(place, "seq", dropout, data="a.txt", name="whole")
    assert_same_run(Path(whole["run"]), place / summary["run"])


def test_a_mistake_is_told_once(place: Path) -> None:
    with training(place, "--max-restarts", "2", "--json", seq={"batch_size": 1}) as process:
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert err.startswith("Error: 2 processes cannot share seq.batch_size = 1") and err.count("\n") == 1
    assert json.loads(out) == {"error": err.removeprefix("Error: ").rstrip(), "exit_code": 2}
