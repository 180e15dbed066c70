"""By which numbers a training is judged."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rlseq.dqn.config import DqnTraining
from rlseq.plots import axis_of
from rlseq.resolve import TREES
from rlseq.scores import METRICS, best_of, measured_in, metrics_of, number, score_keys
from rlseq.seq.config import SeqOptions, SeqTraining
from rlseq.seq.tasks.table import TASKS
from tests.training import write_text


def test_every_algorithm_and_task_is_judged_by_something() -> None:
    assert set(METRICS) == {"dqn", *TASKS}
    assert metrics_of(DqnTraining()) == METRICS["dqn"] and metrics_of(SeqTraining()) == METRICS["text"]
    for algorithm, tree in TREES.items():
        assert metrics_of(tree())[0].key in score_keys(algorithm, msgspec.to_builtins(tree()))
    assert all(axis_of(metric.curve, name) != metric.curve for name in METRICS for metric in METRICS[name])


def test_they_are_what_the_task_measures_and_better_in_the_same_direction(tmp_path: Path) -> None:
    for name, entry in TASKS.items():
        for loss in ("auto", "quantile") if entry.kinds == ("forecast",) else ("auto",):
            options = smallest(tmp_path, name, loss)
            task = entry.make(options, entry.kinds[0])
            metrics = metrics_of(SeqTraining(seq=options))
            known = {metric.key: metric.better for metric in metrics}
            assert known.items() <= dict(task.metrics).items()
            assert set(task.metrics) - set(known) <= {"word_share"}
            assert metrics[0].key == next(iter(task.metrics))
            assert all(metric.curve == f"eval/{metric.key}" for metric in metrics)


def smallest(folder: Path, task: str, loss: str) -> SeqOptions:
    """Options of a task, with as little data as it can be of."""
    path = folder / "t.csv"
    path.write_text("a,b\n" + "\n".join(f"{row % 7},{row % 2}" for row in range(3_000)) + "\n")
    needed = {
        "text": {"data": str(write_text(folder / "t.txt"))},
        "classify": {"data": str(path), "label": "b"},
        "forecast": {"data": str(path), "target": "a"},
    }
    return SeqOptions(task=task, loss=loss, examples=4, **needed.get(task, {}))


def test_a_number_that_goes_with_one_loss_alone() -> None:
    forecast = SeqOptions(task="lorenz")
    keys = [metric.key for metric in metrics_of(SeqTraining(seq=forecast))]
    assert keys[0] == "mase" and "coverage" not in keys
    quantile = metrics_of(SeqTraining(seq=msgspec.structs.replace(forecast, loss="quantile")))
    assert [metric.key for metric in quantile] == [*keys, "coverage"]


def test_what_a_file_holds_of_a_tasks_numbers() -> None:
    values = {"task": "lorenz", "mase": 0.5, "mae": "x", "rmse": True, "loss": 1, "mean_return": 3.0}
    assert [metric.key for metric in measured_in(values)] == ["mase", "loss"]
    assert [metric.key for metric in measured_in({"loss": 1.0})] == ["loss"]  # before there were tasks
    assert [metric.key for metric in measured_in({"exact_match": 1.0, "loss": 1.0}, "copy")] == ["exact_match", "loss"]
    assert measured_in({"task": "sort", "exact_match": 10**400}) == ()
    assert measured_in({"task": "no such task", "loss": 1.0}) == measured_in({"mean_return": 1.0}) == ()


def test_which_numbers_a_finished_run_must_have() -> None:
    assert score_keys("dqn", {}) == ("mean_return", "std_return")
    assert score_keys("seq", {}) == score_keys("seq", {"seq": {"task": "text"}}) == ("loss",)
    assert score_keys("seq", {"seq": {"task": "sort"}}) == ("exact_match",)
    assert score_keys("seq", {"seq": {"task": "waveforms"}}) == ("accuracy",)
    assert score_keys("seq", {"seq": {"task": "of tomorrow"}}) == ()


def test_four_figures_of_what_has_the_users_unit() -> None:
    assert [number(value, None) for value in (0.000123456, 1234.567, 5.0)] == ["0.0001235", "1235", "5"]


def test_the_best() -> None:
    assert best_of([3.0, 1.0, 2.0], METRICS["text"][0]) == 1.0
    assert best_of([3.0, 1.0, 4.0], METRICS["dqn"][0]) == 4.0
