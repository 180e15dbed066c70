"""The Markdown of a sequence model's card for known numbers."""

from __future__ import annotations

import copy
from typing import Any

from rlseq.card_text import card_text, number, score_line
from rlseq.scores import METRICS
from tests.made_runs import SEQUENCE_PARITY
from tests.test_card_text import DATA as POLICY

DATA: dict[str, Any] = {
    **{key: POLICY[key] for key in ("format_version", "seconds", "curves", "jobs", "machine", "baselines")},
    "name": "text-gpt",
    "command": "rlseq card text-gpt --seeds 0:2",
    "algorithm": "seq",
    "task": "text",
    "model": "gpt",
    "data": "the standard library (9000 characters, 96 different)",
    "data_sha256": "cd" * 32,
    "validation": 0.1,
    "context": 128,
    "tokens": 950_728,
    "selection_metric": "loss",
    "selection_tokens": 50_000,
    "score": {"n": 2, "mean": 1.43219, "half_width": 0.01234, "lowest": 1.4, "highest": 1.46438},
    "other_scores": {
        "bits_per_token": {"n": 2, "mean": 2.06622, "half_width": 0.0178, "lowest": 2.0, "highest": 2.1},
        "perplexity": {"n": 2, "mean": 4.18791, "half_width": None, "lowest": 4.0, "highest": 4.3},
    },
    "runs": [
        {
            **{"seed": seed, "run": f"card-text-gpt-s{seed}", "loss": loss, "bits_per_token": 2.06, "perplexity": 4.2},
            **{"steps": 1_800, "best_step": 1_650, "training_seconds": 120.04, "tokens": 950_728},
        }
        for seed, loss in ((0, 1.4), (1, 1.46438))
    ],
    "shipped": {
        **{"seed": 1, "run": "card-text-gpt-s1", "loss": 1.46438, "checkpoint": 1_650, "bytes": 1_920_400},
        **{"sha256": "ab" * 32, "parameters": 461_664, "parity": SEQUENCE_PARITY},
    },
    "generation": {"tokens": 2_000, "context": 128, "p50_ms": 0.31415, "p99_ms": 0.5, "tokens_per_second": 2_987.6},
    "sample": {"prompt": "\n", "text": "def a():\n\treturn 1\r", "tokens": 300, "temperature": 1.0, "seed": 0},
    "recipe": 'algorithm = "seq"\n',
}

TEXT = """\
# text-gpt

A sequence model (gpt) for the task `text`, trained by the recipe below and shipped as `model.onnx`. This page, the \
picture and the file are generated; `card.json` holds every number.

**Loss 1.4322 ± 0.0123 nats a token over 2 seeds (mean and its 95 % interval, Student's t; lowest seed 1.4, highest \
1.4644).**

Lower is better. Of the same runs: bits a token 2.0662 ± 0.0178, perplexity 4.188.

Data: the standard library (9000 characters, 96 different), the last 10 % of it for validation. SHA-256 \
`cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd`.

| seed | loss | bits a token | perplexity | updates | best update | training |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| 0 | 1.4 | 2.06 | 4.2 | 1,800 | 1,650 | 120.0 s |
| 1 | 1.4644 | 2.06 | 4.2 | 1,800 | 1,650 | 120.0 s |

Each row is a training of its own, scored at its best checkpoint on the whole validation split: 950,728 tokens in \
windows of 128. The checkpoint was chosen by evaluations (loss) on 50,000 tokens of the same split, so the numbers \
flatter it by as much as that choice can.

![Validation loss of text-gpt against updates](curve.png)

The evaluations during training, by which checkpoints are chosen.

## The shipped file

| model.onnx |  |
| --- | --- |
| from | seed 1, loss 1.4644 |
| size | 1,920,400 bytes, 461,664 parameters |
| parity | values within 2.5e-07 of the network's at batches of 1, 3 and lengths of 1, 5, whole and token by token; 63 \
of 64 tokens of a greedy text equal |
| speed | 0.314 ms a token (p50), 0.5 ms (p99) |
| throughput | 2,990 tokens a second, one text at a time |
| SHA-256 | `abababababababababababababababababababababababababababababababab` |

The run whose score is the median is shipped (of an even number the higher of the two in the middle, of equal ones the \
lowest seed): to ship the best one would be to select by the numbers that are reported. Speed and throughput are of \
ONNX Runtime alone, with one thread and a cache that is full (after 128 tokens), over 2,000 tokens, on the machine \
below.

## A sample

`rlseq generate text-gpt --tokens 300 --seed 0` writes

```text
def a():
\treturn 1\N{REPLACEMENT CHARACTER}
```

## What it costs

"""


def test_the_whole_page() -> None:
    found = card_text(DATA)
    assert found.startswith(TEXT)
    policy = card_text({**POLICY, **{key: DATA[key] for key in ("command", "recipe")}})
    rest = "## What it costs"
    assert found[found.index(rest) :] == policy[policy.index(rest) :]


def test_nothing_in_a_sample_ends_its_fence() -> None:
    data = copy.deepcopy(DATA)
    data["sample"]["text"] = "a\n````\nb ``"
    assert "writes\n\n`````text\na\n````\nb ``\n`````\n\n## What it costs" in card_text(data)


def test_other_choices_are_told() -> None:
    text = card_text({**DATA, "selection_tokens": None, "selection_metric": "word_share", "validation": 0.125})
    assert "chosen by evaluations (word_share) on all tokens of the same split" in text
    assert "the last 12.5 % of it for validation" in text
    assert "| what | loss | source |" in card_text({**DATA, "baselines": [{"what": "a", "result": "b", "source": "c"}]})


