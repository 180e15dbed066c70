"""What travels: weights one burst behind, batches one ahead, and neither changes what is computed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from rlseq.engine.transfer import Batches, WeightMirror
from rlseq.seq.batch import TokenBatch

CPU = torch.device("cpu")
DEVICES = [CPU, pytest.param(torch.device("cuda", 0), marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES, ids=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param.type == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return request.param


def numbers(tensor: torch.Tensor) -> list[float]:
    return [round(value, 6) for value in tensor.tolist()]


def test_acting_weights_are_one_burst_behind(device: torch.device) -> None:
    source, acting = torch.full((3,), 1.0, device=device), torch.zeros(3)
    mirror = WeightMirror(source, acting)
    seen = [acting[0].item()]
    for burst in range(2, 6):
        source.fill_(burst)
        mirror.after_burst()
        seen.append(acting[0].item())
    assert seen == [1.0, 1.0, 2.0, 3.0, 4.0]
    mirror.restart()
    assert numbers(acting) == [5.0] * 3


def test_acting_goes_on_exactly_from_what_was_stored(device: torch.device) -> None:
    source, acting = torch.full((2,), 1.0, device=device), torch.zeros(2)
    mirror = WeightMirror(source, acting)
    for burst in (2, 3):
        source.fill_(burst)
        mirror.after_burst()
    stored = mirror.state().copy()
    other_source, other_acting = source.clone(), torch.zeros(2)
    other = WeightMirror(other_source, other_acting)
    other.load(stored)
    assert numbers(other_acting) == numbers(acting) == [2.0, 2.0]
    for weights, twin in ((source, mirror), (other_source, other)):
        weights.fill_(4.0)
        twin.after_burst()
    assert numbers(other_acting) == numbers(acting) == [3.0, 3.0]
    with pytest.raises(ValueError, match=r"weights acted with are \(3,\), not \(2,\)"):
        other.load(np.zeros(3, np.float32))


def draw(rng: np.random.Generator) -> TokenBatch[np.ndarray]:
    window = rng.integers(0, 99, (2, 5))
    return TokenBatch(window[:, :-1].copy(), window[:, 1:].copy(), rng.random((2, 4)) < 0.5)


@pytest.mark.parametrize("ahead", [False, True])
def test_batches_come_as_the_stream_gives_them(ahead: bool, device: torch.device) -> None:
    batches = Batches(draw, np.random.default_rng(3), device, ahead=ahead)
    rng = np.random.default_rng(3)
    for _ in range(4):
        assert batches.state() == rng.bit_generator.state
        arrays, tensors = batches.take()
        for array, tensor, expected in zip(arrays, tensors, draw(rng), strict=True):
            if expected is None:
                assert array is None and tensor is None
                continue
            np.testing.assert_array_equal(array, expected)
            np.testing.assert_array_equal(tensor.cpu().numpy(), expected, strict=True)
            assert tensor.device == device
        batches.prepare()
        batches.prepare()  # one is enough


@pytest.mark.parametrize("ahead", [False, True])
def test_a_resume_repeats_the_batch_that_was_drawn_ahead(ahead: bool) -> None:
    batches = Batches(draw, np.random.default_rng(3), CPU, ahead=ahead)
    batches.take()
    batches.prepare()
    state = copy.deepcopy(batches.state())
    expected = [batches.take().arrays.inputs for _ in range(3)]
    other = Batches(draw, np.random.default_rng(99), CPU, ahead=ahead)
    other.take()
    other.prepare()
    other.load(state)
    for inputs in expected:
        np.testing.assert_array_equal(other.take().arrays.inputs, inputs)
        other.prepare()


def test_the_next_batch_is_drawn_while_the_device_works_and_only_there() -> None:
    drawn: list[int] = []

    def count(rng: np.random.Generator) -> Any:
        drawn.append(len(drawn))
        return draw(rng)

    for ahead, expected in ((True, [1, 2, 2]), (False, [1, 1, 2])):
        drawn.clear()
        batches = Batches(count, np.random.default_rng(0), CPU, ahead=ahead)
        batches.take()
        seen = [len(drawn)]
        batches.prepare()
        seen.append(len(drawn))
        batches.take()
        seen.append(len(drawn))
        assert seen == expected
    drawn.clear()
    Batches(count, np.random.default_rng(0), CPU).prepare()
    assert drawn == []  # a CPU has nothing to do meanwhile
