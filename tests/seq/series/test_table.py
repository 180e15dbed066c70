"""A CSV file is read as it is, or refused with the place named."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import numpy as np
import pytest

from rlseq.errors import UsageError
from rlseq.seq.series import table as tables
from rlseq.seq.series.table import Table, begun_table, check_column, read_table


def read(folder: Path, text: str | bytes, texts: tuple[str, ...] = ()) -> Table:
    path = folder / "data.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_file(str(path), texts)


def read_file(data: str, texts: tuple[str, ...] = ()) -> Table:
    with begun_table(data) as file:
        return read_table(file, texts=texts)


def refusal(folder: Path, text: str | bytes, texts: tuple[str, ...] = ()) -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, text, texts)
    return str(caught.value)


def test_columns_numbers_and_texts(tmp_path: Path) -> None:
    data = 'x,kind,y\n1,"a, ""b""",2.5\n\n-3e2, c ,.5\n'.replace("\n\n", "\n")
    table = read(tmp_path, data, ("kind",))
    assert table.names == ("x", "y") and table.numbers.dtype == np.float64
    assert table.numbers.tolist() == [[1, 2.5], [-300, 0.5]]
    assert table.texts == {"kind": ['a, "b"', "c"]} and table.lines.tolist() == [2, 3]
    assert table.sha256 == hashlib.sha256(data.encode()).hexdigest()


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_found(tmp_path: Path, delimiter: str, mark: str, newline: str) -> None:
    lines = [delimiter.join(row) for row in (("größe", '"a,b;c\td"', "z"), ("1", "2", "3"), ("4", "5", "6"))]
    table = read(tmp_path, mark + newline.join(lines) + newline)
    assert table.names == ("größe", "a,b;c\td", "z") and table.numbers.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_delimiter_that_occurs_in_the_header_only_is_none(tmp_path: Path) -> None:
    table = read(tmp_path, "a,b,c;d\n1;2\n")
    assert table.names == ("a,b,c", "d") and table.numbers.tolist() == [[1, 2]]
    assert read(tmp_path, "alone\n1\n2\n\n\n").numbers.tolist() == [[1], [2]]


def test_lines_count_what_stands_inside_quotes(tmp_path: Path) -> None:
    text = 'x,note\n1,"two\nlines"\n2,b\n?,c\n'
    assert "line 5, column 'x': '?' stands for a missing value" in refusal(tmp_path, text, ("note",))
    assert read(tmp_path, text.replace("?", "3"), ("note",)).lines.tolist() == [2, 4, 5]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("", "the cell is empty"),
        ("  ", "the cell is empty"),
        ("NA", "'NA' stands for a missing value"),
        ("nan", "'nan' stands for a missing value"),
        ("abc", "'abc' is no number"),
        ("1_000", "'1_000' is no number"),
        ("0x10", "'0x10' is no number"),
        ("\u06611", "'\u06611' is no number"),
        ("\uff11\uff12", "'\uff11\uff12' is no number"),
        ('"1,5"', "'1,5' is no number. Decimals are written with a point"),
        ("inf", "inf is infinite"),
        ("-Infinity", "-Infinity is infinite"),
        ("1e39", "1e39 is infinite, or beyond 3.4e38"),
        ("x" * 500, "'" + "x" * 40 + "' is no number"),
    ],
)
def test_cells_that_are_no_numbers_are_named(tmp_path: Path, cell: str, words: str) -> None:
    message = refusal(tmp_path, f"t,price\n1,2\n2,{cell}\n3,4\n")
    assert f"{tmp_path / 'data.csv'}, line 3, column 'price': {words}" in message and len(message) < 400
    assert "Mend the cell" in message or "Fill it in" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3\n", "line 3 has 1 cell, and the header names 2 columns"),
        ("a,b\n1,2,3\n", "line 2 has 3 cells, and the header names 2 columns"),
        ("a,b\n1,2\n\n3,4\n", "line 3 is empty, and rows follow it"),
        ("a,b\n", "has a header and no rows"),
        ("\n1,2\n", "its first line is empty"),
        ("a,b,a \n1,2,3\n", "the columns 1 and 3 are both called 'a'"),
        ("0,0,5\n1,2,3\n", "its first line holds numbers, and should name the columns. Write a header above it"),
        ("7,0,0,up\n1,2,3,up\n", "columns 2 and 3 are both called '0'. If these are no names, write a header above"),
        ("a,a\n1,2\n", "the columns 1 and 2 are both called 'a'. Rename one"),
        ("1.5,2\n3,4\n", "its first line holds numbers, and should name the columns"),
        (",b\n1,2\n", "column 1 of 2 has no name in the header"),
        ("", "is empty; give a CSV file"),
        ('a,b\n1,"2\n', "line 2: unexpected end of data"),
        ('a,b\n1,"2"x\n', "line 2: ',' expected after '\"'"),
        (b"a,b\n1,\xff\n", "is no UTF-8 text (byte 0xff"),
        ("a,b\n1,2\n".encode("utf-16"), "is no UTF-8 text"),
        (b"a,b\n1,2\x00\n", "is no number"),
        ("a,b\n" + "1" * 200_000 + ",2\n", "field larger than field limit"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    message = refusal(tmp_path, text)
    assert words in message and str(tmp_path / "data.csv") in message


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    assert "line 3, column 'kind': the cell is empty" in refusal(tmp_path, "x,kind\n1,a\n2,\n", ("kind",))


def test_unknown_columns_give_the_nearest(tmp_path: Path) -> None:
    message = refusal(tmp_path, "x,Kind\n1,a\n", ("kinds",))
    assert "the column 'kinds'" in message and "has the columns x, Kind. Did you mean Kind?" in message
    with pytest.raises(
        UsageError, match=r"--target 'z': it has the columns a, b, c, d, e, f, g, h, i, j, k, l and 1 more"
    ):
        check_column("z", "abcdefghijklm", "it", "--target")


@pytest.mark.parametrize("data", ["missing.csv", "", ".", "a\0b", "x" * 5000])
def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"there is no file|is no file|has 5000 letters"):
        read_file(data)


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    path = tmp_path / "data.csv"
    path.write_text("a\n1\n")
    monkeypatch.setattr(tables, "open", refuse, raising=False)  # who runs the tests may be allowed everything
    with pytest.raises(UsageError, match=r"cannot read .*Permission denied"):
        read_file(str(path))


def test_columns_may_be_called_by_their_number(tmp_path: Path) -> None:
    assert read(tmp_path, "0,1,2\n5,6,7\n").names == ("0", "1", "2")


def test_the_header_alone(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(" a ;b\nnot,numbers;x\n")
    with begun_table(str(path)) as file:
        assert file.names == ("a", "b")
