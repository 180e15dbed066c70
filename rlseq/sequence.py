"""What an exported sequence model says of itself: task, tokenizer, recurrent state; without torch.

It stands in the ONNX file's metadata as JSON, so that one file generates alone.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import numpy as np

from rlseq.errors import CorruptFile, NewerFormat, UsageError

SEQUENCE_KEY = "rlseq.sequence"
SEQUENCE_FORMAT = 2
BYTES = 256

Kind = Literal["tokens", "translate", "classify", "forecast"]
"""What a model does: the next token at every place; an answer, token by token, to a source that was read before; the
class of a series; the next values of one."""


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


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sequence model reads and answers.

    Attributes:
        vocabulary: of `tokens` and `translate`: number of different tokens; source and answer share them.
        tokenizer: between text and tokens, if they are text.
        start: the token that the inputs of an answer begin with; of `tokens` it ends the question; None: a text without
            questions.
        end: the token that ends an answer.
        features: of a series: the columns that are read, in this order.
        shift, scale: of a series, one a feature: the graph takes raw values and computes `(x - shift) / scale` itself.
        classes: of `classify`: the labels.
        columns: of `classify` where a row of a table is a series: what its values were called.
        target: of `forecast`: which feature is forecast; in its own unit.
        horizon: of `forecast`: how many values ahead.
        quantiles: of `forecast`: which quantiles each value is given as; none: one number.
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
    columns: tuple[str, ...] = ()
    target: int = 0
    horizon: int = 0
    quantiles: tuple[float, ...] = ()

    @property
    def reads_tokens(self) -> bool:
        """Whether its inputs are tokens, not values."""
        return self.kind in ("tokens", "translate")

    @property
    def num_outputs(self) -> int:
        """Numbers of one answer: a logit of every token or class, or the values ahead."""
        if self.reads_tokens:
            return self.vocabulary
        if self.kind == "classify":
            return len(self.classes)
        return self.horizon * max(1, len(self.quantiles))

    def is_sound(self) -> bool:
        """Whether it makes sense by itself."""
        tokens = (self.start, self.end)
        if self.reads_tokens:
            return (
                self.vocabulary >= 1
                and (self.tokenizer is None or self.tokenizer.size == self.vocabulary)
                and (self.tokenizer is None or len(set(self.tokenizer.characters)) == len(self.tokenizer.characters))
                and all(token is None or 0 <= token < self.vocabulary for token in tokens)
                and (self.kind == "tokens" or None not in tokens)
                and not (self.features or self.classes or self.horizon)
            )
        num = len(self.features)
        return (
            num >= 1
            and len(self.shift) == len(self.scale) == num
            and all(map(math.isfinite, self.shift))
            and all(math.isfinite(scale) and scale > 0 for scale in self.scale)
            and self.vocabulary == 0
            and (len(set(self.classes)) == len(self.classes) >= 2 if self.kind == "classify" else self.horizon >= 1)
            and 0 <= self.target < num
            and all(0 < quantile < 1 for quantile in self.quantiles)
        )


class SequenceState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One array of the state: the graph takes it as `name` and gives its successor as `output`; it starts as zeros.

    Attributes:
        shape: numbers, `batch`, `past` (the tokens remembered) and `source` (the places of the source that was read),
            the last two 0 at the start.
    """

    name: str
    output: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"

    def zeros(self, batch: int) -> np.ndarray:
        """The state before the first token of `batch` sequences."""
        sizes = {"batch": batch, "past": 0, "source": 0}
        return np.zeros([sizes[n] if isinstance(n, str) else n for n in self.shape], self.dtype)


class SequenceSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about an exported sequence model but its weights; `rlseq.player.sequence` says what its graph takes.

    Attributes:
        task: as in `rlseq list tasks`.
        task_options: the `seq.*` options from which the task can be made again, but for the place of its data.
        model: kind of network, as in `net.core`.
        signature: what it reads and answers.
        context: length of the sequences it was trained on.
        window: how many tokens back a token can see, itself included; None: no bound (recurrent networks).
        one_pass: it reads a whole sequence and answers once; else it answers at every place, with its state in and out.
        lineage, scores, parity, weights_sha256: as in `rlseq.spec.PolicySpec`.
    """

    format_version: int = SEQUENCE_FORMAT
    rlseq_version: str = ""
    algorithm: str = "seq"
    task: str
    task_options: dict[str, Any] = {}
    model: str
    signature: Signature
    context: int
    window: int | None = None
    one_pass: bool = False
    state: tuple[SequenceState, ...] = ()
    lineage: tuple[dict[str, Any], ...] = ()
    scores: dict[str, Any] = {}
    parity: dict[str, Any] = {}
    weights_sha256: str = ""

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        return self.signature.vocabulary

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Between text and tokens, if they are text."""
        return self.signature.tokenizer


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
        spec = _of_format_1(text) if version == 1 else msgspec.json.decode(text, type=SequenceSpec)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CorruptFile(f"{where} holds a damaged description of a sequence model: {str(error)[:300]}.") from None
    names = [leaf.name for leaf in spec.state]
    axes = {axis for leaf in spec.state for axis in leaf.shape}
    sound = (
        version >= 1
        and len(set(names)) == len(names)
        and spec.context >= 1
        and (spec.window is None or spec.window >= 1)
        and spec.signature.is_sound()
        and not (spec.one_pass and (spec.state or spec.signature.reads_tokens))
        and all(axis in ("batch", "past", "source") if isinstance(axis, str) else axis >= 0 for axis in axes)
    )
    if not sound:
        raise CorruptFile(f"{where} holds a description of a sequence model that contradicts itself.")
    return spec


def _of_format_1(text: str | bytes) -> SequenceSpec:
    """Format 1 had models of plain text only, and said at its top what they read."""
    fields = msgspec.json.decode(text, type=dict[str, Any])
    signature = {name: fields.pop(name) for name in ("vocabulary", "tokenizer") if name in fields}
    spec = msgspec.convert({**fields, "signature": signature}, SequenceSpec)
    unit = "auto" if spec.tokenizer is None else spec.tokenizer.unit
    return msgspec.structs.replace(spec, task_options={"context": spec.context, "unit": unit})


class _Version(msgspec.Struct):
    format_version: int
