"""What is different on a GPU: batches drawn ahead, a recorded optimiser, losses that wait. A CPU stands in for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from rlseq import checkpoints, runs
from rlseq.engine import transfer
from rlseq.engine.recording import WARM_UP
from rlseq.seq import train as train_module
from rlseq.seq.config import SeqTraining
from rlseq.seq.model import recordable
from rlseq.seq.tasks.text import TextTask
from tests.engine.twin import Twin
from tests.seq.test_train import no_export, runs_here, text, trainer
from tests.training import Steps, assert_same_run, curves, small_seq, weights

__all__ = ["no_export", "runs_here", "text"]  # fixtures


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Twin:
    """The CPU is treated as a GPU."""
    recorder = Twin()
    monkeypatch.setattr(train_module, "works_apart", lambda device: True)
    monkeypatch.setattr(train_module, "recorder_for", lambda device, *, wanted: recorder if wanted else None)
    inner = transfer.Batches
    monkeypatch.setattr(train_module, "Batches", lambda *given: inner(*given, ahead=True))
    # In bfloat16 a last digit may decide to which side Muon rounds.
    monkeypatch.setattr("rlseq.engine.muon.product_dtype", lambda device: torch.float32)
    return recorder


@pytest.mark.usefixtures("no_export")
@pytest.mark.parametrize(
    ("optimiser", "core", "records"), [("muon", "gpt", 2), ("adamw", "gpt", 2), ("adamw", "gru", 1)]
)
def test_a_training_stays_the_same(
    text: Path, optimiser: str, core: str, records: int, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    monkeypatch.setattr("rlseq.engine.muon.product_dtype", lambda device: torch.float32)
    change = {"optim": {"name": optimiser, "accumulate": 2, "ema": 0.9}, "net": {"core": core, "dropout": 0.2}}
    plain = small_seq(text, change, name="plain")
    twin = request.getfixturevalue("twin")
    apart = small_seq(text, change, name="apart")
    assert (twin.records, twin.replays) == (records, records * (24 - WARM_UP))  # optimiser, and gradients
    for a, b in zip(curves(plain.run), curves(apart.run), strict=True):
        assert a[:2] == b[:2]
        if isinstance(a[2], float):
            assert b[2] == pytest.approx(a[2], rel=1e-3, abs=1e-6), a[1]
    last = [weights(runs.Run(result.run).checkpoint("last")) for result in (plain, apart)]
    for name, array in last[0].items():
        np.testing.assert_allclose(last[1][name], array, rtol=1e-2, atol=1e-4, err_msg=name)
    numbers = [
        checkpoints.read_manifest(runs.Run(result.run).checkpoint("last"))["numbers"] for result in (plain, apart)
    ]
    assert numbers[0]["data_rng"] == numbers[1]["data_rng"]  # the batch that was drawn ahead does not count


@pytest.mark.usefixtures("no_export")
def test_a_resumed_run_is_the_uninterrupted_one(text: Path, twin: Twin) -> None:
    change = {"run": {"log_every": 5}, "net": {"dropout": 0.2}}  # losses wait at a checkpoint
    whole = small_seq(text, change, name="whole")
    part = small_seq(
        text, change, {"run": {"steps": 8, "horizon": 24, "log_every": 5, "checkpoint_every": 8}}, name="part"
    )
    small_seq(None, {"run": {"steps": 24}}, resume=part.run)
    assert_same_run(whole.run, part.run)


def test_losses_wait_until_they_are_needed(text: Path, twin: Twin) -> None:
    made = trainer(text)
    waiting: list[int] = []
    made.loop(Steps(6, lambda step: waiting.append(len(made._unread))))  # type: ignore[arg-type]
    assert waiting == [1, 2, 3, 4, 5, 6]
    assert made.curves().points["train/loss"] > 0
    assert made._unread == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ", the update in CUDA graphs"),
        ({"optim": {"name": "rmsprop"}}, ", gradients in a CUDA graph"),
        ({"net": {"core": "lstm"}}, ", the optimiser in a CUDA graph"),
        ({"net": {"checkpoint_activations": True}}, ", the optimiser in a CUDA graph"),
        ({"engine": {"graphs": False}}, ("1 thread", "threads")),
    ],
)
def test_it_says_what_is_recorded(text: Path, twin: Twin, change: dict[str, Any], said: str | tuple[str, ...]) -> None:
    assert trainer(text, change).describe()["device"].endswith(said)


def test_a_loss_of_the_users_or_a_compiled_network_is_not_recorded() -> None:
    options = SeqTraining()
    task = TextTask(options.seq)
    assert recordable(options, task)
    own = msgspec.structs.replace(options.seq, loss="my_losses:focal")
    compiled = msgspec.structs.replace(options.engine, compile=True)
    assert not recordable(msgspec.structs.replace(options, seq=own), task)
    assert not recordable(msgspec.structs.replace(options, engine=compiled), task)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_learns_what_a_cpu_does(text: Path) -> None:
    losses = {}
    for device in ("cpu", "cuda"):
        made = trainer(text, {"engine": {"device": device}, "optim": {"name": "adamw"}})
        made.loop(Steps(12))  # type: ignore[arg-type]
        made._read()
        losses[device] = [loss for loss, _ in made._losses]
    np.testing.assert_allclose(losses["cuda"], losses["cpu"], rtol=1e-3)
