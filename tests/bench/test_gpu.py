"""`rlseq bench gpu`: its parts on a CPU, which stands in for the GPU, and what it says without one."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlseq.bench import gpu, gpu_equal, gpu_speed, results
from rlseq.bench.gpu import PARTS, bench_gpu
from rlseq.bench.gpu_equal import CASES, TOLERANCES, Case, Until, dqn_losses, measure_equality, seq_losses
from rlseq.bench.gpu_speed import PLAIN, Way, measure_dqn, measure_seq, utilisation
from rlseq.bench.loop import _UntilEvaluated
from rlseq.bench.measure import Timing
from rlseq.bench.seq_training import Shape
from rlseq.engine.device import Precision
from rlseq.errors import RlseqError, UsageError
from rlseq.seq.flops import training_flops

TINY = Shape(1, 2, 8, 4, 16, 3)


def ignore(line: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.setattr(gpu_equal, "UPDATES", 3)
    monkeypatch.setattr(gpu_equal, "GPT", TINY)
    monkeypatch.setattr(gpu_speed, "STEPS", 512)
    monkeypatch.setattr(gpu_speed, "WARM_UP_STEPS", 1024)
    monkeypatch.setattr(gpu_speed, "DQN_WORKS", {"dqn": {"net": {"hidden": (8,)}, "dqn": {"updates_per_train": 2}}})
    monkeypatch.setattr(gpu_speed, "SEQ_SHAPES", {"gpt-8": TINY})
    monkeypatch.setattr(gpu_speed, "WAYS", {"gpt-8": [PLAIN, Way("bf16", False)]})
    monkeypatch.setattr(gpu_speed, "WARM_UP_UPDATES", 1)


def test_without_a_gpu_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"bench gpu needs a CUDA device, and this torch \(.*\) sees none\. Run it on"):
        bench_gpu(ignore, repeats=1)
    with pytest.raises(UsageError, match=r"--part 4: bench gpu has the parts 1, 2, 3\."):
        bench_gpu(ignore, repeats=1, part=4)


def test_parts_are_measured_on_the_gpu(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    for number in PARTS:
        monkeypatch.setitem(PARTS, number, lambda *given, number=number: calls.append((number, *given[1:])) or {})
    monkeypatch.setattr(gpu, "describe_gpu", lambda: {"gpu": "one of ours"})
    result = bench_gpu(ignore, repeats=2, data=str(book))
    assert calls == [(number, 2, book, "cuda") for number in (1, 2, 3)]
    assert result["options"]["gpu"] == {"gpu": "one of ours"}
    calls.clear()
    bench_gpu(ignore, repeats=2, data=str(book), part=2)
    assert [number for number, *_ in calls] == [2]


def test_until_a_step() -> None:
    session = Until(3, 5)
    while session.running:
        session.advance(1)
    assert session.step == 5


def test_equal_losses(tiny: None, book: Path) -> None:
    rows = measure_equality(ignore, 1, book, "cpu")
    assert list(rows) == [
        *("equal-dqn-off", "equal-dqn-off-kernels", "equal-dqn-bf16", "equal-dqn-bf16-kernels"),
        *("equal-seq-off", "equal-seq-bf16", "equal-seq-fp16", "equal-seq-off-kernels"),
    ]
    assert rows["equal-seq-off"]["ours"]["error"] == rows["equal-dqn-off"]["ours"]["error"] == 0.0
    for case in CASES:
        if case.amp != "off":
            name = f"equal-{case.algorithm}-{case.amp}"
            assert 1e-7 < rows[name]["ours"]["error"] < TOLERANCES[case.amp]
    assert rows["equal-seq-bf16"]["peer"] == {"name": "at most", "error": TOLERANCES["bf16"]}
    assert results.side_text(rows["equal-seq-bf16"]["peer"], "error") == "3.0e-02 off"


def test_losses_are_those_of_the_first_updates(tiny: None, book: Path) -> None:
    dqn, seq = dqn_losses("cpu", "off", True), seq_losses(book, "cpu", "fp16", True)
    assert dqn.shape == seq.shape == (3,)
    assert np.isfinite(dqn).all() and np.isfinite(seq).all()
    assert seq[0] == pytest.approx(np.log(37), rel=0.1)  # 37 characters, none of them known yet


@pytest.mark.parametrize("wrong", [1.002, np.nan])
def test_other_losses_are_an_error(tiny: None, book: Path, wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_equal, "CASES", [Case("dqn", "off", True)])
    inner = dqn_losses
    monkeypatch.setattr(
        gpu_equal, "dqn_losses", lambda device, *how: inner("cpu", *how) * (wrong if device == "gpu" else 1)
    )
    message = r"dqn, amp off, CUDA graphs: the losses of 3 updates on gpu are (2.0e-03|nan) off .* at most 0.001 are"
    with pytest.raises(RlseqError, match=message):
        measure_equality(ignore, 1, book, "gpu")


def test_dqn_is_timed_in_its_ways(tiny: None, book: Path) -> None:
    rows = measure_dqn(ignore, 2, book, "cpu")
    assert list(rows) == ["dqn-graphs", "dqn-cpu"]
    for row in rows.values():
        assert row["ours"]["steps"] == row["peer"]["steps"] == [512, 512]
        assert row["ours"]["updates"] == row["peer"]["updates"] == 2 * 512 // 256
        assert row["ratio"] == pytest.approx(row["peer"]["median"] / row["ours"]["median"])
    assert rows["dqn-graphs"]["what"].startswith("DQN on CartPole-v1 on a GPU, network 8, 1 environment, batch 64: ")
    assert [row["peer"]["name"] for row in rows.values()] == [gpu_speed.KERNELS, gpu_speed.ON_CPU]


def test_sequence_models_are_timed_in_their_ways(tiny: None, book: Path) -> None:
    (row,) = measure_seq(ignore, 2, book, "cpu").values()
    assert row["ours"]["steps"] == row["peer"]["steps"] == [3 * 4 * 16] * 2
    assert (row["ours"]["updates"], row["peer"]["name"], row["unit"]) == (3, gpu_speed.FLOAT32, "tokens")
    assert row["what"].startswith("a gpt on a GPU, 1 layers, 2 heads, 8 wide, 4 x 16 tokens an update, bf16: ")


def test_the_clock_stops_when_the_gpu_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[float] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: finished.append(time.perf_counter()))
    for device, times in (("cpu", 0), ("cuda", 1)):
        finished.clear()
        clock = _UntilEvaluated(SimpleNamespace(device=torch.device(device), step_rate="rate"))
        clock.evaluate(lambda: False)
        assert len(finished) == times and all(moment < clock.stopped for moment in finished)


def test_every_way_of_training_is_measured() -> None:
    assert {way.name for way in gpu_speed.WAYS["gpt-384"]} == {
        *("float32", "bf16", "fp16"),
        *("float32-compiled", "bf16-compiled", "fp16-compiled", "bf16-kernels"),
    }
    assert (
        all(ways[0] == PLAIN for ways in gpu_speed.WAYS.values())
        and gpu_speed.WAYS.keys() == gpu_speed.SEQ_SHAPES.keys()
    )


def test_utilisation_is_of_the_gpus_peak(tiny: None, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    side = gpu_speed._SeqSide(book, TINY, PLAIN, "cpu")
    trainer = side.trainer
    assert utilisation(trainer, 1e6, "cpu") is None
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    assert utilisation(trainer, 1e6, "cuda") is None  # float32 has another peak
    trainer.precision = Precision(torch.bfloat16, False)
    flops = training_flops(trainer.options.net, trainer.net, TINY.context)
    assert utilisation(trainer, 1e6, "cuda") == pytest.approx(1e6 * flops / 989e12)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "another one")
    assert utilisation(trainer, 1e6, "cuda") is None
    used = gpu_speed._use(SimpleNamespace(trainer=trainer, memory=3 * 2**30), [Timing(2.0, 3000)], "cpu")  # type: ignore[arg-type]
    assert used == "1,500 tokens/s, 3.0 GiB"


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu(tiny: None, book: Path) -> None:
    rows = bench_gpu(ignore, repeats=1, data=str(book))["measurements"]
    assert {"equal-dqn-off", "equal-seq-bf16", "dqn-graphs", "dqn-cpu", "gpt-8-bf16"} <= rows.keys()
    assert "GiB" in rows["gpt-8-bf16"]["what"]
