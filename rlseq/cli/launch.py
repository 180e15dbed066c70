"""`rlseq train --nproc N`: N processes on this machine, started and watched by torchrun's agent.

The launcher trains nothing. Its workers are the same command without --nproc; each leaves a report of how it ended, and
the launcher alone tells the user, once. The agent starts a worker in a session of its own, so that a Ctrl-C on the
terminal reaches the launcher alone, which passes it on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shlex
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlseq.cli.output import say
from rlseq.cli.worker import LAUNCHER, REPORT, read_report
from rlseq.errors import Elsewhere, Interrupted, RlseqError, UsageError, require

MOST_PROCESSES = 1024
# Between a signal and the kill that follows it: an update and a checkpoint come first. A second Ctrl-C does not wait.
PATIENCE_SECONDS = 3600
WORKER = (sys.executable, "-m", "rlseq")
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # that the agent passes on to the workers


class ProcessFailed(RlseqError):
    """A process of a training failed.

    Args:
        message: what happened to it.
        exit_code: its own, or 128 + the signal that killed it.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Launch(NamedTuple):
    """What is started: the words of the command line without those that say how, and how."""

    words: tuple[str, ...]
    nproc: int
    max_restarts: int = 0

    def of_seed(self, seed: int, name: str | None) -> Launch:
        """The same for one of the `--seeds`; flags come right after `train ALGORITHM`."""
        words = without(self.words, ("--seeds", "--name"))
        flags = ("--seed", str(seed), *(() if name is None else ("--name", name)))
        return self._replace(words=(*words[:2], *flags, *words[2:]))


def plan_launch(words: Sequence[str], nproc: int | None, max_restarts: int | None) -> Launch | None:
    """What --nproc and --max-restarts ask for; None: train in this process.

    Args:
        words: the command line after `rlseq`.
        nproc, max_restarts: as typed.

    Raises:
        UsageError: they do not go together, or this process is a worker already.
    """
    if nproc is None:
        if max_restarts is not None:
            raise UsageError(
                f"--max-restarts {max_restarts} is for processes that --nproc starts: add --nproc N. With torchrun, "
                "give torchrun its own --max-restarts."
            )
        return None
    if "RANK" in os.environ:
        raise UsageError(
            f"--nproc {nproc}: this is already one of several processes (RANK={os.environ['RANK']}, as torchrun sets "
            "it). Leave --nproc out, and give torchrun its own --nproc-per-node."
        )
    return Launch(without(words, ("--nproc", "--max-restarts")), nproc, max_restarts or 0)


