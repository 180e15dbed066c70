"""Windows of a series: what they hold, the split, the metrics by hand, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq.errors import UsageError
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.forecast import (
    STANDS_STILL,
    ForecastTask,
    Multivariate,
    make_lorenz,
    make_mackey_glass,
    point_forecast,
    read_forecast,
)
from rlseq.seq.tasks.task import Answers, Shown


def options(**others: Any) -> SeqOptions:
    return SeqOptions(**{"task": "forecast", "context": 3, "horizon": 2, "validation": 0.3, **others})


def task_of(values: np.ndarray, target: str = "a", **others: Any) -> ForecastTask:
    names = ("a", "b")[: values.shape[1]]
    return ForecastTask(options(**others), Multivariate(values, names, "0" * 64, "it"), target)


def counting(rows: int = 20) -> np.ndarray:
    """Row n holds n and n squared."""
    return np.stack([np.arange(rows), np.arange(rows) ** 2], axis=1).astype(np.float64)


def test_windows_are_followed_by_their_targets() -> None:
    """20 rows, 14 to train on: windows of 3 begin at 0 to 9, and the last target is row 13."""
    task = task_of(counting())
    rng = np.random.default_rng(0)
    batches = [task.sample(rng, 16) for _ in range(20)]
    starts = np.concatenate([batch.inputs[:, 0, 0] for batch in batches])
    assert set(starts.astype(int)) == set(range(10)) and task.predictions_per_epoch == 12
    assert max(batch.targets.max() for batch in batches) == 13
    for batch in batches:
        first = batch.inputs[:, 0, 0][:, None]
        np.testing.assert_array_equal(batch.inputs[:, :, 0], first + np.arange(3))
        np.testing.assert_array_equal(batch.inputs[:, :, 1], (first + np.arange(3)) ** 2)
        np.testing.assert_array_equal(batch.targets, first[..., None] + np.arange(3)[:, None] + np.array([1, 2]))
        assert batch.inputs.dtype == batch.targets.dtype == np.float32 and batch.given is None and batch.mask is None


def test_validation_forecasts_lie_in_the_validation_part() -> None:
    """Rows 14 to 19: 5 windows, the first after row 13."""
    task = task_of(counting(), target="b")
    batches = list(task.validation(2))
    assert [len(batch.inputs) for batch in batches] == [2, 2, 1]
    last = np.concatenate([batch.inputs[:, -1, 0] for batch in batches])
    ahead = np.concatenate([batch.targets[:, -1] for batch in batches])
    assert last.tolist() == [13, 14, 15, 16, 17]
    np.testing.assert_array_equal(ahead, np.stack([(last + 1) ** 2, (last + 2) ** 2], axis=1))
    some = [int(x) for batch in task.validation(8, 5) for x in batch.inputs[:, -1, 0]]
    assert some == [13, 15]  # 5 targets, 2 a window: 2 windows, spread over the five
    assert len(list(task.validation(8, 1))) == 1


def test_no_value_of_the_validation_part_moves_shift_or_scale() -> None:
    values = counting()
    changed = values.copy()
    changed[14:] *= 1000
    task, other = task_of(values), task_of(changed)
    assert other.signature == task.signature and other._naive_step == task._naive_step
    changed[13] += 1
    assert task_of(changed).signature != task.signature
    np.testing.assert_allclose(task.signature.shift, values[:14].mean(0))
    np.testing.assert_allclose(task.signature.scale, values[:14].std(0))
    assert task.signature.features == ("a", "b") and task.signature.num_outputs == 2


def test_rows_of_a_batch_are_rows_of_the_whole_batch() -> None:
    task = task_of(counting())
    whole = task.sample(np.random.default_rng(3), 8)
    parts = [task.sample(np.random.default_rng(3), 8, rows) for rows in (slice(0, 3), slice(3, 8))]
    np.testing.assert_array_equal(np.concatenate([part.targets for part in parts]), whole.targets)


def test_metrics_by_hand() -> None:
    """The training part 0 2 4 ... changes by 2 a row, and has a deviation of 2 * sqrt((14^2 - 1) / 12)."""
    task = task_of(2 * counting()[:, :1])
    batch = TokenBatch(
        np.array([[[1], [2], [10]], [[1], [2], [20]]], np.float32),
        np.array([[[0, 0], [0, 0], [12, 14]], [[0, 0], [0, 0], [22, 24]]], np.float32),
    )
    values = np.array([[13, 14], [22, 21]], np.float64)  # errors 1 0, 0 -3; of the last value -2 -4, -2 -4
    parts = [task.tally(Answers(values=values[rows]), batch.rows(rows)) for rows in (slice(0, 1), slice(1, 2))]
    sums = task.tally(Answers(values=values), batch)
    np.testing.assert_allclose(parts[0] + parts[1], sums)
    metrics, deviation = task.metrics_of(sums, None), 2 * np.sqrt((14**2 - 1) / 12)
    wanted = {
        "mase": (4 / 4) / 2,
        "mae": 4 / 4,
        "rmse": np.sqrt(10 / 4),
        "naive_ratio": 4 / 12,
        "rmse_1": np.sqrt(1 / 2),
        "nrmse_1": np.sqrt(1 / 2) / deviation,
        "loss": (10 / 4) / deviation**2,
    }
    assert list(metrics) == list(task.metrics) and list(wanted) == list(task.metrics)
    np.testing.assert_allclose(list(metrics.values()), list(wanted.values()), rtol=1e-6)


def test_the_last_value_has_a_ratio_of_1_and_one_row_ahead_a_mase_of_1() -> None:
    rng = np.random.default_rng(0)
    task = task_of(rng.normal(size=(4000, 1)).cumsum(0), horizon=1, validation=0.5)
    sums = sum(task.tally(Answers(values=batch.inputs[:, -1]), batch) for batch in task.validation(100))
    metrics = task.metrics_of(np.asarray(sums), None)
    assert metrics["naive_ratio"] == 1 and abs(metrics["mase"] - 1) < 0.05


def test_where_the_last_value_is_always_right_there_is_no_ratio_to_it() -> None:
    values = counting()[:, :1]
    values[13:] = 13
    task = task_of(values)
    sums = sum(task.tally(Answers(values=batch.targets[:, -1] + 1), batch) for batch in task.validation(100))
    metrics = task.metrics_of(np.asarray(sums), None)
    assert list(metrics) == list(task.metrics) and "naive_ratio" not in metrics and metrics["mae"] == 1
    assert STANDS_STILL in task.notes
    values[19] = 14  # in the last row that is forecast
    task = task_of(values)
    assert "naive_ratio" in task.metrics and STANDS_STILL not in task.notes
    # Of a sample that stands still all the same it is a number, as the best checkpoint may be chosen by it.
    sums = next(iter(task.validation(1, max_targets=2)))
    tally = task.tally(Answers(values=sums.targets[:, -1] + 1), sums)
    assert 1e20 < task.metrics_of(tally, None)["naive_ratio"] < np.inf


def test_quantiles_are_measured_by_their_median_and_their_coverage() -> None:
    task = task_of(counting()[:, :1], loss="quantile", quantiles=(0.1, 0.5, 0.9))
    assert task.signature.quantiles == (0.1, 0.5, 0.9) and task.signature.num_outputs == 6
    batch = next(task.validation(2))
    truth = batch.targets[:, -1].astype(np.float64)
    values = truth[..., None] + np.array([-1.0, 0.5, 2.0])
    values[0, 1] = truth[0, 1] + np.array([0.1, 0.5, 2.0])  # the truth is below the lowest
    metrics = task.metrics_of(task.tally(Answers(values=values), batch), None)
    assert metrics["mae"] == 0.5 and metrics["coverage"] == 3 / 4 and list(metrics) == list(task.metrics)
    assert point_forecast(values, (0.1, 0.5, 0.9)).shape == (2, 2)
    # Not of another loss.
    assert task_of(counting(), quantiles=(0.1, 0.5, 0.9)).signature.quantiles == ()


@pytest.mark.parametrize(
    ("quantiles", "words"), [((0.1, 0.9), "lacks 0.5, the median"), ((0.5, 0.1), r"\[0.5, 0.1\] must rise")]
)
def test_unfit_quantiles_are_refused(quantiles: tuple[float, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        task_of(counting(), loss="quantile", quantiles=quantiles)


def test_fewer_rows_than_a_window_are_refused_with_the_numbers() -> None:
    with pytest.raises(
        UsageError, match=r"leaves 4 rows to train on and 2 to measure.* a window takes 5 .*seq.context = 3"
    ):
        task_of(counting(6))
    with pytest.raises(UsageError, match=r"leaves 19 rows to train on and 1 to measure.* takes seq.horizon = 2"):
        task_of(counting(), validation=0.05)
    with pytest.raises(UsageError, match=r"leaves 1 row to train on and 1 to measure"):
        task_of(counting(2))
    task = task_of(counting(10), horizon=3, context=4)  # 7 rows to train on, 3 to measure: just enough
    assert (
        len(next(task.validation(9)).inputs) == 1
        and (task.sample(np.random.default_rng(0), 9).inputs[:, 0, 0] == 0).all()
    )


def test_a_constant_target_is_refused_and_named() -> None:
    values = counting()
    values[:14, 1] = 5
    with pytest.raises(UsageError, match=r"it: the column 'b' is 5 in all 14 rows of the training part"):
        task_of(values, target="b")
    task = task_of(values)
    assert task.signature.scale[1] == 1 and any("'b' is 5 everywhere" in note for note in task.notes)


def test_a_target_that_changes_but_not_in_float32_is_refused_with_the_reason() -> None:
    values = counting()
    values[:, 1] = 1e8 + np.sin(values[:, 0])
    with pytest.raises(
        UsageError, match=r"'b' changes by 2 around 1e\+08, which float32 does not hold .*off, or give another"
    ):
        task_of(values, target="b")
    assert any("'b' changes by 2 around 1e+08" in note for note in task_of(values).notes)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("day;price\n" + "".join(f"{n};{n % 7}\n" for n in range(30)))
    task = read_forecast(options(data=str(path), target="price"))
    assert task.signature.features == ("day", "price") and task.signature.target == 1 and task.context == 3
    assert "30 rows of 2 columns, price forecast 2 rows ahead" in task.description
    assert "forecast 1 row ahead" in read_forecast(options(data=str(path), target="price", horizon=1)).description
    assert next(task.validation(1)).targets[0, -1].tolist() == [0, 1]
    with pytest.raises(UsageError, match=r"--target 'prize': .* Did you mean price?"):
        read_forecast(options(data=str(path), target="prize"))
    with pytest.raises(UsageError, match=r"which column is forecast\? Give --target COLUMN; .* has day, price"):
        read_forecast(options(data=str(path)))
    with pytest.raises(UsageError, match=r"none was named: --data FILE"):
        read_forecast(options(target="price"))


def test_computed_series() -> None:
    task = make_mackey_glass(SeqOptions(task="mackey-glass"))
    assert task.sha256 == "2d7f2084dffefae3c81be711c085a25b2adc560b760efb33be029882a3c43742"
    assert task.signature.features == ("x",) and task.name == "mackey-glass" and task.signature.horizon == 10
    assert abs(task._naive_step - 0.0276) < 5e-4 and abs(task.signature.scale[0] - 0.2264) < 1e-3
    assert make_lorenz(SeqOptions(task="lorenz")).signature.features == ("x", "y", "z")
    assert make_lorenz(SeqOptions(task="lorenz", target="z")).signature.target == 2
    with pytest.raises(UsageError, match=r"--target 'w': the series lorenz has the columns x, y, z"):
        make_lorenz(SeqOptions(task="lorenz", target="w"))


def test_examples_and_pictures() -> None:
    for quantiles in (False, True):
        task = task_of(counting(), loss="quantile" if quantiles else "auto")
        batch = next(task.validation(5))
        values = batch.targets[:, -1] + 0.25
        if quantiles:
            values = values[..., None] + np.array([-1.0, 0.0, 1.0])
        shown = Shown(batch, Answers(values=values))
        assert task.examples(shown) == "14 -> 14.25\n15 -> 15.25" and task.prompt() == ""
        assert task.pictures(np.zeros(7), shown)["forecasts"].startswith(b"\x89PNG")


def test_columns_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("day,price,rain,wind\n" + "".join(f"may {n},{n % 7},{n % 3},{n % 2}\n" for n in range(30)))
    task = read_forecast(options(data=str(path), target="price", columns=("rain", "price")))
    assert task.signature.features == ("rain", "price") and task.signature.target == 1
    assert next(task.validation(1)).inputs[0, -1].tolist() == [20 % 3, 20 % 7]
    for columns, words in (
        (("rain",), "--columns rain lacks the target 'price'"),
        (("price", "sun"), "--columns 'sun': "),
        (("price", "price"), "--columns names 'price' twice"),
        ((), r"line 2, column 'day': 'may 0' is no number\. .*--columns names those that are read"),
    ):
        with pytest.raises(UsageError, match=words):
            read_forecast(options(data=str(path), target="price", columns=columns))
