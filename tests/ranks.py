"""Tests of several processes: N of them run one function of a test file, as ranks of one process group.

    results = on_ranks(2, program, tmp_path, num_updates=100)

starts two Python processes with the variables that torchrun sets, waits for both, and gives what `program` returned in
each: arrays by name. What goes wrong in any of them fails the test with everybody's last words; nobody waits for ever.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

LONGEST = 60.0  # seconds that a test waits for its ranks
GRACE = 5.0  # seconds that the others have to end after one has failed, so that their words are heard too
HOST = "127.0.0.1"
POLL = 0.02
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
    from torch.distributed import TCPStore  # not by the ranks, which begin the sooner

    # The store is the test's own, as it is the agent's under torchrun: its port cannot be taken by another test in
    # between, and it outlives every rank.
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=longest))
    place = folder / f"ranks-{store.port}"
    place.mkdir(parents=True)
    words = [program.__module__, program.__name__, json.dumps(arguments)]
    started = [_start(rank, size, store.port, words, place) for rank in range(size)]
    try:
        _wait(started, longest, place)
    finally:
        for process in started:
            _kill(process)
    return [_read(place / f"{rank}.npz") for rank in range(size)]


def _start(rank: int, size: int, port: int, words: Sequence[str], place: Path) -> subprocess.Popen[bytes]:
    described = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": HOST,
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
        "OMP_NUM_THREADS": 1,
    }
    env = {**os.environ, **{name: str(value) for name, value in described.items()}}
    with open(place / f"{rank}.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, *words, str(place / f"{rank}.npz")],
            env=env,
            stdin=subprocess.PIPE,  # whose end tells the rank that the test is gone, whatever became of it
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that all that a rank starts is killed with it
        )


def _wait(started: Sequence[subprocess.Popen[bytes]], longest: float, place: Path) -> None:
    """Until all have ended well."""
    ends, reason = time.monotonic() + longest, f"the ranks took more than {longest:g} s"
    while True:
        codes = [process.poll() for process in started]
        if all(code == 0 for code in codes):
            return
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed and not reason.startswith("rank"):
            ends, reason = min(ends, time.monotonic() + GRACE), f"rank {failed[0]} ended with {codes[failed[0]]}"
        if time.monotonic() > ends or (failed and None not in codes):
            raise AssertionError(f"{reason}.\n{_last_words(place, len(started))}")
        time.sleep(POLL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _last_words(place: Path, size: int) -> str:
    logs = (f"--- rank {rank}\n{(place / f'{rank}.log').read_text(errors='replace')[-4000:]}" for rank in range(size))
    return "\n".join(logs)


def _read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _end_with_the_test() -> None:
    os.read(0, 1)
    os._exit(1)


def main(module: str, name: str, arguments: str, path: str) -> None:
    """What a rank does."""
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    program: Program = getattr(import_module(module), name)
    np.savez(path, **{key: np.asarray(value) for key, value in program(**json.loads(arguments)).items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
