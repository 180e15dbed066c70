"""`rlseq bench ddp`: many processes against one: the same training, what they cost, what they gain, what they survive.

    1  equal-seq, equal-dqn             two processes with half the batch each against one with the whole, in float64
    2  torchrun-128, torchrun-384       one process under torchrun against one without
    3  cores                            two processes on two cores against one on one
    4  killed                           a process killed with -9 under --max-restarts, against a training left alone

All on CPUs, with gloo. Processes are started once and train on demand, so that only training is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlseq.bench.ddp_equal import measure_equality
from rlseq.bench.ddp_killed import COMMAND, measure_killed
from rlseq.bench.ddp_speed import measure_cores, measure_torchrun
from rlseq.bench.measure import Tell
from rlseq.bench.seq import text_file
from rlseq.errors import UsageError, require
from rlseq.files import sha256_file

Part = Callable[[Tell, int, Path], dict[str, dict[str, Any]]]
PARTS: dict[int, Part] = {1: measure_equality, 2: measure_torchrun, 3: measure_cores, 4: measure_killed}


def bench_ddp(tell: Tell, *, repeats: int, data: str | None = None, part: int | None = None) -> dict[str, Any]:
    """Measure many processes.

    Args:
        tell: takes lines of progress.
        repeats: how often each side runs; repeat k has seed k on all. Part 2 runs several pairs in a repeat, part 1
            computes the same every time and does it once.
        data: a text file; None: the source of Python's standard library.
        part: one of the four; None: all.

    Returns:
        `measurements` by name, and `options` with what was trained on and the command that part 4 runs.

    Raises:
        UsageError: no such file or part, or this system does not let a process choose its cores.
        RlseqError: a process failed, or two sides that must agree do not.
    """
    for module in ("torch", "tensorboard", "onnx", "onnxscript"):
        require(module, "the benchmark of many processes")
    if part is not None and part not in PARTS:
        raise UsageError(f"--part {part}: bench ddp has the parts {', '.join(map(str, PARTS))}.")
    with text_file(data, "bench ddp") as path:
        measurements: dict[str, dict[str, Any]] = {}
        for number, measure in PARTS.items():
            if part in (None, number):
                tell(f"part {number} of {len(PARTS)}")
                measurements |= measure(tell, repeats, path)
        options = {"data": {"file": path.name, "sha256": sha256_file(path)}, "command": " ".join(COMMAND)}
    return {"measurements": measurements, "options": options}
