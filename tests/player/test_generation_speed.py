"""The clock around a sequence model that writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq.errors import UsageError
from rlseq.player import generation_speed
from rlseq.player.generation_speed import WARM_UP, WARM_UP_PREDICTIONS, measure_generation, measure_prediction
from rlseq.player.sequence import OnnxSequence, load_sequence
from tests import graphs, kind_graphs
from tests.sequence_graphs import SPEC, WINDOW, save_counting


def test_a_model_is_measured(tmp_path: Path) -> None:
    found = measure_generation(save_counting(tmp_path / "model.onnx"), tokens=200)
    assert (found.tokens, found.context) == (200, SPEC.context)
    assert 0.001 < found.p50_ms <= found.p99_ms < 1e4
    assert found.tokens_per_second > 1.0


def test_the_numbers_are_those_of_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is 1 ms later, but the last is 100 ms later still."""
    looks = 0

    def clock() -> int:
        nonlocal looks
        looks += 1
        return looks * 1_000_000 + (100_000_000 if looks == 11 else 0)

    model = save_counting(tmp_path / "model.onnx")
    monkeypatch.setattr(time, "perf_counter_ns", clock)
    found = measure_generation(model, tokens=10)
    assert looks == 11  # one before the first token, one after each
    assert found.p50_ms == 1.0
    assert found.p99_ms == pytest.approx(1 + 0.91 * 100)  # the tenth of ten, interpolated at 8.91
    assert found.tokens_per_second == pytest.approx(10 / 0.110)


def test_each_timed_token_is_one_step_with_a_full_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the whole text again, and not the cheap steps at a text's beginning."""
    steps: list[tuple[int, int]] = []

    class Spy(OnnxSequence):
        def step(self, tokens_BT: np.ndarray, state: tuple[Any, ...]) -> Any:
            steps.append((tokens_BT.shape[1], state[1].shape[1]))
            return super().step(tokens_BT, state)

    def load(path: Path) -> OnnxSequence:
        from rlseq.player.sequence import load_sequence

        model = load_sequence(path)
        model.__class__ = Spy
        return model

    monkeypatch.setattr(generation_speed, "load_sequence", load)
    measure_generation(save_counting(tmp_path / "model.onnx"), tokens=7)
    assert steps[0] == (SPEC.context, 0)
    assert len(steps) == WARM_UP + 7
    assert set(steps[1:]) == {(1, WINDOW - 1)}


def test_an_answer_does_not_end_and_begins_anew_when_it_is_as_long_as_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been answered is remembered without a bound: one long answer would be slower than any real one."""
    steps: list[tuple[int, int]] = []

    class Spy(OnnxSequence):
        def step(self, inputs: Any, state: tuple[Any, ...], **more: Any) -> Any:
            steps.append((inputs.shape[1], 0 if more.get("source") is None else more["source"].shape[1]))
            return super().step(inputs, state, **more)

    model = load_sequence(kind_graphs.save(tmp_path / "model.onnx", "translating"))
    model.__class__ = Spy
    monkeypatch.setattr(generation_speed, "load_sequence", lambda path: model)
    found = measure_generation(tmp_path, tokens=20)
    assert found.tokens == 20 and 0.001 < found.p50_ms <= found.p99_ms
    context = model.spec.context
    assert steps[: context + 1] == [(1, context), *[(1, 0)] * (context - 1), (1, context)]
    assert len(steps) == 10 * context and 10 * (context - 1) == WARM_UP + 20


def test_a_prediction_is_timed() -> None:
    made: list[int] = []
    found = measure_prediction(lambda: made.append(1), calls=30)
    assert found.calls == 30 and len(made) == WARM_UP_PREDICTIONS + 30
    assert 0.0 <= found.p50_ms <= found.p99_ms < 1e4 and found.per_second > 1.0


def test_a_model_of_series_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="writes no text: let it answer by rlseq predict"):
        measure_generation(kind_graphs.save(tmp_path / "series.onnx", "summing"))


def test_a_policy_is_refused(tmp_path: Path) -> None:
    policy = graphs.save_linear(tmp_path / "policy.onnx", graphs.spec_of("CartPole-v1"), np.zeros((4, 2)))
    with pytest.raises(UsageError, match=r"is a policy, not a sequence model"):
        measure_generation(policy)
