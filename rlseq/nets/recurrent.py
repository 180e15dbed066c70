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


def recurrent_layers(kind: str, width_in: int, width: int, layers: int, dropout: float = 0.0) -> nn.LSTM | nn.GRU:
    """Layers of one width, an LSTM's with open forget gates at first (Jozefowicz et al. 2015)."""
    between = dropout if layers > 1 else 0.0  # torch warns of dropout without a second layer
    make = nn.LSTM if kind == "lstm" else nn.GRU
    rnn = make(width_in, width, layers, batch_first=True, dropout=between)
    if kind == "lstm":
        with torch.no_grad():
            for name, parameter in rnn.named_parameters():
                if name.startswith("bias_ih"):
                    parameter[width : 2 * width] += 1.0
    return rnn


def run_recurrent(rnn: nn.Module, x_BTD: Tensor, before: State | Tensor | None) -> tuple[Tensor, State | Tensor]:
    """What the layers make of a sequence, and their state after it."""
    if x_BTD.is_cpu and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16:
        # oneDNN has no float16 LSTM on most CPUs, and torch asks it for one all the same.
        with torch.autocast("cpu", enabled=False):
            return rnn(x_BTD.float(), before)
    return rnn(x_BTD, before)


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
        self.rnn = recurrent_layers(options.core, dims.width, dims.width, dims.layers, options.dropout)
        self.dropout = nn.Dropout(options.dropout)
        self._names = NAMES[options.core]

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
        x_BTD, after = run_recurrent(self.rnn, x_BTD, before)
        if state is None:
            return self.dropout(x_BTD), ()
        return self.dropout(x_BTD), after if isinstance(after, tuple) else (after,)
