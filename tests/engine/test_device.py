"""Device and precision: chosen once, and said."""

from __future__ import annotations

import pytest
import torch

from rlseq.config import Layer, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.engine import device
from rlseq.engine.config import EngineOptions
from rlseq.engine.device import Precision, autocast, choose_device, choose_precision, cpu_settings
from rlseq.errors import UsageError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("wanted", "there", "got"), [("auto", True, "cuda"), ("auto", False, "cpu"), ("cpu", True, "cpu")]
)
def test_auto_takes_cuda_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, wanted: str, there: bool, got: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert choose_device(EngineOptions(device=wanted)).type == got  # type: ignore[arg-type]


def test_cuda_that_is_not_there_is_never_replaced_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"engine\.device = cuda.*no CUDA device.*--device cpu"):
        choose_device(EngineOptions(device="cuda"))


@pytest.mark.parametrize(
    ("amp", "on", "hardware", "dtype", "scaled", "note"),
    [
        ("off", CPU, True, None, False, ""),
        ("off", CUDA, True, None, False, ""),
        ("auto", CPU, True, torch.bfloat16, False, ""),
        ("auto", CPU, False, None, False, "would be slower, so float32"),
        ("bf16", CPU, True, torch.bfloat16, False, ""),
        ("bf16", CPU, False, torch.bfloat16, False, "will be slower"),
        ("fp16", CPU, True, torch.float16, True, "fp16 on a CPU is computed slowly"),
        ("auto", CUDA, True, torch.bfloat16, False, ""),
        ("auto", CUDA, False, torch.float16, True, ""),
        ("bf16", CUDA, False, torch.bfloat16, False, ""),
        ("fp16", CUDA, True, torch.float16, True, ""),
    ],
)
def test_precision_by_option_and_hardware(
    monkeypatch: pytest.MonkeyPatch,
    amp: str,
    on: torch.device,
    hardware: bool,
    dtype: torch.dtype | None,
    scaled: bool,
    note: str,
) -> None:
    monkeypatch.setattr(device, "cpu_has_bf16", lambda: hardware)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: hardware)
    chosen = choose_precision(amp, on)
    assert (chosen.dtype, chosen.scaled) == (dtype, scaled)
    assert note in chosen.note
    assert bool(chosen.note) == bool(note)


def test_autocast_is_on_only_where_asked_for() -> None:
    with autocast(Precision(None, False), CPU):
        assert not torch.is_autocast_enabled("cpu")
    with autocast(Precision(torch.bfloat16, False), CPU):
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_threads_are_given_back_whatever_happens() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="inside"), cpu_settings(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError("inside")
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("before", [False, True])
def test_denormals_are_flushed_for_a_while(before: bool) -> None:
    def flushed() -> bool:
        return float(torch.tensor(1e-310, dtype=torch.float64) * 1.0) == 0.0

    try:
        torch.set_flush_denormal(before)
        with cpu_settings(1):
            assert flushed()
        assert flushed() == before
    finally:
        torch.set_flush_denormal(False)


def test_after_a_training_0_is_not_greater_than_0() -> None:
    """It was: the smallest number greater than 0, to which a bound is compared, was flushed to 0."""
    with cpu_settings(1):
        choose_device(EngineOptions())
    with pytest.raises(UsageError, match=r"optim\.lr"):
        resolve(DqnTraining, Layer("test", {"env": {"id": "x"}, "optim": {"lr": 0.0}}))
