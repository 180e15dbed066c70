"""`rlseq predict`: a sequence model tells classes, forecasts or answers, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlseq.cli.output import Output, number, show_pairs, write_json
from rlseq.cli.params import Json, NetworkOption, PathArgument, Quiet
from rlseq.errors import UsageError, counted

SERIES = "Columns and windows"


def predict(
    data: Annotated[
        str,
        typer.Option("--data", metavar="FILE", help="Series: a CSV file with a header. Questions: a text, one a line."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The CSV file to write; -: print it on stdout.")],
    path: PathArgument = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            metavar="COLUMN",
            help="Classes: the column with the right ones, to be compared with.",
            show_default="as in training, if it is there",
            rich_help_panel=SERIES,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="COLUMN",
            help="Classes: rows with the same value here are one series.",
            show_default="as in training, if it is there",
            rich_help_panel=SERIES,
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            "--every",
            metavar="N",
            min=1,
            help="Forecasts: from every N-th row, counted from the end.",
            show_default="from the last row alone",
            rich_help_panel=SERIES,
        ),
    ] = None,
    checkpoint: NetworkOption = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Let a sequence model predict: classes, forecasts, or answers.

    With numpy and ONNX Runtime alone: a run's model.onnx, a shipped model or a
    file. What it says is written to a CSV file: of each series the class and
    the probability of every class; the values that follow the last rows, with
    quantiles if the model gives them; or each question with its answer.

    Examples:

      rlseq predict runs/mine --data new.csv --out classes.csv
      rlseq predict mackey-glass-lstm --data series.csv --out next.csv
      rlseq predict model.onnx --data series.csv --out all.csv --every 1
      rlseq predict addition-transformer --data sums.txt --out answers.csv
      rlseq predict mackey-glass-lstm --data series.csv --out -

    The JSON holds kind, predictions (rows written), data, out, path; of classes
    accuracy, if the data has labels; of forecasts windows, horizon and target.
    """
    to_stdout = str(out) == "-"
    if to_stdout and as_json:
        raise UsageError("--out - and --json both print on stdout: leave one of them out, or give --out a file.")
    output = Output(as_json, quiet)
    with output.working():
        from rlseq.pipeline import predict as run

        result = run(path, data=data, out=out, label=label, group=group, every=every, checkpoint=checkpoint)
    if as_json:
        write_json(result)
        return
    if "unread_columns" in result:
        output.note(f"Note: the model does not read the columns {', '.join(result['unread_columns'])}.")
    if "note" in result:
        output.note(f"Note: {result['note']}.")
    rows = {} if to_stdout else {"written": f"{counted(result['predictions'], 'row')} to {result['out']}"}
    if "accuracy" in result:
        rows["accuracy"] = f"{number(100 * result['accuracy'])} % of the labels in the data"
    if not to_stdout:
        show_pairs(rows)
        return
    for name, text in rows.items():  # stdout is the file's alone
        output.note(f"{name}: {text}")
