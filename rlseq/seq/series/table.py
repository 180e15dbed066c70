"""A CSV file as numbers and texts, strictly: what is missing or no number is an error that names line and column.

RFC 4180 with a header: UTF-8 (a byte order mark is passed over), cells may be quoted, and the delimiter is a comma, a
semicolon or a tab. A series with a hole in it is another series, so nothing is filled in and nothing is left out.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import stat
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlseq.errors import UsageError, check_name, counted, did_you_mean
from rlseq.files import sha256_file

DELIMITERS = (",", ";", "\t")
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
LARGEST = float(np.finfo(np.float32).max)  # the models read float32
SHOWN = 40  # letters of a cell in a message


class Table(NamedTuple):
    """N rows of a file.

    Attributes:
        path: the file, as messages call it.
        names: the columns of `numbers`, in the file's order.
        numbers: `[N, F]` float64.
        texts: the columns that were asked for as text, by name; without blanks around them.
        lines: `[N]`, the line of the file at which each row begins.
        sha256: of the file.
    """

    path: str
    names: tuple[str, ...]
    numbers: np.ndarray
    texts: Mapping[str, list[str]]
    lines: np.ndarray
    sha256: str


class Begun(NamedTuple):
    """A file of which the header was read, and no row yet.

    Attributes:
        path: the file, as messages call it.
        names: its columns.
        rows: the rest, each row with the line at which it begins.
    """

    path: str
    names: tuple[str, ...]
    rows: Iterator[tuple[int, list[str]]]


@contextlib.contextmanager
def begun_table(data: str) -> Iterator[Begun]:
    """Open a file and read its header: so that what is then read of the rows may depend on it.

    Raises:
        UsageError: there is no such file, it is no CSV, or has a column without a name or two of one name.
    """
    with _opened(data) as reader:
        names = _header(reader, data)
        yield Begun(data, names, _rows(reader, data, len(names)))


def read_table(
    file: Begun,
    *,
    texts: Sequence[str] = (),
    only: Sequence[str] | None = None,
    fix: str = "--columns names those that are read",
) -> Table:
    """Read a file's rows, once: the columns `texts` as they are, the others as numbers.

    Args:
        file: from `begun_table`, within whose `with` this is called: there what is no CSV further down is refused.
        texts: names of columns; they exist (`check_column`).
        only: the columns that are read as numbers, in this order; they exist too. None: all others.
        fix: what can be done about a column of other things than numbers.

    Raises:
        UsageError: it has no rows, a row with too few or too many cells, or a cell that is missing, no number or
            infinite; named with its line.
    """
    data, names = file.path, file.names
    for text in texts:
        check_column(text, names, data, "the column")
    where = [index for index, name in enumerate(names) if name not in texts]
    if only is not None:
        where = [names.index(name) for name in only]
    columns = {name: (names.index(name), list[str]()) for name in texts}
    numeric, numbers, lines = tuple(names[index] for index in where), array("d"), array("q")
    for line, row in file.rows:
        cells = row if len(where) == len(names) and only is None else [row[index] for index in where]
        numbers.extend(_fast(cells) or (_number(*cell, data, line, fix) for cell in zip(cells, numeric, strict=True)))
        for name, (index, found) in columns.items():
            found.append(_text(row[index], data, line, name))
        lines.append(line)
    if not len(lines):
        raise UsageError(f"{data} has a header and no rows: give a file with at least one.")
    values = np.frombuffer(numbers, np.float64).reshape(len(lines), len(where)) if where else np.empty((len(lines), 0))
    return Table(
        data,
        numeric,
        values,
        {name: cells for name, (_, cells) in columns.items()},
        np.frombuffer(lines, np.int64),
        sha256_file(Path(data)),
    )


def check_column(name: str, names: Sequence[str], data: str, flag: str) -> None:
    """Refuse a column that is not there.

    Args:
        name: of the column.
        names: those that there are.
        data: the file, for the message.
        flag: what asked for it.

    Raises:
        UsageError: it is not among `names`; the nearest are given.
    """
    if name not in names:
        raise UsageError(f"{flag} {name!r}: {data} has the columns {listed(names)}.{did_you_mean(name, names)}")


def check_columns(columns: Sequence[str], names: Sequence[str], data: str, others: Mapping[str, str | None]) -> None:
    """Refuse columns to be read that are not there, are named twice, or are something else.

    Args:
        columns: their names.
        names: those that there are.
        data: the file, for the message.
        others: flag -> the column that it names.

    Raises:
        UsageError
    """
    for number, name in enumerate(columns):
        check_column(name, names, data, "--columns")
        if name in columns[:number]:
            raise UsageError(f"--columns names {name!r} twice: name each column once.")
        for flag, other in others.items():
            if name == other:
                raise UsageError(f"--columns and {flag} both name {name!r}: leave it out of --columns.")


def listed(names: Sequence[str], most: int = 12) -> str:
    """`a, b and 3 more`."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


