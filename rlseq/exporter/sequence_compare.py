"""What exported sequence models are compared on, and how far two of them may be apart.

Shapes: B sequences, T places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlseq.errors import ParityError
from rlseq.exporter.parity import TOLERANCE
from rlseq.player.sequence import OnnxSequence
from rlseq.sequence import SequenceSpec

SEED = 2_000_000
BATCHES = (1, 3)
LENGTHS = (1, 5, 17)
ROUNDING = 4 * float(np.finfo(np.float32).eps)  # of a sum of numbers that differ much


def random_inputs(spec: SequenceSpec, rng: np.random.Generator, batch: int, length: int) -> np.ndarray:
    """Tokens `[B, T]` int64, each equally likely, or values `[B, T, F]` float32 distributed as the training data."""
    signature = spec.signature
    if signature.reads_tokens:
        return rng.integers(0, spec.vocabulary, (batch, length))
    shape = (batch, length, len(signature.features))
    return rng.normal(signature.shift, signature.scale, shape).astype(np.float32)


def padding(batch: int, length: int) -> np.ndarray:
    """Which places are real, `[B, T]`: a row without padding, one that is all padding, and one between them."""
    lengths_B = np.array([length, 0, -(-length // 2)])[:batch]
    return np.arange(length) < lengths_B[:, None]


def compare_outputs(spec: SequenceSpec, expected: np.ndarray, found: np.ndarray, what: str) -> float:
    """Largest difference of outputs `[B, P, ...]`; of forecasts in standard deviations of the target.

    Raises:
        ParityError: see `compare`.
    """
    signature = spec.signature
    if signature.kind != "forecast":
        return compare(expected, found, what)
    shift, scale = signature.shift[signature.target], signature.scale[signature.target]
    largest = float(np.abs(expected).max(initial=0.0))
    expected, found = ((np.asarray(side, np.float64) - shift) / scale for side in (expected, found))
    return compare(expected, found, what, rounding=ROUNDING * max(largest, abs(shift)) / scale)


def compare_states(expected: Sequence[Any], found: Sequence[np.ndarray], exported: OnnxSequence, after: str) -> float:
    """Largest difference of states; what is no float must be the same.

    Raises:
        ParityError: see `compare`.
    """
    errors = [0.0]
    for leaf, want, have in zip(exported.spec.state, expected, found, strict=True):
        want = want.cpu().numpy()
        if want.dtype == np.bool_:
            want, have = want.astype(np.int64), have.astype(np.int64)
        errors.append(compare(want, have, f"{leaf.output} after {after}"))
    return max(errors)


def compare(expected: np.ndarray, found: np.ndarray, what: str, rounding: float = 0.0) -> float:
    """Largest difference.

    Args:
        expected: the network's.
        found: the graph's.
        what: for messages.
        rounding: how much they may differ besides.

    Raises:
        ParityError: shapes differ, or numbers by more than rounding.
    """
    if not np.isfinite(expected).all():
        raise ParityError(f"the network's {what} are NaN or infinite: its weights have diverged.")
    if expected.shape != found.shape:
        raise ParityError(f"the exported graph's {what} have shape {found.shape}, the network's {expected.shape}.")
    error = float(np.abs(expected - found).max(initial=0.0))
    allowed = TOLERANCE * max(1.0, float(np.abs(expected).max(initial=0.0))) + rounding
    if not error <= allowed:
        raise ParityError(
            f"the exported graph's {what} differ by up to {error:.3g} from the network's; allowed is {allowed:.3g}."
        )
    return error
