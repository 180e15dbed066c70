"""By which numbers a training is judged.

The first is its score: runs are compared by it, and the one in the middle is shipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rlseq.purposes import TEXT

if TYPE_CHECKING:
    from rlseq.dqn.config import DqnTraining
    from rlseq.seq.config import SeqTraining


LARGEST = 1e308  # about the largest float


class Metric(NamedTuple):
    """A number that says how good something is.

    Attributes:
        key: in a run's `summary.json`.
        words: for people.
        curve: its evaluations in training, by their TensorBoard name.
        better: which values are better.
        unit: if it has one.
        digits: decimals that are worth showing; None: four figures, because it has the unit of the user's data.
        loss: the one `seq.loss` with which it is measured; "": it is measured with all.
        always: whether it is measured whatever the data.
    """

    key: str
    words: str
    curve: str
    better: Literal["lower", "higher"]
    unit: str = ""
    digits: int | None = 2
    loss: str = ""
    always: bool = True


EXACT_MATCH = (
    Metric("exact_match", "exact match", "eval/exact_match", "higher", digits=4),
    Metric("exact_match_2x", "exact match at 2x the length", "eval/exact_match_2x", "higher", digits=4),
    Metric("token_accuracy", "token accuracy", "eval/token_accuracy", "higher", digits=4),
    Metric("token_accuracy_2x", "token accuracy at 2x", "eval/token_accuracy_2x", "higher", digits=4),
    Metric("loss", "loss", "eval/loss", "lower", "nats a token", 4),
)
CLASSES = (
    Metric("accuracy", "accuracy", "eval/accuracy", "higher", digits=4),
    Metric("f1", "macro F1", "eval/f1", "higher", digits=4),
    Metric("loss", "loss", "eval/loss", "lower", "nats a series", 4),
)
FORECAST = (
    Metric("mase", "MASE", "eval/mase", "lower", digits=4),
    Metric("rmse", "RMSE", "eval/rmse", "lower", digits=None),
    Metric("mae", "MAE", "eval/mae", "lower", digits=None),
    Metric("naive_ratio", "MAE over naive MAE", "eval/naive_ratio", "lower", digits=4, always=False),
    Metric("rmse_1", "RMSE of one step", "eval/rmse_1", "lower", digits=None),
    Metric("nrmse_1", "NRMSE of one step", "eval/nrmse_1", "lower", "standard deviations", 4),
    Metric("loss", "loss", "eval/loss", "lower", "squared standard deviations", None),
    Metric("coverage", "coverage", "eval/coverage", "higher", digits=4, loss="quantile"),
)
# By the algorithm; of sequence models by the task.
METRICS: dict[str, tuple[Metric, ...]] = {
    "dqn": (Metric("mean_return", "mean return", "eval/return_mean", "higher"),),
    TEXT: (
        Metric("loss", "loss", "eval/loss", "lower", "nats a token", 4),
        Metric("bits_per_token", "bits a token", "eval/bits_per_token", "lower", digits=4),
        Metric("perplexity", "perplexity", "eval/perplexity", "lower", digits=3),
    ),
    "copy": EXACT_MATCH,
    "reverse": EXACT_MATCH,
    "sort": EXACT_MATCH,
    "addition": EXACT_MATCH,
    "selective-copy": EXACT_MATCH,
    "induction": EXACT_MATCH,
    "recall": EXACT_MATCH,
    "classify": CLASSES,
    "waveforms": CLASSES,
    "forecast": FORECAST,
    "mackey-glass": FORECAST,
    "lorenz": FORECAST,
}


def metrics_of(options: DqnTraining | SeqTraining) -> tuple[Metric, ...]:
    """The numbers that a training with these options is judged by, its score first."""
    from rlseq.seq.config import SeqTraining  # here, for the command line must begin without msgspec

    if not isinstance(options, SeqTraining):
        return METRICS["dqn"]
    return tuple(metric for metric in METRICS[options.seq.task] if metric.loss in ("", options.seq.loss))


def measured_in(values: Mapping[str, Any], task: str | None = None) -> tuple[Metric, ...]:
    """The numbers of a sequence model's task that a summary, an evaluation or a file's scores hold, the score first.

    Args:
        values: they may be another tool's, or changed: what is no number is left out.
        task: if `values` do not name it.
    """
    known = METRICS.get(str(values.get("task", task or TEXT)), ())
    return tuple(metric for metric in known if is_number(values.get(metric.key)))


def score_keys(algorithm: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The entries of a run's summary that say how good it is.

    Args:
        algorithm: as in `rlseq train ALGORITHM`; one that is not known here is judged as dqn.
        options: of its `config.json`.
    """
    if algorithm != "seq":
        return ("mean_return", "std_return")
    return tuple(metric.key for metric in METRICS.get(str(options.get("seq", {}).get("task", TEXT)), ())[:1])


def best_of(values: list[float], metric: Metric) -> float:
    """The best of some values."""
    return min(values) if metric.better == "lower" else max(values)


def is_number(value: Any) -> bool:
    """Whether a value out of a JSON file is a number, and no whole one that is too large for a float."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= LARGEST
    return isinstance(value, float)


def number(value: float, digits: int | None = 2) -> str:
    """`499.85`, `-12.3`, `500`: at most so many decimals; without a number of them four figures, `0.001234`."""
    if digits is None:
        return f"{value:.4g}"
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if digits else text
    return "0" if text == "-0" else text
