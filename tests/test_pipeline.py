"""The functions behind every command, and what they say to wrong input."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnx
import pytest

import rlseq
from rlseq import checkpoints, runs
from rlseq import trained as policies
from rlseq.errors import CorruptFile, NewerFormat, RlseqError, UsageError
from rlseq.files import sha256_file
from rlseq.pipeline import evaluate, export, load, play, train
from rlseq.spec import SPEC_KEY
from tests import toy_envs  # noqa: F401  registers the toy environments
from tests.shared_trainings import without_export
from tests.training import curves, small, small_seq, write_text

KEYS = {
    "mean_return",
    "std_return",
    "min_return",
    "max_return",
    "episodes",
    "mean_length",
    "steps_per_second",
    "seed",
    "env_id",
}


@pytest.fixture(autouse=True)
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run, not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    before = os.environ.get("RLSEQ_RUNS")
    os.environ["RLSEQ_RUNS"] = str(folder)
    try:
        return small(name="shared").run
    finally:
        os.environ.pop("RLSEQ_RUNS")
        if before is not None:
            os.environ["RLSEQ_RUNS"] = before


def test_a_run_holds_everything_it_promises(trained: Path) -> None:
    run = runs.Run(trained)
    names = {path.name for path in trained.iterdir()}
    assert names >= {"config.json", "env.json", "lineage.json", "summary.json", "policy.onnx", "checkpoints", "best"}
    summary = run.summary()
    assert summary is not None
    assert summary.keys() >= KEYS
    assert summary["policy"]["sha256"] == sha256_file(run.exported)
    assert summary["policy"]["bytes"] == run.exported.stat().st_size
    assert summary["steps"] == 600
    assert run.config()["options"]["net"]["hidden"] == [16]
    assert run.env().keys() >= {"commit", "packages", "command", "cpu", "cores", "python"}
    assert run.status() == "finished"
    assert [path.suffix for path in trained.glob("policy*")] == [".onnx"]  # no weights in a second file


def test_training_scoring_and_export_are_timed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(real: Any, seconds: float, *words: Any, **more: Any) -> Any:
        time.sleep(seconds)
        return real(*words, **more)

    for name, seconds in (("score_network", 0.2), ("export_network", 0.4)):
        monkeypatch.setattr(policies, name, functools.partial(slow, getattr(policies, name), seconds))
    begin = time.perf_counter()
    summary = small({"run": {"steps": 60}}).summary
    parts = [summary[f"{part}_seconds"] for part in ("training", "scoring", "export")]
    assert parts[1] >= 0.2 and parts[2] >= 0.4
    assert 0 < sum(parts) <= time.perf_counter() - begin


def test_evaluate_gives_the_final_score_again(trained: Path) -> None:
    summary = runs.Run(trained).summary()
    assert summary is not None
    result = evaluate(trained, episodes=2)
    assert result.keys() == KEYS
    for key in KEYS - {"steps_per_second"}:
        assert result[key] == summary[key], key


def test_run_and_file_score_the_same(trained: Path) -> None:
    run, file = evaluate(trained, episodes=5), evaluate(trained / "policy.onnx", episodes=5)
    assert {k: run[k] for k in KEYS - {"steps_per_second"}} == {k: file[k] for k in KEYS - {"steps_per_second"}}


def test_play_gives_the_same_whatever_the_number_of_environments(trained: Path) -> None:
    results = [play(trained, episodes=6, num_envs=n) for n in (1, 4)]
    assert results[0].keys() == KEYS | {"native", "video"}
    for key in KEYS - {"steps_per_second"}:
        assert results[0][key] == results[1][key], key


def test_load_acts_on_one_observation_and_on_many(trained: Path) -> None:
    policy = load(trained)
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    assert policy(observation) in (0, 1)
    assert policy(observation.astype(np.float64).tolist()) == policy(observation)
    with pytest.raises(RlseqError, match=r"\(3,\).*\(4,\)"):
        policy([0.0, 0.0, 0.0])
    env.close()


def test_export_of_another_checkpoint_and_opset(trained: Path, tmp_path: Path) -> None:
    result = export(trained, out=tmp_path / "last.onnx", opset=20, checkpoint="last")
    model = onnx.load(result.path)
    assert model.opset_import[0].version == 20
    spec = load(result.path).spec
    assert spec.lineage[-1]["checkpoint"] == 600
    assert [step["step"] for step in spec.lineage] == ["train", "export"]
    assert result.report == spec.parity
    assert spec.scores["episodes"] == 2
    assert "steps_per_second" not in spec.scores  # latencies belong to a machine, not to a file


def test_a_new_export_into_the_run_is_what_its_summary_describes() -> None:
    run = runs.Run(small(name="again").run)
    before = run.exported.read_bytes()
    export("again", opset=21)
    summary = run.summary()
    assert summary is not None
    assert run.exported.read_bytes() != before
    assert summary["policy"]["sha256"] == sha256_file(run.exported)
    assert summary["steps"] == 600


def test_a_moved_file_plays_alone(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "alone" / "agent.onnx"
    copy.parent.mkdir()
    copy.write_bytes((trained / "policy.onnx").read_bytes())
    assert play(copy, episodes=1)["env_id"] == "CartPole-v1"


def test_wrong_names_of_environments_and_options() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"env": "CartPol-v1"}, r"'CartPol-v1'.*CartPole-v1"),
        ({"env": "CartPole-v7"}, r"CartPole-v1"),
        ({"env": ""}, r"rlseq train dqn CartPole-v1"),
        ({}, r"rlseq train dqn CartPole-v1"),
        ({"env": "CartPole-v1", "steps": 0}, r"run.steps = 0.*> 0"),
        ({"env": "CartPole-v1", "lr": -1.0}, r"optim.lr = -1.0.*> 0"),
        ({"env": "CartPole-v1", "values": {"dqn": {"gama": 0.9}}}, r"'dqn.gama'.*dqn.gamma"),
        ({"env": "CartPole-v1", "batch_size": 10**6}, r"1000000 is larger than replay.capacity = 100000"),
        ({"env": "CartPole-v1", "learning_rate": 1}, r"'learning_rate'"),
        ({"env": "CartPole-v1", "recipe": "cartpole-dqm"}, r"cartpole-dqn"),
        ({"env": "CartPole-v1", "values": {"env": {"kwargs": {"gravty": 5}}}}, r"gravty.*sutton_barto_reward"),
        ({"env": "Pendulum-v1"}, r"Discrete"),
        ({"env": "CartPole-v1", "imports": ["no_such_module_x"]}, r"--import no_such_module_x"),
        ({"env": "CartPole-v1", "name": "a/b"}, r"run.name = 'a/b'"),
        ({"env": "CartPole-v1", "init_from": "nowhere"}, r"'nowhere'"),
        ({"resume": "nowhere"}, r"'nowhere'"),
        ({"env": "CartPole-v1", "resume": "a", "init_from": "b"}, r"one of them"),
        ({"env": "CartPole-v1", "lr": 1e-3, "values": {"optim": {"lr": 1e-4}}}, r"lr and optim.lr are both given"),
        ({"algorithm": "dqm", "env": "CartPole-v1"}, r"'dqm'.*dqn"),
    ]
    for arguments, message in wrong:
        with pytest.raises(UsageError, match=message):
            train(**arguments)
    assert not Path(os.environ["RLSEQ_RUNS"]).exists() or not list(Path(os.environ["RLSEQ_RUNS"]).iterdir())


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [m for m in sys.modules if m.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UsageError, match=r'pip install "rlseq\[box2d\]"'):
        train(env="LunarLander-v3")
    with pytest.raises(UsageError, match=r"ale_py.*pip install"):
        train(env="ALE/Pong-v5")


@pytest.mark.parametrize("module", ["torch", "tensorboard", "onnx", "onnxscript"])
def test_a_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    def missing(name: str) -> Any:
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name)

    import importlib

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(RlseqError, match=rf'{module}.*pip install "rlseq\[train\]"'):
        train(env="CartPole-v1")


def test_a_recipe_file_with_code_in_it_runs_nothing(tmp_path: Path) -> None:
    recipe = tmp_path / "evil.toml"
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for text, message in (
        ('[env]\nid = "evil_module:Env-v0"', "would import code"),
        ('[env]\nid = "E-v0"\nimports = ["evil_module"]', "would import code"),
        ("[optim]\nlr = \"__import__('os').system('touch ran')\"", r"optim.lr = .*must be float"),
        ("[net]\nhidden = \"[open('ran', 'w')]\"", r"net.hidden = .*must be list of int"),
    ):
        recipe.write_text(f'algorithm = "dqn"\n{text}\n')
        with pytest.raises(UsageError, match=message):
            train(env="CartPole-v1" if "env" not in text else None, recipe=recipe)
    assert not (tmp_path / "ran").exists()


def test_recipes_fill_in_and_arguments_win(tmp_path: Path) -> None:
    recipe = tmp_path / "my.toml"
    recipe.write_text(
        'algorithm = "dqn"\n[run]\nsteps = 120\n[net]\nhidden = [8]\n[dqn]\ngamma = 0.5\nlearning_starts = 20\n'
        '[eval]\nfinal_episodes = 1\nepisodes = 1\n[env]\nid = "CartPole-v1"\n'
    )
    result = train(recipe=recipe, steps=60, name="r")
    options = runs.Run(result.run).config()["options"]
    assert (options["run"]["steps"], options["net"]["hidden"], options["dqn"]["gamma"]) == (60, [8], 0.5)
    assert runs.Run(result.run).config()["recipe"] == "my.toml"


def test_two_runs_in_the_same_second_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frozen(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Frozen:
            return cls(2030, 1, 2, 3, 4, 5)

    monkeypatch.setattr(runs, "datetime", Frozen)
    a, b = small({"run": {"steps": 60}}).run, small({"run": {"steps": 60}}).run
    assert (a.name, b.name) == ("CartPole-v1-dqn-s0-20300102-030405", "CartPole-v1-dqn-s0-20300102-030405-2")
    with pytest.raises(UsageError, match="--resume"):
        small(name=a.name)


@pytest.mark.skipif(os.name != "posix", reason="file permissions and limits of POSIX")
def test_an_unwritable_folder_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "file" / "runs"))
    with pytest.raises(RlseqError, match=r"file/runs"):
        small()
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000));"
        "from rlseq.cli.main import main; main()"
    )
    arguments = ["train", "dqn", "CartPole-v1", "--name", "full", "--recipe", "none", "--set", "net.hidden=8,8"]
    more = ["--set", "run.checkpoint_every=100", "--set", "dqn.learning_starts=10", "--steps", "2000", "--quiet"]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments, *more],
        cwd=tmp_path,
        env={**os.environ, "RLSEQ_RUNS": str(tmp_path / "runs"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    message = " ".join(result.stderr.split())
    assert "replay.safetensors" in message
    assert "limit" in message
    # What had been saved before the disk was full is whole, and nothing half-written is left.
    run = runs.Run(tmp_path / "runs" / "full")
    last = run.checkpoint("last")
    assert int(last.name) >= 100
    for name in ("model", "trainer", "replay"):
        checkpoints.read_arrays(last, checkpoints.read_manifest(last), name)
    assert not list(run.path.glob("**/*tmp*"))


def test_damaged_and_foreign_files(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "none.onnx").write_bytes(b"this is no ONNX file")
    with pytest.raises(RlseqError, match=r"none\.onnx"):
        play(tmp_path / "none.onnx")
    model = onnx.load(trained / "policy.onnx")
    for entry in model.metadata_props:
        if entry.key == SPEC_KEY:
            spec = json.loads(entry.value)
            entry.value = json.dumps({**spec, "format_version": 99})
    onnx.save(model, tmp_path / "newer.onnx")
    with pytest.raises(NewerFormat, match=r"newer.onnx.*99.*update rlseq"):
        play(tmp_path / "newer.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    with pytest.raises(RlseqError, match="--env"):
        play(tmp_path / "foreign.onnx")
    by_hand = play(tmp_path / "foreign.onnx", episodes=3, env="CartPole-v1", inputs=["obs"], action_output="action")
    assert by_hand["mean_return"] == play(trained, episodes=3)["mean_return"]


def test_a_run_of_a_newer_format_is_refused_by_name(trained: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "format_version": 2}))
    with pytest.raises(NewerFormat, match=r"config.json.*2"):
        evaluate(copy)
    (copy / "config.json").write_text("{")
    with pytest.raises(CorruptFile, match=r"config.json"):
        evaluate(copy)


def test_an_unfinished_run_cannot_be_played_but_exported(runs_here: Path) -> None:
    def crash(event: Any) -> None:
        if event.kind == "progress" and event.step >= 400:
            raise KeyError("crash")

    with pytest.raises(KeyError):
        small(name="part", callbacks=[crash])
    with pytest.raises(RlseqError, match="rlseq export"):
        play("part")
    assert evaluate("part", episodes=1)["episodes"] == 1
    export("part")
    assert play("part", episodes=1)["episodes"] == 1


def test_environments_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "my_own_envs.py").write_text(
        "import gymnasium\n"
        "from tests.toy_envs import Identity\n"
        "class Mine(Identity):\n"
        "    pass\n"
        "gymnasium.register('Mine-v0', entry_point=Mine)\n"
    )
    try:
        result = small({"env": {"kwargs": {"length": 5}}}, env="my_own_envs:Mine-v0", name="mine")
        assert result.summary["mean_length"] == 5
        stored = runs.Run(result.run).config()["options"]["env"]
        assert (stored["id"], stored["imports"]) == ("Mine-v0", ["my_own_envs"])
        gym.registry.pop("Mine-v0")
        sys.modules.pop("my_own_envs")
        with pytest.raises(UsageError, match=r"add --import my_own_envs"):
            play("mine")
        assert "my_own_envs" not in sys.modules
        assert play("mine", episodes=1, imports=["my_own_envs"])["mean_length"] == 5
    finally:
        gym.registry.pop("Mine-v0", None)
        sys.modules.pop("my_own_envs", None)


def test_a_factory_from_python() -> None:
    def make_short() -> gym.Env:
        return gym.make("CartPole-v1", max_episode_steps=7)

    result = small(env=make_short, name="made")
    assert result.summary["max_return"] <= 7
    with pytest.raises(UsageError, match=r"function in Python.*env="):
        play("made")
    assert play("made", env=make_short, episodes=2)["max_return"] <= 7
    assert evaluate("made", env=make_short, episodes=2)["max_return"] <= 7
    assert small(env=make_short, resume="made", steps=660).summary["steps"] == 660


def test_threads_are_recorded_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def known(cores: int, steps: int, **arguments: Any) -> list[int]:
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        values = {"run": {"steps": steps}} | ({} if "resume" in arguments else {"engine": {"threads": 0}})
        with without_export():
            run = runs.Run(small_seq(text, values, **arguments).run)
        return run.env()["threads"]

    text = write_text(tmp_path / "text.txt")
    assert known(3, 1, name="t") == [3]
    monkeypatch.setenv("RLSEQ_JOBS", "2")
    assert known(3, 2, resume="t") == [3, 1]
    assert known(2, 3, resume="t") == [3, 1]


def test_amp_is_chosen_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    small({"run": {"steps": 120}}, amp="bf16", name="bf16", callbacks=[events.append])
    assert all(np.isfinite(value) for _, _, value in curves(runs.runs_folder() / "bf16"))
    monkeypatch.setattr("rlseq.engine.device.cpu_has_bf16", lambda: False)
    small({"run": {"steps": 120}}, amp="auto", name="none", callbacks=[events.append])
    assert any(event.kind == "warning" and "slower" in event.data["message"] for event in events)


def test_cuda_without_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError, match="--device cpu"):
        small(device="cuda")


def test_the_public_api_is_this_list() -> None:
    assert rlseq.__all__ == [
        *("Event", "__version__", "evaluate", "export", "generate", "load", "predict", "rollout", "train")
    ]
    assert all(callable(getattr(rlseq, name)) for name in rlseq.__all__ if name != "__version__")
    with pytest.raises(AttributeError, match="no attribute 'prune'"):
        rlseq.prune  # noqa: B018


def test_a_network_that_no_machine_holds_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\[4, 1000000, 1000000, 2\] takes .* GiB.*net.hidden"):
        train(env="CartPole-v1", values={"net": {"hidden": [10**6, 10**6]}})
    with pytest.raises(UsageError, match=r"replay of 1000000000000 transitions takes .*replay.capacity"):
        train(env="CartPole-v1", values={"replay": {"capacity": 10**12}})
    with pytest.raises(UsageError, match=r"episodes = 10+ is not allowed"):
        play("cartpole-dqn", episodes=10**30)


def test_another_environment_must_look_the_same(trained: Path) -> None:
    with pytest.raises(UsageError, match=r"--env Acrobot-v1: .*float32\[4\] and 2 actions.*float32\[6\] and 3 actions"):
        play(trained, env="Acrobot-v1")
    assert play(trained, env="CartPole-v0", episodes=1)["env_id"] == "CartPole-v0"


def test_a_video_is_what_its_name_says(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must end in \.gif"):
        play(trained, render="gif", out=tmp_path / "x.mp4")


def test_a_resume_says_which_recipe_the_run_had() -> None:
    events: list[Any] = []
    changes = {"run": {"steps": 60}, "eval": {"final_episodes": 1, "episodes": 1}, "dqn": {"train_every_steps": 50}}
    run = train(env="CartPole-v1", values={**changes, "net": {"hidden": [4]}}, name="r").run
    train(resume=run, steps=90, callbacks=[events.append])
    assert next(event for event in events if event.kind == "start").data["recipe"] == "cartpole-dqn"
