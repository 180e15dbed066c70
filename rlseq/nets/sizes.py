"""Dimensions of sequence networks by name, what they suit and what they cost, known before anything is built."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rlseq.errors import UsageError
from rlseq.nets.config import SequenceNetOptions
from rlseq.sequence import Kind, Signature


class Dimensions(NamedTuple):
    """What is built.

    Attributes:
        layers: blocks of a Transformer (transformer: of the encoder and as many of the decoder), stacked layers of a
            recurrent network.
        heads: of attention; 0 for a recurrent network.
        width: numbers a place is represented by.
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
    "encoder": {
        "tiny": Dimensions(2, 4, 64, 256),
        "small": Dimensions(4, 4, 256, 1024),
        "base": Dimensions(6, 6, 384, 1536),
    },
    "transformer": {
        "tiny": Dimensions(2, 4, 40, 160),
        "small": Dimensions(3, 4, 192, 768),
        "base": Dimensions(5, 8, 272, 1088),
    },
}
# core -> kinds of task it suits
CORE_KINDS: dict[str, tuple[Kind, ...]] = {
    "gpt": ("tokens", "classify", "forecast"),
    "lstm": ("tokens", "classify", "forecast"),
    "gru": ("tokens", "classify", "forecast"),
    "encoder": ("classify", "forecast"),
    "transformer": ("translate",),
}
RECURRENT = ("lstm", "gru")
TORCH_LAYERS = ("encoder", "transformer")  # built of torch's own Transformer layers
ATTENTIVE = ("gpt", *TORCH_LAYERS)
# option -> cores that have such a thing
CORES_WITH: dict[str, tuple[str, ...]] = {
    "bidirectional": RECURRENT,
    **dict.fromkeys(("heads", "mlp_width", "activation", "qk_norm"), ATTENTIVE),
    "mimetic": TORCH_LAYERS,
    **dict.fromkeys(("window", "checkpoint_activations"), ("gpt",)),
}
# Runs of older versions name gpt's own values of these two for every core, so those pass.
STORED_FOR_ALL = {"activation": "relu2", "qk_norm": True}
GATES = {"lstm": 4, "gru": 3}

# What a layer keeps for the backward pass, in widths of the layer.
RECURRENT_KEPT = {"lstm": 16, "gru": 8}
BOTH_WAYS_KEPT = {"lstm": 26, "gru": 10}
PLAIN_KEPT, NORMED_KEPT = (9, 15), (11, 21)  # of encoder and decoder; with queries and keys normalised
MLP_KEPT = {"gelu": 2, "relu": 1, "relu2": 2, "swiglu": 4}


def activation(options: SequenceNetOptions) -> Literal["gelu", "relu", "relu2", "swiglu"]:
    """Of the feed-forward layers: `net.activation`, or the core's own."""
    return options.activation or ("relu2" if options.core == "gpt" else "gelu")


def reads_both_ways(options: SequenceNetOptions, kind: Kind) -> bool:
    """Whether a recurrent network reads forwards and backwards."""
    if options.bidirectional is None:
        return options.core in RECURRENT and kind == "classify"
    return options.bidirectional


def check_core(options: SequenceNetOptions, kind: Kind) -> None:
    """Refuse what does not go together with a kind of task.

    Raises:
        UsageError: a core that cannot do it, or an option that means nothing for it.
    """
    if kind not in CORE_KINDS[options.core]:
        able = ", ".join(core for core, kinds in CORE_KINDS.items() if kind in kinds)
        raise UsageError(f"net.core = {options.core} cannot do a task of kind {kind!r}; set net.core to one of: {able}")
    if options.bidirectional and kind == "tokens":
        raise UsageError(
            "net.bidirectional = true would show a network the tokens that it is to predict; leave it out for a task "
            "of tokens"
        )
    width = options.width or 0
    if reads_both_ways(options, kind) and width % 2:
        raise UsageError(
            f"net.width = {width} cannot be shared equally by both directions; set net.width={width + 1}, or "
            "net.bidirectional=false"
        )
    if options.tied and kind in ("classify", "forecast"):
        raise UsageError(
            f"net.tied = true means nothing for a task of kind {kind!r}: it reads values, and there is no embedding to "
            "share; leave it out"
        )


