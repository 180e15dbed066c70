"""Models measured on other data than their own; hand-made ones, whose answers numpy tells."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rlseq.elsewhere import note_of
from rlseq.errors import CorruptFile, RlseqError, UsageError
from rlseq.evaluation import evaluate
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.forecast import STANDS_STILL, ForecastTask, Multivariate
from tests import kind_graphs, sequence_graphs
from tests.kind_graphs import averaged, summed

CONTEXT, HORIZON, TARGET = 5, 2, 2
VALUES = np.random.default_rng(1).normal(size=(11, 3)).round(3).astype(np.float32)


def forecaster(folder: Path, **changes: Any) -> Path:
    options = {"task": "forecast", "task_options": {"target": "z", "validation": 0.9}, **changes}
    return kind_graphs.save(folder / "model.onnx", "summing", **options)


def classifier(folder: Path, **changes: Any) -> Path:
    options = {"task": "classify", "task_options": {"label": "way", "group": "id"}, **changes}
    return kind_graphs.save(folder / "model.onnx", "averaging", **options)


def written(folder: Path, values: np.ndarray) -> Path:
    """The columns in another order, with one that the model does not read."""
    lines = [f"{z},{y},7,{x}" for x, y, z in values.tolist()]
    (folder / "other.csv").write_text("\n".join(["z,y,more,x", *lines]) + "\n")
    return folder / "other.csv"


def test_a_forecast_is_measured_on_all_windows_of_a_file(tmp_path: Path) -> None:
    told = evaluate(forecaster(tmp_path), data=written(tmp_path, VALUES))
    starts = range(len(VALUES) - CONTEXT - HORIZON + 1)
    said = np.array([summed(VALUES[None, start : start + CONTEXT])[0, -1] for start in starts])
    truth = np.array([VALUES[start + CONTEXT : start + CONTEXT + HORIZON, TARGET] for start in starts])
    last = np.array([VALUES[start + CONTEXT - 1, TARGET] for start in starts])
    mae = np.abs(said - truth).mean()
    rmse_1 = np.sqrt(((said - truth)[:, 0] ** 2).mean())
    assert told["tokens"] == 5 * HORIZON
    assert told["mae"] == pytest.approx(mae, rel=1e-5)
    assert told["rmse"] == pytest.approx(np.sqrt(((said - truth) ** 2).mean()), rel=1e-5)
    assert told["mase"] == pytest.approx(mae / np.abs(np.diff(VALUES[:, TARGET])).mean(), rel=1e-5)
    assert told["naive_ratio"] == pytest.approx(mae / np.abs(last[:, None] - truth).mean(), rel=1e-5)
    assert told["nrmse_1"] == pytest.approx(rmse_1 / 2.0, rel=1e-5)  # by the model's scale, not the file's
    assert told["measured_on"] == "the whole file" and told["note"].startswith("mase: over the mean change")
    assert told["data"].endswith("other.csv, all 11 rows, z forecast 2 rows ahead")


def test_a_file_that_ends_still_has_no_ratio_to_the_last_value_and_a_word_on_it(tmp_path: Path) -> None:
    values = VALUES.copy()
    values[CONTEXT - 1 :, TARGET] = 0.5
    told = evaluate(forecaster(tmp_path), data=written(tmp_path, values))
    assert "naive_ratio" not in told and told["mase"] > 0 and "; no naive_ratio: the target never" in told["note"]
    assert told["note"].startswith("mase: over the mean change")


def test_own_data_that_end_still_get_that_word_alone() -> None:
    options = SeqOptions(task="forecast", context=2, horizon=1, validation=0.5)
    for end, note in ((0.0, {"note": STANDS_STILL}), (1.0, {})):
        values = np.array([[1.0], [2.0], [0.0], [0.0], [0.0], [end]])
        task = ForecastTask(options, Multivariate(values, ("x",), "0" * 64, "it"), "x")
        assert note_of(task, other=False) == note


def test_a_computed_series_takes_a_file_too(tmp_path: Path) -> None:
    assert (
        evaluate(forecaster(tmp_path, task="lorenz", task_options={}), data=written(tmp_path, VALUES))["tokens"] == 10
    )


def test_the_data_of_training_keep_their_split(tmp_path: Path) -> None:
    data = written(tmp_path, VALUES)
    own = ({"step": "train", "data_sha256": hashlib.sha256(data.read_bytes()).hexdigest()}, {"step": "export"})
    with pytest.raises(UsageError, match="leaves 1 row to train on"):
        evaluate(forecaster(tmp_path, lineage=own), data=data)
    assert evaluate(forecaster(tmp_path, lineage=({"step": "train", "data_sha256": "0"},)), data=data)["tokens"] == 10


def test_classes_are_measured_on_all_series_of_a_file(tmp_path: Path) -> None:
    """Longer ones than in training too, and in an order of its own."""
    lengths, rng = (2, 9, 4, 1, 3), np.random.default_rng(2)
    series = [rng.normal(size=(length, 3)).round(3).astype(np.float32) for length in lengths]
    labels = ["down", "up", "down", "down", "up"]
    lines = [f"s{n},{z},{y},{x},{labels[n]}" for n, rows in enumerate(series) for x, y, z in rows.tolist()]
    (tmp_path / "other.csv").write_text("\n".join(["id,z,y,x,way", *lines]) + "\n")
    told = evaluate(classifier(tmp_path), data=tmp_path / "other.csv")
    logits = np.array([averaged(rows[None], np.ones((1, len(rows)), bool))[0, 0] for rows in series], np.float64)
    truth = np.array([("up", "down").index(label) for label in labels])
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert told["tokens"] == 5
    assert told["accuracy"] == pytest.approx((logits.argmax(1) == truth).mean())
    assert told["loss"] == pytest.approx(-log_p[np.arange(5), truth].mean(), rel=1e-4)


def test_a_text_is_measured_as_a_whole_with_the_models_characters(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("dabba")
    told = evaluate(sequence_graphs.save_counting(tmp_path / "m.onnx"), data=tmp_path / "other.txt")
    tokens = np.array(["abcd".index(letter) for letter in "dabba"])
    logits = np.concatenate([sequence_graphs.twin(part[None])[0] for part in (tokens[:3], tokens[3:4])])
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert told["tokens"] == 4
    assert told["loss"] == pytest.approx(-log_p[np.arange(4), tokens[1:]].mean(), rel=1e-5)
    assert told["perplexity"] == pytest.approx(np.exp(told["loss"]))
    assert "word_share" not in told and told["sample"] == ""
    (tmp_path / "other.txt").write_text("dabXa")
    with pytest.raises(UsageError, match=r"other\.txt .*: the text holds 'X', which the model has never seen"):
        evaluate(tmp_path / "m.onnx", data=tmp_path / "other.txt")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,y\n1,2\n", r"lacks the column z: the model reads x, y, z, and the file has x, y\."),
        ("x,y,z\n1,2,3\n", "all 1 row: too few rows"),
        (
            "x,y,z\n" + "1,2,3\n" * 6,
            r"all 6 rows: too few rows, for a window takes 7 \(the model reads 5 and forecasts 2",
        ),
        ("x,y,z\n" + "1,2,3\n" * 7, "column 'z' is 3 in all rows, so there is nothing to forecast: give another file"),
        ("x,y,z\n1,2,?\n", "line 2"),
    ],
)
def test_rows_that_cannot_be_forecast_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(UsageError, match=words):
        evaluate(forecaster(tmp_path), data=tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,x,y,z\na,1,2,3\n", "lacks the column way: the label of each series stands in way, and the file has id, x"),
        ("way,x,y,z\nup,1,2,3\n", "lacks the column id: which rows are one series is told by id"),
        ("id,way,x,z\na,up,1,2\n", "lacks the column y: the model reads x, y, z"),
        ("id,way,x,y,z\na,left,1,2,3\n", "the model has never seen the way 'left'; it knows up, down"),
    ],
)
def test_series_that_cannot_be_told_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(UsageError, match=words):
        evaluate(classifier(tmp_path), data=tmp_path / "other.csv")


def test_a_description_that_contradicts_itself_is_told(tmp_path: Path) -> None:
    data = written(tmp_path, VALUES)
    path = kind_graphs.save(tmp_path / "model.onnx", "averaging", task="forecast")
    with pytest.raises(CorruptFile, match="describes a task that there is not: forecast of kind classify"):
        evaluate(path, data=data)
    signature = msgspec.structs.replace(sequence_graphs.SPEC.signature, tokenizer=None)
    path = sequence_graphs.save_counting(tmp_path / "text.onnx", signature=signature)
    with pytest.raises(CorruptFile, match="describes a task that there is not: text of kind tokens"):
        evaluate(path, data=data)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("translating", "the task reverse draws its questions itself, and takes no file: leave it out"),
        ("averaging", "the task waveforms computes its series itself, and takes no file"),
        ("summing", "there is no file"),
    ],
)
def test_data_that_cannot_be_taken_are_refused(tmp_path: Path, name: str, words: str) -> None:
    path = kind_graphs.save(tmp_path / "model.onnx", name)
    with pytest.raises(RlseqError, match=words):
        evaluate(path, data=tmp_path / "none.csv")
    with pytest.raises(UsageError, match="only a run has checkpoints"):
        evaluate(forecaster(tmp_path), data=written(tmp_path, VALUES), checkpoint="last")