def test_numbers_with_the_digits_of_their_metric() -> None:
    loss, bits, _ = METRICS["text"]
    one = {"n": 1, "mean": 1.23456, "half_width": None, "lowest": 1.23456, "highest": 1.23456}
    assert score_line(one, loss) == "1.2346 nats a token with one seed, which gives no interval"
    assert score_line(one, bits) == "1.2346 with one seed, which gives no interval"
    assert [number(0.00049, digits) for digits in (0, 2, 4)] == ["0", "0", "0.0005"]
    assert number(1500.0, 0) == "1,500"


SERIES_PARITY = {"batch_sizes": [1, 3], "lengths": [1, 5], "max_error": 2.5e-7, "seed": 0}


def of_task(task: str, score: float, others: dict[str, float], **more: Any) -> dict[str, Any]:
    """The card of another task, of one seed."""
    first = METRICS[task][0].key

    def one(value: float) -> dict[str, Any]:
        return {"n": 1, "mean": value, "half_width": None, "lowest": value, "highest": value}

    data = copy.deepcopy(DATA)
    for key in ("generation", "sample"):
        del data[key]
    run = {**data["runs"][0], first: score, **others}
    for key in ("loss", "bits_per_token", "perplexity"):
        if key not in others:
            del run[key]
    shipped = {**data["shipped"], first: score, "parity": SERIES_PARITY}
    del shipped["loss"]
    scores = {"score": one(score), "other_scores": {key: one(value) for key, value in others.items()}}
    return data | scores | {"name": f"{task}-x", "task": task, "runs": [run], "shipped": shipped, **more}


ADDITION = of_task(
    "addition",
    0.99871,
    {"exact_match_2x": 0.25, "token_accuracy": 0.9999, "token_accuracy_2x": 0.75, "loss": 0.01},
    model="transformer",
    data="add two numbers",
    context=12,
    tokens=5_000,
    selection_metric="exact_match",
    selection_tokens=20_000,
    prediction={"calls": 500, "p50_ms": 1.2345, "p99_ms": 2.0, "per_second": 789.4},
    examples="105+335=0440\n201+485=6850   not 6860",
    question="105+335",
)
SERIES = of_task(
    "mackey-glass",
    0.15,
    {"rmse": 0.00123456, "mae": 0.001, "naive_ratio": 0.08, "rmse_1": 0.0005, "nrmse_1": 0.0022, "loss": 1e-6},
    model="lstm",
    context=64,
    tokens=5_000,
    selection_metric="mase",
    prediction={"calls": 500, "p50_ms": 0.12345, "p99_ms": 0.2, "per_second": 7_894.2},
    pictures=["forecasts"],
    examples="0.9 -> 0.91",
    question="",
)


def test_the_page_of_a_task_of_questions() -> None:
    text = card_text(ADDITION)
    for part in (
        "A sequence model (transformer) for the task `addition`, trained by",
        "**Exact match 0.9987 with one seed, which gives no interval.**",
        "Higher is better. Of the same runs: exact match at 2x the length 0.25, token accuracy 0.9999, token accuracy "
        "at 2x 0.75, loss 0.01.",
        "Data: add two numbers; 10 % of all questions are never trained on, and it is measured on such. What is "
        "measured at 2x are questions twice as long as the longest that it was trained on. SHA-256",
        "| 0 | 0.9987 | 0.25 | 0.9999 | 0.75 | 0.01 | 1,800 | 1,650 | 120.0 s |",
        "the whole validation split: 5,000 tokens of answers. The checkpoint was chosen by evaluations (exact_match) "
        "on all tokens of answers of the same split",
        "![Validation exact match of addition-x against updates](curve.png)",
        "| from | seed 1, exact match 0.9987 |",
        "| parity | values within 2.5e-07 of the network's at batches of 1, 3 and lengths of 1, 5, whole |",
        "| latency | 1.23 ms an answer (p50), 2 ms (p99) |\n| throughput | 789 answers a second, one at a time |",
        "(of an even number the lower of the two in the middle",
        "Latency and throughput are of ONNX Runtime alone, with one thread, over 500 answers, on the machine below.",
        "## Examples\n\nWhat it answers, at the first of the validation data:\n\n```text\n105+335=0440\n"
        "201+485=6850   not 6860\n```\n\n```sh\nrlseq generate addition-x --prompt 105+335\n"
        "```\n\n## What it costs",
    ):
        assert part in text, part


def test_the_page_of_a_forecast() -> None:
    text = card_text(SERIES)
    for part in (
        "**MASE 0.15 with one seed, which gives no interval.**",
        "Lower is better. Of the same runs: RMSE 0.001235, MAE 0.001, MAE over naive MAE 0.08, RMSE of one step "
        "0.0005, NRMSE of one step 0.0022, loss 1e-06.",
        "96 different), the last 10 % of it for validation. SHA-256",
        "5,000 values forecast from windows of 64. The checkpoint was chosen by evaluations (mase) on all values",
        "| latency | 0.123 ms a forecast (p50), 0.2 ms (p99) |\n| throughput | 7,890 forecasts a second",
        "(of an even number the higher of the two in the middle",
        "## Examples\n\n![Forecasts of mackey-glass-x](forecasts.png)\n\n```sh\nrlseq predict mackey-glass-x --data "
        "FILE.csv --out forecast.csv\n```\n\n## What it costs",
    ):
        assert part in text, part
    assert "0.91" not in text  # the picture says it
    assert "coverage" not in text
