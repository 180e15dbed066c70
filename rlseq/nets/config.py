"""Options of the network."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rlseq.fields import Options, displacing


class NetOptions(Options, frozen=True, kw_only=True):
    """Encoder, core and head."""

    core: Annotated[Literal["mlp"], Meta(description="kind of network between encoder and head")] = "mlp"
    hidden: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...], Meta(description="widths of the hidden layers, [] for a linear network")
    ] = (256, 256)
    activation: Annotated[
        Literal["relu", "tanh", "gelu", "silu", "elu"], Meta(description="activation after each hidden layer")
    ] = "relu"


class SequenceNetOptions(Options, frozen=True, kw_only=True):
    """A network over sequences of tokens or values."""

    core: Annotated[
        Literal["gpt", "lstm", "gru", "transformer", "encoder"],
        Meta(description="decoder-only Transformer, recurrent network, encoder-decoder Transformer, or its encoder"),
    ] = "gpt"
    bidirectional: Annotated[
        bool | None,
        Meta(description="lstm, gru: half of the units read backwards, one answer a sequence; none: true to classify"),
    ] = None
    size: Annotated[
        Literal["tiny", "small", "base"],
        Meta(
            description="layers, heads and width by name; each of them may be given instead",
            extra=displacing("layers", "heads", "width", "mlp_width"),
        ),
    ] = "small"
    layers: Annotated[Annotated[int, Meta(ge=1, le=1_000)] | None, Meta(description="layers; none: of the size")] = None
    heads: Annotated[
        Annotated[int, Meta(ge=1, le=1_000)] | None, Meta(description="attention heads; none: of the size")
    ] = None
    width: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None,
        Meta(description="numbers a token is represented by, units of a recurrent layer; none: of the size"),
    ] = None
    mlp_width: Annotated[
        Annotated[int, Meta(ge=1, le=262_144)] | None,
        Meta(description="Transformers: width of the feed-forward layers; none: four times the width"),
    ] = None
    activation: Annotated[
        Literal["gelu", "relu", "relu2", "swiglu"] | None,
        Meta(
            description="of the feed-forward layers; relu2 is the square of relu (arXiv 2109.08668), for gpt alone, as "
            "is swiglu; none: relu2 for gpt, gelu for transformer and encoder"
        ),
    ] = None
    qk_norm: Annotated[
        bool | None,
        Meta(
            description="Transformers: queries and keys are normalised before they meet (arXiv 2010.04245); none: true "
            "for gpt, false for transformer and encoder, which are then torch's own"
        ),
    ] = None
    mimetic: Annotated[
        bool,
        Meta(
            description="transformer, encoder: keys begin as the queries, so that attention begins by likeness (after "
            "arXiv 2305.09828): what is to be found by its content is found out sooner"
        ),
    ] = False
    window: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="gpt: tokens that a token sees, itself included; none: the whole context"),
    ] = None
    tied: Annotated[bool, Meta(description="the head shares its weights with the embedding (arXiv 1608.05859)")] = False
    dropout: Annotated[float, Meta(description="share of numbers dropped in training", ge=0, lt=1)] = 0.0
    checkpoint_activations: Annotated[
        bool,
        Meta(description="gpt: compute each layer again in the backward pass, to save memory (arXiv 1604.06174)"),
    ] = False
