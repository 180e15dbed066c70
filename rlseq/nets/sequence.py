"""Networks over sequences of tokens: embedding -> core -> norm -> head, causal, with the state in and out.

One module is trained on whole sequences, generates token by token and is what is exported.

Shapes: B sequences, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.gpt import GptCore
from rlseq.nets.network import NetInput
from rlseq.nets.recurrent import RecurrentCore
from rlseq.nets.sizes import Dimensions, dimensions
from rlseq.sequence import SequenceState

State = tuple[Tensor, ...]

# name -> core class: (dimensions, options, context) -> module with `window`, `state_leaves` and the forward of GptCore
CORES: dict[str, Callable[[Dimensions, SequenceNetOptions, int], GptCore | RecurrentCore]] = {
    "gpt": GptCore,
    "lstm": RecurrentCore,
    "gru": RecurrentCore,
}


class SequenceNetwork(nn.Module):
    """The next token's logits at every place of a sequence.

    Args:
        vocabulary: V, number of different tokens.
        options: kind and dimensions of the core.
        context: tokens of a training sequence; a Transformer sees no further back.

    Raises:
        UsageError: dimensions that do not fit together.
    """

    one_pass = False

    def __init__(self, vocabulary: int, options: SequenceNetOptions, context: int) -> None:
        super().__init__()
        dims = dimensions(options)
        self.embedding = nn.Embedding(vocabulary, dims.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.dropout = nn.Dropout(options.dropout)
        self.core = CORES[options.core](dims, options, context)
        self.norm = nn.LayerNorm(dims.width, bias=False)
        self.head: nn.Linear | None = None  # tied: the embedding's weights
        if not options.tied:
            self.head = nn.Linear(dims.width, vocabulary, bias=False)
            nn.init.normal_(self.head.weight, std=0.02)

    @property
    def state_leaves(self) -> tuple[SequenceState, ...]:
        """The arrays of the state, in their order."""
        return self.core.state_leaves

    @property
    def window(self) -> int | None:
        """How many tokens back a token sees, itself included; None: no bound."""
        return self.core.window

    @property
    def stacked(self) -> dict[str, int]:
        """Parameters that are several matrices, one above the other: name -> how many.

        Muon takes queries, keys and values apart: 1.875 instead of 1.904 after 300 updates of a small model on a text,
        one seed. A recurrent layer's gates stay together: 2.264, apart 2.301 after 250.
        """
        return {name: 3 for name, _ in self.named_parameters() if name.endswith(".qkv.weight")}

    def initial_state(self, batch: int) -> State:
        """The state before the first token of `batch` sequences."""
        device = self.embedding.weight.device
        return tuple(torch.from_numpy(leaf.zeros(batch)).to(device) for leaf in self.state_leaves)

    def forward(self, inputs: NetInput, state: State | None = None) -> tuple[Tensor, State]:
        """Logits `[B, T, V]`, float32 (float64 in exact tests), and the next state.

        Args:
            inputs: `x` holds the tokens `[B, T]` int64.
            state: None: whole sequences, from their beginning; no state comes back.
        """
        (tokens_BT,) = inputs.x
        x_BTD, state = self.core(self.dropout(self.embedding(tokens_BT)), state)
        weight_VD = self.embedding.weight if self.head is None else self.head.weight
        logits_BTV = F.linear(self.norm(x_BTD), weight_VD)
        return logits_BTV if logits_BTV.dtype == torch.float64 else logits_BTV.float(), state
