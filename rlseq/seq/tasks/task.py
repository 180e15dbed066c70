"""What a sequence task is to a trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

import numpy as np

from rlseq.seq.batch import TokenBatch
from rlseq.sequence import Tokenizer

Direction = Literal["lower", "higher"]
"""Which values of a metric are better."""


ALL = slice(None)


class Task(Protocol):
    """Batches to learn from, batches to be measured on, and what the measurements are called.

    A task holds no random state: whoever samples brings the generator, whose state is then the sampler's whole state.
    """

    @property
    def name(self) -> str:
        """As in `seq.task`."""

    @property
    def description(self) -> str:
        """The data: name and size."""

    @property
    def notes(self) -> list[str]:
        """What the user should know before it begins."""

    @property
    def sha256(self) -> str:
        """Of the data."""

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Between text and tokens; None if the tokens are no text."""

    @property
    def tokens_per_epoch(self) -> int:
        """Predictions of one pass over the training data."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        """The names of what `metrics_of` gives."""

    def sample(self, rng: np.random.Generator, batch_size: int, rows: slice = ALL) -> TokenBatch[np.ndarray]:
        """A batch of training data, or some rows of one.

        Args:
            rng: where all chance comes from; its stream is the same whatever the rows.
            batch_size: sequences of the whole batch.
            rows: which of them to give: each of several processes learns from its own.

        Returns:
            The rows; a task's batches always carry a mask, or never.
        """

    def validation(self, batch_size: int, max_tokens: int | None = None) -> Iterator[TokenBatch[np.ndarray]]:
        """The validation data in batches of at most `batch_size` sequences; every target once.

        Args:
            batch_size: sequences at once.
            max_tokens: at most so many targets, evenly spread over the data and always the same; None: all.
        """

    def metrics_of(self, total_loss: float, num_tokens: int, sample: str | None) -> dict[str, float]:
        """The metrics.

        Args:
            total_loss: cross-entropy in nats, summed over the validation targets.
            num_tokens: how many they were.
            sample: what the model wrote; None or "": nothing, and metrics of it are left out.
        """

    def prompt(self) -> str:
        """What a sample begins with."""
