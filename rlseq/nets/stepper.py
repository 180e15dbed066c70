"""A torch sequence model that is stepped through a sequence, with numpy arrays at its edges.

Shapes: B sequences, T places, P places answered at (T, or 1 of a model that reads everything first), S places of a
source, F features.
"""

from __future__ import annotations

import numpy as np
import torch

from rlseq.nets.build import Network
from rlseq.nets.network import NetInput, State
from rlseq.sequence import SequenceSpec


class TorchSequence:
    """A network as `rlseq.player.generate.Stepper`; without dropout and gradients.

    Args:
        net: the network; it is used as it stands, on the device it is on.
        spec: its description.
    """

    def __init__(self, net: Network, spec: SequenceSpec) -> None:
        self.net = net
        self.spec = spec
        self._device = next(net.parameters()).device

    def initial_state(self, batch: int) -> State:
        """The state before the first place of `batch` sequences."""
        return tuple(array.to(self._device) for array in self.net.initial_state(batch))

    def from_numpy(self, state: tuple[np.ndarray, ...]) -> State:
        """A state that was made or kept elsewhere, where the network can use it."""
        return tuple(torch.from_numpy(array).to(self._device) for array in state)

    def step(
        self, inputs: np.ndarray, state: State, *, source: np.ndarray | None = None, given: np.ndarray | None = None
    ) -> tuple[np.ndarray, State]:
        """Read on.

        Args:
            inputs: tokens `[B, T]` int64, or raw values `[B, T, F]` float32.
            state: from `initial_state` or the step before.
            source: of `translate`, in the first step: tokens `[B, S]` int64.
            given: which places of the source, or else of the values, are real, bool; None: all.

        Returns:
            Outputs `[B, P, ...]` float32, and the next state.
        """
        return self._run(inputs, state, source, given)

    def whole(
        self, inputs: np.ndarray, given: np.ndarray | None = None, source: np.ndarray | None = None
    ) -> np.ndarray:
        """Outputs `[B, P, ...]` for whole sequences at once, without a state: what stepping must agree with."""
        return self._run(inputs, None, source, given)[0]

    @torch.no_grad()
    def _run(
        self, inputs: np.ndarray, state: State | None, source: np.ndarray | None, given: np.ndarray | None
    ) -> tuple[np.ndarray, State]:
        x = [inputs]
        if self.spec.signature.kind == "translate":
            x.append(np.zeros((len(inputs), 0), np.int64) if source is None else source)
        mask = None if given is None else torch.from_numpy(given).to(self._device)
        was_training = self.net.training
        if was_training:
            self.net.eval()
        try:
            arrays = tuple(torch.from_numpy(array).to(self._device) for array in x)
            outputs, state = self.net(NetInput(arrays, mask), state)
        finally:
            if was_training:
                self.net.train()
        return outputs.float().cpu().numpy(), state
