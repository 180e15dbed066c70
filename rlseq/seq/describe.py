"""What a training of a sequence model says of itself before it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rlseq.nets.network import num_parameters
from rlseq.nets.sizes import dimensions, training_bytes
from rlseq.replay.device import upload
from rlseq.seq.trial import time_precisions

if TYPE_CHECKING:
    from rlseq.seq.train import SeqTrainer


def describe(trainer: SeqTrainer) -> dict[str, str]:
    """What is about to run, as label -> text."""
    o, d, task, world = trainer.options, dimensions(trainer.options.net), trainer.task, trainer.world
    heads = f", {d.heads} heads" if o.net.core == "gpt" else ""
    shape = f"{d.layers} layer{'s' * (d.layers > 1)}, {d.width} wide{heads}"
    memory = training_bytes(o.net, task.signature, task.context, rows_at_once(trainer))
    return {
        "task": f"{task.name}: {task.description}",
        "network": f"{o.net.core}, {shape}, {num_parameters(trainer.net)} parameters",
        "memory": f"about {memory / 2**20:.0f} MiB",
        "updates": f"{o.run.steps}, each of {o.seq.batch_size} x {task.context} = "
        f"{o.seq.batch_size * task.context} {'tokens' if task.signature.reads_tokens else 'values'}"
        + ("" if task.static else " at most"),
        **world.describe(),
        **trainer.update_step.describe(),
        "device": f"{trainer.device.type}, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}"
        + _recorded(trainer),
        "precision": _precision(trainer),
    }


def _recorded(trainer: SeqTrainer) -> str:
    """What of an update is a CUDA graph."""
    optimiser = trainer.update_step.recorded
    if trainer.recorded:
        return ", the update in CUDA graphs" if optimiser else ", gradients in a CUDA graph"
    return ", the optimiser in a CUDA graph" if optimiser else ""


def rows_at_once(trainer: SeqTrainer) -> int:
    """Sequences that go through the network at once in this process."""
    o = trainer.options
    return o.seq.batch_size // (o.optim.accumulate * trainer.world.size) or 1


def _precision(trainer: SeqTrainer) -> str:
    """What mixed precision gains here, measured: on small models it may lose."""
    if trainer.precision.dtype is None:
        return "float32"
    name = str(trainer.precision.dtype).removeprefix("torch.")
    mixed, plain = time_precisions(_trial(trainer), trainer.precision, trainer.device)
    return (
        f"{name}: {1e3 * mixed:.1f} ms for a batch forward and back, {1e3 * plain:.1f} ms in float32 "
        f"({plain / mixed:.2f} times as fast)"
    )


def _trial(trainer: SeqTrainer) -> Callable[[], Tensor]:
    """The loss of one batch, drawn from a random stream of its own."""
    arrays = trainer.task.sample(np.random.default_rng(0), rows_at_once(trainer))
    batch = arrays.map(lambda array: upload(array, trainer.device))
    return lambda: trainer.loss(batch).mean
