"""What `rlseq info` says of sequence models alone: what they read, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlseq.sequence import Signature

LONGEST_NAMES = 200  # characters of columns or classes that are shown


def signature_rows(signature: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, str]:
    """What a sequence model reads and answers.

    Args:
        signature: of the description in its file.
        facts: the rest of the description.
    """
    import msgspec

    from rlseq.sequence import Signature

    read = msgspec.convert(signature, Signature)
    seen = "" if facts["window"] is None else f", a place sees {facts['window']}"
    trained = f"trained on sequences of {facts['context']}{seen}"
    if read.reads_tokens:
        unit = f" ({read.tokenizer.unit})" if read.tokenizer is not None else ""
        return {"tokens": f"{read.vocabulary}{unit}, {trained}"} | _answers(read)
    way = "a whole series at once" if facts.get("one_pass") else "step by step, with a state"
    rows = {"reads": f"{_some(read.features)}; {way}; {trained}"}
    if read.kind == "classify":
        return {**rows, "classes": _some(read.classes)}
    quantiles = f", quantiles {', '.join(map(str, read.quantiles))}" if read.quantiles else ""
    return {**rows, "forecasts": f"{read.features[read.target]}, {read.horizon} ahead{quantiles}"}


def _answers(read: Signature) -> dict[str, str]:
    """Of a model that answers questions, where they end."""
    if read.start is None or read.end is None or read.tokenizer is None:
        return {}
    start, end = (repr(read.tokenizer.stream()(token)) for token in (read.start, read.end))
    return {"answers": f"questions: each is followed by {start}, its answer by {end}"}


def _some(names: Sequence[str]) -> str:
    """Names, or how many there are."""
    shown = ", ".join(names)
    return shown if len(shown) <= LONGEST_NAMES else str(len(names))
