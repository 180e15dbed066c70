"""What the pages of all cards are made of: words, numbers and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rlseq.scores import METRICS, Metric, number

PARITY_WORDS = "values within {:.2g} of the network's"


class Words(NamedTuple):
    """What a card says of one kind of thing; the rest of the page is the same for all.

    Attributes:
        what: what it is, in a sentence that ends before "trained by".
        more: paragraphs after the score.
        columns: of the table of seeds after the metrics, as heading -> text of a run.
        scored: how a row was scored.
        picture: what the picture shows.
        file: rows of the file's table between its size and its checksum.
        middle: which of the two in the middle is shipped.
        selected: what shipping the best run would select by.
        timed: how speed was measured.
        sections: after the file's.
    """

    what: str
    more: list[str]
    columns: dict[str, Callable[[Mapping[str, Any]], str]]
    scored: str
    picture: str
    file: list[list[str]]
    middle: str
    selected: str
    timed: str
    sections: list[str]


def metrics_in(data: Mapping[str, Any]) -> tuple[Metric, ...]:
    """What a card's runs are judged by, the score first."""
    known = METRICS[data.get("task", data["algorithm"])]
    return tuple(metric for metric in known if metric.key in data["runs"][0])


def score_line(score: Mapping[str, Any], metric: Metric) -> str:
    """`499.8 ± 0.46 over 5 seeds (95 % interval of the mean, ...)`."""
    mean = mean_text(score, metric) + (f" {metric.unit}" if metric.unit else "")
    if score["half_width"] is None:
        return f"{mean} with one seed, which gives no interval"
    lowest, highest = (number(score[key], metric.digits) for key in ("lowest", "highest"))
    return (
        f"{mean} over {score['n']} seeds (mean and its 95 % interval, Student's t; lowest seed {lowest}, "
        f"highest {highest})"
    )


def mean_text(score: Mapping[str, Any], metric: Metric) -> str:
    """`499.8 ± 0.46`."""
    mean, half = number(score["mean"], metric.digits), score["half_width"]
    return mean if half is None else f"{mean} ± {number(half, metric.digits)}"


def parity_words(report: Mapping[str, Any]) -> str:
    """How an exported sequence model was compared with its network; not every kind can be stepped, or padded."""
    batches, lengths = (", ".join(map(str, report[key])) for key in ("batch_sizes", "lengths"))
    text = f"{PARITY_WORDS.format(report['max_error'])} at batches of {batches} and lengths of {lengths}, whole"
    if report.get("stepwise_tokens"):
        text += " and token by token" if "greedy_tokens" in report else " and step by step"
    return text + (", with and without padding" if report.get("padded_rows") else "")


def rounded(value: float) -> str:
    """Three figures, which is more than a second measurement would agree on."""
    return f"{float(f'{value:.3g}'):,.0f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    """A Markdown table; the columns after the first are aligned to the right if they hold numbers."""
    lines = [head, ["---", *(["---:" if numbers else "---"] * (len(head) - 1))], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
