"""Tests of several processes: N of them run one function of a test file, as ranks of one process group.

    results = on_ranks(2, program, tmp_path, num_updates=100)

gives what `program` returned in each: arrays by name. What goes wrong in any of them fails the test with everybody's
last words; nobody waits for ever.

The ranks are forked from a server that has imported torch and the trainers already, because that takes longer than most
of what is tested.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch.distributed import TCPStore

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 60.0  # seconds that a test waits for its ranks
GRACE = 5.0  # seconds that the others have to end after one has failed, so that their words are heard too
HOST = "127.0.0.1"
POLL = 0.01
Program = Callable[..., Mapping[str, Any]]
"""Takes what JSON can carry, gives arrays by name; a function at the top of its module."""


def on_ranks(
    size: int, program: Program, folder: Path, *, longest: float = LONGEST, **arguments: Any
) -> list[dict[str, np.ndarray]]:
    """Run a program on every rank.

    Args:
        size: number of processes; they are all of one machine.
        program: joins the process group itself.
        folder: of the test's own; where the ranks write.
        longest: seconds until all are killed.
        arguments: of the program.

    Returns:
        What each rank returned, rank 0 first.

    Raises:
        AssertionError: a rank failed, or they took too long; with what every rank wrote.
    """
    # The store is the test's own, as it is the agent's under torchrun: its port cannot be taken by another test in
    # between, and it outlives every rank.
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=longest))
    place = folder / f"ranks-{store.port}"
    place.mkdir(parents=True)
    request = {
        "words": [program.__module__, program.__name__, json.dumps(arguments)],
        "place": str(place),
        "longest": longest,
        "cwd": os.getcwd(),
        "environments": [_environment(rank, size, store.port) for rank in range(size)],
    }
    reason = _SERVER.ask(request)
    if reason:
        raise AssertionError(f"{reason}.\n{_last_words(place, size)}")
    return [_read(place / f"{rank}.npz") for rank in range(size)]


def _environment(rank: int, size: int, port: int) -> dict[str, str]:
    described = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": HOST,
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    return {**os.environ, **{name: str(value) for name, value in described.items()}}


def _last_words(place: Path, size: int) -> str:
    logs = (f"--- rank {rank}\n{(place / f'{rank}.log').read_text(errors='replace')[-4000:]}" for rank in range(size))
    return "\n".join(logs)


def _read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


class _Server:
    """The test's side of `serve`; the process is started by the first request, and ends with this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: Mapping[str, Any]) -> str:
        """Why the ranks failed, or an empty string."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        print(json.dumps(request), file=process.stdin, flush=True)
        line = process.stdout.readline()
        assert line, "the server of ranks ended"
        return str(json.loads(line))


_SERVER = _Server()


def serve() -> None:
    """Fork the ranks of one request after the other, and answer how they ended."""
    for module in ("rlseq.training", "rlseq.seq.train", "rlseq.dqn.train", "rlseq.pipeline", "tests.training"):
        import_module(module)
    gc.freeze()  # no fork looks through, and thereby copies, what all have
    for line in sys.stdin:
        request = json.loads(line)
        pids = [_fork(rank, env, request) for rank, env in enumerate(request["environments"])]
        print(json.dumps(_wait(pids, float(request["longest"]))), flush=True)


def _fork(rank: int, env: Mapping[str, str], request: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()  # so that all that a rank starts is killed with it
        log = os.open(f"{request['place']}/{rank}.log", os.O_WRONLY | os.O_CREAT)
        for number in (1, 2):
            os.dup2(log, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(request["cwd"])
        _run(*request["words"], f"{request['place']}/{rank}.npz")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise AssertionError


def _run(module: str, name: str, arguments: str, path: str) -> None:
    program: Program = getattr(import_module(module), name)
    np.savez(path, **{key: np.asarray(value) for key, value in program(**json.loads(arguments)).items()})


def _wait(pids: Sequence[int], longest: float) -> str:
    """Until all have ended; why that was not well, or an empty string."""
    ends, reason = time.monotonic() + longest, f"the ranks took more than {longest:g} s"
    codes: list[int | None] = [None] * len(pids)
    while None in codes and time.monotonic() < ends:
        for rank, pid in enumerate(pids):
            ended, status = os.waitpid(pid, os.WNOHANG) if codes[rank] is None else (0, 0)
            if not ended:
                continue
            codes[rank] = os.waitstatus_to_exitcode(status)
            if codes[rank] and not reason.startswith("rank"):
                ends, reason = min(ends, time.monotonic() + GRACE), f"rank {rank} ended with {codes[rank]}"
        time.sleep(POLL)
    for pid, code in zip(pids, codes, strict=True):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what a rank has started, too
        if code is None:
            os.waitpid(pid, 0)
    return "" if not any(codes) and None not in codes else reason


if __name__ == "__main__":
    serve()


def apart(found: np.ndarray, expected: np.ndarray) -> float:
    """Norm of the difference by that of what was expected."""
    assert found.dtype == expected.dtype == np.float64
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
