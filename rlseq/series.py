"""One recipe over several seeds: what is finished is kept, what was interrupted goes on, the rest is trained."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import IO, Any, NamedTuple

from rlseq.config import differences
from rlseq.errors import Interrupted, RlseqError, UsageError
from rlseq.events import Callback
from rlseq.machine import describe_machine
from rlseq.planned_sequence import placed
from rlseq.ranks import JOBS
from rlseq.resolve import TREES, given_values, read_options, resolve_new
from rlseq.runs import Run, is_run, runs_folder
from rlseq.seq.config import SeqTraining

CHILD = (sys.executable, "-m", "rlseq")
SAME = ("rlseq", "commit", "python", "packages", "cpu")  # of the machine, for a run to belong to a series
POLL_SECONDS = 0.2
GO_ON = "The same command goes on with every seed that is not finished."

Watch = Callable[[], AbstractContextManager[Callback]]
"""Shows one training, as `rlseq.cli.progress.progress` does."""


class Series(NamedTuple):
    """A recipe and its seeds.

    Attributes:
        recipe: a shipped agent's name.
        values: option values laid over the recipe, nested.
        prefix: seed k is the run `<prefix>-s<k>`.
    """

    algorithm: str
    recipe: str
    seeds: Sequence[int]
    values: dict[str, Any]
    prefix: str

    def name(self, seed: int) -> str:
        """The run of a seed."""
        return f"{self.prefix}-s{seed}"


def train_series(series: Series, *, jobs: int, watch: Watch, note: Callable[[str], None]) -> list[Run]:
    """Train every seed that is not finished.

    Args:
        series: what to train.
        jobs: trainings at the same time; more than one run as processes of their own, unseen, and share the cores.
        watch: shows a training, if they come one after the other.
        note: told which seed is begun, continued or kept.

    Returns:
        The finished runs, in the order of the seeds.

    Raises:
        UsageError: a run of this name was trained with other options, code, packages or on another processor.
        Interrupted: a signal stopped it; what was trained stays, and the same command goes on.
        RlseqError: a training failed.
    """
    runs = {seed: Run(runs_folder() / series.name(seed)) for seed in series.seeds}
    missing = [seed for seed, run in runs.items() if not _kept(series, seed, run)]
    for seed, run in runs.items():
        if seed not in missing:
            note(f"Seed {seed}: {run.path} is finished, and is kept.")
    if jobs == 1:
        for count, seed in enumerate(missing, 1):
            note(f"\nSeed {seed} (training {count} of {len(missing)})")
            _train(series, seed, runs[seed], watch)
    else:
        _train_side_by_side(series, missing, runs, jobs, note)
    return list(runs.values())


def _kept(series: Series, seed: int, run: Run) -> bool:
    """Whether a run is there and finished; what is there must belong to the series."""
    if not is_run(run.path):
        if run.path.exists():
            raise UsageError(f"{run.path} is in the way: it is no run (no config.json in it). Remove it.")
        return False
    where = f"{run.path} is in the way: it"
    fix = f"Move it away (and the other {series.prefix}-s* of that kind), or set RLSEQ_RUNS to another folder."
    algorithm, options = read_options(run)
    given = given_values(series.algorithm, None, (), series.values, {"seed": seed, "name": series.name(seed)})
    wanted = resolve_new(series.algorithm, given, series.recipe, "arguments").options
    if isinstance(wanted, SeqTraining):
        wanted = placed(wanted)
    if algorithm != series.algorithm:
        raise UsageError(f"{where} is a training of {algorithm}. {fix}")
    for path, (old, new) in differences(TREES[algorithm], options, wanted).items():
        raise UsageError(f"{where} was trained with {path} = {old!r}, now it is {new!r}. {fix}")
    then, now = run.env(), describe_machine()
    for key in SAME:
        if then.get(key) != now[key]:
            raise UsageError(f"{where} was trained with {key} {then.get(key)}, now it is {now[key]}. {fix}")
    if run.status() != "finished" and not run.checkpoints():
        raise UsageError(f"{where} was stopped before its first checkpoint. Remove it.")
    return run.status() == "finished"


def _train(series: Series, seed: int, run: Run, watch: Watch) -> None:
    from rlseq.pipeline import train

    start: dict[str, Any] = {"recipe": series.recipe, "values": series.values}
    start |= {"seed": seed, "name": series.name(seed)}
    with watch() as callback:
        try:
            train(series.algorithm, callbacks=[callback], **({"resume": run.path} if is_run(run.path) else start))
        except Interrupted as stop:
            raise Interrupted(f"{stop}\n{GO_ON}", stop.signum) from None


class _Child(NamedTuple):
    seed: int
    process: subprocess.Popen[bytes]
    log: IO[bytes]


def _train_side_by_side(
    series: Series, missing: Sequence[int], runs: dict[int, Run], jobs: int, note: Callable[[str], None]
) -> None:
    """A process for each seed, at most `jobs` at a time; the first that fails stops the others, which save."""
    waiting, running = list(missing), list[_Child]()
    shared = {**os.environ, JOBS: str(min(jobs, len(missing)))}
    with _stopping(running):
        while waiting or running:
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                note(f"Seed {seed} {'goes on' if is_run(runs[seed].path) else 'begins'}, as {runs[seed].path}")
                log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when its process has ended
                command = _command(series, seed, runs[seed])
                running.append(_Child(seed, subprocess.Popen(command, env=shared, **_quiet(log)), log))
            time.sleep(POLL_SECONDS)
            for child in [child for child in running if child.process.poll() is not None]:
                running.remove(child)
                _ended(child, note)


def _quiet(log: IO[bytes]) -> dict[str, Any]:
    # In a session of its own a child never hears Ctrl-C itself: a second signal would stop it without saving.
    return {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": log, "start_new_session": True}


def _command(series: Series, seed: int, run: Run) -> list[str]:
    words = [*CHILD, "train", series.algorithm]
    if is_run(run.path):
        return [*words, "--resume", str(run.path), "--quiet"]
    words += ["--recipe", series.recipe, "--seed", str(seed), "--name", series.name(seed), "--quiet"]
    for group, values in series.values.items():
        for name, value in values.items():
            words += ["--set", f"{group}.{name}={value}"]
    return words


def _ended(child: _Child, note: Callable[[str], None]) -> None:
    child.log.seek(0)
    said = child.log.read().decode(errors="replace").strip()
    child.log.close()
    code = child.process.returncode
    if code in (130, 143):
        raise Interrupted(
            f"the training of seed {child.seed} was stopped; it is saved, and goes on with it.", code - 128
        )
    if code:
        raise RlseqError(f"the training of seed {child.seed} failed:\n{said or f'it ended with code {code}'}")
    note(f"Seed {child.seed} is finished.")


@contextlib.contextmanager
def _stopping(running: list[_Child]) -> Iterator[None]:
    """Whatever ends us ends the processes too, and they save what they have."""

    def terminated(signum: int, frame: FrameType | None) -> None:
        raise Interrupted(f"stopped; every training is saved. {GO_ON}", signum)

    before = {signum: signal.signal(signum, terminated) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for child in running:
            child.process.terminate()
        for child in running:
            child.process.wait()
            child.log.close()
        for signum, handler in before.items():
            signal.signal(signum, handler)
