"""Whether mixed precision pays on this machine, for this model: measured, because on small ones it may lose."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from rlseq.engine.device import Precision, autocast

ROUNDS = 3


def time_precisions(loss: Callable[[], Tensor], precision: Precision, device: torch.device) -> tuple[float, float]:
    """Median seconds of forward and backward in this precision, and in float32; weights and random streams stay.

    Args:
        loss: of one batch. What its backward adds to the gradients is of no account: an update begins by clearing them.
        precision: of autocast.
        device: where it runs.
    """
    plain = Precision(None, False)
    taken: dict[Precision, list[float]] = {precision: [], plain: []}
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if device.type == "cuda" else []):
        for _ in range(ROUNDS + 1):
            for kind, seconds in taken.items():
                started = time.perf_counter()
                with autocast(kind, device):
                    value = loss()
                value.backward()
                if device.type == "cuda":
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - started)
    mixed, whole = (statistics.median(taken[kind][1:]) for kind in (precision, plain))  # the first one warms up
    return mixed, whole
