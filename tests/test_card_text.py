"""The card's Markdown for known numbers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rlseq.card_text import card_text, number, score_line
from rlseq.scores import METRICS

DATA: dict[str, Any] = {
    "format_version": 1,
    "name": "cartpole-dqn",
    "command": "rlseq card cartpole-dqn --seeds 0:2",
    "algorithm": "dqn",
    "env_id": "CartPole-v1",
    "episodes": 100,
    "final_seed": 0,
    "selection_seed": 1_000_000,
    "score": {"n": 2, "mean": 487.2561, "half_width": 12.0, "lowest": 475.5, "highest": 500.0},
    "runs": [
        {
            **{"seed": 0, "run": "card-cartpole-dqn-s0", "mean_return": 500.0, "std_return": 0.0, "min_return": 500.0},
            **{"max_return": 500.0, "steps": 50_000, "best_step": 47_500, "training_seconds": 45.249},
        },
        {
            **{
                "seed": 1,
                "run": "card-cartpole-dqn-s1",
                "mean_return": 475.5,
                "std_return": 31.256,
                "min_return": 97.0,
            },
            **{"max_return": 500.0, "steps": 50_000, "best_step": 2_500, "training_seconds": 1234.0},
        },
    ],
    "shipped": {
        **{"seed": 1, "run": "card-cartpole-dqn-s1", "mean_return": 475.5, "checkpoint": 2_500, "bytes": 272_692},
        **{"sha256": "ab" * 32, "parameters": 67_586},
        "parity": {
            **{"max_error": 1.2345e-6, "observations": 1502, "episodes": 160, "episodes_with_equal_return": 160}
        },
    },
    "latency": {"calls": 5000, "p50_us": 9.904, "p99_us": 20.56, "batch": 64, "observations_per_second": 615_796.2},
    "seconds": {
        "training_seconds": {"median": 639.6, "lowest": 45.249, "highest": 1234.0},
        "scoring_seconds": {"median": 1.0, "lowest": 0.5, "highest": 1.5},
    },
    "curves": [],
    "jobs": 1,
    "machine": {
        **{
            "rlseq": "0.1.0",
            "commit": "55cd3cb123",
            "python": "3.11.7",
            "packages": {"numpy": "2.4.6", "torch": "2.13"},
        },
        **{"platform": "Linux x86_64", "cpu": "AMD EPYC", "cores": 2},
    },
    "baselines": [],
    "recipe": 'algorithm = "dqn"\n\n[env]\nid = "CartPole-v1"\n',
}

TEXT = """\
# cartpole-dqn

A DQN agent for `CartPole-v1`, trained by the recipe below and shipped as `policy.onnx`. This page, the picture and \
the file are generated; `card.json` holds every number.

**Mean return 487.26 ± 12 over 2 seeds (mean and its 95 % interval, Student's t; lowest seed 475.5, highest 500).**

| seed | mean return | std | min | max | steps | best step | training |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 0 | 500 | 0 | 500 | 500 | 50,000 | 47,500 | 45.2 s |
| 1 | 475.5 | 31.26 | 97 | 500 | 50,000 | 2,500 | 1234.0 s |

Each row is a training of its own, scored at its best checkpoint on 100 greedy episodes of seed 0. The checkpoint was \
chosen by evaluations of seed 1000000, so nothing was selected by the episodes that are reported. `std`, `min` and \
`max` are over a row's episodes.

![Evaluation return of cartpole-dqn against environment steps](curve.png)

The evaluations during training, by which checkpoints are chosen.

## The shipped file

| policy.onnx |  |
| --- | --- |
| from | seed 1, mean return 475.5 |
| size | 272,692 bytes, 67,586 parameters |
| parity | values within 1.2e-06 of the network's on 1,502 observations, 160 of 160 episodes with the same return |
| latency | 9.9 µs (p50), 20.6 µs (p99): one observation a call |
| throughput | 616,000 observations a second, 64 a call |
| SHA-256 | `abababababababababababababababababababababababababababababababab` |

The run whose score is the median is shipped (of an even number the lower of the two in the middle, of equal ones the \
lowest seed): to ship the best one would be to select by the episodes that are reported. Latency and throughput are of \
ONNX Runtime alone, with one thread, over 5,000 calls, on the machine below.

## What it costs

| wall time of a run | median | lowest | highest |
| --- | ---: | ---: | ---: |
| training | 639.6 s | 45.2 s | 1234.0 s |
| scoring | 1.0 s | 0.5 s | 1.5 s |

Training with its evaluations and checkpoints, one run after the other, on AMD EPYC (2 cores, Linux x86_64).

## Again

```sh
rlseq card cartpole-dqn --seeds 0:2
```

Commit `55cd3cb123`. rlseq 0.1.0, Python 3.11.7, numpy 2.4.6, torch 2.13.

## Recipe

```toml
algorithm = "dqn"

[env]
id = "CartPole-v1"
```
"""


def with_changes(**changes: Any) -> str:
    """The text of other data."""
    return card_text({**copy.deepcopy(DATA), **changes})


def test_the_whole_page() -> None:
    assert card_text(DATA) == TEXT


def test_a_changed_tree_and_none_are_said() -> None:
    machine = DATA["machine"]
    text = with_changes(machine={**machine, "commit": "55cd3cb123+changes"})
    assert "Commit `55cd3cb123`, with uncommitted changes. rlseq" in text
    assert "Commit `unknown`. rlseq" in with_changes(machine={**machine, "commit": None})


def test_one_seed_has_no_interval_and_jobs_are_said() -> None:
    score = {"n": 1, "mean": 500.0, "half_width": None, "lowest": 500.0, "highest": 500.0}
    assert "**Mean return 500 with one seed, which gives no interval.**" in with_changes(score=score)
    assert "checkpoints, 3 runs side by side, on AMD EPYC" in with_changes(jobs=3)
    assert "3 runs side by side, with 1 thread each, on AMD EPYC" in with_changes(jobs=3, threads=[1])
    assert "one run after the other, with 1 or 2 threads each, on AMD" in with_changes(threads=[1, 2])


def test_baselines_are_shown_if_given() -> None:
    row = {"what": "random | uniform", "result": "22.1 ± 1.2", "source": "`rlseq bench`"}
    text = with_changes(baselines=[row])
    assert "\n## Baselines\n\n| what | mean return | source |\n| --- | --- | --- |\n" in text
    assert "| random \\| uniform | 22.1 ± 1.2 | `rlseq bench` |\n" in text
    assert "Baselines" not in TEXT


@pytest.mark.parametrize(
    ("value", "text"), [(500.0, "500"), (499.854, "499.85"), (-0.001, "0"), (-12.3, "-12.3"), (1234567.0, "1,234,567")]
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_the_line_of_the_score_is_in_the_page() -> None:
    assert score_line(DATA["score"], METRICS["dqn"][0]) in TEXT
