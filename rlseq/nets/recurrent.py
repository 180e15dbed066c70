"""Recurrent cores: nn.LSTM and nn.GRU with their state in and out.

Shapes: B sequences, T tokens, L layers, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.sizes import Dimensions
from rlseq.sequence import SequenceState

State = tuple[Tensor, ...]
NAMES = {"lstm": ("h", "c"), "gru": ("h",)}


class RecurrentCore(nn.Module):
    """A stack of LSTM or GRU layers of one width.

    Args:
        dims: its dimensions.
        options: everything else.
        context: not used: it remembers without a bound.
    """

    def __init__(self, dims: Dimensions, options: SequenceNetOptions, context: int) -> None:
        super().__init__()
        self.window: int | None = None
        kind = nn.LSTM if options.core == "lstm" else nn.GRU
        between = options.dropout if dims.layers > 1 else 0.0  # torch warns of dropout without a second layer
        self.rnn = kind(dims.width, dims.width, dims.layers, batch_first=True, dropout=between)
        self.dropout = nn.Dropout(options.dropout)
        if options.core == "lstm":
            self._remember_at_first(dims.width)
        self._names = NAMES[options.core]

    def _remember_at_first(self, width: int) -> None:
        """Begin with open forget gates (Jozefowicz et al. 2015)."""
        with torch.no_grad():
            for name, parameter in self.rnn.named_parameters():
                if name.startswith("bias_ih"):
                    parameter[width : 2 * width] += 1.0

    @property
    def state_leaves(self) -> tuple[SequenceState, ...]:
        """`h` and for an LSTM `c`, `[L, B, D]`."""
        shape = (self.rnn.num_layers, "batch", self.rnn.hidden_size)
        return tuple(SequenceState(name=name, output=f"{name}_out", shape=shape) for name in self._names)

    def forward(self, x_BTD: Tensor, state: State | None) -> tuple[Tensor, State]:
        """What the tokens become, and the next state."""
        before: State | Tensor | None = state
        if state is not None and len(state) == 1:
            before = state[0]
        x_BTD, after = self._layers(x_BTD, before)
        if state is None:
            return self.dropout(x_BTD), ()
        return self.dropout(x_BTD), after if isinstance(after, tuple) else (after,)

    def _layers(self, x_BTD: Tensor, before: State | Tensor | None) -> tuple[Tensor, State | Tensor]:
        if x_BTD.is_cpu and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16:
            # oneDNN has no float16 LSTM on most CPUs, and torch asks it for one all the same.
            with torch.autocast("cpu", enabled=False):
                return self.rnn(x_BTD.float(), before)
        return self.rnn(x_BTD, before)
