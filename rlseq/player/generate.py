"""Text, token by token: whatever steps a sequence model, torch or ONNX Runtime, writes by this one loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from rlseq.errors import UsageError
from rlseq.player.sampling import Sampling, check_sampling, choose
from rlseq.sequence import SequenceSpec


class Stepper(Protocol):
    """A sequence model that remembers: its state goes in and comes out, the caller keeps it.

    Attributes:
        spec: the model's description.
    """

    spec: SequenceSpec

    def initial_state(self, batch: int) -> tuple[Any, ...]:
        """The state before the first token of `batch` sequences."""

    def step(self, tokens_BT: np.ndarray, state: tuple[Any, ...]) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Read tokens `[B, T]` int64; logits `[B, T, V]` float32 of the token after each, and the next state."""


def generate(
    stepper: Stepper, prompt_T: np.ndarray, num_tokens: int, sampling: Sampling, rng: np.random.Generator
) -> Iterator[int]:
    """Continue a prompt.

    Args:
        stepper: the model.
        prompt_T: tokens `[T]`, at least one. One that is longer than the model's context is read all the same; what is
            further back than the model's window is forgotten, as it is when the text grows beyond it.
        num_tokens: how many tokens to make.
        sampling: how a token is chosen.
        rng: for the choice.

    Returns:
        The new tokens, each made when it is asked for.

    Raises:
        UsageError: an empty prompt, tokens the model does not know, `num_tokens` below 1, or as `check_sampling`.
    """
    check_sampling(sampling)
    if num_tokens < 1:
        raise UsageError(f"{num_tokens} tokens are nothing to generate: ask for at least 1.")
    prompt_T = np.asarray(prompt_T)
    if prompt_T.ndim != 1 or prompt_T.size == 0 or prompt_T.dtype.kind not in "iu":
        raise UsageError(
            f"a prompt is at least one token, in one row of whole numbers; this one is {prompt_T.dtype} of shape "
            f"{prompt_T.shape}: give at least one character."
        )
    if prompt_T.min() < 0 or prompt_T.max() >= stepper.spec.vocabulary:
        raise UsageError(
            f"the prompt has tokens from {prompt_T.min()} to {prompt_T.max()}; the model knows 0 to "
            f"{stepper.spec.vocabulary - 1}."
        )
    return _tokens(stepper, prompt_T.astype(np.int64), num_tokens, sampling, rng)


def _tokens(
    stepper: Stepper, prompt_T: np.ndarray, num_tokens: int, sampling: Sampling, rng: np.random.Generator
) -> Iterator[int]:
    logits_V, state = read(stepper, prompt_T, stepper.initial_state(1))
    for left in range(num_tokens, 0, -1):
        token = choose(logits_V, sampling, rng)
        yield token
        if left > 1:
            logits_BTV, state = stepper.step(np.array([[token]]), state)
            logits_V = logits_BTV[0, -1]


def read(stepper: Stepper, tokens_T: np.ndarray, state: tuple[Any, ...]) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Step through tokens, at most a context at once: attention takes memory by the square of what it reads at once.

    Returns:
        Logits `[V]` of the token that follows the last one, and the state.
    """
    context = stepper.spec.context
    for start in range(0, len(tokens_T), context):
        logits_BTV, state = stepper.step(tokens_T[None, start : start + context], state)
    return logits_BTV[0, -1], state
