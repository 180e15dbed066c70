"""`rlseq info` and `rlseq list` of sequence models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from rlseq.cli.inspect_sequence import signature_rows
from rlseq.sequence import Signature, Tokenizer
from tests import sequence_graphs
from tests.cli.conftest import Cli, only_json
from tests.made_runs import made_sequence_run, made_task_run

SUMS = Signature(
    kind="translate", vocabulary=13, tokenizer=Tokenizer(unit="char", characters="0123456789+=\n"), start=11, end=12
)
SERIES: dict[str, Any] = {"shift": (0.0, 0.0), "scale": (1.0, 1.0), "features": ("a", "b")}


def rows(signature: Signature, **facts: Any) -> dict[str, str]:
    return signature_rows(msgspec.to_builtins(signature), {"window": None, "context": 16, **facts})


def test_what_is_read_and_answered() -> None:
    letters = Signature(vocabulary=2, tokenizer=Tokenizer(unit="char", characters="ab"))
    assert rows(letters, window=4) == {"tokens": "2 (char), trained on sequences of 16, a place sees 4"}
    assert rows(SUMS) == {
        "tokens": "13 (char), trained on sequences of 16",
        "answers": "questions: each is followed by '=', its answer by '\\n'",
    }
    told = rows(Signature(kind="classify", classes=("x", "y"), **SERIES), one_pass=True)
    assert told == {"reads": "a, b; a whole series at once; trained on sequences of 16", "classes": "x, y"}
    told = rows(Signature(kind="forecast", horizon=5, target=1, quantiles=(0.1, 0.5, 0.9), **SERIES))
    assert told == {
        "reads": "a, b; step by step, with a state; trained on sequences of 16",
        "forecasts": "b, 5 ahead, quantiles 0.1, 0.5, 0.9",
    }


def test_many_names_are_counted() -> None:
    many = tuple(f"class {number}" for number in range(100))
    signature = Signature(kind="classify", classes=many, features=many, shift=(0.0,) * 100, scale=(1.0,) * 100)
    told = rows(signature)
    assert told["classes"] == "100" and told["reads"].startswith("100; ")


def test_info_tells_the_metrics_of_the_task(cli: Cli, place: Path) -> None:
    scores = {"exact_match": 0.99871, "token_accuracy": 1.0, "tokens": 1300}
    sequence_graphs.save_counting(place / "sums.onnx", task="addition", scores=scores)
    words = " ".join(cli("info", "sums.onnx").stdout.split())
    assert "exact match 0.9987, over 1300 tokens of answers of the validation split token accuracy 1 " in words
    sequence_graphs.save_counting(place / "other.onnx", task="of tomorrow", scores={"exact_match": "high"})
    result = cli("info", "other.onnx")
    assert result.exit_code == 0 and "of tomorrow, learnt by hand" in " ".join(result.stdout.split())


def test_lists_tell_the_score_of_the_task(cli: Cli, place: Path) -> None:
    made_sequence_run("a", [2.0], score=1.47219)
    made_task_run("b", "waveforms", [0.5], score=0.9876, options={"net": {"core": "encoder"}})
    made_task_run("c", "lorenz", [0.5])
    lines = [line.split() for line in cli("list", "runs").stdout.splitlines()[1:]]
    assert lines == [
        ["c", "lorenz", "(gpt)", "100", "interrupted", "-"],
        ["b", "waveforms", "(encoder)", "100", "finished", "accuracy", "0.9876"],
        ["a", "text", "(gpt)", "100", "finished", "loss", "1.4722"],
    ]
    row = only_json(cli("list", "runs", "--json"))["runs"][1]
    assert (row["task"], row["accuracy"], row["f1"], row["loss"], row["mean_return"]) == (
        *("waveforms", 0.9876, 0.5, 0.5, None),
    )
