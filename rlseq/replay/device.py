"""A replay memory's observations on the device that learns from them, so that only row numbers travel for a batch.

The memory in the machine's own memory stays the one that is filled, saved and restored; the copy follows it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlseq.replay.batch import TransitionBatch
from rlseq.replay.uniform import UniformReplay

LARGEST_SHARE = 0.5  # of the device's free memory: networks, gradients and graphs take the rest


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """An array on a device; nothing waits for it to arrive there.

    On the CPU the tensor shares the array's memory. For a GPU the array is copied to pinned memory first, which torch
    does not use for anything else before the transfer is done.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class DeviceReplay:
    """A copy of a memory's observations on a device.

    Args:
        replay: the memory.
        device: where batches are needed.
    """

    def __init__(self, replay: UniformReplay, device: torch.device) -> None:
        self._replay, self._device = replay, device
        self._copies = {
            name: torch.zeros(array.shape, dtype=torch.from_numpy(array[:0]).dtype, device=device)
            for name, array in _observations(replay).items()
        }
        self._seen = 0

    def sample(self, rng: np.random.Generator, num: int) -> TransitionBatch[Tensor]:
        """As `UniformReplay.sample`: the same transitions from the same random stream, on the device."""
        self._follow()
        drawn = self._replay.draw(rng, num)
        index = upload(drawn.first, self._device)
        last = index if drawn.last is drawn.first else upload(drawn.last, self._device)
        return TransitionBatch(
            obs=self._gather("obs.", index),
            action=upload(drawn.action, self._device),
            reward=upload(drawn.reward, self._device),
            discount=upload(drawn.discount, self._device),
            next_obs=self._gather("next_obs.", last),
            index=index,
        )

    def _gather(self, prefix: str, index: Tensor) -> tuple[Tensor, ...]:
        copies = [copy for name, copy in self._copies.items() if name.startswith(prefix)]
        return tuple(copy.index_select(0, index) for copy in copies)

    def _follow(self) -> None:
        """Copy the rows that were written since the last call."""
        replay = self._replay
        rows = min(replay.written - self._seen, replay.capacity)
        self._seen = replay.written
        start = replay.position - rows
        # The newest rows end at the ring's position; before its beginning they lie at its end.
        for first, last in ((max(0, start), replay.position), (replay.capacity + start, replay.capacity)):
            if first < last:
                for name, array in _observations(replay).items():
                    self._copies[name][first:last].copy_(upload(array[first:last], self._device), non_blocking=True)


def _observations(replay: UniformReplay) -> dict[str, np.ndarray]:
    return {name: array for name, array in replay.arrays.items() if name.startswith(("obs.", "next_obs."))}


def fits(replay: UniformReplay, device: torch.device) -> bool:
    """Whether a device that is not the CPU has memory enough, twice over, for the observations."""
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return sum(array.nbytes for array in _observations(replay).values()) <= LARGEST_SHARE * free
