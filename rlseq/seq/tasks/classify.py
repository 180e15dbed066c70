"""The tasks `classify` and `waveforms`: the class of a series, of a CSV file or computed.

Series of different lengths are padded at the right to a few lengths (`seq.buckets`). A batch of training is of one of
them, chosen as often as its series are many, so that every series is equally likely.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from rlseq.errors import UsageError
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqOptions
from rlseq.seq.series.generated import WAVEFORMS, digest, waveforms
from rlseq.seq.series.labelled import VALUE, Labelled, read_labelled
from rlseq.seq.series.ragged import Ragged, bucket_of, padded_lengths, padding_share
from rlseq.seq.series.scaling import scaling
from rlseq.seq.series.table import listed
from rlseq.seq.tasks.pictures import confusion_picture, without_pictures
from rlseq.seq.tasks.task import ALL, Answers, Direction, Showing, Shown
from rlseq.sequence import Signature

SPLIT_SEED = 0  # which series of a class are for validation
WAVE_SEED = 0  # of the waveforms trained on; those of validation have the next one
WAVES = 10_000  # that are trained on
WAVE_LENGTH = 64  # of the longest, unless seq.length says otherwise; the shortest is half as long
SHOWN = 8  # examples


class Split(NamedTuple):
    """Indices of the series that are trained on, and of those that are only measured on."""

    train: np.ndarray
    validation: np.ndarray


class ClassifyTask(Showing):
    """Series with labels.

    Args:
        options: how they are padded.
        data: the series.
        split: which of them are trained on.
        name: of the task.

    Attributes: see `rlseq.seq.tasks.task.Task`.

    Raises:
        UsageError: a feature changes by less than float32 can reckon with.
    """

    def __init__(self, options: SeqOptions, data: Labelled, split: Split, name: str = "classify") -> None:
        self.name, self.sha256 = name, data.sha256
        self.metrics: dict[str, Direction] = {"accuracy": "higher", "f1": "higher", "loss": "lower"}
        self._series, self._labels, self._split = data.series, data.labels, split
        scaled = scaling(data.series.rows_of(split.train), data.features, data.lost)
        self.signature = Signature(
            kind="classify",
            features=data.features,
            shift=scaled.shift,
            scale=scaled.scale,
            classes=data.classes,
            columns=data.columns,
        )
        lengths = data.series.lengths
        self._lengths = padded_lengths(lengths, options.buckets)
        self._bucket = bucket_of(lengths, self._lengths)
        self._rows = [split.train[self._bucket[split.train] == bucket] for bucket in range(len(self._lengths))]
        self.context = self._lengths[-1]
        self.description = data.description + self._padding(lengths)
        self.static = sum(map(len, self._rows)) == max(map(len, self._rows))
        self.notes = [*scaled.notes, *without_pictures()]

    def _padding(self, lengths: np.ndarray) -> str:
        """How many shapes batches have, and how much of them is padding."""
        if lengths.min() == lengths.max():
            return ""
        share = padding_share(lengths[self._split.train], self._lengths)
        shown = ", ".join(map(str, self._lengths[:8])) + ", ..." * (len(self._lengths) > 8)
        return f"; padded to {len(self._lengths)} lengths ({shown}), {100 * share:.1f} % padding"

    @property
    def predictions_per_epoch(self) -> int:
        """Series that are trained on."""
        return len(self._split.train)

    def sample(self, rng: np.random.Generator, batch_size: int, rows: slice = ALL) -> TokenBatch[np.ndarray]:
        """Series of one padded length, drawn with replacement."""
        train = self._split.train
        bucket = self._bucket[train[rng.integers(len(train))]]
        which = self._rows[bucket]
        return self._batch(which[rng.integers(len(which), size=batch_size)][rows], self._lengths[bucket])

    def validation(self, batch_size: int, max_targets: int | None = None) -> Iterator[TokenBatch[np.ndarray]]:
        """The validation series, from the shortest padded length to the longest."""
        chosen = self._split.validation
        if max_targets is not None and max_targets < len(chosen):
            chosen = chosen[np.arange(max_targets) * len(chosen) // max_targets]
        for bucket, length in enumerate(self._lengths):
            which = chosen[self._bucket[chosen] == bucket]
            for first in range(0, len(which), batch_size):
                yield self._batch(which[first : first + batch_size], length)

    def _batch(self, which: np.ndarray, length: int) -> TokenBatch[np.ndarray]:
        padded = self._series.padded(which, length)
        return TokenBatch(padded.values, self._labels[which], given=padded.given)

    def tally(self, answers: Answers, batch: TokenBatch[np.ndarray]) -> np.ndarray:
        """`[2 + K * K]`: series, their loss in nats, and how many of each class (row) were given each (column)."""
        assert answers.loss is not None and answers.best is not None
        num = len(self.signature.classes)
        confusion = np.bincount(batch.targets * num + answers.best, minlength=num * num)
        return np.concatenate(([len(answers.best), answers.loss.sum(dtype=np.float64)], confusion))

    def metrics_of(self, sums: np.ndarray, sample: str | None) -> dict[str, float]:
        """Share of series that are right, macro F1 (`macro_f1`), and cross-entropy in nats."""
        confusion = self._confusion(sums)
        return {
            "accuracy": float(np.trace(confusion) / sums[0]),
            "f1": macro_f1(confusion),
            "loss": float(sums[1] / sums[0]),
        }

    def _confusion(self, sums: np.ndarray) -> np.ndarray:
        num = len(self.signature.classes)
        return sums[2:].reshape(num, num)

    def examples(self, shown: Shown) -> str:
        """Some labels, and what the model said."""
        assert shown.answers.best is not None
        classes = self.signature.classes
        pairs = list(zip(shown.batch.targets.tolist(), shown.answers.best.tolist(), strict=True))[:SHOWN]
        return "\n".join(f"{classes[truth]} -> {classes[best]}" for truth, best in pairs)

    def pictures(self, sums: np.ndarray, shown: Shown) -> dict[str, bytes]:
        """How many of each class were given each."""
        return (
            {}
            if without_pictures()
            else {"confusion": confusion_picture(self._confusion(sums), self.signature.classes)}
        )


def macro_f1(confusion: np.ndarray) -> float:
    """The mean over the classes of F1 = 2 TP / (2 TP + FP + FN), each class counting the same.

    Args:
        confusion: `[K, K]`, of the class (row) that was given (column). A class that neither occurs nor was given has
            no F1, and is left out.
    """
    right = np.diag(confusion)
    both = confusion.sum(0) + confusion.sum(1)
    return float((2 * right[both > 0] / both[both > 0]).mean())


def stratified(labels: np.ndarray, classes: tuple[str, ...], validation: float, data: str) -> Split:
    """Of every class the share `validation`, rounded, but at least one series in each part, drawn once for all.

    Args:
        labels: `[N]`, indices of `classes`.
        classes: their names, for messages.
        validation: the share.
        data: the file, for messages.

    Raises:
        UsageError: there is one class only, or a class with one series only.
    """
    numbers = np.bincount(labels, minlength=len(classes))
    if len(classes) < 2:
        raise UsageError(f"{data}: every series has the label {classes[0]!r}, and there is nothing to tell apart.")
    if numbers.min() < 2:
        single = [repr(name) for name, number in zip(classes, numbers, strict=True) if number < 2]
        raise UsageError(
            f"{data}: the label{'s' * (len(single) > 1)} {listed(single)} occur{'s' * (len(single) == 1)} in one "
            "series only, and it takes two: one to learn from, one to measure on. Add one, or take it out."
        )
    rng = np.random.Generator(np.random.PCG64(SPLIT_SEED))
    held = np.zeros(len(labels), np.bool_)
    for label, number in enumerate(numbers.tolist()):
        wanted = int(Fraction(str(validation)) * number + Fraction(1, 2))
        held[rng.permutation(np.flatnonzero(labels == label))[: min(max(1, wanted), number - 1)]] = True
    return Split(np.flatnonzero(~held), np.flatnonzero(held))


def read_classify(options: SeqOptions) -> ClassifyTask:
    """The task `classify`, of `seq.data` with `seq.label` and `seq.group`.

    Raises:
        UsageError: unfit data.
    """
    if options.data is None:
        raise UsageError("the task classify is about a CSV file, and none was named: --data FILE")
    if options.label is None:
        raise UsageError(f"which column of {options.data} holds the label? Give --label COLUMN")
    data = read_labelled(options.data, options.label, options.group, options.columns)
    return ClassifyTask(options, data, stratified(data.labels, data.classes, options.validation, options.data))


def make_waveforms(options: SeqOptions) -> ClassifyTask:
    """The task `waveforms`: `rlseq.seq.series.generated.waveforms`, 10,000 to learn from.

    Raises:
        UsageError: lengths that contradict each other, too few examples, or options of other tasks.
    """
    length = options.length or WAVE_LENGTH
    shortest = options.min_length or (length + 1) // 2
    if shortest > length:
        raise UsageError(
            f"seq.min_length = {shortest} is more than seq.length = {length}: the shortest series cannot be longer "
            "than the longest. Set seq.min_length lower, or seq.length higher."
        )
    if options.examples < len(WAVEFORMS):
        raise UsageError(f"seq.examples = {options.examples}: there are {len(WAVEFORMS)} kinds of waves; give as many.")
    make = functools.partial(waveforms, min_length=shortest, length=length)
    parts = make(WAVES, seed=WAVE_SEED), make(options.examples, seed=WAVE_SEED + 1)
    values, lengths, labels = (np.concatenate(pair) for pair in zip(*parts, strict=True))
    data = Labelled(
        Ragged(values[:, None], lengths),
        labels,
        WAVEFORMS,
        (VALUE,),
        digest(values, lengths, labels),
        f"{WAVES} series of {shortest} to {length} values, and {options.examples} for validation",
    )
    return ClassifyTask(options, data, Split(np.arange(WAVES), np.arange(WAVES, len(labels))), "waveforms")
