"""Predictions of new data: what is written, for which row, and what is refused before anything is."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rlseq import predicting
from rlseq.errors import UsageError
from rlseq.locate import Located
from rlseq.predicting import Asked, predict_into
from rlseq.seq.series import table as tables
from rlseq.sequence import SequenceSpec, Signature, Tokenizer

ROOT = Path(__file__).resolve().parents[1]
WORDS = Tokenizer(unit="char", characters="0123456789+=\n")
PLUS, START, END = 10, 11, 12


class Largest:
    """Tells `up` where the mean of the first feature less that of the second, if any, is above 0; else `down`."""

    def __init__(self, features: tuple[str, ...] = ("value",), context: int = 8, **options: Any) -> None:
        num = len(features)
        signature = Signature(
            kind="classify", features=features, shift=(0.0,) * num, scale=(1.0,) * num, classes=("down", "up")
        )
        self.spec = SequenceSpec(
            task="classify", task_options=options, model="encoder", signature=signature, context=context, one_pass=True
        )
        self.shapes: list[tuple[int, ...]] = []

    def whole(
        self, inputs: np.ndarray, given: np.ndarray | None = None, source: np.ndarray | None = None
    ) -> np.ndarray:
        assert given is not None and inputs.dtype == np.float32
        self.shapes.append(inputs.shape)
        signs = np.array([1.0, -1.0])[: inputs.shape[2]]
        mean_B = (inputs @ signs * given).sum(1) / given.sum(1)
        return np.stack([np.zeros_like(mean_B), mean_B], axis=-1)[:, None].astype(np.float32)


class Line:
    """Forecasts that the first feature goes on as from the last value but one to the last; the second is added."""

    def __init__(self, quantiles: tuple[float, ...] = ()) -> None:
        signature = Signature(
            kind="forecast",
            features=("x", "extra"),
            shift=(0.0, 0.0),
            scale=(1.0, 1.0),
            horizon=2,
            quantiles=quantiles,
        )
        self.spec = SequenceSpec(task="forecast", model="lstm", signature=signature, context=3)

    def whole(
        self, inputs: np.ndarray, given: np.ndarray | None = None, source: np.ndarray | None = None
    ) -> np.ndarray:
        assert given is None and inputs.dtype == np.float32
        step = np.diff(inputs[..., 0], axis=1, prepend=inputs[:, :1, 0])
        ahead = inputs[..., :1] + step[..., None] * np.array([1, 2]) + inputs[..., 1:]
        if self.spec.signature.quantiles:
            spread = np.array(self.spec.signature.quantiles) - 0.5
            ahead = (ahead[..., None] + spread).reshape(*ahead.shape[:2], -1)
        return ahead.astype(np.float32)


class Adder:
    """Answers the sum of the two numbers of a question, its last digit first; as `tokens` or `translate`."""

    def __init__(self, kind: Any, ends: bool = True) -> None:
        signature = Signature(kind=kind, vocabulary=13, tokenizer=WORDS, start=START, end=END)
        self.spec = SequenceSpec(task="addition", model="gpt", signature=signature, context=12)
        self.ends = ends

    def initial_state(self, batch: int) -> tuple[Any, ...]:
        """Tokens of each question, and of its answer."""
        return tuple([] for _ in range(batch)), tuple([] for _ in range(batch))

    def step(
        self, inputs: np.ndarray, state: tuple[Any, ...], *, source: np.ndarray | None = None, given: Any = None
    ) -> tuple[np.ndarray, tuple[Any, ...]]:
        questions, read = state
        if source is not None:
            real = np.ones(source.shape, np.bool_) if given is None else given
            questions = tuple(row[some].tolist() for row, some in zip(source, real, strict=True))
        read = tuple(before + row for before, row in zip(read, inputs.tolist(), strict=True))
        logits = np.zeros((*inputs.shape, 13), np.float32)
        for row, tokens in enumerate(read):
            begin = tokens.index(START)
            first, second = WORDS.decode(np.array(questions[row] or tokens[:begin])).split("+")
            answer = [*map(int, str(int(first) + int(second))[::-1]), END] if self.ends else [1] * 99
            logits[row, -1, answer[min(len(tokens) - begin - 1, len(answer) - 1)]] = 1
        return logits, (questions, read)


def predicted(folder: Path, model: Any, text: str, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> Any:
    """The result, with the rows of the file under `rows`."""
    data, out = folder / "data.csv", folder / "out.csv"
    data.write_text(text)
    monkeypatch.setattr(predicting, "opened_model", lambda found, checkpoint: model)
    result = predict_into(Located("onnx", "m", folder / "m.onnx", None), Asked(str(data), out, **asked), None)
    with open(out, newline="") as file:
        return {**result, "rows": list(csv.reader(file))}


def refused(folder: Path, model: Any, text: str, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> str:
    """The message; nothing was written."""
    with pytest.raises(UsageError) as caught:
        predicted(folder, model, text, monkeypatch, **asked)
    assert not (folder / "out.csv").exists()
    return str(caught.value)


def share(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


@pytest.mark.parametrize(("model", "text"), [(Largest(), "t0,t1\n1,2\n"), (Line(), "x,extra\n" + "1,0\n" * 3)])
def test_the_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any, text: str) -> None:
    opened: list[str] = []

    def counting(path: Path, **how: Any) -> Any:
        opened.append(path.name)
        return open(path, **how)

    monkeypatch.setattr(tables, "open", counting, raising=False)
    predicted(tmp_path, model, text, monkeypatch)
    assert opened == ["data.csv"]


def test_classes_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = predicted(tmp_path, Largest(), "t0,t1\n1,2\n-3,-1\n", monkeypatch)
    header, *rows = result["rows"]
    assert header == ["row", "predicted", "p_down", "p_up"]
    assert [row[:2] for row in rows] == [["1", "up"], ["2", "down"]]
    np.testing.assert_allclose([float(row[3]) for row in rows], [share(1.5), share(-2)], rtol=1e-6)
    np.testing.assert_allclose([float(row[2]) + float(row[3]) for row in rows], 1, rtol=1e-6)
    assert result["predictions"] == 2 and result["kind"] == "classify" and "accuracy" not in result


def test_columns_are_read_by_their_names_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = predicted(tmp_path, Largest(), "t0,t1\n1,2\n-3,-1\n", monkeypatch)["rows"]
    model = Largest()
    model.spec = msgspec.structs.replace(
        model.spec, signature=msgspec.structs.replace(model.spec.signature, columns=("t0", "t1"))
    )
    result = predicted(tmp_path, model, "id,t1,t0\na,2,1\nb,-1,-3\n", monkeypatch)
    assert result["rows"] == plain and result["unread_columns"] == ["id"]
    other = predicted(tmp_path, model, "u0,u1\n1,2\n-3,-1\n", monkeypatch)
    assert other["rows"] == plain and "not called as in training (t0, t1)" in other["note"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t0,t1\n1,2\n", "lacks the columns t2, t3: the model reads t0, t1, t2, t3, and the file has t0, t1."),
        ("id,t0,t1,t3,t4\n7,1,2,3,4\n", "lacks the column t2: the model reads t0"),
    ],
)
def test_a_row_without_some_of_its_columns_is_no_shorter_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    model = Largest()
    signature = msgspec.structs.replace(model.spec.signature, columns=("t0", "t1", "t2", "t3"))
    model.spec = msgspec.structs.replace(model.spec, signature=signature)
    assert words in refused(tmp_path, model, text, monkeypatch)


def test_series_of_one_value_get_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = predicted(tmp_path, Largest(context=5), "t0\n1\n-3\n2\n", monkeypatch)
    assert len(result["rows"]) == 4 and result["note"].startswith("each row is read as a series of one value")
    assert "trained on series of up to 5: if the rows are one series, write them as one row" in result["note"]
    assert "note" not in predicted(tmp_path, Largest(context=1), "t0\n1\n", monkeypatch)
    assert "note" not in predicted(tmp_path, Largest(context=5), "t0,t1\n1,2\n", monkeypatch)
    several = predicted(tmp_path, Largest(("x", "y"), context=5), "id,x,y\na,1,2\nb,2,1\n", monkeypatch, group="id")
    assert several["note"] == "each series is a single row, and the model was trained on series of up to 5"


def test_labels_in_the_data_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "t0,kind,t1\n1,up,2\n-3,up,-1\n5,up,5\n-1,down,-1\n"
    for asked, model in (({"label": "kind"}, Largest()), ({}, Largest(label="kind"))):
        result = predicted(tmp_path, model, text, monkeypatch, **asked)
        assert result["accuracy"] == 3 / 4 and result["rows"][0] == ["row", "kind", "predicted", "p_down", "p_up"]
        assert result["rows"][2][:3] == ["2", "up", "down"]


def test_classes_of_groups_whatever_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns in another order than the model's, groups that are mixed, lengths 1 to 5."""
    lengths, lines = [3, 1, 5, 2, 4, 5, 1], []
    for step in range(5):
        for group, length in enumerate(lengths):
            if step < length:
                lines.append(f"{group * 10 + step},s{group},{group * 10 + step + (1 if group % 2 else -1)}")
    model = Largest(("x", "y"), context=5)
    result = predicted(tmp_path, model, "\n".join(["y,id,x", *lines]), monkeypatch, group="id")
    assert result["rows"][0][:2] == ["id", "predicted"]
    assert [row[:2] for row in result["rows"][1:]] == [[f"s{k}", "up" if k % 2 else "down"] for k in range(7)]
    np.testing.assert_allclose(
        [float(row[3]) for row in result["rows"][1:]], [share((-1) ** (k + 1)) for k in range(7)]
    )
    assert len({shape[1] for shape in model.shapes}) == 4 and "note" not in result
    # As in training, if the file has that column.
    again = predicted(tmp_path, Largest(("x", "y"), context=4, group="id"), "\n".join(["y,id,x", *lines]), monkeypatch)
    assert again["rows"] == result["rows"] and "up to 5 values; the longest" in again["note"]


