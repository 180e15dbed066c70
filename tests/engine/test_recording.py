"""Recorded functions against the same ones called each time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from rlseq.engine.recording import WARM_UP, Captured, CudaGraphs, leaves, rebuilt, recorder_for
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


class FakeCuda:
    """Streams, and graphs that call what they record; notes what happens, on which stream."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.broken = False
        fake = self

        class Stream:
            def __init__(self, name: Any = "side") -> None:
                self.name = "side" if isinstance(name, torch.device) else name

            def wait_stream(self, other: Stream) -> None:
                fake.log.append(f"{self.name} waits for {other.name}")

        class Graph:
            def replay(self) -> None:
                fake.log.append("replay")

        @contextlib.contextmanager
        def stream(chosen: Stream) -> Iterator[None]:
            fake.log.append(f"on {chosen.name}")
            yield
            fake.log.append("back")

        @contextlib.contextmanager
        def graph(graph: Graph, *, stream: Stream, capture_error_mode: str) -> Iterator[None]:
            fake.log.append(f"recording on {stream.name}, {capture_error_mode}")
            try:
                yield
            finally:
                if fake.broken:
                    raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

        main = Stream("main")
        for name, value in {
            "Stream": Stream,
            "stream": stream,
            "graph": graph,
            "CUDAGraph": Graph,
            "current_stream": lambda device: main,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)


def test_cuda_graphs_are_recorded_on_the_stream_that_was_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    recorder = recorder_for(torch.device("cuda", 0))
    assert isinstance(recorder, CudaGraphs)

    def work() -> tuple[torch.Tensor, ...]:
        cuda.log.append("work")
        return (torch.ones(1),)

    recorder.warm_up(work)
    assert cuda.log == ["side waits for main", "on side", "work", "back", "main waits for side"]
    cuda.log.clear()
    recording = recorder.record(work)
    recording.replay()
    assert cuda.log == ["recording on side, thread_local", "work", "replay"]
    assert recording.outputs[0].item() == 1.0


def test_a_recording_that_breaks_off_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    recorder = CudaGraphs(torch.device("cuda", 0))

    def work() -> tuple[torch.Tensor, ...]:
        cuda.broken = True
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with more.")

    message = (
        "the update cannot be recorded as a CUDA graph: CUDA error: operation not permitted when stream is capturing. "
        "Do without: --set engine.graphs=false"
    )
    with pytest.raises(RlseqError, match=f"^{re.escape(message)}$"):
        recorder.record(work)


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
