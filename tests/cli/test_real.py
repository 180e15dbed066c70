"""The commands on a real, tiny training: nothing here is a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlseq import zoo
from rlseq.cli.main import app
from tests.cli.conftest import Cli, failed, only_json
from tests.cli.test_main import rlseq
from tests.cli.test_play import KEYS

SETTINGS = (
    "run.steps=400 run.log_every=50 run.checkpoint_every=200 net.hidden=[16] replay.capacity=300 replay.batch_size=16 "
    "eval.every=100 eval.episodes=2 eval.num_envs=2 eval.final_episodes=4 dqn.learning_starts=50"
)
SMALL = [word for setting in SETTINGS.split() for word in ("--set", setting)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `mine`."""
    place = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("RLSEQ_RUNS", raising=False)
        patch.setattr(zoo, "agents_folder", lambda: place / "agents")
        result = CliRunner().invoke(app, ["train", "dqn", "CartPole-v1", "--name", "mine", "--json", *SMALL])
        assert result.exit_code == 0, result.output
        (place / "first.json").write_text(result.stdout)
        (place / "first.txt").write_text(result.stderr)
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder as the current one."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLSEQ_RUNS", raising=False)
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "agents")
    return tmp_path


def first(place: Path) -> dict[str, Any]:
    """What the training printed on stdout: one JSON object and nothing else."""
    value = json.loads((place / "first.json").read_text())
    assert isinstance(value, dict)
    return value


def test_train(place: Path) -> None:
    summary = first(place)
    assert set(summary) >= KEYS | {"run", "steps", "policy", "parity", "best_step", "best_evaluation", "stopped"}
    assert (summary["run"], summary["steps"], summary["episodes"]) == ("runs/mine", 400, 4)
    run = place / "runs" / "mine"
    for file in ("config.json", "env.json", "lineage.json", "summary.json", "policy.onnx", "events.out.tfevents.rlseq"):
        assert (run / file).is_file(), file
    assert summary["policy"]["bytes"] == (run / "policy.onnx").stat().st_size
    progress = (place / "first.txt").read_text()
    assert "environment  CartPole-v1\n" in progress
    assert "step 400/400  evaluation " in progress
    assert "Ended: all steps done." in progress


def test_eval_gives_the_score_of_the_summary(cli: Cli, place: Path) -> None:
    summary = first(place)
    scored = only_json(cli("eval", "--episodes", 4, "--envs", 3, "--json"))
    assert set(scored) == KEYS
    for key in KEYS - {"steps_per_second"}:
        assert scored[key] == summary[key], key
    last = only_json(cli("eval", "mine", "--checkpoint", 0, "--episodes", 2, "--json"))
    assert last["episodes"] == 2
    failed(cli("eval", "mine", "--checkpoint", 7), 2, "runs/mine has no checkpoint '7'. It has: best, last, 0, ")


def test_play_and_export_and_info(cli: Cli, place: Path) -> None:
    summary = first(place)
    played = only_json(cli("play", "runs/mine", "--episodes", 4, "--json"))
    assert played["mean_return"] == summary["mean_return"]
    exported = only_json(cli("export", "mine", "--out", "copy.onnx", "--opset", 20, "--json"))
    assert exported["path"] == "copy.onnx"
    assert exported["parity"]["max_error"] < 1e-4
    facts = only_json(cli("info", "copy.onnx", "--json"))
    assert facts["onnx"]["opset"] == 20
    assert facts["scores"]["mean_return"] == summary["mean_return"]
    assert [step["step"] for step in facts["lineage"]] == ["train", "export"]
    run = only_json(cli("info", "mine", "--json"))
    assert run["weights_sha256"] == facts["weights_sha256"]
    assert False not in [entry["intact"] for entry in run["files"]]
    assert only_json(cli("list", "runs", "--json"))["runs"][0]["mean_return"] == summary["mean_return"]
    failed(cli("export", "mine", "--out", "copy.pt"), 2, "--out copy.pt: the file's name must end in .onnx")
    failed(cli("export", "mine", "--out", "old.onnx", "--opset", 9), 2, "--opset 9 is not supported: choose 18 to 21")
    assert not (place / "old.onnx").exists()


def test_resume_with_more_steps(cli: Cli, place: Path) -> None:
    failed(cli("train", "dqn", "--resume", "mine"), 2, "has done 400 environment steps", "--steps 800")
    result = cli("train", "dqn", "--resume", "mine", "--steps", 500)
    assert result.exit_code == 0, result.output
    assert "Next:  rlseq play runs/mine\n" in result.stdout
    assert only_json(cli("info", "mine", "--json"))["steps"] == 500