@pytest.mark.parametrize(
    ("features", "text", "asked", "words"),
    [
        (
            ("value",),
            "t0,kind\n1,up\n2,left\n",
            {"label": "kind"},
            "line 3: the model has never seen the kind 'left'; it",
        ),
        (("value",), "t0,kind\n1,upp\n", {"label": "kind"}, "knows down, up. Did you mean up?"),
        (("value",), "t0,kind\n1,up\n", {}, "line 2, column 'kind': 'up' is no number"),
        (("value",), "t0,t1\n1,\n", {}, "line 2, column 't1': the cell is empty"),
        (("value",), "t0,t1\n1,2\n", {"label": "t2"}, "--label 't2': "),
        (("value",), "t0,t1\n1,2\n", {"every": 3}, "--every 3 means nothing for this model, which tells classes"),
        (("x", "y"), "x,y\n1,2\n", {}, "does not say which rows are one series: name the column that does, --group"),
        (("x", "y"), "x,z,id\n1,2,a\n", {"group": "id"}, "lacks the column y: the model reads x, y"),
    ],
)
def test_unfit_series_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: tuple[str, ...], text: str, asked: Any, words: str
) -> None:
    assert words in refused(tmp_path, Largest(features), text, monkeypatch, **asked)


SERIES = "extra,x\n" + "".join(f"{row % 2},{row * row}\n" for row in range(1, 8))


