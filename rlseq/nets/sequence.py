"""Causal networks over sequences of tokens or values: reader -> core -> norm -> head, with the state in and out.

One module is trained on whole sequences, goes on place by place and is what is exported.

Shapes: B sequences, T places, F features, D width, O numbers of an answer (the vocabulary, for tokens).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.gpt import GptCore
from rlseq.nets.network import NetInput
from rlseq.nets.readers import ValuesReader
from rlseq.nets.recurrent import RecurrentCore
from rlseq.nets.sizes import Dimensions, dimensions
from rlseq.sequence import SequenceState, Signature

State = tuple[Tensor, ...]

# name -> core class: (dimensions, options, context) -> module with `window`, `state_leaves` and the forward of GptCore
CORES: dict[str, Callable[[Dimensions, SequenceNetOptions, int], GptCore | RecurrentCore]] = {
    "gpt": GptCore,
    "lstm": RecurrentCore,
    "gru": RecurrentCore,
}


class SequenceNetwork(nn.Module):
    """An answer at every place of a sequence: the next token's logits, class logits, or the values that follow.

    Args:
        signature: what is read and answered.
        options: kind and dimensions of the core.
        context: places of a training sequence; a Transformer sees no further back.

    Raises:
        UsageError: dimensions that do not fit together.
    """

    one_pass = False

    def __init__(self, signature: Signature, options: SequenceNetOptions, context: int) -> None:
        super().__init__()
        dims = dimensions(options)
        self.signature = signature
        self.embedding: nn.Embedding | None = None
        self.reader: ValuesReader | None = None
        if signature.kind == "tokens":
            self.embedding = nn.Embedding(signature.vocabulary, dims.width)
            nn.init.normal_(self.embedding.weight, std=0.02)
        else:
            self.reader = ValuesReader(signature, dims.width)
        self.dropout = nn.Dropout(options.dropout)
        self.core = CORES[options.core](dims, options, context)
        self.norm = nn.LayerNorm(dims.width, bias=False)
        self.head: nn.Linear | None = None  # tied: the embedding's weights
        if not options.tied:
            self.head = nn.Linear(dims.width, signature.num_outputs, bias=False)
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
        device = self.norm.weight.device
        return tuple(torch.from_numpy(leaf.zeros(batch)).to(device) for leaf in self.state_leaves)

    def forward(self, inputs: NetInput, state: State | None = None) -> tuple[Tensor, State]:
        """Answers `[B, T, O]`, float32 (float64 in exact tests), and the next state.

        Args:
            inputs: `x` holds the tokens `[B, T]` int64, or raw values `[B, T, F]`.
            state: None: whole sequences, from their beginning; no state comes back.
        """
        (given,) = inputs.x
        read = self.embedding if self.reader is None else self.reader
        assert read is not None
        x_BTD, state = self.core(self.dropout(read(given)), state)
        weight_OD = self._head_weight()
        y_BTO = F.linear(self.norm(x_BTD), weight_OD)
        y_BTO = y_BTO if y_BTO.dtype == torch.float64 else y_BTO.float()
        if self.reader is not None and self.signature.kind == "forecast":
            y_BTO = self.reader.in_raw_units(y_BTO, given)
        return y_BTO, state

    def _head_weight(self) -> Tensor:
        if self.head is not None:
            return self.head.weight
        assert self.embedding is not None
        return self.embedding.weight
