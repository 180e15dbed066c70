"""Pieces of an update as CUDA graphs.

On a GPU the update of a small network takes as long as the launching of its kernels, one after the other. A CUDA graph
launches all of them at once. It is a recording of kernels, with the addresses and the plain numbers that they were
called with (https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs). So what is recorded

- gets tensors of fixed shapes, which are copied to places of the recording's own; a number that changes, such as the
  learning rate, comes as a tensor too;
- finds everything else that it reads or writes where it lay before: flat parameters, gradients, moments;
- never waits for the device: no `.item()`, no copy to the host;
- changes nothing on the host: that would happen once and never again.

The first calls are carried out one kernel after the other, on the stream that is recorded later: libraries are set up,
optimisers allocate their moments. They are updates like any other, so nothing has to be put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rlseq.errors import RlseqError

Tensors = tuple[Tensor, ...]
Work = Callable[[], Tensors]

WARM_UP = 3  # calls before the recording; the number torch's own make_graphed_callables takes


class Recording(NamedTuple):
    """What was recorded: `replay` does it again, and overwrites `outputs`."""

    replay: Callable[[], None]
    outputs: Tensors


class Recorder(Protocol):
    """Records work on a device.

    Attributes:
        device: where it is done.
    """

    device: torch.device

    def warm_up(self, work: Work) -> Tensors:
        """Do it once, as it will be recorded."""

    def record(self, work: Work) -> Recording:
        """Record it without doing it."""


class CudaGraphs:
    """Records CUDA graphs.

    Args:
        device: a CUDA device, with its index.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # One stream for both: autograd and cuBLAS tie what they set up to the stream of its first use.
        self._stream = torch.cuda.Stream(device)

    def warm_up(self, work: Work) -> Tensors:
        """See `Recorder`."""
        here = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            outputs = work()
        here.wait_stream(self._stream)
        return outputs

    def record(self, work: Work) -> Recording:
        """See `Recorder`.

        Raises:
            RlseqError: something in it cannot be recorded.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads (nccl's watchdog) may ask the device things that this one must not ask while it records.
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                outputs = work()
        except RuntimeError as error:
            # The end of a recording that was broken off fails too, and knows no reason.
            first = error.__context__ if isinstance(error.__context__, RuntimeError) else error
            reason = str(first).strip().partition("\n")[0].removesuffix(".")
            raise RlseqError(
                f"the update cannot be recorded as a CUDA graph: {reason}. Do without: --set engine.graphs=false"
            ) from None
        return Recording(graph.replay, outputs)


def recorder_for(device: torch.device, *, wanted: bool = True) -> Recorder | None:
    """What records on a device; None where nothing does, or if it is not wanted."""
    return CudaGraphs(device) if wanted and device.type == "cuda" else None


class Captured:
    """A function of tensors, recorded at its fourth call.

    Args:
        function: of trees of tensors, numbers and None (see `leaves`), whose shapes are the same in every call. With a
            recorder it gets the numbers as scalar float32 tensors.
        recorder: None: every call calls the function, as it is.
    """

    def __init__(self, function: Callable[..., Tensors], recorder: Recorder | None) -> None:
        self._function, self._recorder = function, recorder
        self._held: list[Tensor] = []
        self._calls = 0
        self._recording: Recording | None = None

    def __call__(self, *inputs: Any) -> Tensors:
        """The function's outputs; the next call overwrites them."""
        recorder = self._recorder
        if recorder is None:
            return self._function(*inputs)
        self._place(list(leaves(inputs)), recorder.device)
        if self._recording is None:
            places = rebuilt(inputs, iter(self._held))

            def work() -> Tensors:
                return self._function(*places)

            if self._calls < WARM_UP:
                self._calls += 1
                return recorder.warm_up(work)
            self._recording = recorder.record(work)
        self._recording.replay()
        return self._recording.outputs

    def _place(self, given: Sequence[Tensor | float], device: torch.device) -> None:
        if not self._held:
            self._held = [
                torch.empty_like(leaf) if isinstance(leaf, Tensor) else torch.zeros((), device=device) for leaf in given
            ]
        for place, leaf in zip(self._held, given, strict=True):
            if isinstance(leaf, Tensor):
                assert place.shape == leaf.shape, f"recorded for {tuple(place.shape)}, not {tuple(leaf.shape)}"
                place.copy_(leaf)
            else:
                place.fill_(leaf)

    def forget(self) -> None:
        """Record anew: something that the function uses lies elsewhere now."""
        self._calls, self._recording = 0, None


def leaves(tree: Any) -> Iterator[Tensor | float]:
    """The tensors and numbers in nested tuples, named ones too; None is none of them."""
    if isinstance(tree, tuple):
        for branch in tree:
            yield from leaves(branch)
    elif tree is not None:
        yield tree


def rebuilt(tree: Any, tensors: Iterator[Tensor]) -> Any:
    """The tree with other leaves, in their order."""
    if isinstance(tree, tuple):
        branches = [rebuilt(branch, tensors) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return None if tree is None else next(tensors)
