"""Series with labels from both shapes of file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlseq.errors import UsageError
from rlseq.seq.series.labelled import Labelled, read_labelled


def read(folder: Path, text: str, label: str = "kind", group: str | None = None) -> Labelled:
    path = folder / "data.csv"
    path.write_text(text)
    return read_labelled(str(path), label, group)


def test_a_row_is_a_series(tmp_path: Path) -> None:
    data = read(tmp_path, "t0,t1,kind,t2\n1,2,b,3\n4,5,a,6\n7,8,b,9\n")
    assert data.classes == ("a", "b") and data.labels.tolist() == [1, 0, 1] and data.features == ("value",)
    assert data.series.lengths.tolist() == [3, 3, 3] and data.series.values[:, 0].tolist() == [*range(1, 10)]
    assert "3 series of 3 values, 1 feature, 2 classes: a, b" in data.description


def test_rows_of_a_group_are_a_series_in_the_files_order(tmp_path: Path) -> None:
    data = read(tmp_path, "id,x,y,kind\nq,1,10,b\np,2,20,a\nq,3,30,b\nq,4,40,b\np,5,50,a\n", group="id")
    assert data.features == ("x", "y") and data.labels.tolist() == [1, 0]
    first, second = (data.series.padded(np.array([k]), 3) for k in (0, 1))
    assert first.values[0].tolist() == [[1, 10], [3, 30], [4, 40]] and first.given.all()
    assert second.values[0].tolist() == [[2, 20], [5, 50], [0, 0]] and second.given.tolist() == [[True, True, False]]
    assert "2 series of 2 to 3 values, 2 features" in data.description
    one = read(tmp_path, "id,x,kind\nq,1,b\np,2,a\n", group="id")
    assert "2 series of 1 value, 1 feature," in one.description


def test_many_rows_keep_their_order(tmp_path: Path) -> None:
    """Sorting that is not stable would mix them."""
    rows = "".join(f"g{step * 7 % 3},{step},{'ab'[step * 7 % 3 > 0]}\n" for step in range(3000))
    data = read(tmp_path, "id,x,kind\n" + rows, group="id")
    assert data.series.lengths.tolist() == [1000] * 3
    for part in np.split(data.series.values[:, 0], 3):
        assert (np.diff(part) == 3).all()


def test_values_that_float32_does_not_hold_apart_are_known(tmp_path: Path) -> None:
    text = "id,x,y,kind\np,100000001,1,a\nq,100000002,2,b\n"
    assert list(read(tmp_path, text, group="id").lost or ()) == ["x"]
    rows = read(tmp_path, "t0,t1,kind\n100000001,100000002,a\n100000003,100000002,b\n").lost
    assert rows is not None and "changes by 2 around 1e+08" in rows["value"]


@pytest.mark.parametrize(
    ("text", "label", "group", "words"),
    [
        ("id,x,kind\np,1,a\nq,2,b\np,3,b\n", "kind", "id", "line 4: the series 'p' (id) has the kind 'b' here and 'a'"),
        ("id,x,kind\np,1,a\n", "kinds", None, "--label 'kinds': .* Did you mean kind?"),
        ("id,x,kind\np,1,a\n", "kind", "ids", "--group 'ids': .* Did you mean id?"),
        ("id,x,kind\np,1,a\n", "kind", "kind", "--label and --group are both 'kind'"),
        ("kind\na\n", "kind", None, "has no columns of numbers beside kind"),
        ("id,kind\np,a\n", "kind", "id", "has no columns of numbers beside kind, id"),
    ],
)
def test_unfit_files_are_refused(tmp_path: Path, text: str, label: str, group: str | None, words: str) -> None:
    pattern = words.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(UsageError, match=pattern):
        read(tmp_path, text, label, group)