def dimensions(options: SequenceNetOptions) -> Dimensions:
    """The dimensions that options mean: those of `net.size`, but for what is given by itself.

    Raises:
        UsageError: they do not fit together, or the core has no such thing.
    """
    named = SIZES[options.core][options.size]
    _refuse_what_the_core_lacks(options)
    layers, width = options.layers or named.layers, options.width or named.width
    if options.core in RECURRENT:
        return Dimensions(layers, 0, width, 0)
    heads = options.heads or named.heads
    if width % heads:
        raise UsageError(
            f"net.width = {width} cannot be shared equally by net.heads = {heads}; set "
            f"net.width={heads * _even(width // heads)} or another number of heads"
        )
    if options.core == "gpt" and (width // heads) % 2:
        raise UsageError(
            f"net.width = {width} by net.heads = {heads} gives heads of {width // heads} numbers, and rotary positions "
            f"turn pairs of them; set net.width={width + heads} or another number of heads"
        )
    if width % 2:
        raise UsageError(
            f"net.width = {width} is odd, and positions are pairs of sine and cosine; set net.width={width + heads}"
        )
    return Dimensions(layers, heads, width, options.mlp_width or 4 * width)


def _even(number: int) -> int:
    """The next even number above."""
    return number + 2 - number % 2


def _refuse_what_the_core_lacks(options: SequenceNetOptions) -> None:
    core = options.core
    if core in TORCH_LAYERS and options.activation in ("relu2", "swiglu"):
        raise UsageError(
            f"net.activation = {options.activation} is none that torch's own layers have, of which net.core = "
            f"{core} is built; set net.activation to gelu or relu, or leave it out"
        )
    for name, cores in CORES_WITH.items():
        value = getattr(options, name)
        stored = core in RECURRENT and value == STORED_FOR_ALL.get(name)
        if core not in cores and value != getattr(SequenceNetOptions(), name) and not stored:
            raise UsageError(
                f"net.{name} = {value} means nothing for net.core = {core}; leave it out, or set net.core="
                f"{' or '.join(cores)}"
            )


def parameters(options: SequenceNetOptions, signature: Signature) -> int:
    """Number of trained numbers of the network that would be built.

    Raises:
        UsageError: as `dimensions`, and as `check_core`.
    """
    check_core(options, signature.kind)
    layers, _, width, mlp_width = dimensions(options)
    ends = (1 if options.tied else 2) * signature.vocabulary * width
    if signature.kind in ("classify", "forecast"):
        ends = (len(signature.features) + 1 + signature.num_outputs) * width
    encoder_layer = 4 * width * width + 2 * width * mlp_width + 9 * width + mlp_width
    if options.core == "transformer":
        return ends + layers * (2 * encoder_layer + 4 * width * width + 6 * width) + 4 * width
    if options.core == "encoder":
        return ends + layers * encoder_layer + width
    if options.core == "gpt":
        matrices = 3 if activation(options) == "swiglu" else 2
        return ends + layers * (4 * width * width + matrices * width * mlp_width + 2 * width) + width
    gates = GATES[options.core]
    if reads_both_ways(options, signature.kind):
        return ends + layers * gates * (width * width + width * width // 2 + 2 * width) + width
    return ends + layers * gates * (2 * width * width + 2 * width) + width


def training_bytes(options: SequenceNetOptions, signature: Signature, context: int, batch_rows: int) -> int:
    """Estimate of the memory that a training takes in float32.

    Weights, their gradients and two moments, and what the forward pass keeps for the backward pass of `batch_rows`
    sequences of `context` places; `transformer`: as many of the source and of the answer.
    """
    kept = batch_rows * context * kept_numbers(options, signature, context)
    return 4 * (4 * parameters(options, signature) + kept)


def kept_numbers(options: SequenceNetOptions, signature: Signature, context: int) -> int:
    """Numbers kept for the backward pass, for each place: counted with hooks on saved tensors, in float32."""
    layers, heads, width, mlp_width = dimensions(options)
    dropped = 1 if options.dropout else 0  # a mask for each dropout
    ends = (2 + dropped) * width + 3 * signature.num_outputs
    if options.core in RECURRENT:
        if reads_both_ways(options, signature.kind):
            return ends + layers * (BOTH_WAYS_KEPT[options.core] + dropped) * width
        return ends + (layers * RECURRENT_KEPT[options.core] + dropped) * width
    if options.core in TORCH_LAYERS:
        mlp = (MLP_KEPT[activation(options)] + dropped) * mlp_width
        attention = dropped * 3 * heads * context  # with dropout its weights are kept, those left, and the mask
        encoder, decoder = NORMED_KEPT if options.qk_norm else PLAIN_KEPT
        layer = (encoder + 2 * dropped) * width + attention + mlp
        if options.core == "transformer":
            layer += (decoder + 3 * dropped) * width + 2 * attention + mlp
        return ends + layers * layer
    block = (10 + 2 * dropped) * width + MLP_KEPT[activation(options)] * mlp_width
    if options.checkpoint_activations:
        return ends + layers * width + block  # one block at a time is computed again
    return ends + layers * block
