"""Recorded functions against the same ones called each time."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from rlseq.engine.recording import WARM_UP, Captured, leaves, rebuilt, recorder_for
from rlseq.errors import RlseqError
from tests.engine.test_update import CPU
from tests.engine.twin import Twin


class Pair(NamedTuple):
    a: Tensor
    b: tuple[Tensor, ...] | None


def test_trees_are_taken_apart_and_put_together() -> None:
    x, y, z = torch.arange(3.0).unbind()
    tree = (Pair(x, (y, z)), Pair(y, None), 0.5)
    assert list(leaves(tree)) == [x, y, z, y, 0.5]
    other = rebuilt(tree, iter([z, y, x, z, y]))
    assert other == (Pair(z, (y, x)), Pair(z, None), y)
    assert isinstance(other[0], Pair)


def test_a_cpu_has_no_recorder() -> None:
    assert recorder_for(CPU) is None
    assert recorder_for(torch.device("cuda"), wanted=False) is None
    seen: list[Any] = []
    out = Captured(lambda x, number: seen.append((x, number)) or (x,), None)(CPU, 2.0)
    assert seen == [(CPU, 2.0)] and out == (CPU,)  # nothing is copied or converted


def test_every_call_counts_once_whether_warming_up_recorded_or_replayed() -> None:
    twin, total = Twin(), torch.zeros(2)

    def add(pair: Pair, factor: Tensor) -> tuple[Tensor, ...]:
        assert pair.b is not None
        total.add_(pair.a * factor)
        return total * 1, pair.b[0] + factor

    captured, expected = Captured(add, twin), torch.zeros(2)
    for k in range(WARM_UP + 3):
        a, factor = torch.tensor([1.0, k]), 0.5 + k
        expected += a * factor
        out, other = captured(Pair(a, (torch.full((1,), 10.0),)), factor)
        torch.testing.assert_close(out, expected, rtol=0, atol=0)
        torch.testing.assert_close(total, expected, rtol=0, atol=0)
        assert other.item() == 10.0 + factor
    assert (twin.warm_ups, twin.records, twin.replays) == (WARM_UP, 1, 3)
    captured.forget()
    captured(Pair(torch.zeros(2), (torch.zeros(1),)), 1.0)
    assert (twin.warm_ups, twin.records) == (WARM_UP + 1, 1)


def test_the_twin_is_as_strict_as_a_graph() -> None:
    twin, x, host = Twin(), torch.zeros(1), [1.0]
    recording = twin.record(lambda: (x.add_(host[0]) * 1,))
    assert x.item() == 0.0
    host[0] = 7.0
    recording.replay()
    assert recording.outputs[0].item() == x.item() == 1.0  # the number of the recording
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        twin.record(lambda: (x * x.item(),))


def test_another_shape_is_our_mistake() -> None:
    captured = Captured(lambda x: (x + 1,), Twin())
    captured(torch.zeros(2))
    with pytest.raises(AssertionError, match=r"recorded for \(2,\), not \(3,\)"):
        captured(torch.zeros(3))


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@needs_cuda
def test_what_a_cuda_graph_cannot_hold_is_said() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    captured = Captured(lambda x: (x * x.sum().item(),), recorder_for(device))
    x = torch.ones(2, device=device)
    for _ in range(WARM_UP):
        captured(x)
    with pytest.raises(RlseqError, match=r"cannot be recorded as a CUDA graph: .*--set engine\.graphs=false"):
        captured(x)