def without(words: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
    """A command line without some flags and their values, `--flag value` and `--flag=value` alike."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":  # what follows are no flags
            return (*kept, word, *rest)
        if word in flags:
            next(rest, None)
        elif word.partition("=")[0] not in flags:
            kept.append(word)
    return tuple(kept)


def run(launch: Launch, worker: Sequence[str] = WORKER) -> dict[str, Any]:
    """Start the processes, wait for all of them, restart them where that was asked for.

    Args:
        launch: what to start.
        worker: the command that takes `launch.words`.

    Returns:
        The summary of the run.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; the workers have saved.
        ProcessFailed: a worker failed, and no restart is left.
        MissingExtra: torch is not installed.
    """
    require("torch", "training")
    with tempfile.TemporaryDirectory(prefix="rlseq-") as folder, _agent() as failures:
        from torch.distributed.elastic.multiprocessing import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import elastic_launch

        attempts = Attempts(Path(folder), launch, failures)
        # The agent puts a value in the place of ${local_rank}; what was typed must arrive as it was typed.
        words = [word.replace("$", "$$") for word in (*worker[1:], *launch.words)]
        try:
            elastic_launch(_config(launch, attempts), worker[0])(*words)
        except ChildFailedError as error:
            codes = {number: failure.exitcode for number, failure in error.failures.items()}
            raise _failed(codes, attempts.reports(), launch, attempts.reports().get(0, {}).get("run")) from None
        except SignalException as error:
            if "summary" not in attempts.reports().get(0, {}):
                raise _stopped(attempts.reports(), launch, error.sigval) from None
        return dict(attempts.reports()[0]["summary"])


class Attempts:
    """The starts of a launch, and the reports that their workers leave.

    Args:
        folder: for the reports.
        launch: what is started.
        failures: `(exit code, process)` of each failure that the agent has seen.
    """

    def __init__(self, folder: Path, launch: Launch, failures: Sequence[tuple[int, int]]) -> None:
        self.folder = folder
        self._launch, self._failures, self._attempt = launch, failures, 0

    def reports(self) -> dict[int, dict[str, Any]]:
        """Of the newest attempt: process -> what it handed over."""
        paths = self.folder.glob(f"report-{self._attempt}-*.json")
        return {int(path.stem.rpartition("-")[2]): read_report(path) for path in paths}

    def begin(self, environments: Mapping[int, dict[str, str]]) -> None:
        """Before the agent starts the workers: tell them where to report.

        Args:
            environments: of each process.

        Raises:
            RlseqError: this would be a restart, and it would end as the attempt before.
        """
        attempt = int(environments[0].get("TORCHELASTIC_RESTART_COUNT", "0"))
        if attempt > self._attempt:
            error = self._lost()
            say(f"{error}\nRestart {attempt} of {self._launch.max_restarts}.", "yellow", "Warning")
        self._attempt = attempt
        for number, environment in environments.items():
            environment[REPORT] = str(self.folder / f"report-{attempt}-{number}.json")
            environment[LAUNCHER] = str(os.getpid())

    def _lost(self) -> RlseqError:
        """How the newest attempt ended; raised if a restart cannot help."""
        reports = self.reports()
        codes = {process: code for code, process in self._failures[-1:]}
        codes |= {process: report["exit_code"] for process, report in reports.items() if "exit_code" in report}
        error = _failed(codes, reports, self._launch)
        stopped = len(reports) == self._launch.nproc and {r.get("kind") for r in reports.values()} == {"Interrupted"}
        if stopped or error.exit_code == UsageError.exit_code:
            raise error
        return error


def _failed(
    codes: Mapping[int, int], reports: Mapping[int, Mapping[str, Any]], launch: Launch, run: str | None = None
) -> RlseqError:
    """Of several processes that failed, what happened to the one that the others fell with.

    Args:
        codes: process -> exit code, below 0 of a signal, in the order in which the agent saw them.
        reports: what they handed over.
        launch: what was started.
        run: to go on with, if that is to be said.
    """

    def consequence(process: int) -> int:
        kind = reports.get(process, {}).get("kind")
        if kind is None:
            return 3 if codes[process] == -signal.SIGTERM else 0  # with SIGTERM the agent ends the rest
        return {"Interrupted": 1, Elsewhere.__name__: 2}.get(kind, 0)

    if not codes:
        return ProcessFailed("a process failed; what it said stands above.", 1)
    process = min(codes, key=consequence)
    code, report = codes[process], reports.get(process, {})
    who = f"process {process} of {launch.nproc} (counted from 0)"
    if "error" in report:
        if report["kind"] == "Interrupted":
            return _interrupted(report["error"], launch, int(report["exit_code"]) - 128)
        everybodys = process == 0 or code == UsageError.exit_code  # all were given the same words
        return ProcessFailed(report["error"] if everybodys else f"process {process}: {report['error']}", code)
    words = shlex.join(("rlseq", *launch.words[:2], "--resume", run or ""))
    again = f" Go on from the last checkpoint with:\n  {words} --nproc {launch.nproc}" if run else ""
    if code >= 0:
        return ProcessFailed(f"{who} left with exit code {code}; what it said stands above.{again}", code)
    name = _signal_name(-code)
    hint = " Where nobody did that, the system did, for want of memory." if name == "SIGKILL" else ""
    return ProcessFailed(f"{who} was killed by {name}.{hint}{again}", 128 - code)


def _stopped(reports: Mapping[int, Mapping[str, Any]], launch: Launch, signum: int) -> RlseqError:
    """What comes of a signal to the launcher, which all processes were told of."""
    codes = {process: int(reports[process]["exit_code"]) for process in sorted(reports) if "error" in reports[process]}
    if not codes:
        return Interrupted(f"stopped by {_signal_name(signum)} before there was anything to save.", signum)
    if all(reports[process]["kind"] == Elsewhere.__name__ for process in codes):
        return Interrupted(f"stopped by {_signal_name(signum)}. {_failed(codes, reports, launch)}", signum)
    return _failed(codes, reports, launch)


def _interrupted(message: str, launch: Launch, signum: int) -> Interrupted:
    """With the command to go on in as many processes."""
    again = f" --nproc {launch.nproc}" if "--resume " in message.rpartition("\n")[2] else ""
    return Interrupted(message + again, signum)


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _config(launch: Launch, attempts: Attempts) -> Any:
    """torchrun's settings for one machine: its store on a free port, and a name that no other launch has."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest
    from torch.distributed.launcher.api import LaunchConfig

    class Reported(DefaultLogsSpecs):
        def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
            attempts.begin(envs)
            return super().reify(envs)

    newer: dict[str, Any] = {
        "signals_to_handle": ",".join(filter(_is_handled, SIGNALS)),
        "shutdown_timeout": PATIENCE_SECONDS,
    }
    known = {field.name for field in dataclasses.fields(LaunchConfig)}
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=launch.nproc,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=launch.max_restarts,
        monitor_interval=0.1,
        logs_specs=Reported(log_dir=str(attempts.folder / "agent")),
        local_addr="localhost",
        **{name: value for name, value in newer.items() if name in known},  # of later versions of torch
    )


def _is_handled(name: str) -> bool:
    """Whether the agent should pass a signal on; not one that `nohup` or a shell has told us to ignore."""
    return hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN


@contextlib.contextmanager
def _agent() -> Iterator[list[tuple[int, int]]]:
    """While the agent runs: its log is not shown, but gives `(exit code, process)` of each failure; the signal handlers
    that it sets are taken back."""
    failures: list[tuple[int, int]] = []

    class Failures(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if str(record.msg).startswith("failed (exitcode: %s) local_rank: %s") and isinstance(record.args, tuple):
                failures.append((int(str(record.args[0])), int(str(record.args[1]))))

    import torch.distributed  # which gives its log a handler of its own

    log = logging.getLogger(torch.distributed.__name__)
    log_before = log.handlers, log.propagate
    log.handlers, log.propagate = [Failures()], False
    before = {number: signal.getsignal(number) for name in SIGNALS if (number := getattr(signal, name, None))}
    try:
        yield failures
    finally:
        for number, was in before.items():
            signal.signal(number, was)
        log.handlers, log.propagate = log_before
