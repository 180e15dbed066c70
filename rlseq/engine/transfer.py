"""What travels between host and device while the device computes: batches to it, weights back.

On a GPU calls return before the work is done. Whoever reads a number from it waits for everything before; so nothing is
read while there is something to wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlseq.replay.device import upload


class WeightMirror:
    """A copy on the CPU of weights on a device, for acting; one burst of updates behind them.

    After a burst was begun, the weights of the burst before are at hand without waiting for this one. The lag is always
    the same, so a training stays the same from run to run.

    Args:
        source: `[P]`, the weights.
        mirror: `[P]` float32 on the CPU, which acts.
    """

    def __init__(self, source: Tensor, mirror: Tensor) -> None:
        on_gpu = source.device.type == "cuda"
        self._source, self._mirror = source, mirror
        self._waiting = torch.empty(mirror.shape, dtype=mirror.dtype, pin_memory=on_gpu)
        self._arrived = torch.cuda.Event() if on_gpu else None
        self.restart()

    def restart(self) -> None:
        """Both copies are the weights as they are now; waits for the device."""
        self._mirror.copy_(self._source)
        self._send()

    def after_burst(self) -> None:
        """Act from now on with the weights before the burst that was just begun; fetch those after it."""
        if self._arrived is not None:
            self._arrived.synchronize()
        self._mirror.copy_(self._waiting)
        self._send()

    def _send(self) -> None:
        self._waiting.copy_(self._source, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record(torch.cuda.current_stream(self._source.device))

    def state(self) -> np.ndarray:
        """The weights acted with, `[P]`; a view."""
        return self._mirror.numpy()

    def load(self, array: np.ndarray) -> None:
        """Act with these weights until the next burst, which brings those that the source has now.

        Raises:
            ValueError: they are those of another network.
        """
        if array.shape != tuple(self._mirror.shape):
            raise ValueError(f"weights acted with are {array.shape}, not {tuple(self._mirror.shape)}")
        self.restart()
        self._mirror.copy_(torch.from_numpy(array))


class Movable(Protocol):
    """A batch of arrays: `rlseq.seq.batch.TokenBatch`."""

    def map(self, function: Callable[[Any], Any]) -> Any:
        """The batch with `function` applied to every array."""


Drawn = TypeVar("Drawn", bound=Movable)


class Sent(NamedTuple, Generic[Drawn]):
    """A batch twice: as arrays, for what is to be known without waiting, and as tensors on the device."""

    arrays: Drawn
    tensors: Any


class Batches(Generic[Drawn]):
    """Batches on a device, drawn from a random stream.

    Where that helps, the next one is drawn and sent while the device learns from the one before. Which batches come,
    and where the stream is said to stand, does not depend on that.

    Args:
        draw: a batch of arrays from the stream.
        rng: the stream; nobody else draws from it.
        device: where the batches are needed.
        ahead: whether one is drawn ahead; None: on a GPU.
    """

    def __init__(
        self,
        draw: Callable[[np.random.Generator], Drawn],
        rng: np.random.Generator,
        device: torch.device,
        *,
        ahead: bool | None = None,
    ) -> None:
        self._draw, self._rng, self._device = draw, rng, device
        self._ahead = device.type == "cuda" if ahead is None else ahead
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._waiting: Sent[Drawn] | None = None
        self._before: dict[str, Any] = {}

    def take(self) -> Sent[Drawn]:
        """The next batch."""
        batch = self._waiting or self._send()
        self._waiting = None
        return batch if self._stream is None else batch._replace(tensors=batch.tensors.map(self._arrived))

    def prepare(self) -> None:
        """Draw the next batch and send it, if that is done ahead: to be called once the device has work to do."""
        if self._ahead and self._waiting is None:
            self._before = self.state()
            self._waiting = self._send()

    def _send(self) -> Sent[Drawn]:
        arrays = self._draw(self._rng)
        with torch.cuda.stream(self._stream):  # does nothing where there is none
            return Sent(arrays, arrays.map(lambda array: upload(array, self._device)))

    def _arrived(self, tensor: Tensor) -> Tensor:
        """Let the device wait for a tensor before it uses it, and not give its memory away meanwhile."""
        here = torch.cuda.current_stream(self._device)
        assert self._stream is not None
        here.wait_stream(self._stream)
        tensor.record_stream(here)
        return tensor

    def state(self) -> dict[str, Any]:
        """Where the stream stands before the batch that `take` gives next."""
        return dict(self._rng.bit_generator.state if self._waiting is None else self._before)

    def load(self, state: dict[str, Any]) -> None:
        """Let the stream go on from what `state` gave."""
        self._rng.bit_generator.state = state
        self._waiting = None
