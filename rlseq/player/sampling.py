"""Choosing the next token from a sequence model's logits."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rlseq.errors import RlseqError, UsageError


class Sampling(NamedTuple):
    """How the next token is drawn.

    Attributes:
        temperature: logits are divided by it; 0 takes the most probable token, 1 draws as the model says.
        top_k: draw from this many most probable tokens only; None: from all.
        top_p: draw from the fewest most probable tokens that together have this probability (nucleus sampling, arXiv
            1904.09751), after `temperature` and `top_k`; None: from all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None


GREEDY = Sampling(temperature=0.0)


def check_sampling(sampling: Sampling) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        UsageError: naming the number.
    """
    temperature, top_k, top_p = sampling
    if not 0 <= temperature < math.inf:
        raise UsageError(f"temperature {temperature} is not a number from 0 up: 0 is greedy, 1 as the model says.")
    if top_k is not None and not top_k >= 1:
        raise UsageError(f"top_k {top_k} leaves no token to draw: give at least 1, or leave it out.")
    if top_p is not None and not 0 < top_p <= 1:
        raise UsageError(f"top_p {top_p} is no share of the probability: give a number above 0 up to 1.")


def choose(logits_V: np.ndarray, sampling: Sampling, rng: np.random.Generator) -> int:
    """Draw a token.

    Args:
        logits_V: float, one for each token of the vocabulary; -inf for what must not be drawn.
        sampling: checked by `check_sampling`.
        rng: gives one number, none if greedy.

    Returns:
        The token; where tokens are equally probable, greedy and `top_k` prefer the lowest.

    Raises:
        RlseqError: the largest logit is NaN or infinite.
    """
    largest = logits_V.max()
    if not np.isfinite(largest):
        raise RlseqError(f"the model's largest logit is {largest}: its weights are broken.")
    if sampling.temperature == 0:
        return int(logits_V.argmax())
    with np.errstate(over="ignore"):  # a tiny temperature: the others come to -inf, probability 0
        scaled_V = (logits_V.astype(np.float64) - float(largest)) / sampling.temperature
    order_K = np.argsort(-scaled_V, kind="stable")[: sampling.top_k]
    weights_K = np.exp(scaled_V[order_K])
    sums_K = weights_K.cumsum()
    count = int(np.searchsorted(sums_K, sums_K[-1] * (1.0 if sampling.top_p is None else sampling.top_p))) + 1
    # A draw is below the whole sum, rounded too; the first place whose sum exceeds it has a weight above 0.
    place = int(np.searchsorted(sums_K[:count], rng.random() * sums_K[count - 1], side="right"))
    return int(order_K[place])
