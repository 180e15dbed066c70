"""Which device and precision an update runs in, decided once at the start and said to the user."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from rlseq.engine.config import EngineOptions
from rlseq.errors import UsageError
from rlseq.ranks import jobs_here


class Precision(NamedTuple):
    """How the forward pass computes; master weights, gradients and optimiser stay float32.

    Attributes:
        dtype: of autocast; None for plain float32.
        scaled: whether the loss is scaled (fp16).
        note: what the user should know, or an empty string.
    """

    dtype: torch.dtype | None
    scaled: bool
    note: str = ""


@contextlib.contextmanager
def cpu_settings(number: int, processes: int = 1) -> Iterator[None]:
    """How torch uses the CPU, for a while: a library must not change what its caller has set.

    Denormal numbers are flushed to zero: they are slow, and nothing here needs them. Left on, that would let a later
    check of an option take 0 for greater than 0.

    Args:
        number: threads; 0: as many as there are cores for each of `processes` on this machine.
        processes: how many of one training share the cores; other trainings may too (`rlseq.ranks.jobs_here`).
    """
    threads, flushing = torch.get_num_threads(), _flushes_denormals()
    torch.set_num_threads(number or max(1, (os.cpu_count() or 1) // (processes * jobs_here())))
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushing)


def _flushes_denormals() -> bool:
    """Whether this thread does: torch can be told, not asked."""
    return float(torch.tensor(1e-310, dtype=torch.float64) * 1.0) == 0.0


def choose_device(options: EngineOptions, local_rank: int = 0) -> torch.device:
    """Choose the device.

    Args:
        options: which one is wanted.
        local_rank: number of this process on its machine; each has a GPU of its own.

    Raises:
        UsageError: cuda was asked for and there is none, or none for this process.
    """
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"engine.device = cuda, but this torch ({torch.__version__}) sees no CUDA device. Use --device cpu, or "
            "install a CUDA build of torch and check `nvidia-smi`."
        )
    use_cuda = options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available())
    if not use_cuda:
        return torch.device("cpu")
    if not local_rank:
        return torch.device("cuda")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise UsageError(
            f"process {local_rank} of this machine has no GPU of its own, torch sees {count} of them. "
            f"Start at most {count} processes here (--nproc {count}), or train on the CPU: --device cpu"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def works_apart(device: torch.device) -> bool:
    """Whether a device goes on by itself after a call has returned, so that reading from it means waiting for it."""
    return device.type != "cpu"


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (AVX512-BF16 or AMX)."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def choose_precision(amp: str, device: torch.device) -> Precision:
    """The precision for `engine.amp`."""
    if amp == "off":
        return Precision(None, False)
    if device.type == "cuda":
        if amp == "fp16" or (amp == "auto" and not torch.cuda.is_bf16_supported()):
            return Precision(torch.float16, True)
        return Precision(torch.bfloat16, False)
    if amp == "fp16":
        return Precision(
            torch.float16, True, "fp16 on a CPU is computed slowly; it is meant for cuda. --amp alone chooses."
        )
    if amp == "auto" and not cpu_has_bf16():
        return Precision(
            None,
            False,
            "this CPU has no bfloat16 arithmetic (AVX512-BF16 or AMX): --amp would be slower, so float32 is used.",
        )
    note = (
        ""
        if cpu_has_bf16()
        else "this CPU has no bfloat16 arithmetic (AVX512-BF16 or AMX): bf16 will be slower than float32."
    )
    return Precision(torch.bfloat16, False, note)


def autocast(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The context of a forward pass in this precision."""
    if precision.dtype is None:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=precision.dtype)
