"""A torch sequence model that is stepped through a text, with numpy tokens and logits at its edges.

Shapes: B sequences, T tokens, V vocabulary.
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
        """The state before the first token of `batch` sequences."""
        return tuple(array.to(self._device) for array in self.net.initial_state(batch))

    def from_numpy(self, state: tuple[np.ndarray, ...]) -> State:
        """A state that was made or kept elsewhere, where the network can use it."""
        return tuple(torch.from_numpy(array).to(self._device) for array in state)

    def step(self, tokens_BT: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """Read tokens int64; logits `[B, T, V]` float32 of the token after each, and the next state."""
        return self._run(tokens_BT, state)

    def whole(self, tokens_BT: np.ndarray) -> np.ndarray:
        """Logits `[B, T, V]` of whole sequences at once, without a state: what stepping must agree with."""
        return self._run(tokens_BT, None)[0]

    @torch.no_grad()
    def _run(self, tokens_BT: np.ndarray, state: State | None) -> tuple[np.ndarray, State]:
        was_training = self.net.training
        if was_training:
            self.net.eval()
        try:
            logits_BTV, state = self.net(NetInput((torch.from_numpy(tokens_BT).to(self._device),)), state)
        finally:
            if was_training:
                self.net.train()
        return logits_BTV.float().cpu().numpy(), state
