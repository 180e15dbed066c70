"""What the benchmark of sequence tasks makes of what commands print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlseq.bench import results, tasks
from rlseq.bench.benches import run
from rlseq.bench.command import Ran
from rlseq.bench.tasks import GOALS, Goal
from rlseq.cli.bench import report_rows
from rlseq.errors import RlseqError, UsageError
from rlseq.seq.tasks.table import TASKS

SCORES = {0: 1.0, 1: 0.98}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], int]]:
    """Commands are noted instead of run; four digits take 300 updates, or 75 from three."""
    done: list[tuple[tuple[str, ...], int]] = []

    def instead(words: Sequence[str], seed: int, runs: Path | None = None) -> Ran:
        done.append((tuple(words), seed))
        updates = 75 if "--from" in words else 300
        score = 0.99 if "--length" in words else SCORES[seed]
        metrics = {"exact_match": score, "nrmse_1": 0.008, "mase": 0.4, "accuracy": 0.99}
        return Ran(2.0 + seed, {"updates": updates, **metrics})

    monkeypatch.setattr(tasks, "run_command", instead)
    return done


def test_every_goal_is_of_a_task_and_its_metric() -> None:
    assert {goal.words[0] for goal in GOALS} <= set(TASKS)
    assert len({goal.name for goal in GOALS}) == len(GOALS)
    generated = {"induction", "recall", "selective-copy", "copy", "reverse", "sort", "addition"}
    assert {goal.words[0] for goal in GOALS if goal.metric == "exact_match"} == generated


def test_a_goal_is_reached_from_one_on() -> None:
    assert Goal("a", (), "accuracy", 0.5).ratio(0.75) == 1.5
    assert Goal("b", (), "mase", 0.2, "lower").ratio(0.4) == 0.5


def test_a_part_is_one_command_with_every_seed(typed: list[Any]) -> None:
    report = run("tasks", lambda line: None, repeats=2, part=1)
    words = ("induction", "--net", "gpt", "--threads", "1")
    assert sorted(typed) == [(words, 0), (words, 1)]
    (name,) = report["measurements"]
    one = report["measurements"][name]
    assert (name, one["ratio"], one["spread"]) == ("induction-gpt", pytest.approx(0.99), [0.98, 1.0])
    assert one["ours"]["score"] == [1.0, 0.98] and one["ours"]["seconds"] == [2.0, 3.0]
    rows = report_rows(report)
    assert rows["induction-gpt: rlseq"] == "exact_match 0.99 (0.98 to 1), 2.50 s"
    assert rows["induction-gpt: the goal"] == "exact_match 1"
    assert rows["induction-gpt: ratio"] == "0.99 times as good (0.98 to 1, by seeds)"
    line = results.markdown(results.rows_of(report, "1234567", "2026-01-01"))
    assert (
        "| exact_match 0.99 (0.98 to 1), 2.50 s | the goal: exact_match 1 | 0.99 (0.98 to 1.00), repeats: 2 |" in line
    )


def test_two_goals_of_one_command_train_once(typed: list[Any]) -> None:
    number = next(n for n in tasks.parts() if run("tasks", lambda line: None, repeats=1, part=n)["measurements"].keys()
                  >= {"mackey-glass-one-step"})  # fmt: skip
    typed.clear()
    measured = run("tasks", lambda line: None, repeats=1, part=number)["measurements"]
    assert len(typed) == 1
    assert measured["mackey-glass-one-step"]["ratio"] == pytest.approx(1.25)
    assert measured["mackey-glass-ten-steps"]["ratio"] == pytest.approx(0.5)


def test_fine_tuning_is_compared_by_its_updates(typed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = run("tasks", lambda line: None, repeats=2, part=len(tasks.parts()))["measurements"].values()
    assert one["ratio"] == 4 and one["ours"]["score"] == [75, 75] and one["peer"]["score"] == [300, 300]
    for seed in (0, 1):
        done = [("--from" in words, "--length" in words) for words, of in typed if of == seed]
        assert done == [(False, False), (True, True), (False, True)]
    monkeypatch.setattr(tasks, "run_command", lambda *given: Ran(1.0, {"updates": 9, "exact_match": 0.5}))
    with pytest.raises(RlseqError, match=r"four digits --from three --lr 0\.0025 came to 0\.500 only"):
        run("tasks", lambda line: None, repeats=1, part=len(tasks.parts()))


def test_a_part_that_there_is_not() -> None:
    with pytest.raises(UsageError, match=r"--part 99: bench tasks has the parts 1 to 17"):
        run("tasks", lambda line: None, part=99)
