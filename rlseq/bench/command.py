"""`rlseq train seq` as a process of its own: what is typed, timed and read from its summary."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlseq.errors import RlseqError


class Ran(NamedTuple):
    """A finished command: its wall time and its summary."""

    seconds: float
    summary: dict[str, Any]


def run_command(words: Sequence[str], seed: int, runs: Path | None = None) -> Ran:
    """Run `rlseq train seq`, without a cache.

    Args:
        words: what is typed after it.
        seed: of the training.
        runs: where the run stays; None: it is thrown away.

    Raises:
        RlseqError: it failed.
    """
    typed = ["train", "seq", *words, "--seed", str(seed), "--device", "cpu", "--json", "--quiet"]
    with tempfile.TemporaryDirectory(prefix="rlseq-bench-") as folder:
        places = {"RLSEQ_RUNS": str(runs or Path(folder, "runs")), "RLSEQ_CACHE": str(Path(folder, "cache"))}
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "rlseq", *typed], env={**os.environ, **places}, capture_output=True, text=True
        )
        seconds = time.perf_counter() - started
    if done.returncode:
        raise RlseqError(f"rlseq {shlex.join(typed)} failed, exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return Ran(seconds, json.loads(done.stdout))
