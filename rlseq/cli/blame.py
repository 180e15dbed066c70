"""Several processes were started, and something went wrong: what is the user told?

The agent ends all processes when one fails, and each of them fails in some way; one of them is to blame.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlseq.errors import Elsewhere, Interrupted, RlseqError, UsageError


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


def failed(
    codes: Mapping[int, int],
    reports: Mapping[int, Mapping[str, Any]],
    launch: Launch,
    run: str | None = None,
    waited: bool = False,
) -> RlseqError:
    """Of several processes that failed, what happened to the one that the others fell with.

    Args:
        codes: process -> exit code, below 0 of a signal, in the order in which the agent saw them.
        reports: what they handed over.
        launch: what was started.
        run: to go on with, if that is to be said.
        waited: whether the agent gave the others time to end, and then killed those that did not.
    """

    def kind(process: int) -> str | None:
        return reports.get(process, {}).get("kind")

    def consequence(process: int) -> int:
        if kind(process) is None:
            return 3 if codes[process] == -signal.SIGTERM else 0  # with SIGTERM the agent ends the rest
        return {"Interrupted": 1, Elsewhere.__name__: 2}.get(str(kind(process)), 0)

    if not codes:
        return ProcessFailed("a process failed; what it said stands above.", 1)
    process = min(codes, key=consequence)
    code, report = codes[process], reports.get(process, {})
    words = shlex.join(("rlseq", *launch.words[:2], "--resume", run or ""))
    again = f" Go on from the last checkpoint with:\n  {words} --nproc {launch.nproc}" if run else ""
    who = f"process {process} of {launch.nproc} (counted from 0)"
    if "error" in report:
        if report["kind"] == "Interrupted":
            return _interrupted(report["error"], launch, int(report["exit_code"]) - 128)
        everybodys = process == 0 or code == UsageError.exit_code  # all were given the same words
        return ProcessFailed(report["error"] if everybodys else f"process {process}: {report['error']}", code)
    if code >= 0:
        return ProcessFailed(f"{who} left with exit code {code}; what it said, if anything, stands above.{again}", code)
    if code == -signal.SIGKILL and waited and any(kind(other) == Elsewhere.__name__ for other in codes):
        return ProcessFailed(f"{who} did not answer the others for engine.wait_seconds, and was killed.{again}", 1)
    name = _signal_name(-code)
    hint = " Where nobody did that, the system did, for want of memory." if name == "SIGKILL" else ""
    return ProcessFailed(f"{who} was killed by {name}.{hint}{again}", 128 - code)


def stopped(reports: Mapping[int, Mapping[str, Any]], launch: Launch, signum: int) -> RlseqError:
    """What comes of a signal to the launcher, which all processes were told of."""
    codes = {process: int(reports[process]["exit_code"]) for process in sorted(reports) if "error" in reports[process]}
    name, run = _signal_name(signum), reports.get(0, {}).get("run")
    if not codes and run is None:
        return Interrupted(f"stopped by {name} before there was anything to save.", signum)
    if not codes:
        words = shlex.join(("rlseq", *launch.words[:2], "--resume", str(run)))
        saved = "the training is saved up to its last checkpoint. Go on with:"
        return _interrupted(f"stopped by {name}; {saved}\n  {words}", launch, signum)
    if all(reports[process]["kind"] == Elsewhere.__name__ for process in codes):
        return Interrupted(f"stopped by {name}. {failed(codes, reports, launch)}", signum)
    return failed(codes, reports, launch)


def _interrupted(message: str, launch: Launch, signum: int) -> Interrupted:
    """With the command to go on in as many processes."""
    again = f" --nproc {launch.nproc}" if "--resume " in message.rpartition("\n")[2] else ""
    return Interrupted(message + again, signum)


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
