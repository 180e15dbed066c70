"""`rlseq card`: what is typed, what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlseq import card
from rlseq.card import Card
from rlseq.cli.card import card_seeds
from rlseq.errors import UsageError
from tests.cli.conftest import Cli, failed, only_json
from tests.test_card_text import DATA
from tests.test_card_text_sequence import ADDITION, SERIES
from tests.test_card_text_sequence import DATA as SEQUENCE

Given = list[dict[str, Any]]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """The arguments of every card; each is a known one."""
    calls: Given = []

    def make_card(name: str, **arguments: Any) -> Card:
        arguments.pop("watch")
        arguments.pop("note")("Training ...")
        calls.append({"name": name, **arguments})
        return Card(Path(arguments["out"] or f"agents/{name}"), DATA)

    monkeypatch.setattr(card, "make_card", make_card)
    return calls


def test_nothing_typed_but_the_name(cli: Cli, given: Given) -> None:
    assert cli("card mine").exit_code == 0
    nothing = {"episodes": None, "jobs": 1, "out": None, "baselines": None}
    assert given == [{"name": "mine", "seeds": range(10), **nothing, "command": "rlseq card mine --seeds 0:10"}]


def test_everything_typed(cli: Cli, given: Given) -> None:
    assert cli("card mine --seeds 3:6 --episodes 20 --jobs 2 --out there --baselines b.json").exit_code == 0
    command = "rlseq card mine --seeds 3:6 --episodes 20 --jobs 2 --baselines b.json"
    typed = {"episodes": 20, "jobs": 2, "out": "there", "baselines": "b.json"}
    assert given == [{"name": "mine", "seeds": range(3, 6), **typed, "command": command}]


def test_the_end(cli: Cli, given: Given) -> None:
    result = cli("card mine")
    assert [line.split() for line in result.stdout.splitlines()[:3]] == [
        ["seed", "score", "best", "step", "training", "run"],
        ["0", "500", "±", "0", "47500", "0:00:45", "card-cartpole-dqn-s0"],
        ["1", "475.5", "±", "31.26", "2500", "0:20:34", "card-cartpole-dqn-s1"],
    ]
    words = " ".join(result.stdout.split())
    assert "mean return 487.26 ± 12 over 2 seeds (mean and its 95 % interval, Student's t; lowest seed 475.5" in words
    assert "shipped seed 1, the median run: 266.3 KiB, 67586 parameters" in words
    assert "latency 9.9 µs (p50), 20.6 µs (p99), 615796 observations/s in batches of 64" in words
    assert "written card.md, card.json, curve.png, policy.onnx in agents/mine" in words
    assert result.stderr == "Training ...\n"
    assert cli("card mine -q").stderr == ""


def test_the_end_of_a_sequence_model(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "make_card", lambda name, **arguments: Card(Path(f"agents/{name}"), SEQUENCE))
    result = cli("card text-gpt")
    assert [line.split() for line in result.stdout.splitlines()[:3]] == [
        ["seed", "loss", "bits", "a", "token", "perplexity", "best", "step", "training", "run"],
        ["0", "1.4", "2.06", "4.2", "1650", "0:02:00", "card-text-gpt-s0"],
        ["1", "1.4644", "2.06", "4.2", "1650", "0:02:00", "card-text-gpt-s1"],
    ]
    words = " ".join(result.stdout.split())
    assert "loss 1.4322 ± 0.0123 nats a token over 2 seeds (mean and its 95 % interval, Student's t; lowest" in words
    assert "bits a token 2.0662 ± 0.0178 over 2 seeds" in words
    assert "perplexity 4.188 with one seed, which gives no interval" in words
    assert "shipped seed 1, the median run: 1.8 MiB, 461664 parameters" in words
    assert "speed 0.314 ms a token (p50), 0.5 ms (p99), 2988 tokens/s" in words
    assert "written card.md, card.json, curve.png, model.onnx in agents/text-gpt" in words
    assert only_json(cli("card text-gpt --json")) == SEQUENCE


def test_json(cli: Cli, given: Given) -> None:
    assert only_json(cli("card mine --json")) == DATA


def test_errors(cli: Cli, place: Path) -> None:
    failed(cli("card mine"), 2, "there is no shipped agent 'mine'", "Shipped: none.")
    (place / "agents/mini").mkdir(parents=True)
    (place / "agents/mini/recipe.toml").write_text('algorithm = "seq"\n')
    failed(cli("card mini --episodes 5"), 2, "--episodes 5: mini is a sequence model, which plays no episodes")
    failed(cli("card mine --seeds 0"), 2, "--seeds 0: write how many (--seeds 10), or A:B")
    failed(cli("card mine --seeds 2:2"), 2, "--seeds 2:2: write A:B")


@pytest.mark.parametrize(("text", "seeds"), [("1", range(1)), ("10", range(10)), ("3:6", range(3, 6))])
def test_seeds(text: str, seeds: range) -> None:
    assert card_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "0", "-1", "a", "1.5", "99999", "5:3", ":", "9" * 30])
def test_wrong_seeds(text: str) -> None:
    with pytest.raises(UsageError, match="--seeds "):
        card_seeds(text)


def test_the_end_of_a_model_that_answers(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "make_card", lambda name, **arguments: Card(Path(f"agents/{name}"), ADDITION))
    result = cli("card addition-x")
    head, row = (line.split() for line in result.stdout.splitlines()[:2])
    assert head[:4] == ["seed", "exact", "match", "exact"]
    assert row[:6] == ["0", "0.9987", "0.25", "0.9999", "0.75", "0.01"]
    words = " ".join(result.stdout.split())
    assert "exact match 0.9987 with one seed, which gives no interval exact match at 2x the length 0.25" in words
    assert "latency 1.23 ms an answer (p50), 2 ms (p99), 789 a second" in words
    assert "written card.md, card.json, curve.png, model.onnx in agents/addition-x" in words
    monkeypatch.setattr(card, "make_card", lambda name, **arguments: Card(Path(f"agents/{name}"), SERIES))
    words = " ".join(cli("card mackey-glass-x").stdout.split())
    assert "written card.md, card.json, curve.png, forecasts.png, model.onnx in agents/mackey-glass-x" in words
