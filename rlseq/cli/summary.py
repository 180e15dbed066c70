"""What `rlseq train` shows of a finished run, or of several."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from rlseq.card_words import parity_words
from rlseq.cli.output import (
    Output,
    duration,
    headline,
    metric_rows,
    number,
    score,
    show_list,
    show_pairs,
    show_sample,
    size,
    write_json,
)
from rlseq.purposes import QUESTIONS, TEXTS, purpose_of
from rlseq.scores import METRICS, Metric, measured_in
from rlseq.scores import number as figure

if TYPE_CHECKING:
    from rlseq.pipeline import TrainingResult


def show_run(out: Output, algorithm: str, result: TrainingResult) -> None:
    """One run, on stdout."""
    if out.as_json:
        write_json(result.summary)
    elif out.quiet:
        typer.echo(str(result.run))
    else:
        show_pairs(summary_rows(result.summary))
        show_sample(result.summary)
        run = shlex.quote(str(result.run))
        typer.echo(f"\nNext:  {use_of(result.summary, run)}\n       rlseq eval {run}\n       rlseq board")


def use_of(summary: Mapping[str, Any], path: str) -> str:
    """The command that uses what was trained, on a question that it was measured on if it answers questions.

    Args:
        summary: of the run.
        path: of the run, quoted.
    """
    if summary["algorithm"] != "seq":
        return f"rlseq play {path}"
    from rlseq.seq.tasks.generated import question_in

    question, purpose = question_in(str(summary.get("sample", ""))), purpose_of(summary)
    if purpose is QUESTIONS and not question:  # answers stand in its rows, which it can write on
        purpose = TEXTS
    return purpose.use.format(path=path, question=shlex.quote(question))


def show_series(out: Output, algorithm: str, seeds: range, done: Sequence[TrainingResult]) -> None:
    """The runs of `--seeds`, on stdout."""
    summaries = [result.summary for result in done]
    metric = measured_in(summaries[0])[0] if algorithm == "seq" else METRICS[algorithm][0]
    total = over_seeds(summaries, metric)
    if out.as_json:
        write_json({"runs": summaries, "seeds": list(seeds), **total})
    elif out.quiet:
        for result in done:
            typer.echo(str(result.run))
    else:
        rows = [[str(s), headline(result.summary), str(result.run)] for s, result in zip(seeds, done, strict=True)]
        show_list(["seed", "score", "run"], rows, right=("seed",))
        mean, std, lowest, highest = (figure(value, metric.digits) for value in total.values())
        typer.echo(f"\n{metric.words} {mean} ± {std} over {len(done)} seeds (min {lowest}, max {highest})")


def summary_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """A run's summary for people."""
    policy, parity = summary["policy"], summary["parity"]
    if summary["algorithm"] == "seq":
        return {
            **metric_rows(summary),
            "best evaluation": f"{figure(summary['best_evaluation'], None)} at update {summary['best_step']}",
            "trained": f"{summary['updates']} updates in {duration(summary['training_seconds'])} "
            f"({summary['stopped']})",
            policy["file"]: f"{size(policy['bytes'])}, {parity_words(parity)}",
            "run": summary["run"],
        }
    extremes = f"min {number(summary['min_return'])}, max {number(summary['max_return'])}"
    best = f"{number(summary['best_evaluation'])} at step {summary['best_step']}"
    return {
        "score": f"{score(summary)} over {summary['episodes']} episodes ({extremes})",
        "best evaluation": best if summary["best_evaluation"] is not None else "-",
        "trained": f"{summary['steps']} steps, {summary['updates']} updates in {duration(summary['training_seconds'])} "
        f"({summary['stopped']})",
        policy["file"]: f"{size(policy['bytes'])}, values within {parity['max_error']:.2g} of the network's, "
        f"{parity['episodes_with_equal_return']} of {parity['episodes']} episodes with the same return",
        "run": summary["run"],
    }


def over_seeds(summaries: Sequence[Mapping[str, Any]], metric: Metric) -> dict[str, float]:
    """Mean, standard deviation (of the population), minimum and maximum of the runs' final scores."""
    what, scores = metric.key.removeprefix("mean_"), [float(summary[metric.key]) for summary in summaries]
    return {
        f"mean_{what}": statistics.fmean(scores),
        f"std_{what}": statistics.pstdev(scores),
        f"min_{what}": min(scores),
        f"max_{what}": max(scores),
    }
