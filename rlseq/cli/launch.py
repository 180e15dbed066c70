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
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlseq.cli.blame import Launch, failed, stopped, without
from rlseq.cli.output import say
from rlseq.cli.stopping import Stopping
from rlseq.cli.worker import LAUNCHER, REPORT, read_report
from rlseq.errors import RlseqError, UsageError, require

MOST_PROCESSES = 1024
# Between a signal and the kill that follows it: an update and a checkpoint come first. A second Ctrl-C does not wait.
PATIENCE_SECONDS = 3600
AGENT_SECONDS = 20.0  # it gives the others 30 to end when one has failed, and then kills them
WORKER = (sys.executable, "-m", "rlseq")
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")  # that the agent passes on to the workers, which save


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
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    with tempfile.TemporaryDirectory(prefix="rlseq-") as folder:
        attempts = Attempts(Path(folder), launch)
        # The agent puts a value in the place of ${local_rank}; what was typed must arrive as it was typed.
        words = [word.replace("$", "$$") for word in (*worker[1:], *launch.words)]
        try:
            with _agent(attempts):
                elastic_launch(_config(launch, attempts), worker[0])(*words)
        except ChildFailedError as error:
            codes = {number: failure.exitcode for number, failure in error.failures.items()}
            times = [failure.timestamp for failure in error.failures.values()]
            raise attempts.failed(codes, waited=max(times) - min(times) > AGENT_SECONDS) from None
        except SignalException as error:
            if "summary" not in attempts.reports().get(0, {}):
                raise stopped(attempts.reports(), launch, error.sigval) from None
        return dict(attempts.reports()[0]["summary"])


class Attempts:
    """The starts of a launch, and the reports that their workers leave.

    Args:
        folder: for the reports.
        launch: what is started.

    Attributes:
        failures: `(exit code, process)` of each failure that the agent has seen before it ended the others.
    """

    def __init__(self, folder: Path, launch: Launch) -> None:
        self.folder = folder
        self.failures: list[tuple[int, int]] = []
        self._launch, self._attempt = launch, 0

    def pids(self) -> list[int]:
        """Of the workers that have begun."""
        return [int(report["pid"]) for report in self.reports().values() if "pid" in report]

    def failed(self, codes: Mapping[int, int], *, waited: bool) -> RlseqError:
        """How the last attempt ended."""
        reports = self.reports()
        return failed(codes, reports, self._launch, reports.get(0, {}).get("run"), waited)

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
        codes = {process: code for code, process in self.failures[-1:]}
        codes |= {process: report["exit_code"] for process, report in reports.items() if "exit_code" in report}
        error = failed(codes, reports, self._launch)
        stopped = len(reports) == self._launch.nproc and {r.get("kind") for r in reports.values()} == {"Interrupted"}
        if stopped or error.exit_code == UsageError.exit_code:
            raise error
        return error


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
def _agent(attempts: Attempts) -> Iterator[None]:
    """While the agent runs: its log is not shown, but tells of failures; its handling of signals, and the handlers that
    it sets, are taken back."""

    class Failures(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if str(record.msg).startswith("failed (exitcode: %s) local_rank: %s") and isinstance(record.args, tuple):
                attempts.failures.append((int(str(record.args[0])), int(str(record.args[1]))))

    import torch.distributed  # which gives its log a handler of its own
    from torch.distributed.elastic.multiprocessing import SignalException, api

    def stop(signum: signal.Signals) -> Exception:
        return SignalException(f"signal {signum}", signum)

    log = logging.getLogger(torch.distributed.__name__)
    log_before = log.handlers, log.propagate
    log.handlers, log.propagate = [Failures()], False
    before = {number: signal.getsignal(number) for name in SIGNALS if (number := getattr(signal, name, None))}
    handler = api._terminate_process_handler  # a private name, tried with torch 2.13
    api._terminate_process_handler = Stopping(attempts.pids, stop).handle
    try:
        yield
    finally:
        api._terminate_process_handler = handler
        for number, was in before.items():
            signal.signal(number, was)
        log.handlers, log.propagate = log_before
