"""Small sequence networks of every kind, with random weights, for tasks that are made at once."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from rlseq.nets.build import Network
from rlseq.nets.config import SequenceNetOptions
from rlseq.seq.config import SeqOptions, SeqTraining
from rlseq.seq.model import build_network, sequence_spec
from rlseq.seq.tasks.task import Task
from rlseq.sequence import SequenceSpec
from rlseq.trained_sequence import read_task

SCALE = 3.0  # of the matrices: answers that differ from row to row


class Model(NamedTuple):
    """A network, and what it is for."""

    net: Network
    task: Task
    options: SeqTraining
    spec: SequenceSpec


OPTIONS = {
    "reverse-transformer": SeqTraining(
        seq=SeqOptions(task="reverse", length=4, min_length=2, symbols=6, examples=20),
        net=SequenceNetOptions(core="transformer", layers=1, heads=2, width=16, dropout=0.1, qk_norm=True),
    ),
    "waveforms-encoder": SeqTraining(
        seq=SeqOptions(task="waveforms", length=16, examples=40),
        net=SequenceNetOptions(core="encoder", layers=1, heads=2, width=16, dropout=0.1),
    ),
    "lorenz-gru": SeqTraining(
        seq=SeqOptions(task="lorenz", context=12, horizon=3, loss="quantile"),
        net=SequenceNetOptions(core="gru", bidirectional=True, layers=1, width=16),
    ),
    "mackey-glass-lstm": SeqTraining(
        seq=SeqOptions(task="mackey-glass", context=12, horizon=4),
        net=SequenceNetOptions(core="lstm", layers=1, width=16),
    ),
    "waveforms-gpt": SeqTraining(
        seq=SeqOptions(task="waveforms", length=16, examples=40),
        net=SequenceNetOptions(core="gpt", layers=1, heads=2, width=16),
    ),
}
ONE_PASS = ("waveforms-encoder", "lorenz-gru")
SERIES = ("waveforms-encoder", "lorenz-gru", "mackey-glass-lstm", "waveforms-gpt")


@functools.cache
def small_model(name: str) -> Model:
    """A network with its task; not to be changed."""
    options = OPTIONS[name]
    task = read_task(options)
    net = build_network(options, task)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 2:
                parameter.mul_(SCALE)
    return Model(net, task, options, sequence_spec(net, task, options))