def test_a_forecast_from_the_last_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """36, 49: 13 a step, and 1 more for the extra of row 7."""
    result = predicted(tmp_path, Line(), SERIES, monkeypatch)
    assert result["rows"] == [["after_row", "step", "x"], ["7", "1", "63"], ["7", "2", "76"]]
    assert (result["windows"], result["horizon"], result["target"], result["predictions"]) == (1, 2, "x", 2)


def test_columns_that_the_model_does_not_read_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dated = "\n".join(f"{'day' if not k else f'may {k}'},{line}" for k, line in enumerate(SERIES.split()))
    result = predicted(tmp_path, Line(), dated, monkeypatch)
    assert result["rows"] == predicted(tmp_path, Line(), SERIES, monkeypatch)["rows"]
    assert result["unread_columns"] == ["day"]
    assert "unread_columns" not in predicted(tmp_path, Line(), SERIES, monkeypatch)


def test_forecasts_from_every_row_count_from_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = predicted(tmp_path, Line(), SERIES, monkeypatch, every=2)
    assert [row[0] for row in result["rows"][1::2]] == ["3", "5", "7"] and result["windows"] == 3
    assert [row[2] for row in result["rows"][1:]] == ["15", "20", "35", "44", "63", "76"]
    assert predicted(tmp_path, Line(), SERIES, monkeypatch, every=1)["windows"] == 5
    assert predicted(tmp_path, Line(), SERIES, monkeypatch, every=99)["windows"] == 1


