"""Dimensions of sequence networks by name, and what they cost, known before anything is built."""

from __future__ import annotations

from typing import NamedTuple

from rlseq.errors import UsageError
from rlseq.nets.config import SequenceNetOptions
from rlseq.sequence import Kind


class Dimensions(NamedTuple):
    """What is built.

    Attributes:
        layers: blocks of a Transformer, stacked layers of a recurrent network.
        heads: of attention; 0 for a recurrent network.
        width: numbers a token is represented by.
        mlp_width: of a block's feed-forward layer; 0 for a recurrent network.
    """

    layers: int
    heads: int
    width: int
    mlp_width: int


# About 0.1, 3 and 10 million parameters, whatever the core.
SIZES: dict[str, dict[str, Dimensions]] = {
    "gpt": {
        "tiny": Dimensions(2, 4, 64, 256),
        "small": Dimensions(4, 4, 256, 1024),
        "base": Dimensions(6, 6, 384, 1536),
    },
    "lstm": {"tiny": Dimensions(2, 0, 80, 0), "small": Dimensions(2, 0, 448, 0), "base": Dimensions(3, 0, 640, 0)},
    "gru": {"tiny": Dimensions(2, 0, 96, 0), "small": Dimensions(2, 0, 512, 0), "base": Dimensions(3, 0, 736, 0)},
}
CORE_KINDS: dict[str, tuple[Kind, ...]] = {"gpt": ("tokens",), "lstm": ("tokens",), "gru": ("tokens",)}
GATES = {"lstm": 4, "gru": 3}

# What a layer keeps for the backward pass, in widths of the layer.
RECURRENT_KEPT = {"lstm": 16, "gru": 8}
MLP_KEPT = {"gelu": 2, "relu": 1, "relu2": 2, "swiglu": 4}


def dimensions(options: SequenceNetOptions) -> Dimensions:
    """The dimensions that options mean: those of `net.size`, but for what is given by itself.

    Raises:
        UsageError: they do not fit together, or the core has no such thing.
    """
    named = SIZES[options.core][options.size]
    if options.core != "gpt":
        _refuse_what_only_gpt_has(options)
        return Dimensions(options.layers or named.layers, 0, options.width or named.width, 0)
    width, heads = options.width or named.width, options.heads or named.heads
    if width % heads:
        raise UsageError(
            f"net.width = {width} cannot be shared equally by net.heads = {heads}; set "
            f"net.width={heads * _even(width // heads)} or another number of heads"
        )
    if (width // heads) % 2:
        raise UsageError(
            f"net.width = {width} by net.heads = {heads} gives heads of {width // heads} numbers, and rotary positions "
            f"turn pairs of them; set net.width={width + heads} or another number of heads"
        )
    return Dimensions(options.layers or named.layers, heads, width, options.mlp_width or 4 * width)


def _even(number: int) -> int:
    """The next even number above."""
    return number + 2 - number % 2


def _refuse_what_only_gpt_has(options: SequenceNetOptions) -> None:
    for name in ("heads", "mlp_width", "window", "checkpoint_activations"):
        value = getattr(options, name)
        if value:
            raise UsageError(
                f"net.{name} = {value} means nothing for net.core = {options.core}; leave it out, or set net.core=gpt"
            )


def parameters(options: SequenceNetOptions, vocabulary: int) -> int:
    """Number of trained numbers of the network that would be built."""
    layers, _, width, mlp_width = dimensions(options)
    ends = vocabulary * width * (1 if options.tied else 2)
    if options.core == "gpt":
        matrices = 3 if options.activation == "swiglu" else 2
        return ends + layers * (4 * width * width + matrices * width * mlp_width + 2 * width) + width
    gates = GATES[options.core]
    return ends + layers * gates * (2 * width * width + 2 * width) + width


def training_bytes(options: SequenceNetOptions, vocabulary: int, context: int, batch_rows: int) -> int:
    """Estimate of the memory that a training takes in float32.

    Weights, their gradients and two moments, and what the forward pass keeps for the backward pass of `batch_rows`
    sequences of `context` tokens.
    """
    kept = batch_rows * context * kept_numbers(options, vocabulary)
    return 4 * (4 * parameters(options, vocabulary) + kept)


def kept_numbers(options: SequenceNetOptions, vocabulary: int) -> int:
    """Numbers kept for the backward pass, for each token: counted with hooks on saved tensors, in float32."""
    layers, _, width, mlp_width = dimensions(options)
    dropped = 1 if options.dropout else 0  # a mask for each dropout
    ends = (2 + dropped) * width + 3 * vocabulary
    if options.core != "gpt":
        return ends + (layers * RECURRENT_KEPT[options.core] + dropped) * width
    block = (10 + 2 * dropped) * width + MLP_KEPT[options.activation] * mlp_width
    if options.checkpoint_activations:
        return ends + layers * width + block  # one block at a time is computed again
    return ends + layers * block
