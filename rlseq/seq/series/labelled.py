"""Series with labels from a CSV file: a row each, or one of several rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlseq.errors import UsageError, counted
from rlseq.seq.series.ragged import Ragged
from rlseq.seq.series.scaling import lost_changes
from rlseq.seq.series.table import Table, begun_table, check_column, check_columns, listed, read_table

VALUE = "value"
"""The one feature of a series that is one row, whose columns are its values over time."""


class Labelled(NamedTuple):
    """N series.

    Attributes:
        series: their values.
        labels: `[N]` int64, indices of `classes`.
        classes: the labels that occur, sorted.
        features: names.
        sha256: of the data.
        description: the data: name and size.
        columns: where a series is one row, the names of its values.
        lost: features that change, but not in float32; see `rlseq.seq.series.scaling.lost_changes`.
    """

    series: Ragged
    labels: np.ndarray
    classes: tuple[str, ...]
    features: tuple[str, ...]
    sha256: str
    description: str
    columns: tuple[str, ...] = ()
    lost: Mapping[str, str] | None = None


class Groups(NamedTuple):
    """Which rows of a table belong together.

    Attributes:
        names: of the groups, in the order in which they begin.
        of_row: `[rows]`, the group of each.
    """

    names: tuple[str, ...]
    of_row: np.ndarray


def read_labelled(data: str, label: str, group: str | None, columns: Sequence[str] = ()) -> Labelled:
    """Read series with labels.

    Args:
        data: a CSV file.
        label: the column with the labels.
        group: rows with the same text in this column are one series, in the file's order, and the other columns are its
            features; None: each row is a series of one feature, and the other columns are its values over time.
        columns: which other columns; none: all.

    Raises:
        UsageError: unfit data (`read_table`), an unknown column, no column of numbers, or two labels in one group.
    """
    with begun_table(data) as file:
        check_column(label, file.names, data, "--label")
        if group is not None:
            check_column(group, file.names, data, "--group")
            if group == label:
                raise UsageError(f"--label and --group are both {label!r}: a label that each series has of its own.")
        check_columns(columns, file.names, data, {"--label": label, "--group": group})
        table = read_table(file, texts=(label,) if group is None else (label, group), only=columns or None)
    check_numbers(table, label if group is None else f"{label}, {group}")
    of_series = table.texts[label] if group is None else labels_of(table, label, group)
    classes = tuple(sorted(set(of_series)))
    index = {name: number for number, name in enumerate(classes)}
    labels = np.array([index[text] for text in of_series], np.int64)
    series = in_series(table, group)
    features = (VALUE,) if group is None else table.names
    lengths = f"{series.lengths.min()} to {series.lengths.max()}" if np.ptp(series.lengths) else f"{series.lengths[0]}"
    values = f"{lengths} value{'s' * (lengths != '1')}"
    description = f"{data}, {len(labels)} series of {values}, {counted(len(features), 'feature')}"
    description += f", {len(classes)} classes: {listed(classes, 8)}"
    columns = table.names if group is None else ()
    lost = lost_changes(table.numbers if group is not None else table.numbers.reshape(-1, 1), features)
    return Labelled(series, labels, classes, features, table.sha256, description, columns, lost)


def check_numbers(table: Table, others: str) -> None:
    """Raises:
    UsageError: there is no column of numbers.
    """
    if not table.names:
        raise UsageError(f"{table.path} has no columns of numbers beside {others}.")


def in_series(table: Table, group: str | None) -> Ragged:
    """The rows of a table as series; see `read_labelled`."""
    values = table.numbers.astype(np.float32)
    if group is None:
        rows, width = values.shape
        return Ragged(values.reshape(-1, 1), np.full(rows, width, np.int64))
    groups = groups_of(table, group)
    order = np.argsort(groups.of_row, kind="stable")
    return Ragged(values[order], np.bincount(groups.of_row))


def groups_of(table: Table, group: str) -> Groups:
    """The groups of rows that a column tells."""
    numbers: dict[str, int] = {}
    of_row = np.array([numbers.setdefault(name, len(numbers)) for name in table.texts[group]], np.int64)
    return Groups(tuple(numbers), of_row)


def labels_of(table: Table, label: str, group: str) -> list[str]:
    """The label of each group.

    Raises:
        UsageError: one has several.
    """
    found: dict[str, str] = {}
    for line, name, text in zip(table.lines.tolist(), table.texts[group], table.texts[label], strict=True):
        if found.setdefault(name, text) != text:
            raise UsageError(
                f"{table.path}, line {line}: the series {name!r} ({group}) has the {label} {text!r} here and "
                f"{found[name]!r} before. A series has one label: mend it, or give the rows another {group}."
            )
    return list(found.values())
