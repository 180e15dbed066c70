"""Every shipped recipe starts, and every shipped agent plays and is recorded (case R22)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlseq import runs, zoo
from rlseq.cli.main import app
from rlseq.recipe import read_recipe
from tests.cli.conftest import only_json
from tests.training import write_text

ALL = zoo.agents()
AGENTS = {name: agent for name, agent in ALL.items() if read_recipe(agent.recipe, name).algorithm == "dqn"}
MODELS = [name for name in ALL if name not in AGENTS]
STEPS = 1_300  # past the first burst of updates
SHORT = (
    f"--steps {STEPS} --set eval.every={STEPS} --set eval.episodes=1 --set eval.num_envs=1 --set eval.final_episodes=1"
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLSEQ_RUNS", raising=False)


@pytest.mark.parametrize("name", AGENTS)
def test_the_recipe_starts(name: str) -> None:
    recipe = read_recipe(AGENTS[name].recipe, name)
    words = ["train", recipe.algorithm, recipe.values["env"]["id"], "--name", "short", "--json", *SHORT.split()]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert re.search(rf"recipe +{name}$", result.stderr, re.M)
    summary = only_json(result)
    assert summary["steps"] == STEPS
    assert summary["updates"] > 0
    assert runs.Run(Path("runs/short")).config()["recipe"] == name


@pytest.mark.parametrize("name", MODELS)
def test_the_recipe_of_a_sequence_model_starts(name: str, tmp_path: Path) -> None:
    data = write_text(tmp_path / "t.txt")
    words = ["train", "seq", "--recipe", name, "--steps", "2", "--data", str(data), "--name", "short", "--json"]
    words += ["--set", "eval.sample_tokens=5"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert only_json(result)["updates"] == 2
    assert runs.Run(Path("runs/short")).config()["recipe"] == name


def test_sequence_models_write() -> None:
    for name in MODELS:
        if ALL[name].card.is_file():
            result = CliRunner().invoke(app, ["generate", name, "--tokens", "30", "--json"])
            assert result.exit_code == 0, result.output
            assert only_json(result)["tokens"] == 30
            assert ALL[name].policy.stat().st_size < 2_000_000


@pytest.mark.parametrize("name", AGENTS)
def test_the_agent_plays_and_is_recorded(name: str) -> None:
    words = ["play", name, "--episodes", "2", "--render", "gif", "--out", "play.gif", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    played = only_json(result)
    assert (played["env_id"], played["episodes"]) == (read_recipe(AGENTS[name].recipe, name).values["env"]["id"], 2)
    assert Path("play.gif").read_bytes().startswith(b"GIF89a")
    assert Path("play.gif").stat().st_size > 10_000
