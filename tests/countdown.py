"""A model that answers questions, made of two lines: no file, no torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlseq.sequence import SequenceSpec, Signature, Tokenizer

START, END = 8, 9
LETTERS = "01234567=."


class Counter:
    """Its answer to a question: the number of its tokens, that less one, and so on to 0; then the end, then `START`.

    Attributes:
        batches: `[B, S]` of every question's reading.
    """

    def __init__(self, kind: Any, context: int = 6) -> None:
        tokenizer = Tokenizer(unit="char", characters=LETTERS)
        signature = Signature(kind=kind, vocabulary=len(LETTERS), tokenizer=tokenizer, start=START, end=END)
        self.spec = SequenceSpec(task="count", model="hand", signature=signature, context=context)
        self.batches: list[tuple[int, ...]] = []

    def initial_state(self, batch: int) -> tuple[Any, ...]:
        return (np.zeros(batch, np.int64), np.zeros(batch, np.bool_))

    def step(
        self,
        inputs: np.ndarray,
        state: tuple[Any, ...],
        *,
        source: np.ndarray | None = None,
        given: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[Any, ...]]:
        left_B, asked_B = state
        if source is not None:
            assert given is not None and inputs.tolist() == [[START]] * len(source)
            left_B = given.sum(1)
            self.batches.append(source.shape)
        elif not asked_B.any() and self.spec.signature.kind == "tokens":
            left_B = left_B + (inputs != START).sum(1)
            self.batches.append(inputs.shape)
        asked_B = asked_B | (inputs == START).any(1)
        best_B = np.where(left_B == -1, END, np.where(left_B < -1, START, left_B))
        logits_BTV = np.zeros((*inputs.shape, self.spec.vocabulary), np.float32)
        logits_BTV[np.arange(len(inputs)), -1, best_B] = 1.0
        return logits_BTV, (left_B - asked_B, asked_B)
