"""`rlseq compare`: scores and curves of runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rlseq.cli.output import Output, duration, say, show_list, write_json
from rlseq.cli.params import Json, Quiet, complete_run
from rlseq.scores import number


def complete_tag(incomplete: str) -> list[str]:
    """The curves that most runs have."""
    from rlseq.plots import known_curves

    return [tag for tag in known_curves() if tag.startswith(incomplete)]


def compare(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="Runs (folder or name), as many as you like.", autocompletion=complete_run),
    ],
    file: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Draw the curves into this .png or .svg file.", show_default=False),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(
            "--tag",
            metavar="CURVE",
            help="Which curve to draw.",
            show_default="the evaluations",
            autocompletion=complete_tag,
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare runs: final scores in a table, curves in a picture.

    Runs whose options differ only in their seed are one group, named by what
    sets it apart. A group's score is the mean over its finished runs, those of
    one seed counted once, with its 95 % interval (Student's t). A policy's is
    its mean return on episodes that no selection has seen, higher is better; a
    sequence model's its task's, on the whole validation split: of a text the
    loss, of questions exact match, of classes accuracy, of forecasts MASE.
    Only runs with the same score can be compared.
    The other columns are means over the group's runs.

    Examples:

      rlseq compare runs/lr-*
      rlseq compare runs/double-s* runs/vanilla-s* --out double.png
      rlseq compare my-run other-run --out loss.svg --tag train/loss
      rlseq compare runs/gpt-s* runs/lstm-s* --out cores.png --tag eval/perplexity
      rlseq compare my-run other-run --json
    """
    out = Output(as_json, quiet)
    with out.working():
        from rlseq.compare import compare as run

        found = run(paths, tag=tag, out=file)
    for warning in found["warnings"]:
        say(warning, "yellow", "Warning")
    if tag is not None and file is None and not as_json:
        say(f"--tag {tag} chooses the curve to draw, and nothing is drawn: add --out FILE.png", "yellow", "Warning")
    if as_json:
        write_json(found)
        return
    metric = found["metric"]
    rows = [cells(group, metric) for group in found["groups"]]
    columns = list(rows[0])
    show_list(columns, [list(row.values()) for row in rows], right=tuple(columns[2:]))
    if file is not None:
        typer.echo(f"\npicture  {file}")
    else:
        out.note("\nA picture of the curves: add --out FILE.png")


def cells(group: Mapping[str, Any], metric: Mapping[str, Any]) -> dict[str, str]:
    """A group as a row of the table."""
    seconds, digits = group["training_seconds"], metric["digits"]
    return {
        "trained": group["label"],
        "runs": runs_cell(group),
        metric["words"]: score_cell(group, metric),
        "lowest": metric_cell(group["lowest"], digits),
        "highest": metric_cell(group["highest"], digits),
        "best evaluation": metric_cell(group["best_evaluation"], digits),
        "time": "-" if seconds is None else duration(seconds),
        "steps": count(group["steps"]),
        "updates": count(group["updates"]),
    }


def runs_cell(group: Mapping[str, Any]) -> str:
    """`5`, or `3 finished, 2 unfinished`."""
    done, total = group["num_finished"], group["num_runs"]
    if done == total:
        return str(total)
    return f"{done} finished, {total - done} unfinished" if done else f"{total} unfinished"


def score_cell(group: Mapping[str, Any], metric: Mapping[str, Any]) -> str:
    """`482.3 ± 31.2 (n = 5)`; of one run `482.3 (n = 1: no interval)`; `-` if no run is finished."""
    if group[metric["key"]] is None:
        return "-"
    mean, n = metric_cell(group[metric["key"]], metric["digits"]), group["num_samples"]
    if group["half_width"] is None:
        return f"{mean} (n = {n}: no interval)"
    return f"{mean} ± {metric_cell(group['half_width'], metric['digits'])} (n = {n})"


def metric_cell(value: float | None, digits: int | None) -> str:
    """A number with the decimals of its metric; `-` if there is none."""
    return "-" if value is None else number(value, digits)


def count(value: float | None) -> str:
    """A mean number of steps or updates: whole, with thousands apart."""
    return "-" if value is None else f"{round(value):,}"
