"""A training of two processes, one of which is killed on the way, against the same one left in peace."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlseq.bench.ddp_processes import RANKED, children, end, environment_of
from rlseq.bench.measure import RUNS, Side, Tell, Timing, alternate, measurement
from rlseq.curves import Curve, read_curves
from rlseq.errors import RlseqError
from rlseq.runs import Run

PROCESSES = 2
STEPS, CHECKPOINT_EVERY = 60, 10
LOSS = "train/loss"
NAME = "trained"
LEFT_ALONE = "the same, not killed"
LONGEST = 120.0  # seconds for one command
POLL = 0.02
# What is typed after `rlseq train seq --data FILE --seed K`.
COMMAND = (
    *("--nproc", str(PROCESSES), "--max-restarts", "2", "--threads", "1", "--name", NAME),
    *("--context", "64", "--batch-size", "8", "--steps", str(STEPS), "--accumulate", "2"),
    *("--set", "net.layers=2", "--set", "net.heads=4", "--set", "net.width=128", "--set", "run.log_every=1"),
    *("--set", f"run.checkpoint_every={CHECKPOINT_EVERY}", "--set", f"eval.every={STEPS}"),
    *("--set", "eval.sample_tokens=0", "--set", "eval.max_tokens=2000", "--device", "cpu", "--json", "--quiet"),
)


class Ran(NamedTuple):
    """A finished command.

    Attributes:
        seconds: wall time.
        losses: the curve of the training's losses.
        killed_after: the newest checkpoint when a process was killed; None: none was.
    """

    seconds: float
    losses: Curve
    killed_after: int | None


def measure_killed(tell: Tell, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
    """In repeat k, process k mod 2 is killed with -9 somewhere after the (k + 2)nd checkpoint; the curve of losses must
    be that of the training left alone, to the bit.

    Raises:
        RlseqError: a command failed, ended before the kill, or the curves differ.
    """
    killed: list[Ran] = []
    peaceful: list[Ran] = []

    def struck(seed: int) -> Timing:
        step = CHECKPOINT_EVERY * (1 + seed % 3)
        killed.append(train(data, seed, lambda launcher, run: kill_after(launcher, run, step, seed % PROCESSES)))
        tell(f"process {seed % PROCESSES} killed after the checkpoint of update {killed[-1].killed_after}")
        return Timing(killed[-1].seconds, 1, STEPS)

    def left(seed: int) -> Timing:
        peaceful.append(train(data, seed))
        return Timing(peaceful[-1].seconds, 1, STEPS)

    sides: dict[str, Side] = {"rlseq": struck, LEFT_ALONE: left}
    timings = alternate(sides, repeats, tell, RUNS)
    points = sum(check_same_curve(a.losses, b.losses) for a, b in zip(killed, peaceful, strict=True))
    what = (
        f"{PROCESSES} processes, one killed with -9, --max-restarts 2, the whole command: all {points} losses of "
        f"{repeats} seeds as if nothing had happened"
    )
    result = measurement(what, timings["rlseq"], timings[LEFT_ALONE], {"name": LEFT_ALONE}, RUNS)
    result["killed_after"] = [ran.killed_after for ran in killed]
    for side, ran in (("ours", killed), ("peer", peaceful)):
        result[side] |= {"updates": STEPS, "loss": [float(one.losses.values[-1]) for one in ran]}
    return {"killed": result}


def train(data: Path, seed: int, strike: Callable[[subprocess.Popen[str], Run], int | None] | None = None) -> Ran:
    """Run the command in a folder of its own.

    Args:
        data: the text.
        seed: of the training.
        strike: is given the running command and its run, and does it harm; gives the last checkpoint before that.

    Raises:
        RlseqError: it failed, or took too long.
    """
    words = ["train", "seq", "--data", str(data), "--seed", str(seed), *COMMAND]
    with tempfile.TemporaryDirectory(prefix="rlseq-bench-") as folder, tempfile.TemporaryFile("w+") as errors:
        places = {"RLSEQ_RUNS": str(Path(folder, "runs")), "RLSEQ_CACHE": str(Path(folder, "cache"))}
        env = {key: value for key, value in os.environ.items() if key not in RANKED and not key.startswith("TORCHEL")}
        run, started = Run(Path(folder, "runs", NAME)), time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "rlseq", *words],
            env={**env, **places},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )
        try:
            struck = None if strike is None else strike(process, run)
            code: int | None = process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end(process)
        seconds = time.perf_counter() - started
        if code != 0:
            errors.seek(0)
            how = f"took more than {LONGEST:g} s" if code is None else f"failed, exit code {code}"
            raise RlseqError(f"rlseq {shlex.join(words)} {how}:\n{errors.read()[-2000:]}")
        return Ran(seconds, read_curves(run)[LOSS], struck)


def kill_after(launcher: subprocess.Popen[str], run: Run, step: int, rank: int) -> int | None:
    """Wait for a checkpoint, then kill a process of the training.

    Args:
        launcher: the command.
        run: what it trains.
        step: of the checkpoint.
        rank: of the process.

    Returns:
        The newest checkpoint at that moment; None: the command ended before.

    Raises:
        RlseqError: the training was over before a process could be killed.
    """
    ends = time.monotonic() + LONGEST
    while time.monotonic() < ends:
        if launcher.poll() is not None:
            return None  # its own message says why
        steps = [int(path.name) for path in run.checkpoints()]
        if steps and steps[-1] >= step:
            break
        time.sleep(POLL)
    pids = [pid for pid in children(launcher.pid) if environment_of(pid).get("RANK") == str(rank)]
    if not pids or steps[-1] >= STEPS:
        raise RlseqError(f"no process {rank} to kill after update {steps[-1] if steps else 0} of {STEPS}: {pids}.")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pids[-1], signal.SIGKILL)
    return steps[-1]


def check_same_curve(found: Curve, expected: Curve) -> int:
    """The curves must be equal; gives the number of their points.

    Raises:
        RlseqError: with the first point that differs.
    """
    if not np.array_equal(found.steps, expected.steps):
        raise RlseqError(f"not the same curve: points at {_list(found.steps)}, not at {_list(expected.steps)}.")
    different = np.flatnonzero(found.values != expected.values)
    if different.size:
        k = int(different[0])
        raise RlseqError(
            f"not the same curve: at update {found.steps[k]} the loss is {found.values[k]}, not {expected.values[k]}."
        )
    return len(found.steps)


def _list(steps: Sequence[int] | np.ndarray) -> str:
    return ", ".join(str(step) for step in steps)
