"""Every shipped recipe starts, and every shipped agent plays and is recorded (case R22)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rlseq import runs, zoo
from rlseq.cli.main import app
from rlseq.nets.sizes import CORE_KINDS
from rlseq.recipe import read_recipe
from rlseq.resolve import resolve_new
from rlseq.scores import metrics_of
from rlseq.seq.config import SeqTraining
from rlseq.seq.series.generated import mackey_glass
from rlseq.seq.tasks.table import TASKS, check_taken
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
    words = ["train", "seq", "--recipe", name, "--steps", "2", "--name", "short", "--json"]
    words += ["--set", "eval.sample_tokens=5", "--set", "eval.max_tokens=50"]
    if name.startswith("addition"):
        words += ["--set", "seq.examples=20"]
    if name.startswith("text"):
        words += ["--data", str(write_text(tmp_path / "t.txt"))]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert only_json(result)["updates"] == 2
    assert runs.Run(Path("runs/short")).config()["recipe"] == name


@pytest.mark.parametrize("name", [name for name in zoo.shipped_recipes() if name not in ALL])
def test_the_recipe_of_a_task_can_be_planned(name: str, tmp_path: Path) -> None:
    """Its task, network and options fit together; `rlseq bench tasks` trains them."""
    options = resolve_new("seq", {}, name, "test").options
    assert isinstance(options, SeqTraining)
    assert name in (f"{options.seq.task}-{options.net.core}", f"{options.seq.task}-published")
    check_taken(options.seq)
    kinds = set(TASKS[options.seq.task].kinds) & set(CORE_KINDS[options.net.core])
    assert kinds and options.eval.metric in ("auto", metrics_of(options)[0].key)


MODEL_USES = {"text": ["--tokens", "30"], "addition": ["--prompt", "123+456"]}


@pytest.mark.parametrize("name", [name for name in MODELS if ALL[name].card.is_file()])
def test_a_sequence_model_is_small_and_works(name: str, tmp_path: Path) -> None:
    assert ALL[name].policy.stat().st_size < 2_000_000
    task = name.rpartition("-")[0]
    if task in MODEL_USES:
        result = CliRunner().invoke(app, ["generate", name, *MODEL_USES[task], "--json"])
        assert result.exit_code == 0, result.output
        made = only_json(result)
        assert (made["tokens"] == 30) if task == "text" else (made["text"] == "9750")
        return
    series = mackey_glass(400).ravel()
    (tmp_path / "x.csv").write_text("x\n" + "".join(f"{value}\n" for value in series[:-10]))
    result = CliRunner().invoke(app, ["predict", name, "--data", "x.csv", "--out", "next.csv", "--json"])
    assert result.exit_code == 0, result.output
    found = [float(line.split(",")[2]) for line in (tmp_path / "next.csv").read_text().split()[1:]]
    assert np.abs(np.array(found) - series[-10:]).max() < 0.05  # of a standard deviation of 0.23


@pytest.mark.parametrize("name", AGENTS)
def test_the_agent_plays_and_is_recorded(name: str) -> None:
    words = ["play", name, "--episodes", "2", "--render", "gif", "--out", "play.gif", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    played = only_json(result)
    assert (played["env_id"], played["episodes"]) == (read_recipe(AGENTS[name].recipe, name).values["env"]["id"], 2)
    assert Path("play.gif").read_bytes().startswith(b"GIF89a")
    assert Path("play.gif").stat().st_size > 10_000
