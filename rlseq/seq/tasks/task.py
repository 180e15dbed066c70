"""What a sequence task is to a trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, Protocol

import numpy as np

from rlseq.seq.batch import TokenBatch
from rlseq.sequence import Signature

Direction = Literal["lower", "higher"]
"""Which values of a metric are better."""


ALL = slice(None)


class Answers(NamedTuple):
    """What a model answers to a batch, reduced to what tasks measure.

    Attributes:
        loss: cross-entropy in nats of each target: tokens `[B, T]`, classes `[B]`; None for values.
        best: the likeliest token `[B, T]` or class `[B]`, the first of equal ones; None for values.
        values: `[B, H]`, or `[B, H, Q]` for Q quantiles: what follows the last place; None for tokens and classes.
    """

    loss: np.ndarray | None = None
    best: np.ndarray | None = None
    values: np.ndarray | None = None


class Shown(NamedTuple):
    """A validation batch, and what the model answered."""

    batch: TokenBatch[np.ndarray]
    answers: Answers


class Showing(Protocol):
    """What a task shows of a model besides its metrics: nothing, but for what it defines itself."""

    def prompt(self) -> str:
        """What a sample begins with; "": the task has no sample."""
        return ""

    def examples(self, shown: Shown) -> str:
        """Some rows of a validation batch as text, with what the model answered; "": there is nothing to read."""
        return ""

    def pictures(self, sums: np.ndarray, shown: Shown) -> dict[str, bytes]:
        """Pictures of an evaluation, name -> PNG; none where there is nothing to see.

        Args:
            sums: `[S]`, of all validation batches.
            shown: one of them.
        """
        return {}


class Task(Showing, Protocol):
    """Batches to learn from, batches to be measured on, and what the measurements are called.

    A task inherits from `Showing`. What else stands here it simply has, much of it as plain attributes.

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
    def signature(self) -> Signature:
        """What a model reads and answers."""

    @property
    def context(self) -> int:
        """Places of the longest sequence it gives, in training or validation: so far back a model must see."""

    @property
    def static(self) -> bool:
        """Whether all batches of training have one shape."""

    @property
    def predictions_per_epoch(self) -> int | None:
        """Predictions of one pass over the training data; None: it is made as it is needed, without an end."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        """The names of what `metrics_of` gives; the first one chooses the best checkpoint if nothing else is said."""

    def sample(self, rng: np.random.Generator, batch_size: int, rows: slice = ALL) -> TokenBatch[np.ndarray]:
        """A batch of training data, or some rows of one.

        Args:
            rng: where all chance comes from; its stream is the same whatever the rows.
            batch_size: sequences of the whole batch.
            rows: which of them to give: each of several processes learns from its own.

        Returns:
            The rows; a task's batches always carry a mask, or never.
        """

    def validation(self, batch_size: int, max_targets: int | None = None) -> Iterator[TokenBatch[np.ndarray]]:
        """The validation data in batches of at most `batch_size` sequences; every target once.

        Args:
            batch_size: sequences at once.
            max_targets: at most so many targets, evenly spread over the data and always the same; None: all.
        """

    def tally(self, answers: Answers, batch: TokenBatch[np.ndarray]) -> np.ndarray:
        """What a validation batch comes to, `[S]` float64: sums, which are added up over batches and processes.

        The first is the number of targets that the score is of.
        """

    def metrics_of(self, sums: np.ndarray, sample: str | None) -> dict[str, float]:
        """The metrics.

        Args:
            sums: `[S]`, of all validation batches.
            sample: what the model wrote; None or "": nothing, and metrics of it are left out.
        """
