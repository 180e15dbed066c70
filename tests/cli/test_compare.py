"""`rlseq compare`: the table, the words, the JSON."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.conftest import Cli, failed, only_json
from tests.made_runs import made_run, made_sequence_run


def lines(text: str) -> list[list[str]]:
    """A table's cells."""
    return [re.split(r"  +", line.strip()) for line in text.splitlines() if line.strip()]


def test_the_table(cli: Cli) -> None:
    made_run("a-s0", [50.0, 60.0], score=100.0)
    made_run("a-s1", [50.0, 70.0], score=110.0, seed=1)
    made_run("b", [5.0], score=-0.5, options={"dqn": {"gamma": 0.5}})
    made_run("c", [5.0], options={"dqn": {"gamma": 0.6}})
    made_run("c-s1", [7.0], options={"dqn": {"gamma": 0.6}}, seed=1, score=9.0)
    made_run("d", [5.0], options={"dqn": {"gamma": 0.7}})
    result = cli("compare a-s0 a-s1 b runs/c c-s1 d")
    assert result.exit_code == 0
    head, *rows = lines(result.stdout)
    assert head == [
        "trained",
        "runs",
        "mean return",
        "lowest",
        "highest",
        "best evaluation",
        "time",
        "steps",
        "updates",
    ]
    assert rows == [
        ["CartPole-v1", "2", "105 ± 63.53 (n = 2)", "100", "110", "65", "0:00:10", "200", "400"],
        ["CartPole-v1 dqn.gamma=0.5", "1", "-0.5 (n = 1: no interval)", "-0.5", "-0.5", "5", "0:00:10", "100", "200"],
        [
            *("CartPole-v1 dqn.gamma=0.6", "1 finished, 1 unfinished", "9 (n = 1: no interval)", "9", "9", "6"),
            *("0:00:12", "100", "200"),
        ],
        ["CartPole-v1 dqn.gamma=0.7", "1 unfinished", "-", "-", "-", "5", "0:00:12", "100", "-"],
    ]
    assert result.stderr == "\nA picture of the curves: add --out FILE.png\n"
    assert cli("compare a-s0 --quiet").stderr == ""


def test_the_table_of_sequence_models(cli: Cli) -> None:
    made_sequence_run("a-s0", [2.0, 1.5], score=1.4321)
    made_sequence_run("a-s1", [2.0, 1.5], score=1.4323, seed=1)
    made_sequence_run("b", [2.0, 1.25], options={"net": {"core": "lstm"}})
    head, *rows = lines(cli("compare a-s0 a-s1 b").stdout)
    assert head == ["trained", "runs", "loss", "lowest", "highest", "best evaluation", "time", "steps", "updates"]
    assert rows == [
        ["text", "2", "1.4322 ± 0.0013 (n = 2)", "1.4321", "1.4323", "1.5", "0:00:10", "200", "200"],
        ["text net.core=lstm", "1 unfinished", "-", "-", "-", "1.25", "0:00:12", "200", "-"],
    ]


def test_a_policy_and_a_sequence_model(cli: Cli) -> None:
    made_run("a", [50.0], score=100.0)
    made_sequence_run("b", [2.0], score=1.4)
    words = "runs/a is judged by its mean return and runs/b by its loss: they cannot be compared."
    failed(cli("compare a b"), 2, words)


def test_the_picture(cli: Cli, place: Path) -> None:
    made_run("a", [50.0, 60.0], score=100.0)
    result = cli("compare a --out curves.png --tag train/loss")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("\npicture  curves.png\n")
    assert (place / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_a_tag_that_changes_nothing_is_said(cli: Cli) -> None:
    made_run("a", [50.0], score=100.0)
    assert "Warning: --tag train/loss chooses the curve to draw" in cli("compare a --tag train/loss").stderr
    assert cli("compare a --tag train/loss --json").stderr == ""


def test_json(cli: Cli) -> None:
    made_run("a", [50.0], score=100.0)
    made_run("b", [50.0], score=100.0, options={"env": {"id": "Acrobot-v1"}})
    result = cli("compare a b --json --out a.png")
    found = only_json(result)
    assert [group["mean_return"] for group in found["groups"]] == [100.0, 100.0]
    assert found["groups"][0]["half_width"] is None
    assert found["picture"] == "a.png"
    assert result.stderr == f"Warning: {found['warnings'][0]}\n"


def test_errors(cli: Cli) -> None:
    run = made_run("a", [50.0], score=100.0)
    failed(cli("compare"), 2, "Missing argument 'RUN'")
    failed(cli("compare", run.exported), 2, "is an exported file")
    failed(cli("compare a --out a.gif"), 2, "must end in .png or .svg")
    failed(cli("compare a --tag eval/mean --json"), 2, "It has: train/loss, eval/return_mean, eval/return_std.")
