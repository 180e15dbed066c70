"""The tests' side of `tests.fire.server`, and runs that last a few tenths of a second."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from rlseq import checkpoints, runs
from tests.training import SMALL_SEQ, assert_same_run, settings, weights

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        code: exit code; negative: killed by this signal.
        hits: how many of the signals found it running.
        rss: peak of its memory, in bytes, with what it shares with the server.
    """

    code: int
    out: str
    err: str
    hits: int
    hung: bool
    seconds: float
    rss: int

    @property
    def message(self) -> str:
        """Stderr in one line."""
        return re.sub(r"\s+", " ", self.err)


class Server:
    """A process that forks commands, one at a time; it is started by the first one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fire.server"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer(self._process)
        return self._process

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the server ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __call__(self, *argv: object, cwd: Path, **request: Any) -> Ended:
        """Run `rlseq ARGV` in a folder; see `tests.fire.server.child` for what a request may hold."""
        process = self._process or self._start()
        assert process.stdin is not None
        asked = {"argv": [str(word) for word in argv], "cwd": str(cwd), **request}
        print(json.dumps(asked), file=process.stdin, flush=True)
        return Ended(**self._answer(process))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()


@contextlib.contextmanager
def servers(count: int = WORKERS) -> Iterator[SimpleQueue[Server]]:
    """Several servers, to be taken from a queue and put back."""
    pool: SimpleQueue[Server] = SimpleQueue()
    made = [Server() for _ in range(count)]
    for server in made:
        pool.put(server)
    try:
        yield pool
    finally:
        for server in made:
            server.close()


@contextlib.contextmanager
def borrowed(pool: SimpleQueue[Server]) -> Iterator[Server]:
    """A server for a while."""
    server = pool.get()
    try:
        yield server
    finally:
        pool.put(server)


def in_parallel(pool: SimpleQueue[Server], job: Any, items: Sequence[Any]) -> list[Any]:
    """`[job(server, item) for item in items]`, as many at once as there are servers."""

    def one(item: Any) -> Any:
        with borrowed(pool) as server:
            return job(server, item)

    with ThreadPoolExecutor(WORKERS) as threads:
        return list(threads.map(one, items))


SHORT: dict[str, Any] = {
    "run": {"steps": 240, "log_every": 20, "checkpoint_every": 40, "keep": 2},
    "net": {"hidden": [8]},
    "replay": {"capacity": 100, "batch_size": 8},
    "eval": {"every": 60, "episodes": 2, "num_envs": 2, "final_episodes": 2},
    "dqn": {"learning_starts": 20, "train_every_steps": 4, "updates_per_train": 1, "target_sync_steps": 30},
    "env": {"max_episode_steps": 30},
}
SHORT_SEQ: dict[str, Any] = {"run": {"keep": 2}, "eval": {"every": 5}}
NAME = "r"


def begin(env_id: str = "CartPole-v1", *changes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Words that begin a short run called `NAME` below the current folder (see `HERE`)."""
    return ["train", "dqn", env_id, "--recipe", "none", "--name", NAME, "--quiet", *settings([SHORT, *changes])]


def begin_seq(text: Path, *changes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Likewise, of a sequence model. Runs of one text in different folders are the same."""
    options = settings([SHORT_SEQ, *changes], SMALL_SEQ)
    return ["train", "seq", "--data", str(text), "--recipe", "none", "--name", NAME, "--quiet", *options]


RESUME = ["train", "dqn", "--resume", NAME, "--quiet"]
RESUME_SEQ = ["train", "seq", "--resume", NAME, "--quiet"]
HERE = {"RLSEQ_RUNS": "."}
KILL = int(signal.SIGKILL)


def go_on(server: Server, place: Path, first: list[str], **request: Any) -> Ended:
    """What a user does after a crash: resume, or do what the message says.

    Args:
        place: the folder with the run.
        first: words that begin it.
    """
    request = {"cwd": place, "env": HERE, **request}
    if not (place / NAME).exists():
        return server(*first, **request)
    ended = server(*(RESUME_SEQ if first[1] == "seq" else RESUME), **request)
    if ended.code == 2:  # stopped before it was a run: the message says what to delete
        assert f"Delete {NAME} and start it again" in ended.message, ended.message
        assert not list((place / NAME).glob("checkpoints/*"))
        shutil.rmtree(place / NAME)
        ended = server(*first, **request)
    return ended


def assert_same(whole: Path, other: Path, *, stopped: bool = False) -> None:
    """Two runs of one name in different folders ended in the same state, and none of them with a file too many.

    Args:
        stopped: a signal stopped the other one: it saved at that step, so other checkpoints are kept.
    """
    assert_same_run(whole, other)
    a, b = runs.Run(whole), runs.Run(other)
    odd = _files(whole, stopped) ^ _files(other, stopped)
    assert not odd, f"a file too many or too few: {sorted(odd)}"
    for one, two in zip((a.config(), a.lineage(), _timeless(a)), (b.config(), b.lineage(), _timeless(b)), strict=True):
        assert one == two, f"{one}\n{two}"
    best_a, best_b = a.checkpoint("best"), b.checkpoint("best")
    assert best_a.name == best_b.name
    assert checkpoints.read_manifest(best_a)["numbers"] == checkpoints.read_manifest(best_b)["numbers"]
    arrays = weights(best_b)
    for name, array in weights(best_a).items():
        np.testing.assert_array_equal(array, arrays[name], err_msg=name, strict=True)


def _files(run: Path, without_checkpoints: bool) -> set[str]:
    names = {path.relative_to(run).as_posix() for path in run.rglob("*")}
    return {name for name in names if not (without_checkpoints and re.match("checkpoints/[0-9]", name))}


def _timeless(run: runs.Run) -> dict[str, Any]:
    summary = run.summary()
    assert summary is not None
    return {key: value for key, value in summary.items() if not key.endswith("_seconds") and key != "steps_per_second"}


def assert_intact(run: Path) -> int:
    """Every checkpoint of a run, the replay of the last one included, is as it was written; returns how many."""
    found = runs.Run(run).checkpoints()
    for checkpoint in found:
        manifest = checkpoints.read_manifest(checkpoint)
        for file in manifest["files"]:
            if checkpoint == found[-1] or not file.startswith(checkpoints.REPLAY):
                checkpoints.read_arrays(checkpoint, manifest, file.removesuffix(".safetensors"))
    return len(found)
