"""Dropout's random stream: part of a training's state, and nobody else's.

torch draws dropout masks from its global stream. While a training loop runs that stream is the training's; before and
after it the caller's is back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from rlseq.envs.seeding import WEIGHTS, derived_seed

DROPOUT = "dropout_rng"  # its name in a checkpoint


class DropoutStream:
    """The stream of one process of a training.

    Args:
        device: where masks are drawn.
        run_seed: of the training.
        rank: number of the process: each drops other units.
    """

    def __init__(self, device: torch.device, run_seed: int, rank: int = 0) -> None:
        self._device, self._seed, self._rank = device, run_seed, rank
        self._running = False
        self._state = self._seeded()

    def _seeded(self, *words: int) -> Tensor:
        own = (self._rank, *words) if self._rank or words else ()
        seed = derived_seed(WEIGHTS, self._seed, 1, *own)
        return torch.Generator(self._device).manual_seed(seed).get_state()

    def begin_anew(self, step: int) -> None:
        """A fresh stream, which no process of this number has had before."""
        self._state = self._seeded(step)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """torch's global stream is this one for a while."""
        cuda = self._device.type == "cuda"
        with torch.random.fork_rng(devices=[torch.cuda.current_device()] if cuda else []):
            if cuda:
                torch.cuda.set_rng_state(self._state)
            else:
                torch.set_rng_state(self._state)
            self._running = True
            try:
                yield
            finally:
                self._state, self._running = self.state(), False

    def state(self) -> Tensor:
        """Where the stream stands, as bytes."""
        if not self._running:
            return self._state
        return torch.cuda.get_rng_state() if self._device.type == "cuda" else torch.get_rng_state()

    def load(self, state: np.ndarray) -> None:
        """Go on from a checkpoint, outside of `running`."""
        self._state = torch.from_numpy(state.copy())