@contextlib.contextmanager
def _opened(data: str) -> Iterator[Any]:
    """A reader of the rows of a file; what is wrong with the file as such becomes a `UsageError`."""
    path = _regular(data)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            try:
                chosen = _delimiter(file)
                file.seek(0)
                reader = csv.reader(file, delimiter=chosen, strict=True)
                yield reader
            except csv.Error as error:
                where = f"{data}, line {max(1, reader.line_num)}"
                raise UsageError(f"{where}: {error}. Write it as CSV, with closed quotes.") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{data} is no UTF-8 text (byte 0x{error.object[error.start]:02x}: {error.reason}): save it as UTF-8."
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {data}: {error.strerror or error}. Give a file that you may read.") from None


def _regular(data: str) -> Path:
    check_name(data, "the data")
    path = Path(data)
    try:
        info = path.stat() if data else None
    except (FileNotFoundError, NotADirectoryError, ValueError):
        info = None
    except OSError as error:
        raise UsageError(f"cannot read {data}: {error.strerror}. Give a file that you may read.") from None
    if info is None:
        raise UsageError(f"there is no file {data!r} (from {os.getcwd()}); give a CSV file: --data FILE")
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"the data {data!r} is no file; give one CSV file: --data FILE")
    if info.st_size == 0:
        raise UsageError(f"the file {data} is empty; give a CSV file with a header: --data FILE")
    return path


def _delimiter(file: Any) -> str:
    """What cuts the first two rows into the same number of cells, as many as can be; a comma if nothing does."""
    found = {}
    for delimiter in DELIMITERS:
        file.seek(0)
        reader = csv.reader(file, delimiter=delimiter)
        header = next(reader, [])
        first = next(reader, header)
        found[delimiter] = (len(header) > 1 and len(first) == len(header), len(header))
    return max(DELIMITERS, key=found.__getitem__)  # of equals the first


def _header(reader: Any, data: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in next(reader, []))
    if not any(names):
        raise UsageError(f"{data}: its first line is empty, and should name the columns.")
    called = names[0] in ("0", "1") and len(set(names)) == len(names)  # columns may be called 0, 1, 2
    if all(map(_is_number, names)) and not called:
        raise UsageError(f"{data}: its first line holds numbers, and should name the columns. Write a header above it.")
    for number, name in enumerate(names, 1):
        if not name:
            raise UsageError(
                f"{data}: column {number} of {len(names)} has no name in the header. Name it, or leave it out (pandas "
                "writes one for its index unless told index=False)."
            )
        if name in names[: number - 1]:
            fix = "If these are no names, write a header above them." if _is_number(name) else "Rename one."
            both = f"the columns {names.index(name) + 1} and {number} are both called {name!r}"
            raise UsageError(f"{data}: {both}. {fix}")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _rows(reader: Any, data: str, width: int) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line at which they begin. Empty lines may stand at the end only."""
    empty, before = 0, reader.line_num
    for row in reader:
        line, before = before + 1, reader.line_num
        if not row:
            empty = empty or line
            continue
        if empty:
            raise UsageError(f"{data}, line {empty} is empty, and rows follow it. Take it out, or fill it in.")
        if len(row) != width:
            raise UsageError(
                f"{data}, line {line} has {counted(len(row), 'cell')}, and the header names "
                f"{counted(width, 'column')}. Write as many, in quotes where a cell holds the delimiter."
            )
        yield line, row


def _fast(cells: list[str]) -> list[float] | None:
    """The numbers of a row; None if one may be none, which `_number` tells."""
    try:
        values = [*map(float, cells)]
    except ValueError:
        return None
    return values if sum(map(abs, values)) <= LARGEST and _is_plain("".join(cells)) else None


def _is_plain(number: str) -> bool:
    return number.isascii() and "_" not in number  # Python also takes 1_000, and other scripts' digits


def _number(cell: str, column: str, data: str, line: int, fix: str) -> float:
    """Raises:
    UsageError: the cell is missing, no number, infinite or beyond float32.
    """
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    where, shown = f"{data}, line {line}, column {column!r}:", cell.strip()
    if abs(value) <= LARGEST and _is_plain(shown):  # NaN fails
        return value
    if shown.lower() in MISSING:
        what = "the cell is empty" if not shown else f"{shown!r} stands for a missing value"
        raise UsageError(f"{where} {what}. Fill it in, or leave the row or the column out.")
    if value == value and _is_plain(shown):
        raise UsageError(f"{where} {shown[:SHOWN]} is infinite, or beyond 3.4e38, which float32 holds. Mend the cell.")
    comma = " Decimals are written with a point, 1.5." if shown.count(",") == 1 else ""
    raise UsageError(f"{where} {shown[:SHOWN]!r} is no number.{comma} Mend the cell, or leave the column out: {fix}.")


def _text(cell: str, data: str, line: int, column: str) -> str:
    if text := cell.strip():
        return text
    raise UsageError(f"{data}, line {line}, column {column!r}: the cell is empty. Fill it in, or leave the row out.")
