"""How numbers, tables and JSON look."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlseq.cli.output import (
    Output,
    duration,
    headline,
    metric_rows,
    number,
    say,
    score,
    show_list,
    show_pairs,
    show_sample,
    size,
    told,
    write_json,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (500.0, "500"),
        (482.25, "482.2"),
        (-1234.56, "-1234.6"),
        (9.394, "9.39"),
        (9.0, "9"),
        (0.8, "0.8"),
        (0.01234, "0.0123"),
        (-0.00001, "-1e-05"),
        (2.033e-07, "2e-07"),
        (0.00012, "0.00012"),
        (-0.0, "0"),
        (0, "0"),
        (100, "100"),
        (None, "-"),
        (float("nan"), "-"),
        (float("inf"), "-"),
        (True, "-"),
    ],
)
def test_numbers(value: Any, text: str) -> None:
    assert number(value) == text


def test_what_is_nested_stands_in_parentheses() -> None:
    step = {"step": 1, "loss": 0.12345, "begun_with": {"run": "a", "loaded": ["core.*", "head.*"]}, "frozen": ["x"]}
    assert told(step) == "step 1, loss 0.12, begun_with (run a, loaded (core.*, head.*)), frozen (x)"
    deep: Any = 1
    for _ in range(300):
        deep = [{"a": deep}]
    assert len(told(deep)) > 300


def test_scores() -> None:
    assert score({"mean_return": 482.25, "std_return": 31.0}) == "482.2 ± 31"
    assert score({}) == score({"mean_return": None}) == "-"


def test_a_headline_is_the_score_of_what_was_learnt() -> None:
    assert headline({"mean_return": 482.25, "std_return": 31.0}) == "482.2 ± 31"
    assert headline({"loss": 1.47219, "bits_per_token": 2.0}) == "loss 1.4722"
    assert headline({"task": "sort", "loss": 0.01, "exact_match": 0.99871}) == "exact match 0.9987"
    assert headline({"task": "lorenz", "loss": 0.01, "mase": 0.1}) == "MASE 0.1"
    assert headline({"task": "sort", "exact_match": float("nan")}) == "exact match -"
    assert headline({"task": "of tomorrow", "exact_match": 1.0}) == headline({}) == "-"


def test_metrics_of_a_task() -> None:
    found = metric_rows(
        {"task": "classify", "f1": 0.5, "accuracy": 0.75, "loss": 0.25, "tokens": 8, "word_share": None}
    )
    assert found == {
        "accuracy": "0.75, over 8 series of the validation split",
        "macro F1": "0.5",
        "loss": "0.25 nats a series",
    }
    assert metric_rows({"mean_return": 3.0, "tokens": 8}) == {}


def test_examples_have_a_heading_and_a_text_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    show_sample({"task": "sort", "sample": "ba=ab"})
    show_sample({"sample": "\nabc"})
    show_sample({"task": "sort", "sample": ""})
    assert capsys.readouterr().out == "\nWhat it answers:\nba=ab\n\n\nabc\n"


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (272_670, "266.3 KiB"),
        (2**20, "1.0 MiB"),
        (3 * 2**30, "3.0 GiB"),
    ],
)
def test_sizes(num_bytes: int, text: str) -> None:
    assert size(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.6, "0:01:00"), (3_600, "1:00:00"), (90_061, "25:01:01")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_markup_of_users_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_pairs({"run": "[red]a[/red] :smile:"})
    show_list(["name"], [["[bold]b"]])
    assert capsys.readouterr().out == "run  [red]a[/red] :smile:\nname\n[bold]b\n"


def test_long_values_fold_and_lists_in_a_pipe_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    show_pairs({"run": "x" * 100})
    lines = capsys.readouterr().out.splitlines()
    assert [len(line) for line in lines] == [80, 30]
    show_list(["name", "n"], [["x" * 100, "1"]], right=("n",))
    assert capsys.readouterr().out.splitlines()[1] == "x" * 100 + "  1"


def test_messages_are_not_wrapped_and_plain_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    say("y" * 200, "red", "Error")
    assert capsys.readouterr().err == f"Error: {'y' * 200}\n"


def test_what_json_cannot_hold_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"a": float("nan"), "b": [1.5, (float("inf"), {"c": -float("inf")})], 3: "ü"})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, [None, {"c": None}]], "3": "ü"}


def test_notes_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        Output(quiet=quiet).note("a note")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "a note\n")


def test_only_json_keeps_stdout_free(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        with Output(as_json).working():
            print("from elsewhere")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("from elsewhere\n", "from elsewhere\n")
