"""What `rlseq train` shows of a finished run, or of several."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from rlseq.algorithms import ALGORITHMS
from rlseq.cli.output import (
    Output,
    duration,
    headline,
    metric_rows,
    number,
    score,
    sequence_parity,
    show_list,
    show_pairs,
    size,
    write_json,
)

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
        run = shlex.quote(str(result.run))
        if algorithm == "seq":
            typer.echo(f"\n{result.summary['sample']}")
        use = ALGORITHMS[algorithm].use
        typer.echo(f"\nNext:  rlseq {use} {run}\n       rlseq eval {run}\n       rlseq board")


def show_series(out: Output, algorithm: str, seeds: range, done: Sequence[TrainingResult]) -> None:
    """The runs of `--seeds`, on stdout."""
    summaries = [result.summary for result in done]
    total = over_seeds(summaries, ALGORITHMS[algorithm].headline[0].removeprefix("mean_"))
    if out.as_json:
        write_json({"runs": summaries, "seeds": list(seeds), **total})
    elif out.quiet:
        for result in done:
            typer.echo(str(result.run))
    else:
        rows = [[str(s), headline(result.summary), str(result.run)] for s, result in zip(seeds, done, strict=True)]
        show_list(["seed", "score", "run"], rows, right=("seed",))
        mean, std, lowest, highest = map(number, total.values())
        typer.echo(f"\n{mean} ± {std} over {len(done)} seeds (min {lowest}, max {highest})")


def summary_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """A run's summary for people."""
    policy, parity = summary["policy"], summary["parity"]
    if summary["algorithm"] == "seq":
        return {
            **metric_rows(summary),
            "best evaluation": f"{number(summary['best_evaluation'])} at update {summary['best_step']}",
            "trained": f"{summary['updates']} updates in {duration(summary['training_seconds'])} "
            f"({summary['stopped']})",
            policy["file"]: f"{size(policy['bytes'])}, {sequence_parity(parity)}",
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


def over_seeds(summaries: Sequence[Mapping[str, Any]], what: str = "return") -> dict[str, float]:
    """Mean, standard deviation (of the population), minimum and maximum of the runs' final scores."""
    scores = [float(summary["mean_return" if what == "return" else what]) for summary in summaries]
    return {
        f"mean_{what}": statistics.fmean(scores),
        f"std_{what}": statistics.pstdev(scores),
        f"min_{what}": min(scores),
        f"max_{what}": max(scores),
    }