def test_start_from_another_run(cli: Cli, place: Path) -> None:
    summary = only_json(cli("train", "dqn", "CartPole-v1", "--from", "mine", "--name", "next", "--json", *SMALL))
    assert summary["run"] == "runs/next"
    lineage = only_json(cli("info", "next", "--json"))["lineage"]
    assert [step["step"] for step in lineage] == ["train", "train", "export"]


def test_a_series(cli: Cli, place: Path) -> None:
    words = ["--seeds", "3:5", "--name", "s", "--recipe", "none", "--json", "--quiet", *SMALL]
    value = only_json(cli("train", "dqn", "CartPole-v1", *words))
    assert [run["run"] for run in value["runs"]] == ["runs/s-s3", "runs/s-s4"]
    scores = [run["mean_return"] for run in value["runs"]]
    assert value["mean_return"] == pytest.approx(sum(scores) / 2)
    assert (value["min_return"], value["max_return"]) == (min(scores), max(scores))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train dqn", "no environment given. For example: rlseq train dqn CartPole-v1"),
        ("train dqn CartPol-v1", "there is no environment 'CartPol-v1'. Did you mean CartPole-v1"),
        ("train dqn Pendulum-v1", "Pendulum-v1"),
        ("train dqn CartPole-v1 --steps 0", "command line: run.steps = 0 is not allowed: it must be int > 0"),
        ("train dqn CartPole-v1 --lr -1", "command line: optim.lr = -1.0 is not allowed"),
        ("train dqn CartPole-v1 --set dqn.gama=1", "command line: unknown option 'dqn.gama'. Did you mean dqn.gamma"),
        (
            "train dqn CartPole-v1 --set replay.capacity=10",
            "replay.batch_size = 64 is larger than replay.capacity = 10",
        ),
        ("train dqn CartPole-v1 --recipe nosuch", "--recipe nosuch: neither a file nor a shipped recipe"),
        ("train dqn CartPole-v1 --resume mine --from mine", "give one of them"),
        ("train dqn CartPole-v1 --from nosuch", "nosuch"),
        ("train dqn CartPole-v1 --name mine", "the run runs/mine exists. Choose another --name"),
        ("train dqn CartPole-v1 --name a/b", "give a plain name without folders"),
        ("train dqn no_such_module:X-v0", "--import no_such_module: no module of this name"),
        ("train dqn Acrobot-v1 --resume mine --steps 500", "env.id = 'CartPole-v1'"),
        ("train dqn --resume mine --steps 500 --lr 0.1", "was trained with optim.lr = 0.0005"),
        ("train dqn --resume min --steps 500", "Did you mean mine"),
    ],
)
def test_wrong_input(cli: Cli, place: Path, words: str, message: str) -> None:
    before = sorted(place.rglob("*"))
    failed(cli(words), 2, message)
    assert only_json(cli(words + " --json"))["exit_code"] == 2
    assert sorted(place.rglob("*")) == before  # nothing was written, nothing was lost


def test_ones_own_environment(cli: Cli, place: Path) -> None:
    (place / "mazes.py").write_text(
        "import gymnasium\nprint('imported')\n"
        "gymnasium.register('Maze-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=20)\n"
    )
    words = ["train", "dqn", "mazes:Maze-v0", "--name", "maze", "--json", *SMALL]
    result = rlseq(*words, cwd=place).communicate(timeout=120)
    assert json.loads(result[0])["env_id"] == "Maze-v0"
    out, err = rlseq("play", "maze", "--json", cwd=place).communicate(timeout=120)
    assert json.loads(out) == {"error": err.split("Error: ")[1].strip(), "exit_code": 2}
    assert "add --import mazes" in err
    out, err = rlseq("play", "maze", "--json", "--import", "mazes", "--episodes", "2", cwd=place).communicate(
        timeout=120
    )
    assert json.loads(out)["max_return"] <= 20
    assert "imported\n" in err


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_saves_and_says_how_to_go_on(cli: Cli, place: Path, signum: int, code: int) -> None:
    words = ["train", "dqn", "CartPole-v1", "--name", "long", "--json", *SMALL, "--set", "run.steps=1000000"]
    process = rlseq(*words, cwd=place)
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if "evaluation" in line:
            break
    process.send_signal(signum)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    error = json.loads(out)
    assert error["exit_code"] == code
    assert error["error"].startswith("stopped at step ")
    assert error["error"].endswith("everything is saved. Go on with:\n  rlseq train dqn --resume runs/long")
    assert "Traceback" not in err
    facts = only_json(cli("info", "long", "--json"))
    assert facts["status"] == "interrupted"
    steps = facts["steps"] + 100  # the last step may be moved nearer, too
    result = cli("train", "dqn", "--resume", "runs/long", "--steps", steps, "--quiet")
    assert (result.exit_code, result.stdout) == (0, "runs/long\n")
    facts = only_json(cli("info", "long", "--json"))
    assert (facts["status"], facts["steps"]) == ("finished", steps)
