"""Processes of a benchmark that train on demand: started once, asked often, so that only training is compared.

A request is a line of JSON on the standard input, the answer one on the standard output; see `rlseq.bench.ddp_worker`.
Under torchrun all processes inherit the agent's input, and the first of them reads and answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rlseq.errors import RlseqError, UsageError

WORKER = ("-m", "rlseq.bench.ddp_worker")
LONGEST = 300.0  # seconds for one answer, the start of all processes included
ENDING = 20.0  # seconds for all to leave after the last answer
# Of this process, if it is itself one of many: those that it starts are none of them.
RANKED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Workers:
    """Processes that wait for requests, and are gone at the end of the context.

    Args:
        name: of the side, for messages.
        size: number of processes under torchrun; None: one process, without torchrun.
        cores: on which they may run; None: on all.
        longest: seconds that an answer may take.
    """

    def __init__(
        self, name: str, size: int | None, cores: Sequence[int] | None = None, longest: float = LONGEST
    ) -> None:
        self.name, self._longest = name, longest
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - until `close`
        under = [] if size is None else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        env = {key: value for key, value in os.environ.items() if key not in RANKED and not key.startswith("TORCHEL")}
        with pinned(cores):  # what is started inherits it
            self._process = subprocess.Popen(
                [sys.executable, *under, *WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=env,
            )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._reader = threading.Thread(target=_pass_on, args=(self._stdout, self._answers), daemon=True)
        self._reader.start()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One answer to one request.

        Raises:
            RlseqError: a process failed, or the answer did not come in time.
        """
        try:
            self._stdin.write(json.dumps(request) + "\n")
            self._stdin.flush()
            line = self._answers.get(timeout=self._longest)
        except queue.Empty:
            raise RlseqError(f"{self.name}: no answer within {self._longest:g} s.\n{self._said()}") from None
        except BrokenPipeError:
            line = ""
        if not line:
            raise RlseqError(f"{self.name}: the processes ended without an answer.\n{self._said()}")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def _said(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)  # for the reasons that torchrun gives in the end
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def close(self) -> None:
        """End them: the end of the input asks for it; who does not listen is killed."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(ENDING)
        except subprocess.TimeoutExpired:
            end(self._process)
        self._reader.join(5.0)
        self._stdout.close()
        self._errors.close()


def end(process: subprocess.Popen[Any], patience: float = 5.0) -> None:
    """End a process and those that it has started: a torchrun that is asked to ends them itself."""
    if process.poll() is not None:
        return
    started = children(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    process.kill()
    process.wait()
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _pass_on(lines: TextIO, answers: queue.SimpleQueue[str]) -> None:
    for line in lines:
        answers.put(line)
    answers.put("")


@contextlib.contextmanager
def pinned(cores: Sequence[int] | None) -> Iterator[None]:
    """Let this thread, and what it starts, run on these cores only for a while.

    Raises:
        UsageError: this system cannot.
    """
    if cores is None:
        yield
        return
    before = allowed_cores()
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def allowed_cores() -> list[int]:
    """The cores that this process may use.

    Raises:
        UsageError: this system does not say.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise UsageError("this system does not let a process choose its cores; that is measured on Linux.")
    return sorted(os.sched_getaffinity(0))


def children(pid: int) -> list[int]:
    """The processes that a process has started.

    Raises:
        UsageError: this system has no /proc.
    """
    if not Path("/proc/self/stat").exists():
        raise UsageError("this system has no /proc to find processes in; that is measured on Linux.")
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name, in brackets, may hold anything; what follows is the state and the parent.
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(folder.name))
    return sorted(found)


def environment_of(pid: int) -> dict[str, str]:
    """The variables that a process was started with; empty if it is gone."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}