def test_quantiles_have_columns_and_the_median_is_the_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = predicted(tmp_path, Line((0.25, 0.5, 0.75)), SERIES, monkeypatch)
    assert result["rows"][0] == ["after_row", "step", "x", "x_q0.25", "x_q0.5", "x_q0.75"]
    assert result["rows"][2] == ["7", "2", "76", "75.75", "76", "76.25"]


@pytest.mark.parametrize(
    ("text", "asked", "words"),
    [
        ("x,extra\n1,2\n3,4\n", {}, "has 2 rows, and the model reads 3 before it forecasts"),
        ("x,extra\n1,2\n", {}, "has 1 row, and the model reads 3"),
        ("x\n1\n2\n3\n", {}, "lacks the column extra: the model reads x, extra"),
        ("X,extra\n1,2\n", {}, "lacks the column x: .* Did you mean X?"),
        ("x,extra\n1,2\n3,\n5,6\n", {}, "line 3, column 'extra': the cell is empty"),
        ("x,extra\n1,2\n", {"label": "x"}, "--label x means nothing for this model, which forecasts"),
        ("x,extra\n1,2\n", {"group": "x"}, "--group x means nothing"),
    ],
)
def test_unfit_rows_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, asked: Any, words: str
) -> None:
    message = refused(tmp_path, Line(), text, monkeypatch, **asked)
    assert all(part in message for part in words.split(".*"))


@pytest.mark.parametrize("kind", ["tokens", "translate"])
def test_questions_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Of several lengths, in the order of the file."""
    questions = ["12+34", "5+5=", "99+99", "1+2", "999+001"]
    model = Adder(kind)
    result = predicted(tmp_path, model, "\n".join(questions) + "\n", monkeypatch)
    answers = ["64", "01", "891", "3", "0001"]
    assert result["rows"] == [["question", "answer"], *map(list, zip(questions, answers, strict=True))]
    assert result["kind"] == kind and result["predictions"] == 5


def test_an_answer_that_does_not_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Adder("translate", ends=False)
    assert predicted(tmp_path, model, "1+2", monkeypatch)["rows"][1] == ["1+2", "1" * 15]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1+2\n3-4\n", "line 2: '3-4' is no question of the task addition: it holds '-', and its symbols are"),
        ("1+2\n34\n", "line 2: '34' is no question of the task addition: it holds no '+'"),
        ("1+2\n\n3+4\n", "line 2 is empty: give one question a line"),
        ("1=+2\n", "line 1: '1=+2' is no question of the task addition: it holds '=', which ends a question"),
        ("", "line 1 is empty"),
    ],
)
def test_unfit_questions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    assert words in refused(tmp_path, Adder("tokens"), text, monkeypatch)


def test_a_model_of_plain_text_answers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Adder("tokens")
    model.spec = SequenceSpec(task="text", model="gpt", signature=Signature(vocabulary=13, tokenizer=WORDS), context=12)
    assert "task text, which knows no questions: rlseq generate" in refused(tmp_path, model, "1+2", monkeypatch)


def test_nothing_of_the_users_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, file = tmp_path / "data.csv", tmp_path / "m.onnx"
    data.write_text(SERIES)
    file.write_bytes(b"model")
    (tmp_path / "link.csv").symlink_to(data)
    monkeypatch.setattr(predicting, "opened_model", lambda found, checkpoint: Line())
    found = Located("onnx", "m", file, None)
    cases: Sequence[tuple[str, str]] = (
        ("data.csv", "is the data itself, which would be lost"),
        ("link.csv", "is the data itself"),
        ("m.onnx", "is the model itself"),
        ("none/out.csv", "there is no folder"),
        (".", "is a folder: give the name of a CSV file"),
    )
    for out, words in cases:
        with pytest.raises(UsageError, match=words):
            predict_into(found, Asked(str(data), tmp_path / out), None)
    assert data.read_text() == SERIES and file.read_bytes() == b"model"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "link.csv", "m.onnx"]


def test_predicting_needs_no_torch() -> None:
    code = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "onnx", "onnxscript", "tensorboard", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import rlseq.predicting
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.table import TASKS
for name, kind in (("waveforms", "classify"), ("mackey-glass", "forecast")):
    task = TASKS[name].make(SeqOptions(task=name), kind)
    next(task.validation(3))
    print(*[note for note in task.notes if "matplotlib" in note])
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("evaluations are not drawn") == 2
