"""`rlseq bench gpu`: both trainers on a GPU, checked against the CPU and timed; meant to take less than five minutes.

    1  equal-*                the losses of the first updates on the GPU against those on the CPU
    2  dqn-*                  updates in CUDA graphs against one kernel after the other, and against the CPU
    3  gpt-*                  tokens per second in float32, bf16 and fp16, compiled or not; MFU and memory

All on one GPU, by trainers that stay: the first updates of each (recording, compiling) are not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlseq.bench.gpu_equal import measure_equality
from rlseq.bench.gpu_speed import measure_dqn, measure_seq
from rlseq.bench.measure import Tell
from rlseq.bench.seq import text_file
from rlseq.errors import UsageError, require
from rlseq.files import sha256_file

GPU = "cuda"
Part = Callable[[Tell, int, Path, str], dict[str, dict[str, Any]]]
PARTS: dict[int, Part] = {1: measure_equality, 2: measure_dqn, 3: measure_seq}


def bench_gpu(tell: Tell, *, repeats: int, data: str | None = None, part: int | None = None) -> dict[str, Any]:
    """Check and time the GPU.

    Args:
        tell: takes lines of progress.
        repeats: how often each side runs; part 1 computes the same every time and does it once.
        data: a text file; None: the source of Python's standard library.
        part: one of the three; None: all.

    Returns:
        `measurements` by name, and `options` with the GPU, its software and what was trained on.

    Raises:
        UsageError: no CUDA device, no such file or part.
        RlseqError: the GPU computes something else than the CPU.
    """
    for module in ("torch", "tensorboard"):
        require(module, "the benchmark of a GPU")
    if part is not None and part not in PARTS:
        raise UsageError(f"--part {part}: bench gpu has the parts {', '.join(map(str, PARTS))}.")
    hardware = describe_gpu()
    tell(", ".join(f"{name} {value}" for name, value in hardware.items()))
    with text_file(data, "bench gpu") as path:
        measurements: dict[str, dict[str, Any]] = {}
        for number, measure in PARTS.items():
            if part in (None, number):
                tell(f"part {number} of {len(PARTS)}")
                measurements |= measure(tell, repeats, path, GPU)
        options = {"gpu": hardware, "data": {"file": path.name, "sha256": sha256_file(path)}}
    return {"measurements": measurements, "options": options}


def describe_gpu() -> dict[str, str]:
    """The GPU and its software.

    Raises:
        UsageError: there is none.
    """
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"bench gpu needs a CUDA device, and this torch ({torch.__version__}) sees none. Run it on a machine with "
            "an NVIDIA GPU and a CUDA build of torch (check `nvidia-smi`); the other benchmarks need none."
        )
    free, total = torch.cuda.mem_get_info()
    return {
        "gpu": torch.cuda.get_device_name(),
        "memory": f"{total / 2**30:.0f} GiB, {free / 2**30:.0f} free",
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }
