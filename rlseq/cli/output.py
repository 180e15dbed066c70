"""Where words go: results to stdout, progress, messages and errors to stderr; `--json` makes stdout one JSON object."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from rlseq import scores
from rlseq.purposes import purpose_of
from rlseq.scores import Metric, is_number, measured_in

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

KIB, MIB, GIB = 2**10, 2**20, 2**30


def say(text: str, colour: str | None = None, label: str = "") -> None:
    """A line on stderr, never wrapped, so that commands in it can be copied; in colour on a terminal."""
    plain = None if "NO_COLOR" not in os.environ else False
    prefix = typer.style(f"{label}: ", fg=colour, bold=True) if label else ""
    body = text if label or colour is None else typer.style(text, fg=colour)
    typer.echo(prefix + body, err=True, color=plain)


def write_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout; numbers that JSON cannot hold become null."""
    typer.echo(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Output:
    """What a command may say.

    Args:
        as_json: stdout is one JSON object.
        quiet: no progress and no messages; results, warnings and errors remain.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """While others' code runs: what it prints must not get into the JSON."""
        if not self.as_json:
            yield
            return
        with contextlib.redirect_stdout(sys.stderr):
            yield

    def note(self, text: str) -> None:
        """A message for people, on stderr."""
        if not self.quiet:
            say(text)


def console(*, wide: bool = False) -> Console:
    """The console of stdout. It takes all text literally: nothing a user named can be markup.

    Args:
        wide: for lists: do not fold lines in a pipe, where programs read them.
    """
    from rich.console import Console

    made = Console(markup=False, highlight=False, emoji=False)
    if wide and not made.is_terminal:
        made = Console(markup=False, highlight=False, emoji=False, width=1_000)
    return made


def show_pairs(rows: Mapping[str, str]) -> None:
    """Labels and values in two columns, on stdout."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows.items():
        table.add_row(label, value)
    _print(table, console())


def show_list(columns: list[str], rows: list[list[str]], *, right: tuple[str, ...] = ()) -> None:
    """A table on stdout.

    Args:
        columns: headings; the first column is never cut.
        rows: of texts.
        right: columns aligned to the right.
    """
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    for row in rows:
        table.add_row(*row)
    _print(table, console(wide=True))


def _print(table: Table, to: Console) -> None:
    """Without the blanks that fill up each line, which nobody wants to copy."""
    with to.capture() as captured:
        to.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), color=to.is_terminal)


def number(value: Any) -> str:
    """A number for people: `482.3`, `500`, `9.41`, `-0.0123`; `-` if there is none."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return "-"
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 0.1 else 4
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def score(values: Mapping[str, Any]) -> str:
    """`482.3 ± 31.25`, from `mean_return` and `std_return`; `-` if there is none."""
    if values.get("mean_return") is None:
        return "-"
    return f"{number(values['mean_return'])} ± {number(values.get('std_return'))}"


def metric_rows(values: Mapping[str, Any]) -> dict[str, str]:
    """A sequence model's metrics for people, the score first; none of what is no sequence model's."""
    rows = {m.words: f"{figure(values, m)} {m.unit}".rstrip() for m in measured_in(values)}
    if rows and "tokens" in values:
        where = values.get("measured_on", "the validation split")
        rows[next(iter(rows))] += f", over {values['tokens']} {purpose_of(values).targets} of {where}"
    if is_number(values.get("word_share")):
        rows["words"] = f"{100 * values['word_share']:.0f} % of the words in the sample occur in the data"
    return rows


def figure(values: Mapping[str, Any], metric: Metric) -> str:
    """A metric with the decimals that are worth showing; `-` if there is none."""
    value = values.get(metric.key, math.nan)
    return scores.number(value, metric.digits) if is_number(value) and math.isfinite(value) else "-"


def headline(values: Mapping[str, Any]) -> str:
    """How good something is, in a few letters: `482.3 ± 31.25`, or `loss 1.4722`, `exact match 0.998`."""
    metrics = measured_in(values)
    return f"{metrics[0].words} {figure(values, metrics[0])}" if metrics else score(values)


def show_sample(values: Mapping[str, Any]) -> None:
    """What a sequence model wrote, or examples of what it says, on stdout; nothing if there is none."""
    heading, sample = purpose_of(values).sample, values.get("sample")
    if sample:
        typer.echo(f"\n{heading}:" * bool(heading) + f"\n{sample}")


def size(num_bytes: int) -> str:
    """`281.4 KiB`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes} bytes"


def duration(seconds: float) -> str:
    """`0:01:12`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def told(value: Any, depth: int = 4) -> str:
    """A value out of a file, on one line: what is nested stands in parentheses, what is nested deeply as it is."""
    if isinstance(value, Mapping) and depth:
        parts = {key: told(part, depth - 1) for key, part in value.items()}
        nested = [key for key, part in value.items() if isinstance(part, dict | list)]
        return ", ".join(f"{key} ({text})" if key in nested else f"{key} {text}" for key, text in parts.items())
    if isinstance(value, list) and depth:
        return ", ".join(told(part, depth - 1) for part in value)
    return number(value) if isinstance(value, float) else str(value)
