"""What a caller hands to a sequence model, as its graph takes it, or refused.

Shapes: B sequences, T places, S places of a source, F features.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rlseq.errors import RlseqError
from rlseq.player.sequence_graph import GIVEN, SOURCE, TOKENS, VALUES
from rlseq.sequence import SequenceSpec


def graph_inputs(
    path: Path, spec: SequenceSpec, inputs: Any, source: Any = None, given: Any = None
) -> dict[str, np.ndarray]:
    """The graph's inputs beside its state.

    Args:
        path: of the model, for messages.
        spec: its description.
        inputs: tokens `[B, T]`, or values `[B, T, F]` of any number type.
        source: of `translate`: tokens `[B, S]`; None: none, S = 0.
        given: which places are real, bool: of the source if there is one, else of the values; None: all. What stands
            at the others is not looked at.

    Raises:
        RlseqError: they do not suit the model.
    """
    kind = spec.signature.kind
    if kind != "translate" and source is not None:
        raise RlseqError(f"{path} reads no source ({SOURCE}): its task is {spec.task}, its kind {kind}.")
    if kind == "tokens" and given is not None:
        raise RlseqError(f"{path} takes no padding ({GIVEN}): give sequences of one length.")
    if kind in ("tokens", "translate"):
        feed = {TOKENS: _tokens(path, spec, inputs, f"{TOKENS} [batch, time]")}
        if kind == "translate":
            feed |= _source(path, spec, source, given, len(feed[TOKENS]))
        return feed
    return _values(path, spec, inputs, given)


def as_array(path: Path, inputs: Any) -> np.ndarray:
    """Nested lists, or anything else that numpy takes, as an array of one or more axes.

    Raises:
        RlseqError: lists of unequal lengths.
    """
    try:
        return np.atleast_1d(np.asarray(inputs))
    except ValueError as error:
        raise RlseqError(f"{path} takes rows of one length, as an array; these cannot be one: {error}") from None


def _tokens(path: Path, spec: SequenceSpec, tokens: Any, wanted: str) -> np.ndarray:
    tokens = as_array(path, tokens)
    if tokens.ndim != 2 or tokens.size == 0 or tokens.dtype.kind not in "iu":
        raise RlseqError(
            f"{path} takes {wanted} of whole numbers, at least one; these are {tokens.dtype} of shape {tokens.shape}."
        )
    # A graph would take -1 for the last token of the vocabulary.
    if tokens.min() < 0 or tokens.max() >= spec.vocabulary:
        raise RlseqError(
            f"{path} knows the tokens 0 to {spec.vocabulary - 1}; these go from {tokens.min()} to {tokens.max()}."
        )
    return tokens.astype(np.int64, copy=False)


def _source(path: Path, spec: SequenceSpec, source: Any, given: Any, batch: int) -> dict[str, np.ndarray]:
    if source is None:
        if given is not None:
            raise RlseqError(f"{path}: {GIVEN} says which places of the {SOURCE} are real, and no {SOURCE} was given.")
        return {SOURCE: np.zeros((batch, 0), np.int64), GIVEN: np.zeros((batch, 0), np.bool_)}
    source = as_array(path, source)
    given = _given(path, given, source.shape[:2], SOURCE)
    if source.shape == given.shape and source.dtype.kind in "iu":
        source = np.where(given, source, 0)
    source = _tokens(path, spec, source, f"{SOURCE} [batch, places]")
    if len(source) != batch:
        raise RlseqError(f"{path}: {batch} answers go on, but the {SOURCE} has shape {source.shape}.")
    return {SOURCE: source, GIVEN: given}


def _values(path: Path, spec: SequenceSpec, values: Any, given: Any) -> dict[str, np.ndarray]:
    features = spec.signature.features
    values = as_array(path, values)
    if values.ndim != 3 or values.shape[2] != len(features) or values.size == 0 or values.dtype.kind not in "fiub":
        names = ", ".join(features)
        raise RlseqError(
            f"{path} takes numbers of shape [batch, time, {len(features)}], the features "
            f"{names if len(names) <= 200 else names[:200] + '...'}; these are {values.dtype} of shape {values.shape}."
        )
    with np.errstate(over="ignore"):  # told below
        values = values.astype(np.float32)
    if given is not None:
        given = _given(path, given, values.shape[:2], VALUES)
        values[~given] = 0.0
    if not np.isfinite(values).all():
        row, place, column = np.argwhere(~np.isfinite(values))[0].tolist()
        raise RlseqError(
            f"{path} reads finite numbers; the feature {features[column]!r} is {values[row, place, column]} at place "
            f"{place} of sequence {row}."
        )
    if not spec.one_pass:
        return {VALUES: values}
    return {VALUES: values, GIVEN: np.ones(values.shape[:2], np.bool_) if given is None else given}


def _given(path: Path, given: Any, shape: tuple[int, ...], of: str) -> np.ndarray:
    if given is None:
        return np.ones(shape, np.bool_)
    given = np.asarray(given)
    if given.shape != shape or given.dtype != np.bool_:
        raise RlseqError(
            f"{path}: {GIVEN} is bool of shape {shape}, a place of the {of} each; this one is {given.dtype} of shape "
            f"{given.shape}."
        )
    return given
