"""Text, token by token: whatever steps a sequence model, torch or ONNX Runtime, writes by this one loop.

A model that answers questions (`Signature.start` and `end`) is asked here too: what is written is its answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from rlseq.errors import UsageError
from rlseq.player.sampling import Sampling, check_sampling, choose
from rlseq.sequence import SequenceSpec, Signature

MAX_SOURCE = 4_096  # places of a source: all are read at once, and attention takes memory by their square


class Stepper(Protocol):
    """A sequence model that remembers: its state goes in and comes out, the caller keeps it.

    Attributes:
        spec: the model's description.
    """

    spec: SequenceSpec

    def initial_state(self, batch: int) -> tuple[Any, ...]:
        """The state before the first token of `batch` sequences."""

    def step(
        self,
        inputs: np.ndarray,
        state: tuple[Any, ...],
        *,
        source: np.ndarray | None = None,
        given: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Read tokens `[B, T]` int64; logits `[B, T, V]` float32 of the token after each, and the next state.

        Args:
            inputs: the tokens.
            state: what came back before.
            source: of `translate`, in the first step: `[B, S]` int64.
            given: which places of the source are real, `[B, S]` bool.
        """


def generate(
    stepper: Stepper, prompt_T: np.ndarray, num_tokens: int, sampling: Sampling, rng: np.random.Generator
) -> Iterator[int]:
    """Continue a prompt, or answer it if it is a question.

    Args:
        stepper: the model.
        prompt_T: tokens `[T]`, at least one. One that is longer than the model's context is read all the same; what is
            further back than the model's window is forgotten, as it is when the text grows beyond it. A question with
            or without the start token behind it.
        num_tokens: how many tokens to make; an answer ends earlier with its end token, which is not given.
        sampling: how a token is chosen.
        rng: for the choice.

    Returns:
        The new tokens, each made when it is asked for.

    Raises:
        UsageError: an empty prompt, tokens the model does not know, `num_tokens` below 1, a model of series, or as
            `check_sampling`.
    """
    check_sampling(sampling)
    if num_tokens < 1:
        raise UsageError(f"{num_tokens} tokens are nothing to generate: ask for at least 1.")
    prompt_T = as_prompt(stepper.spec, prompt_T)
    end = stepper.spec.signature.end
    return itertools.takewhile(lambda token: token != end, endless(stepper, prompt_T, num_tokens, sampling, rng))


def check_writes(spec: SequenceSpec) -> None:
    """Refuse a model of series.

    Raises:
        UsageError: it is one.
    """
    if not spec.signature.reads_tokens:
        raise UsageError(f"the model ({spec.task}) reads numbers and writes no text: let it answer by rlseq predict.")


def as_prompt(spec: SequenceSpec, prompt_T: np.ndarray) -> np.ndarray:
    """A prompt as the model reads it, int64: a question ends in its start token, a source does not.

    Raises:
        UsageError: see `generate`.
    """
    check_writes(spec)
    prompt_T = np.asarray(prompt_T)
    read_T = as_question(spec.signature, prompt_T) if prompt_T.ndim == 1 else prompt_T
    if prompt_T.ndim != 1 or prompt_T.size == 0 or prompt_T.dtype.kind not in "iu" or read_T.size == 0:
        raise UsageError(
            f"a prompt is at least one token, in one row of whole numbers; this one is {prompt_T.dtype} of shape "
            f"{prompt_T.shape}: give at least one character."
        )
    if prompt_T.min() < 0 or prompt_T.max() >= spec.vocabulary:
        raise UsageError(
            f"the prompt has tokens from {prompt_T.min()} to {prompt_T.max()}; the model knows 0 to "
            f"{spec.vocabulary - 1}."
        )
    return read_T.astype(np.int64)


def as_question(signature: Signature, tokens_T: np.ndarray) -> np.ndarray:
    """Tokens `[T]` with the start token at their end if the model looks for it there, and without if it does not."""
    start = signature.start
    ends_in_start = start is not None and tokens_T[-1:].tolist() == [start]
    if signature.kind == "translate":
        return tokens_T[:-1] if ends_in_start else tokens_T
    return tokens_T if start is None or ends_in_start else np.append(tokens_T, start)


def asked(signature: Signature, prompt: str) -> str:
    """A prompt as it is shown before what is written to it: a question with its start token."""
    tokenizer, start = signature.tokenizer, signature.start
    if tokenizer is None or start is None:
        return prompt
    mark = tokenizer.decode(np.array([start]))
    return prompt if prompt.endswith(mark) else prompt + mark


def endless(
    stepper: Stepper, prompt_T: np.ndarray, num_tokens: int, sampling: Sampling, rng: np.random.Generator
) -> Iterator[int]:
    """As `generate`, of a prompt by `as_prompt`; end tokens are tokens like others."""
    logits_BV, state = begin(stepper, prompt_T[None])
    for left in range(num_tokens, 0, -1):
        token = choose(logits_BV[0], sampling, rng)
        yield token
        if left > 1:
            logits_BTV, state = stepper.step(np.array([[token]]), state)
            logits_BV = logits_BTV[:, -1]


def begin(
    stepper: Stepper, prompts_BT: np.ndarray, given_BT: np.ndarray | None = None
) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Read prompts, or sources and the start token of their answers.

    Args:
        stepper: the model.
        prompts_BT: tokens, by `as_prompt`.
        given_BT: of sources: which places are real; None: all.

    Returns:
        Logits `[B, V]` of the token that follows, and the state.

    Raises:
        UsageError: a source that is too long.
    """
    signature, context = stepper.spec.signature, stepper.spec.context
    state = stepper.initial_state(len(prompts_BT))
    if signature.kind != "translate":
        return read(stepper, prompts_BT, state)
    longest = max(MAX_SOURCE, context)
    if prompts_BT.shape[1] > longest:
        raise UsageError(
            f"a question of {prompts_BT.shape[1]} tokens is read at once, and takes too much memory: give at most "
            f"{longest}. The model was trained on up to {context}."
        )
    start_B1 = np.full((len(prompts_BT), 1), signature.start)
    given_BT = np.ones(prompts_BT.shape, np.bool_) if given_BT is None else given_BT
    logits_BTV, state = stepper.step(start_B1, state, source=prompts_BT, given=given_BT)
    return logits_BTV[:, -1], state


def read(stepper: Stepper, tokens_BT: np.ndarray, state: tuple[Any, ...]) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Step through tokens, at most a context at once: attention takes memory by the square of what it reads at once.

    Returns:
        Logits `[B, V]` of the token that follows the last one, and the state.
    """
    context = stepper.spec.context
    for start in range(0, tokens_BT.shape[1], context):
        logits_BTV, state = stepper.step(tokens_BT[:, start : start + context], state)
    return logits_BTV[:, -1], state
