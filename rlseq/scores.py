"""By which numbers a training is judged.

The first is its score: runs are compared by it, and the one in the middle is shipped.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from rlseq.dqn.config import DqnTraining
from rlseq.seq.config import SeqTraining


class Metric(NamedTuple):
    """A number that says how good something is.

    Attributes:
        key: in a run's `summary.json`.
        words: for people.
        curve: its evaluations in training, by their TensorBoard name.
        better: which values are better.
        unit: if it has one.
        digits: decimals that are worth showing.
    """

    key: str
    words: str
    curve: str
    better: Literal["lower", "higher"]
    unit: str = ""
    digits: int = 2


# By the algorithm; of sequence models by the task.
METRICS = {
    "dqn": (Metric("mean_return", "mean return", "eval/return_mean", "higher"),),
    "text": (
        Metric("loss", "loss", "eval/loss", "lower", "nats a token", 4),
        Metric("bits_per_token", "bits a token", "eval/bits_per_token", "lower", digits=4),
        Metric("perplexity", "perplexity", "eval/perplexity", "lower", digits=3),
    ),
}


def metrics_of(options: DqnTraining | SeqTraining) -> tuple[Metric, ...]:
    """The numbers that a training with these options is judged by, its score first."""
    return METRICS[options.seq.task if isinstance(options, SeqTraining) else "dqn"]


def best_of(values: list[float], metric: Metric) -> float:
    """The best of some values."""
    return min(values) if metric.better == "lower" else max(values)
