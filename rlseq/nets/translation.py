"""Encoder-decoder Transformer on the layers of `nn.Transformer`, with an explicit cache.

Layers with their norm first and sinusoidal positions; source and answer share one embedding. What differs from
`nn.Transformer` is how it is computed (`rlseq.nets.attention`), not what. One module is trained on whole sequences,
answers token by token and is what is exported: a call may read a source, and later calls may read none (S = 0) and go
on with the keys and values that the first one made of it.

Shapes: B sequences, T tokens of the answer, S tokens of the source, P tokens remembered, H heads, K numbers of a head,
D width, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlseq.nets.attention import (
    Seen,
    Sinusoids,
    cross_attention,
    encode,
    encoder_layer,
    feed_forward,
    initialise,
    seen_places,
    self_attention,
    source_keys,
)
from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import NetInput
from rlseq.nets.sizes import activation, dimensions
from rlseq.sequence import SequenceState, Signature

State = tuple[Tensor, ...]
KEPT = ("k", "v", "source_k", "source_v")  # of each layer of the decoder


class TranslationNetwork(nn.Module):
    """The logits of an answer's next token at every place, given a source.

    Args:
        signature: of kind `translate`.
        options: dimensions; `layers` of the encoder and as many of the decoder.
        context: not used: sinusoids have no end.

    Raises:
        UsageError: dimensions that do not fit together.
    """

    one_pass = False
    window: int | None = None

    def __init__(self, signature: Signature, options: SequenceNetOptions, context: int) -> None:
        super().__init__()
        dims = dimensions(options)
        self.signature, self.qk_norm = signature, options.qk_norm is True
        self.embedding = nn.Embedding(signature.vocabulary, dims.width)
        nn.init.normal_(self.embedding.weight, std=dims.width**-0.5)  # multiplied by its inverse as in the paper
        self.positions = Sinusoids(dims.width)
        self.dropout = nn.Dropout(options.dropout)
        layer = encoder_layer(dims, options)
        encoder = nn.TransformerEncoder(layer, dims.layers, nn.LayerNorm(dims.width), enable_nested_tensor=False)
        self.core = nn.Transformer(
            dims.width,
            dims.heads,
            num_decoder_layers=dims.layers,
            dim_feedforward=dims.mlp_width,
            dropout=options.dropout,
            activation=activation(options),
            custom_encoder=encoder,
            batch_first=True,
            norm_first=True,
        )
        initialise(self.core, mimetic=options.mimetic)
        self.head: nn.Linear | None = None  # tied: the embedding's weights
        if not options.tied:
            self.head = nn.Linear(dims.width, signature.num_outputs, bias=False)
            nn.init.normal_(self.head.weight, std=0.02)

    @property
    def _layers(self) -> list[nn.TransformerDecoderLayer]:
        return list(self.core.decoder.layers)

    @property
    def state_leaves(self) -> tuple[SequenceState, ...]:
        """Of every layer of the decoder keys and values of the answer and of the source; which places of the source are
        real; and the position of the answer's next token."""
        leaves = []
        for n, layer in enumerate(self._layers):
            attention = layer.self_attn
            for kind in KEPT:
                axis = "source" if kind.startswith("source") else "past"
                shape: tuple[int | str, ...] = ("batch", attention.num_heads, axis, attention.head_dim)
                leaves.append(SequenceState(name=f"{kind}{n}", output=f"{kind}{n}_out", shape=shape))
        seen = SequenceState(name="seen", output="seen_out", shape=("batch", "source"), dtype="bool")
        return (*leaves, seen, SequenceState(name="position", output="position_out", shape=(), dtype="int64"))

    @property
    def stacked(self) -> dict[str, int]:
        """Parameters that are several matrices, one above the other: name -> how many."""
        return {name: 3 for name, _ in self.named_parameters() if name.endswith(".in_proj_weight")}

    def initial_state(self, batch: int) -> State:
        """The state before source and answer of `batch` sequences."""
        device = self.embedding.weight.device
        return tuple(torch.from_numpy(leaf.zeros(batch)).to(device) for leaf in self.state_leaves)

    def forward(self, inputs: NetInput, state: State | None = None) -> tuple[Tensor, State]:
        """Logits `[B, T, V]`, float32 (float64 in exact tests), and the next state.

        Args:
            inputs: `x` holds the answer's tokens `[B, T]` and the source `[B, S]`, both int64; `mask` says which places
                of the source are real; None: all.
            state: None: whole sequences, from their beginning; no state comes back.
        """
        tokens_BT, source_BS = inputs.x
        given_BS = torch.ones_like(source_BS, dtype=torch.bool) if inputs.mask is None else inputs.mask
        sources = self._read(source_BS, given_BS)
        if state is None:
            return self._answer(tokens_BT, sources, seen_places(given_BS), None, ())[0], ()
        *cache, before_BS, position = state
        given_BS = torch.cat((before_BS, given_BS), 1)
        kept = [cache[n : n + len(KEPT)] for n in range(0, len(cache), len(KEPT))]
        sources = [
            (torch.cat((layer[2], k), 2), torch.cat((layer[3], v), 2))
            for layer, (k, v) in zip(kept, sources, strict=True)
        ]
        pasts = tuple((layer[0], layer[1]) for layer in kept)
        logits_BTV, grown = self._answer(tokens_BT, sources, seen_places(given_BS), position, pasts)
        following = [x for past, source in zip(grown, sources, strict=True) for x in (*past, *source)]
        return logits_BTV, (*following, given_BS, position + tokens_BT.shape[1])

    def _embedded(self, tokens_BT: Tensor, start: Tensor | int) -> Tensor:
        places_T = start + torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTD = self.embedding(tokens_BT)
        return self.dropout(x_BTD * x_BTD.shape[-1] ** 0.5 + self.positions(places_T))

    def _read(self, source_BS: Tensor, given_BS: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of the source for every layer of the decoder."""
        x_BSD = self._embedded(source_BS, 0)
        memory_BSD = encode(self.core.encoder, x_BSD, seen_places(given_BS), qk_norm=self.qk_norm)
        return [source_keys(layer.multihead_attn, memory_BSD, qk_norm=self.qk_norm) for layer in self._layers]

    def _answer(
        self,
        tokens_BT: Tensor,
        sources: list[tuple[Tensor, Tensor]],
        seen: Seen,
        position: Tensor | None,
        pasts: tuple[tuple[Tensor, Tensor], ...],
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Logits, and the keys and values of each layer with those of `tokens_BT` at their end."""
        x_BTD = self._embedded(tokens_BT, 0 if position is None else position)
        own: Seen | None = None  # up to its own place
        if pasts:
            num_new, num_past = tokens_BT.shape[1], pasts[0][0].shape[2]
            queries_T = num_past + torch.arange(num_new, device=tokens_BT.device)
            own = Seen(torch.arange(num_past + num_new, device=tokens_BT.device) <= queries_T[:, None])
        grown: list[tuple[Tensor, Tensor]] = []
        for n, layer in enumerate(self._layers):
            past = pasts[n] if pasts else ()
            y_BTD, k, v = self_attention(layer.self_attn, layer.norm1(x_BTD), own, past, qk_norm=self.qk_norm)
            x_BTD = x_BTD + layer.dropout1(y_BTD)
            y_BTD = cross_attention(layer.multihead_attn, layer.norm2(x_BTD), sources[n], seen, qk_norm=self.qk_norm)
            x_BTD = x_BTD + layer.dropout2(y_BTD)
            x_BTD = x_BTD + layer.dropout3(feed_forward(layer, layer.norm3(x_BTD)))
            grown.append((k, v))
        weight_VD = self.embedding.weight if self.head is None else self.head.weight
        logits_BTV = F.linear(self.core.decoder.norm(x_BTD), weight_VD)
        return logits_BTV if logits_BTV.dtype == torch.float64 else logits_BTV.float(), grown
