"""Training measured: commands, loops, mixed precision."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlseq.bench import reference, seq_training
from rlseq.bench.command import Ran
from rlseq.bench.measure import Timing
from rlseq.bench.seq_training import (
    FLOAT32,
    REFERENCE,
    Shape,
    hardware,
    job_for,
    measure_amp,
    measure_commands,
    measure_shape,
    train_ours,
    with_run,
)
from rlseq.errors import RlseqError
from rlseq.seq.train import SeqTrainer

TINY = Shape(layers=1, heads=2, width=8, batch_size=4, context=16, updates=3)


def ignore(line: str) -> None:
    """Progress that nobody reads."""


def test_the_work_is_the_references(book: Path) -> None:
    o = with_run(job_for(book, Shape(4, 4, 128, 12, 64, 200)), seed=5).options
    assert (o.seq.context, o.seq.batch_size, o.run.steps, o.run.seed) == (64, 12, 200, 5)
    assert (o.net.core, o.net.layers, o.net.heads, o.net.width) == ("gpt", 4, 4, 128)
    recipe = reference.Recipe()
    assert (o.optim.name, o.optim.lr, o.optim.schedule) == ("adamw", recipe.lr, "cosine")
    assert o.optim.lr * o.optim.final_factor == pytest.approx(recipe.final_lr)
    assert (o.optim.beta1, o.optim.beta2) == recipe.betas
    assert (o.optim.warmup_updates, o.optim.weight_decay) == (recipe.warm_up, recipe.weight_decay)
    assert (o.optim.clip_norm, o.net.dropout, o.engine.amp, o.engine.device) == (recipe.clip_norm, 0.0, "off", "cpu")
    assert min(o.run.log_every, o.run.checkpoint_every, o.eval.every) > o.run.steps


def test_only_the_loop_is_timed(book: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(SeqTrainer, "evaluate")  # nothing may be evaluated
    trainer, timing = train_ours(job_for(book, TINY))
    assert (timing.steps, timing.updates) == (3 * 4 * 16, 3)
    assert timing.seconds > 0.0
    assert trainer.updates == 3


def test_training_at_the_references_shape(book: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seq_training, "SHAPE_UPDATES", 2)
    seeds: list[int] = []
    inner = reference.train
    monkeypatch.setattr(reference, "train", lambda text, seed, **more: seeds.append(seed) or inner(text, seed, **more))
    (one,) = measure_shape(ignore, 2, book).values()
    assert one["unit"] == "tokens"
    assert one["ours"]["steps"] == one["peer"]["steps"] == [2 * 12 * 64] * 2
    assert (one["ours"]["updates"], one["peer"]["updates"], one["peer"]["name"]) == (2, 2, REFERENCE)
    assert one["ratio"] == pytest.approx(one["peer"]["median"] / one["ours"]["median"])
    assert seeds == [0, 0, 1]  # the first warms up


def test_mixed_precision_against_float32(book: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seq_training, "AMP_SHAPES", {"amp-8": TINY})
    monkeypatch.setattr(seq_training, "hardware", lambda: "a CPU with AMX")
    trained: list[tuple[str, int]] = []

    def record(job: Any) -> Any:
        trained.append((job.options.engine.amp, job.options.run.seed))
        return SimpleNamespace(timing=Timing(1.0 if job.options.engine.amp == "auto" else 2.5, 192, 3))

    monkeypatch.setattr(seq_training, "train_ours", record)
    told: list[str] = []
    result = measure_amp(told.append, 2, book)["amp-8"]
    assert trained == [("auto", 0), ("off", 0), ("auto", 0), ("off", 0), ("auto", 1), ("off", 1)]
    assert result["ratio"] == pytest.approx(2.5)
    assert (result["peer"]["name"], result["unit"]) == (FLOAT32, "tokens")
    assert (result["ours"]["updates"], result["peer"]["updates"]) == (3, 3)
    assert result["what"] == ("--amp, a gpt, 1 layers, 2 heads, 8 wide, 4 x 16 tokens an update, on a CPU with AMX")
    assert result["hardware"] == "a CPU with AMX"
    assert told[0] == "this is a CPU with AMX"


@pytest.mark.parametrize(
    ("amx", "bf16", "text"),
    [
        (True, True, "a CPU with AMX"),
        (False, True, "a CPU with AVX512-BF16, without AMX"),
        (False, False, "a CPU without bfloat16, where --amp stays in float32"),
    ],
)
def test_the_hardware_is_named(amx: bool, bf16: bool, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
    assert hardware() == text


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> list[tuple[tuple[str, ...], int]]:
    """Commands that take 2 s and score 1.5 on 119 tokens, and a reference of one iteration; gives what was run."""
    ran: list[tuple[tuple[str, ...], int]] = []

    def run(words: tuple[str, ...], seed: int) -> Ran:
        assert words[:1] == ("--data",)
        ran.append((words[2:], seed))
        return Ran(2.0, {"loss": 1.5 + seed, "tokens": 119, "updates": 7})

    inner = reference.train
    monkeypatch.setattr(reference, "ITERATIONS", 1)
    monkeypatch.setattr(
        reference, "train", lambda text, seed: inner(text, seed, iterations=1)._replace(seconds=6.0 + 2 * seed)
    )
    monkeypatch.setattr(seq_training, "run_command", run)
    return ran


def test_whole_commands_against_the_reference(commands: list[Any], book: Path) -> None:
    result = measure_commands(ignore, 2, book, {"third": ("--a",), "whole": ("--b",)})
    assert commands == [(("--a",), 0), (("--b",), 0), (("--a",), 1), (("--b",), 1)]
    assert list(result) == ["third", "whole"]
    third = result["third"]
    assert third["ratio"] == 7.0 / 2.0  # of wall times, whatever was done in them
    assert third["ratios"] == [3.0, 4.0]
    assert (third["unit"], third["ours"]["updates"], third["peer"]["updates"]) == ("runs", 7, 1)
    assert third["ours"]["loss"] == [1.5, 2.5]
    assert len(third["peer"]["loss"]) == 2
    assert third["what"] == "rlseq train seq on book.txt, the whole command, against 1 iterations"


def test_another_validation_split_is_no_comparison(
    commands: list[Any], book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = {"loss": 1.5, "tokens": 100, "updates": 7}
    monkeypatch.setattr(seq_training, "run_command", lambda *_: Ran(2.0, summary))
    with pytest.raises(RlseqError, match=r"not the same validation split, in tokens: .*'a plain GPT': 119.*100"):
        measure_commands(ignore, 1, book, {"third": ()})
