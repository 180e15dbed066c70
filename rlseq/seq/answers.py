"""From what a model gives to what a task measures, for numpy arrays; without torch.

Shapes: B sequences, T places, P places answered at (T, or 1 of a model that reads everything first), V tokens,
K classes, H values ahead, Q quantiles.
"""

from __future__ import annotations

import numpy as np

from rlseq.seq.batch import TokenBatch
from rlseq.seq.tasks.task import Answers
from rlseq.sequence import Signature

EVALUATION_PLACES = 16_384  # read at once


def rows_at_once(context: int) -> int:
    """Sequences that are evaluated at once."""
    return max(1, EVALUATION_PLACES // context)


def answers_of(outputs: np.ndarray, batch: TokenBatch[np.ndarray], signature: Signature) -> Answers:
    """What a batch's outputs `[B, P, ...]` answer."""
    if signature.reads_tokens:
        return Answers(_cross_entropy(outputs, batch.targets), outputs.argmax(-1))
    last = at_last(outputs, batch.given)
    if signature.kind == "classify":
        return Answers(_cross_entropy(last, batch.targets), last.argmax(-1))
    return Answers(values=in_quantiles(last, signature))


def at_last(outputs_BPN: np.ndarray, given_BT: np.ndarray | None) -> np.ndarray:
    """What was answered at each row's last real place, `[B, N]`; at the first one where none is real."""
    if outputs_BPN.shape[1] == 1 or given_BT is None:
        return outputs_BPN[:, -1]
    last_B = np.maximum(given_BT.sum(1) - 1, 0)
    return outputs_BPN[np.arange(len(last_B)), last_B]


def in_quantiles(outputs: np.ndarray, signature: Signature) -> np.ndarray:
    """Values ahead `[..., H]`, or with quantiles `[..., H, Q]`, from outputs `[..., H * Q]`."""
    if not signature.quantiles:
        return outputs
    return outputs.reshape(*outputs.shape[:-1], signature.horizon, len(signature.quantiles))


def _cross_entropy(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """In nats, of logits `[..., V]` and targets `[...]`."""
    top = logits.max(axis=-1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(axis=-1)) + top[..., 0]
    return total - np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
