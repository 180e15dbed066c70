"""How questions and their answers become batches, for each kind of network.

`tokens`, decoder-only and recurrent networks: question, start token, answer, end token in one row. Only the answer and
its end are targets, for a question cannot be foreseen. `translate`, encoder-decoder networks: the question is the
source; the start token and the answer are read, the answer and the end token written.

Shapes: B rows, Q symbols of a question, A of an answer, T tokens of a row, S of a source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rlseq.seq.batch import TokenBatch
from rlseq.sequence import Kind


class Layout(NamedTuple):
    """Where things stand.

    Attributes:
        kind: `tokens` or `translate`.
        start: the token between question and answer, or before the answer.
        end: the token after the answer; padding too.
        places: `questions -> [B, A]`, the places of a question at which the tokens of the answer are due, for `tokens`;
            None: behind the question.
    """

    kind: Kind
    start: int
    end: int
    places: Callable[[np.ndarray], np.ndarray] | None = None

    def batch(self, questions: np.ndarray, answers: np.ndarray) -> TokenBatch[np.ndarray]:
        """Rows of questions `[B, Q]` and answers `[B, A]`; without padding, with all masks of the kind."""
        if self.kind == "tokens" and self.places is not None:
            places = self.places(questions)
            targets, mask = np.full_like(questions, self.end), np.zeros(questions.shape, bool)
            np.put_along_axis(targets, places, answers, axis=1)
            np.put_along_axis(mask, places, True, axis=1)
            return TokenBatch(questions.copy(), targets, mask)
        start, end = (np.full((len(questions), 1), token) for token in (self.start, self.end))
        inputs, targets = np.hstack((start, answers)), np.hstack((answers, end))
        if self.kind == "translate":
            mask, given = np.ones(targets.shape, bool), np.ones(questions.shape, bool)
            return TokenBatch(inputs, targets, mask, given, questions.copy())
        row = np.hstack((questions, inputs, end))
        mask = np.zeros((len(row), row.shape[1] - 1), bool)
        mask[:, questions.shape[1] :] = True
        return TokenBatch(row[:, :-1].copy(), row[:, 1:].copy(), mask)

    def stacked(
        self, batches: Sequence[TokenBatch[np.ndarray]], like: TokenBatch[np.ndarray]
    ) -> TokenBatch[np.ndarray]:
        """Batches of several lengths as one, padded at the right to the widths of `like`."""
        fills = (self.end, self.end, False, False, self.end)
        columns = zip(zip(*batches, strict=True), like, fills, strict=True)
        return TokenBatch(*(_stacked(arrays, model, fill) for arrays, model, fill in columns))  # type: ignore[arg-type]


def width(batch: TokenBatch[np.ndarray]) -> int:
    """Tokens of the longest sequence that a network sees of a batch."""
    source = 0 if batch.source is None else batch.source.shape[1]
    return max(batch.inputs.shape[1], source)


def _stacked(arrays: Sequence[np.ndarray], model: np.ndarray | None, fill: int) -> np.ndarray | None:
    if model is None:
        return None
    whole = np.full((sum(map(len, arrays)), model.shape[1]), fill, model.dtype)
    first = 0
    for array in arrays:
        whole[first : first + len(array), : array.shape[1]] = array
        first += len(array)
    return whole
