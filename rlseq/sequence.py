"""What an exported sequence model says of itself: task, tokenizer, recurrent state; without torch.

It stands in the ONNX file's metadata as JSON, so that one file generates alone.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np

from rlseq.errors import CorruptFile, NewerFormat, UsageError

SEQUENCE_KEY = "rlseq.sequence"
SEQUENCE_FORMAT = 1
BYTES = 256


class Tokenizer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text as token numbers from 0, and back.

    Attributes:
        unit: `char`: one token a character of `characters`; `byte`: one token a byte of the UTF-8 text.
        characters: the vocabulary of `char`, in the order of the tokens.
    """

    unit: Literal["char", "byte"]
    characters: str = ""

    @property
    def size(self) -> int:
        """Number of different tokens."""
        return BYTES if self.unit == "byte" else len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Tokens `[T]` int64.

        Raises:
            UsageError: a character that is not in the vocabulary, or none at all, named.
        """
        if self.unit == "byte":
            try:
                return np.frombuffer(text.encode(), np.uint8).astype(np.int64)
            except UnicodeEncodeError as error:  # half a surrogate pair, or a byte of a command line that is no UTF-8
                raise UsageError(
                    f"the text holds {text[error.start]!r}, which is no character: give text in UTF-8."
                ) from None
        numbers = {character: number for number, character in enumerate(self.characters)}
        unknown = sorted({character for character in text if character not in numbers})
        if unknown:
            shown = ", ".join(map(repr, unknown[:10])) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
            raise UsageError(
                f"the text holds {shown}, which the model has never seen; its vocabulary has {self.size} characters: "
                f"{self.characters[:200]!r}"
            )
        return np.array([numbers[character] for character in text], np.int64)

    def decode(self, tokens: np.ndarray) -> str:
        """The text of tokens `[T]`; bytes that are no UTF-8 become U+FFFD."""
        if self.unit == "byte":
            return bytes(tokens.astype(np.uint8)).decode(errors="replace")
        return "".join(self.characters[token] for token in tokens.tolist())

    def stream(self) -> Callable[[int], str]:
        """Text for one token after the other; a character of several bytes appears with its last one."""
        if self.unit == "char":
            return self.characters.__getitem__
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return lambda token: decoder.decode(bytes([token]))


Kind = Literal["tokens", "translate", "classify", "forecast"]


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model reads and answers.

    Attributes:
        kind: of task.
        vocabulary: tokens, translate: number of different tokens.
        tokenizer: text as those tokens.
        start: translate: the token that an answer's inputs begin with; tokens: the one between question and answer.
        end: token that ends an answer.
        features: classify, forecast: columns read, in their order.
        shift, scale: one a feature: the graph computes (x - shift) / scale itself.
        classes: classify.
        target: forecast: index of the feature that is forecast.
        horizon: forecast: values ahead.
        quantiles: forecast with the quantile loss; () is one number a step.
    """

    kind: Kind = "tokens"
    vocabulary: int = 0
    tokenizer: Tokenizer | None = None
    start: int | None = None
    end: int | None = None
    features: tuple[str, ...] = ()
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    classes: tuple[str, ...] = ()
    target: int = 0
    horizon: int = 0
    quantiles: tuple[float, ...] = ()

    @property
    def num_outputs(self) -> int:
        """Numbers answered at a place."""
        if self.kind == "classify":
            return len(self.classes)
        if self.kind == "forecast":
            return self.horizon * max(1, len(self.quantiles))
        return self.vocabulary


class SequenceState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One array of the state: the graph takes it as `name` and gives its successor as `output`; it starts as zeros.

    Attributes:
        shape: numbers, `batch`, and `past` (the tokens remembered, 0 at the start).
    """

    name: str
    output: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"

    def zeros(self, batch: int) -> np.ndarray:
        """The state before the first token of `batch` sequences."""
        sizes = {"batch": batch, "past": 0}
        return np.zeros([sizes[n] if isinstance(n, str) else n for n in self.shape], self.dtype)


class SequenceSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about an exported sequence model but its weights.

    The graph takes `tokens` `[batch, time]` int64 and the state, and gives `logits` `[batch, time, vocabulary]` float32
    and the next state.

    Attributes:
        task: `text`.
        model: kind of network: gpt, lstm, gru.
        vocabulary: number of different tokens.
        context: length of the sequences it was trained on.
        window: how many tokens back a token can see, itself included; None: no bound (recurrent networks).
        lineage, scores, parity, weights_sha256: as in `rlseq.spec.PolicySpec`.
    """

    format_version: int = SEQUENCE_FORMAT
    rlseq_version: str = ""
    algorithm: str = "seq"
    task: str
    model: str
    vocabulary: int
    context: int
    window: int | None = None
    tokenizer: Tokenizer | None = None
    state: tuple[SequenceState, ...] = ()
    lineage: tuple[dict[str, Any], ...] = ()
    scores: dict[str, Any] = {}
    parity: dict[str, Any] = {}
    weights_sha256: str = ""


def encode_sequence_spec(spec: SequenceSpec) -> str:
    """The spec as JSON."""
    return msgspec.json.encode(spec).decode()


def decode_sequence_spec(text: str | bytes, where: str) -> SequenceSpec:
    """Read a spec.

    Args:
        text: JSON.
        where: the file, for messages.

    Raises:
        NewerFormat: written by a newer rlseq.
        CorruptFile: no valid spec, or one that contradicts itself.
    """
    try:
        version = msgspec.json.decode(text, type=_Version).format_version
        if version > SEQUENCE_FORMAT:
            raise NewerFormat(
                f"{where} has format_version {version}; this rlseq reads up to {SEQUENCE_FORMAT}: update rlseq."
            )
        spec = msgspec.json.decode(text, type=SequenceSpec)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CorruptFile(f"{where} holds a damaged description of a sequence model: {str(error)[:300]}.") from None
    names = [leaf.name for leaf in spec.state]
    axes = {axis for leaf in spec.state for axis in leaf.shape}
    sound = (
        version >= 1
        and len(set(names)) == len(names)
        and spec.vocabulary >= 1
        and spec.context >= 1
        and (spec.window is None or spec.window >= 1)
        and (spec.tokenizer is None or spec.tokenizer.size == spec.vocabulary)
        and (spec.tokenizer is None or len(set(spec.tokenizer.characters)) == len(spec.tokenizer.characters))
        and all(axis in ("batch", "past") if isinstance(axis, str) else axis >= 0 for axis in axes)
    )
    if not sound:
        raise CorruptFile(f"{where} holds a description of a sequence model that contradicts itself.")
    return spec


class _Version(msgspec.Struct):
    format_version: int
