"""What a training shows at its end, by what was learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlseq.cli.output import Output
from rlseq.cli.summary import over_seeds, show_run, show_series, use_of
from rlseq.pipeline import TrainingResult
from rlseq.scores import METRICS
from tests.made_runs import SEQUENCE_PARITY

ENDED: dict[str, Any] = {
    **{"algorithm": "seq", "run": "runs/a", "best_evaluation": 0.98765, "best_step": 200, "updates": 300},
    **{"training_seconds": 61.0, "stopped": "all steps done", "parity": SEQUENCE_PARITY, "tokens": 1_300},
    "policy": {"file": "model.onnx", "bytes": 2_048},
}
SCORES: dict[str, dict[str, Any]] = {
    "text": {"loss": 1.47219, "bits_per_token": 2.12392, "perplexity": 4.35881, "word_share": 0.5, "sample": "\nabc"},
    "addition": {
        **{"exact_match": 0.99871, "exact_match_2x": 0.5, "token_accuracy": 0.9999, "token_accuracy_2x": 0.75},
        **{"loss": 0.01, "sample": "105+335=0440\n201+485=6850   not 6860"},
    },
    "waveforms": {"accuracy": 0.98, "f1": 0.97654, "loss": 0.05, "sample": "sine -> square"},
    "mackey-glass": {
        **{"mase": 0.15, "rmse": 0.00123456, "mae": 0.001, "naive_ratio": 0.08, "rmse_1": 0.0005, "nrmse_1": 0.0022},
        **{"loss": 1e-6, "sample": "0.9 -> 0.91"},
    },
}


def summary(task: str) -> dict[str, Any]:
    """A finished run's."""
    return {**ENDED, "task": task, **SCORES[task]}


def shown(task: str, capsys: pytest.CaptureFixture[str]) -> str:
    show_run(Output(), "seq", TrainingResult(Path("runs/a"), summary(task)))
    return capsys.readouterr().out


def test_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("text", capsys)
    for line in (
        *("loss             1.4722 nats a token, over 1300 tokens of the validation split", "bits a token     2.1239"),
        *("perplexity       4.359", "words            50 % of the words in the sample occur in the data"),
        *("best evaluation  0.9877 at update 200", "trained          300 updates in 0:01:01 (all steps done)"),
    ):
        assert f"{line}\n" in text
    end = "\n\n\nabc\n\nNext:  rlseq generate runs/a\n       rlseq eval runs/a\n       rlseq board\n"
    assert text.endswith(end)


def test_questions_are_shown_with_their_answers_and_one_can_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("addition", capsys)
    first = text.splitlines()[0]
    assert first.split(maxsplit=2) == ["exact", "match", "0.9987, over 1300 tokens of answers of the"]
    assert "exact match at 2x the length  0.5\n" in text and "token accuracy                0.9999\n" in text
    assert "\n\nWhat it answers:\n105+335=0440\n201+485=6850   not 6860\n\nNext:  " in text
    assert "Next:  rlseq generate runs/a --prompt 105+335\n" in text


def test_classes_and_forecasts(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("waveforms", capsys)
    assert "accuracy         0.98, over 1300 series of the validation split\n" in text
    assert "macro F1         0.9765\n" in text and "loss             0.05 nats a series\n" in text
    assert "\n\nThe class of a series, and what it says:\nsine -> square\n" in text
    assert "Next:  rlseq predict runs/a --data FILE.csv --out classes.csv\n" in text
    text = " ".join(shown("mackey-glass", capsys).split())
    assert "MASE 0.15, over 1300 values of the validation split RMSE 0.001235 MAE 0.001 MAE over naive MAE 0.08" in text
    assert "NRMSE of one step 0.0022 standard deviations loss 1e-06 squared" in text
    assert "Next: rlseq predict runs/a --data FILE.csv --out forecast.csv" in text


def test_what_is_next_of_policies_and_of_rows_without_a_question() -> None:
    assert use_of({"algorithm": "dqn"}, "'a b'") == "rlseq play 'a b'"
    rows = {"algorithm": "seq", "task": "recall", "sample": "aCbD..bD"}
    assert use_of(rows, "runs/a") == "rlseq generate runs/a"
    quoted = {"algorithm": "seq", "task": "sort", "sample": "a'b=ab"}
    assert use_of(quoted, "m") == "rlseq generate m --prompt 'a'\"'\"'b'"


def test_a_series_tells_the_score_of_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    done = [
        TrainingResult(Path(f"runs/a-{seed}"), {**summary("addition"), "exact_match": score})
        for seed, score in enumerate((0.5, 0.75))
    ]
    show_series(Output(), "seq", range(2), done)
    text = capsys.readouterr().out
    assert "exact match 0.5 " in text and "exact match 0.75 " in text
    assert text.endswith("\nexact match 0.625 ± 0.125 over 2 seeds (min 0.5, max 0.75)\n")
    total = over_seeds([result.summary for result in done], METRICS["addition"][0])
    assert total == {
        **{"mean_exact_match": 0.625, "std_exact_match": 0.125},
        **{"min_exact_match": 0.5, "max_exact_match": 0.75},
    }
