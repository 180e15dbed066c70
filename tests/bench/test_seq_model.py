"""Generation and memory, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlseq.bench import seq_model
from rlseq.bench.seq_model import (
    UNCACHED,
    UnevenTask,
    accumulation_error,
    check_same_text,
    float64,
    generate_cached,
    generate_uncached,
    kept_for_backward,
    measure_generation,
    measure_memory,
    saved_bytes,
)
from rlseq.bench.seq_training import Shape, job_for
from rlseq.engine.update import Part
from rlseq.errors import RlseqError
from rlseq.nets.network import NetInput
from rlseq.nets.stepper import TorchSequence
from rlseq.seq.model import build_network, sequence_spec
from rlseq.seq.train import SeqTrainer

TINY = Shape(layers=2, heads=2, width=8, batch_size=4, context=16, updates=1)


def ignore(line: str) -> None:
    """Progress that nobody reads."""


def test_both_ways_of_writing_are_greedy(book: Path, one_thread: None) -> None:
    job = job_for(book, TINY)
    net = build_network(job.options, job.task).eval()
    prompt = np.array([3, 1, 4])
    written = prompt.tolist()
    with torch.no_grad():
        for _ in range(13):
            logits = net(NetInput((torch.tensor([written]),)))[0][0, -1]
            written.append(int(logits.argmax()))
    assert generate_uncached(net, prompt, 13) == written[3:]
    player = TorchSequence(net, sequence_spec(net, job.task, job.options))
    assert generate_cached(player, prompt, 13) == written[3:]


def test_other_texts_are_no_comparison() -> None:
    check_same_text([[1, 2, 3], [1, 2, 3], [1, 2, 3]])
    with pytest.raises(RlseqError, match="not the same text: from token 1 of 3 on it is another"):
        check_same_text([[1, 2, 3], [1, 2, 3], [1, 4, 4]])


@pytest.mark.slow
def test_generation_by_the_exported_file(book: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seq_model, "WRITER", TINY)
    monkeypatch.setattr(seq_model, "NUM_TOKENS", 12)
    one = measure_generation(ignore, 2, book)["generation"]
    assert one["ours"]["steps"] == one["peer"]["steps"] == [12, 12]
    assert (one["peer"]["name"], one["unit"]) == (UNCACHED, "tokens")


def test_a_file_that_writes_something_else(book: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seq_model, "WRITER", TINY)
    monkeypatch.setattr("rlseq.exporter.sequence.export_sequence", lambda *_: None)
    monkeypatch.setattr("rlseq.player.sequence.load_sequence", lambda path: None)
    monkeypatch.setattr(seq_model, "generate_cached", lambda player, prompt, num_tokens: [-1] * num_tokens)
    with pytest.raises(RlseqError, match="not the same text: from token 0 of 256"):
        measure_generation(ignore, 1, book)


def test_saved_bytes_by_hand() -> None:
    net = nn.Linear(3, 5)
    x = torch.ones(7, 3)
    kept, result = saved_bytes(net, lambda: net(x).exp().sum())
    assert kept == 4 * (7 * 3 + 7 * 5)  # the input and what exp gave; the weights are there anyway
    result.backward()
    assert net.bias.grad is not None
    assert saved_bytes(net, lambda: (net(x).exp() * 1.0).sum() + net(x[:4]).sum())[0] == kept  # a view of what is kept


def test_checkpointing_keeps_the_blocks_inputs_alone(book: Path) -> None:
    deep = Shape(layers=12, heads=2, width=16, batch_size=2, context=16, updates=1)
    on, off = (
        kept_for_backward(job_for(book, deep, {"net": {"checkpoint_activations": checkpoint}}))
        for checkpoint in (True, False)
    )
    block_input = 4 * 2 * 16 * 16
    assert 12 * block_input <= on[0] < 25 * block_input
    assert on[0] < off[0] / 2
    assert torch.equal(on[1], off[1])
    assert float(on[1].norm()) > 0.0


def test_a_row_ends_where_its_mask_does(book: Path) -> None:
    task = UnevenTask(job_for(book, TINY).task)
    batch = task.sample(np.random.default_rng(0), 4)
    assert batch.mask is not None
    assert batch.mask.sum(1).tolist() == [4, 8, 12, 16]
    assert batch.mask[0].tolist() == [True] * 4 + [False] * 12
    assert task.signature == job_for(book, TINY).task.signature


def test_parts_of_unequal_token_counts_add_up(book: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_for(book, TINY._replace(batch_size=8))
    assert accumulation_error(job) <= 1e-6
    assert torch.get_default_dtype() == torch.float32
    inner = SeqTrainer._parts

    def equal_shares(self: SeqTrainer, *given: Any) -> Any:
        parts = inner(self, *given)
        return [Part(part.batch, 1 / len(parts)) for part in parts]

    monkeypatch.setattr(SeqTrainer, "_parts", equal_shares)
    assert accumulation_error(job) > 1e-2
    with pytest.raises(RlseqError, match=r"the gradient of 4 parts is .* off that of the whole batch"):
        measure_memory(ignore, 1, book)


def test_float64_for_a_while() -> None:
    with pytest.raises(ZeroDivisionError), float64():
        assert torch.zeros(1).dtype == torch.float64
        _ = 1 / 0
    assert torch.zeros(1).dtype == torch.float32


def test_memory_in_numbers(book: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = torch.ones(3)
    kept = iter([(1_000, gradient), (2_500, gradient.clone()), (1_000, gradient), (2_500, 2 * gradient)])
    monkeypatch.setattr(seq_model, "kept_for_backward", lambda job: next(kept))
    monkeypatch.setattr(seq_model, "accumulation_error", lambda job: 1.2e-7)
    one = measure_memory(ignore, 3, book)["memory"]
    assert (one["ours"], one["peer"]["bytes"], one["ratio"]) == ({"bytes": 1_000}, 2_500, 2.5)
    assert (one["unit"], one["accumulation_error"]) == ("bytes", 1.2e-7)
    assert "identical gradients; and a batch in 4 unequal parts: gradient 1.2e-07 off (float64)" in one["what"]
    with pytest.raises(RlseqError, match="activation checkpointing changes the gradients"):
        measure_memory(ignore, 3, book)
