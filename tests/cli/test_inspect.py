"""`rlseq info` and `rlseq list`, on runs and agents made by hand: no torch, no training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rlseq import checkpoints, runs
from rlseq.config import Layer, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.files import sha256_file
from tests import graphs
from tests.cli.conftest import Cli, failed, only_json

SCORES = {"mean_return": 482.25, "std_return": 31.0, "episodes": 100, "seed": 0}
LINEAGE = ({"step": "train", "algorithm": "dqn", "env_id": "CartPole-v1"}, {"step": "export", "checkpoint": 500})


def save_policy(path: Path, env_id: str = "CartPole-v1", **changes: Any) -> Path:
    """An exported policy that acts at random but is whole."""
    spec = graphs.spec_of(env_id, scores=SCORES, lineage=LINEAGE, weights_sha256="ab" * 32, **changes)
    return graphs.save_linear(path, spec, np.zeros((graphs.width_of(spec), spec.action.n)))


def make_run(name: str, *, finished: bool = True, env: dict[str, Any] | None = None) -> runs.Run:
    """A run with checkpoints at 0 and 500, as training leaves it."""
    run = runs.create_run(name, "")
    options = resolve(DqnTraining, Layer("test", {"env": env or {"id": "CartPole-v1"}, "run": {"steps": 500}}))
    run.write("env.json", {"commit": "abc", "cores": 2})
    run.write("lineage.json", {"steps": [LINEAGE[0]]})
    run.write("config.json", {"algorithm": "dqn", "recipe": None, "options": msgspec.to_builtins(options)})
    for folder, step in (("checkpoints", 0), ("checkpoints", 500), ("best", 500)):
        checkpoints.write_checkpoint(run.path / folder, step, {"x": 1}, {"model": {"w": np.arange(4.0) + step}})
    if finished:
        save_policy(run.exported)
        policy = {"file": "policy.onnx", "bytes": 1, "sha256": sha256_file(run.exported)}
        run.write("summary.json", {**SCORES, "policy": policy})
    return run


def make_agent(place: Path, name: str, env_id: str = "CartPole-v1") -> Path:
    """A shipped agent."""
    folder = place / "agents" / name
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(f'algorithm = "dqn"\nenv.id = "{env_id}"\n')
    save_policy(folder / "policy.onnx", env_id)
    return folder


def files_of(facts: dict[str, Any]) -> dict[str, Any]:
    """File name -> whether it is as recorded."""
    return {entry["file"]: entry["intact"] for entry in facts["files"]}


def test_info_of_a_finished_run(cli: Cli) -> None:
    run = make_run("mine")
    facts = only_json(cli("info", "--json"))
    assert (facts["kind"], facts["name"], facts["path"], facts["status"]) == ("run", "mine", "runs/mine", "finished")
    assert facts["env"]["id"] == "CartPole-v1"
    assert [leaf["name"] for leaf in facts["observation"]] == ["obs"]
    assert facts["action"] == {"n": 2, "start": 0}
    assert (facts["steps"], facts["total_steps"]) == (500, 500)
    assert (facts["checkpoints"], facts["best_checkpoint"]) == ([0, 500], 500)
    assert facts["scores"] == SCORES
    assert facts["lineage"] == list(LINEAGE)
    assert facts["weights_sha256"] == "ab" * 32
    assert facts["machine"] == {"commit": "abc", "cores": 2}
    assert facts["onnx"] == {"opset": graphs.OPSET, "ir_version": graphs.IR, "bytes": run.exported.stat().st_size}
    assert facts["resume"] == "rlseq train dqn --resume runs/mine --steps 1000"
    assert facts["bytes"] == sum(entry["bytes"] for entry in facts["files"]) == run.disk_bytes()
    assert files_of(facts) == {
        "best/500/checkpoint.json": True,
        "best/500/model.safetensors": True,
        "checkpoints/0/checkpoint.json": True,
        "checkpoints/0/model.safetensors": True,
        "checkpoints/500/checkpoint.json": True,
        "checkpoints/500/model.safetensors": True,
        "config.json": None,
        "env.json": None,
        "lineage.json": None,
        "policy.onnx": True,
        "summary.json": None,
    }
    assert {e["file"]: e["sha256"] for e in facts["files"]}["policy.onnx"] == sha256_file(run.exported)


def test_info_for_people(cli: Cli) -> None:
    make_run("mine")
    result = cli("info", "mine")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for line in (
        "run          mine",
        "status       finished, 500 of 500 steps",
        "environment  CartPole-v1",
        "observation  obs: box, float32 [4]",
        "actions      2, from 0 to 1",
        "score        482.2 ± 31 over 100 episodes, seed 0",
        "lineage      train: algorithm dqn, env_id CartPole-v1",
        "             export: checkpoint 500",
        "checkpoints  0, 500; best 500",
        "resume       rlseq train dqn --resume runs/mine --steps 1000",
        f"weights      {'ab' * 32}",
    ):
        assert line in lines, result.stdout
    assert any(line.startswith("checkpoints/500/model.safetensors") and "intact" in line for line in lines)


def test_info_of_an_interrupted_run_makes_its_environment(cli: Cli) -> None:
    make_run("mine", finished=False, env={"id": "FrozenLake-v1", "kwargs": {"is_slippery": False}})
    facts = only_json(cli("info", "mine", "--json"))
    assert facts["status"] == "interrupted"
    assert facts["env"]["kwargs"] == {"is_slippery": False}
    assert [(leaf["kind"], leaf["sizes"]) for leaf in facts["observation"]] == [("discrete", [16])]
    assert facts["resume"] == "rlseq train dqn --resume runs/mine"
    assert "onnx" not in facts
    assert "environment  FrozenLake-v1, kwargs {'is_slippery': False}" in cli("info", "mine").stdout


def test_info_says_what_it_cannot_know(cli: Cli, place: Path) -> None:
    make_run("mine", finished=False, env={"id": "Mine-v0", "imports": ["my_envs"]})
    result = cli("info", "mine")
    assert result.exit_code == 0
    assert "cannot be made" in result.stdout and "--import my_envs" in " ".join(result.stdout.split())
    (place / "my_envs.py").write_text(
        "import gymnasium\ngymnasium.register('Mine-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    facts = only_json(cli("info", "mine", "--import", "my_envs", "--json"))
    assert facts["action"] == {"n": 2, "start": 0}


def test_info_finds_what_was_changed(cli: Cli) -> None:
    run = make_run("mine")
    model = run.path / "checkpoints" / "0" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"!")
    manifest = run.path / "checkpoints" / "500" / "checkpoint.json"
    manifest.write_text(manifest.read_text().replace('"x": 1', '"x": 2'))
    run.exported.write_bytes(run.exported.read_bytes() + b"\x72\x00")
    intact = files_of(only_json(cli("info", "mine", "--json")))
    assert [name for name, whole in intact.items() if whole is False] == [
        "checkpoints/0/model.safetensors",
        "checkpoints/500/checkpoint.json",
        "policy.onnx",
    ]
    assert cli("info", "mine").stdout.count("CHANGED") == 3


def test_info_of_an_agent_and_a_file(cli: Cli, place: Path) -> None:
    folder = make_agent(place, "cartpole-dqn")
    for path, kind in (("cartpole-dqn", "agent"), (folder / "policy.onnx", "onnx")):
        facts = only_json(cli("info", path, "--json"))
        assert facts["kind"] == kind
        assert facts["env"]["id"] == "CartPole-v1"
        assert files_of(facts) == {"policy.onnx": None}
        assert facts["bytes"] == (folder / "policy.onnx").stat().st_size
        assert f"file format  ONNX, opset {graphs.OPSET}, IR {graphs.IR}" in cli("info", path).stdout


def test_info_of_a_nested_observation(cli: Cli, place: Path) -> None:
    save_policy(place / "nested.onnx", "toy/Dict-v0")
    text = cli("info", "nested.onnx").stdout
    assert "obs.room: discrete, int64 []" in text
    assert "obs.deep.pixel: box, uint8 [2, 2]" in text


def test_info_of_another_tools_file(cli: Cli, place: Path) -> None:
    spec = graphs.spec_of("CartPole-v1")
    graphs.save_linear(place / "other.onnx", spec, np.zeros((4, 2)), metadata={})
    facts = only_json(cli("info", "other.onnx", "--json"))
    assert facts["foreign"]["inputs"] == ["obs: float32 [batch, 4]"]
    assert "env" not in facts
    assert "not written by rlseq; rlseq play needs --env" in cli("info", "other.onnx").stdout


def test_info_refuses_a_newer_format(cli: Cli, place: Path) -> None:
    spec = msgspec.structs.replace(graphs.spec_of("CartPole-v1"), format_version=99)
    graphs.save_linear(place / "newer.onnx", spec, np.zeros((4, 2)))
    failed(cli("info", "newer.onnx"), 1, "newer.onnx", "format_version 99", "update rlseq")


def test_list_of_nothing(cli: Cli) -> None:
    result = cli("list")
    assert result.stdout == (
        "No agents are shipped with this installation.\n"
        "\n"
        "No runs in runs yet. Begin with: rlseq train dqn CartPole-v1\n"
    )
    assert only_json(cli("list", "--json")) == {"agents": [], "runs": []}


def test_list_runs(cli: Cli) -> None:
    make_run("first")
    make_run("second", finished=False)
    broken = make_run("third")
    (broken.path / "config.json").write_text("{")
    result = cli("list", "runs")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["run", "environment/task", "steps", "status", "score"]
    assert lines[1].startswith("third   -                     -  damaged      runs/third/config.json is not valid JSON")
    assert lines[2] == "second  CartPole-v1         500  interrupted  -"
    assert lines[3] == "first   CartPole-v1         500  finished     482.2 ± 31"
    rows = only_json(cli("list", "runs", "--json"))["runs"]
    assert [row["name"] for row in rows] == ["third", "second", "first"]
    assert rows[2] == {
        "name": "first",
        "env": "CartPole-v1",
        "algorithm": "dqn",
        "steps": 500,
        "total_steps": 500,
        "status": "finished",
        "path": "runs/first",
        "mean_return": 482.25,
        "std_return": 31.0,
        "episodes": 100,
        "loss": None,
    }


def test_list_agents(cli: Cli, place: Path) -> None:
    folder = make_agent(place, "cartpole-dqn")
    unplayed = place / "agents" / "new-dqn"
    unplayed.mkdir()
    (unplayed / "recipe.toml").write_text('algorithm = "dqn"')
    bytes_ = (folder / "policy.onnx").stat().st_size
    lines = cli("list", "agents").stdout.splitlines()
    assert lines[0].split() == ["agent", "environment/task", "score", "size"]
    assert lines[1].startswith("cartpole-dqn  CartPole-v1       482.2 ± 31")
    assert lines[2].startswith("new-dqn       -                 no .onnx file")
    row = only_json(cli("list", "agents", "--json"))["agents"][0]
    assert (row["name"], row["env"], row["mean_return"], row["bytes"]) == (
        "cartpole-dqn",
        "CartPole-v1",
        482.25,
        bytes_,
    )


def test_list_envs(cli: Cli, place: Path) -> None:
    text = cli("list", "envs").stdout
    assert "classic_control\n  Acrobot-v1  CartPole-v0  CartPole-v1  " in text
    assert 'box2d  (needs pip install "rlseq[box2d]")' in text
    assert max(map(len, text.splitlines())) <= 80
    (place / "own_envs.py").write_text(
        "import gymnasium\ngymnasium.register('own/Mine-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    groups = only_json(cli("list", "envs", "--import", "own_envs", "--json"))["envs"]
    assert groups["own"] == ["own/Mine-v0"]
    assert "CartPole-v1" in groups["classic_control"]
    failed(cli("list", "envs", "--import", "no_such_module"), 2, "--import no_such_module")


@pytest.mark.parametrize("word", ["agent", "CartPole-v1"])
def test_list_of_what(cli: Cli, word: str) -> None:
    failed(cli("list", word), 2, word)
