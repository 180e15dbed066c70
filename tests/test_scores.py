"""By which numbers a training is judged."""

from __future__ import annotations

from pathlib import Path

from rlseq.algorithms import ALGORITHMS
from rlseq.dqn.config import DqnTraining
from rlseq.plots import AXIS
from rlseq.resolve import TREES
from rlseq.scores import METRICS, best_of, metrics_of
from rlseq.seq.config import SeqOptions, SeqTraining
from rlseq.seq.tasks.table import TASKS
from tests.training import write_text


def test_every_algorithm_and_task_is_judged_by_something() -> None:
    assert set(METRICS) == {"dqn", *TASKS}
    assert metrics_of(DqnTraining()) == METRICS["dqn"] and metrics_of(SeqTraining()) == METRICS["text"]
    for algorithm, tree in TREES.items():
        assert metrics_of(tree())[0].key in ALGORITHMS[algorithm].headline
    assert all(metric.curve in AXIS for metrics in METRICS.values() for metric in metrics)


def test_they_are_what_the_task_measures_and_better_in_the_same_direction(tmp_path: Path) -> None:
    data = str(write_text(tmp_path / "t.txt"))
    for name, entry in TASKS.items():
        task = entry.make(SeqOptions(data=data), entry.kinds[0])
        assert {metric.key: metric.better for metric in METRICS[name]}.items() <= dict(task.metrics).items()
        assert METRICS[name][0].key == next(iter(task.metrics))
        assert all(metric.curve == f"eval/{metric.key}" for metric in METRICS[name])


def test_the_best() -> None:
    assert best_of([3.0, 1.0, 2.0], METRICS["text"][0]) == 1.0
    assert best_of([3.0, 1.0, 4.0], METRICS["dqn"][0]) == 4.0
