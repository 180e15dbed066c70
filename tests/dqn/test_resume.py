"""An interrupted run, resumed, is the uninterrupted run: bit for bit on a CPU, whatever interrupted it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq import checkpoints, runs
from rlseq.errors import CorruptFile, Interrupted, ResumeMismatch, UsageError
from rlseq.events import Event
from tests import toy_envs  # noqa: F401  registers the toy environments
from tests.training import SMALL, assert_same_run, command, curves, merged, settings, small, steps_logged, weights


@pytest.fixture(autouse=True)
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path))
    # What follows the training is tested elsewhere, and takes longer than these trainings do.
    monkeypatch.setattr("rlseq.trained.export_network", lambda net, spec, path, make: {"bytes": path.write_bytes(b"")})
    return tmp_path


class Crash(Exception):
    pass


def crash_at(step: int, kind: str = "progress") -> Any:
    """A callback that ends the process' training without any saving, as a kill would."""

    def callback(event: Event) -> None:
        if event.kind == kind and event.step >= step:
            raise Crash

    return callback


VARIANTS = {
    "plain": {},
    "soft target, four environments": {"dqn": {"target_update": "soft"}, "env": {"num_envs": 4}},
    "three-step returns, two environments, a replay that wraps round": {
        "dqn": {"n_step": 3},
        "env": {"num_envs": 2},
        "replay": {"capacity": 201},
    },
    "schedule, accumulation, no double": {
        "optim": {"schedule": "cosine", "warmup_updates": 20, "accumulate": 3, "name": "adamw", "weight_decay": 0.01},
        "dqn": {"double": False, "loss": "mse"},
    },
    "rmsprop, odd intervals": {
        "optim": {"name": "rmsprop", "schedule": "step", "step_updates": 33},
        "dqn": {"train_every_steps": 7, "target_sync_steps": 13},
        "env": {"num_envs": 3},
        "run": {"log_every": 37, "checkpoint_every": 101},
    },
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_crashed_run_resumes_exactly(variant: dict[str, Any]) -> None:
    whole = small(variant, name="whole").run
    with pytest.raises(Crash):
        small(variant, name="crashed", callbacks=[crash_at(470)])
    crashed = Path(os.environ["RLSEQ_RUNS"]) / "crashed"
    assert int(runs.Run(crashed).checkpoint("last").name) < 470  # so something has to be done again
    small(resume=crashed)
    assert_same_run(whole, crashed)


@pytest.mark.parametrize(("first", "then"), [("auto", "autograd"), ("autograd", "auto")])
def test_a_resume_may_take_its_gradients_from_the_other_source(first: str, then: str) -> None:
    """Closed form and autograd give the same run bit for bit, and the numbers that are logged."""
    whole = small(name="whole").run
    with pytest.raises(Crash):
        small({"engine": {"gradients": first}}, name="crashed", callbacks=[crash_at(330)])
    small({"engine": {"gradients": then}}, resume="crashed")
    assert_same_run(whole, whole.parent / "crashed")


def test_twice_interrupted_run_resumes_exactly() -> None:
    whole = small(name="whole").run
    with pytest.raises(Crash):
        small(name="twice", callbacks=[crash_at(250)])
    with pytest.raises(Crash):
        small(resume="twice", callbacks=[crash_at(300, "evaluation")])
    small(resume="twice")
    assert_same_run(whole, whole.parent / "twice")


@pytest.mark.parametrize("env", ["MountainCar-v0", "Acrobot-v1", "toy/Dict-v0", "toy/Counting-v0"])
def test_half_played_episodes_of_other_environments_are_rebuilt(env: str) -> None:
    length = {"run": {"steps": 260, "checkpoint_every": 90}, "eval": {"every": 1000}, "env": {"max_episode_steps": 120}}
    whole = small(length, env=env, name="whole").run
    with pytest.raises(Crash):
        small(length, env=env, name="crashed", callbacks=[crash_at(200)])
    small(resume="crashed")
    assert_same_run(whole, whole.parent / "crashed")


def test_the_random_streams_go_on_and_do_not_start_again() -> None:
    run = small(name="one").run
    numbers = checkpoints.read_manifest(runs.Run(run).checkpoint("last"))["numbers"]
    fresh = checkpoints.read_manifest(run / "checkpoints" / "0")["numbers"]
    assert numbers["exploration_rng"] != fresh["exploration_rng"]
    assert numbers["replay_rng"] != fresh["replay_rng"]


def test_no_step_stands_twice_in_the_event_file_after_a_crash() -> None:
    with pytest.raises(Crash):
        small(name="crashed", callbacks=[crash_at(350)])
    crashed = Path(os.environ["RLSEQ_RUNS"]) / "crashed"
    before = len(curves(crashed))
    small(resume=crashed)
    assert len(curves(crashed)) > before
    for tag, steps in steps_logged(crashed):
        assert steps == sorted(set(steps)), tag


@pytest.mark.slow
def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    length = {"run": {"steps": 1500, "checkpoint_every": 100}}
    whole = small(length, name="whole").run
    rng = np.random.default_rng(0)
    arguments = ["train", "dqn", "CartPole-v1", "--name", "killed", "--recipe", "none", *settings([length])]
    kills = 0
    for _ in range(12):
        process = command(*arguments, cwd=tmp_path)
        if (tmp_path / "killed" / "config.json").exists():
            arguments = ["train", "dqn", "--resume", "killed"]
        # Wait until it writes, then a random moment more: the kills fall all over the training, saves included.
        target, deadline = len(list((tmp_path / "killed").glob("checkpoints/*"))), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if len(list((tmp_path / "killed").glob("checkpoints/[0-9]*"))) != target:
                break
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.08))
        if process.poll() is None:
            kills += 1
        process.kill()
        process.communicate()
        if (tmp_path / "killed" / "checkpoints" / "0").exists():
            arguments = ["train", "dqn", "--resume", "killed"]
        else:
            shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        if (tmp_path / "killed" / "summary.json").exists():
            break
    assert kills >= 3
    if not (tmp_path / "killed" / "summary.json").exists():
        process = command("train", "dqn", "--resume", "killed", cwd=tmp_path)
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
    assert_same_run(whole, tmp_path / "killed")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_resume(tmp_path: Path, signum: int, code: int) -> None:
    length = {"run": {"steps": 400_000, "checkpoint_every": 100_000}, "eval": {"every": 100_000}}
    process = command(
        "train", "dqn", "CartPole-v1", "--name", "stopped", "--recipe", "none", *settings([length]), cwd=tmp_path
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "stopped" / "checkpoints" / "0").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in err
    saved = int(runs.Run(tmp_path / "stopped").checkpoint("last").name)
    assert 0 < saved < 400_000
    assert f"at step {saved}" in re.sub(r"\s+", " ", err)
    assert "rlseq train dqn --resume" in err


def test_a_signal_stops_at_once_and_the_resumed_run_is_exact() -> None:
    whole = small(name="whole").run

    def interrupt(event: Event) -> None:
        if event.kind == "progress" and event.step == 350:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        small(name="stopped", callbacks=[interrupt])
    assert caught.value.exit_code == 130
    stopped = whole.parent / "stopped"
    assert 350 <= int(runs.Run(stopped).checkpoint("last").name) <= 354
    small(resume=stopped)
    assert curves(whole) == curves(stopped)
    for name, array in weights(runs.Run(whole).checkpoint("last")).items():
        np.testing.assert_array_equal(array, weights(runs.Run(stopped).checkpoint("last"))[name], err_msg=name)


def test_a_finished_run_needs_more_steps() -> None:
    run = small(name="done").run
    for steps in (None, 600, 300):
        with pytest.raises(UsageError, match=r"600 environment steps.*--steps 1200"):
            small(resume=run, steps=steps)


def test_a_finished_run_is_extended() -> None:
    run = small(name="more").run
    result = small(resume=run, steps=900)
    assert result.summary["steps"] == 900
    assert runs.Run(run).config()["options"]["run"]["steps"] == 900
    steps = [(step["step"], step.get("env_steps")) for step in runs.Run(run).lineage()]
    assert steps == [("train", 600), ("extend", 900)]
    assert max(step for step, *_ in curves(run)) == 900
    # The schedules had run their course: epsilon stays where it was.
    epsilon = {step: value for step, tag, value in curves(run) if tag == "train/epsilon"}
    assert epsilon[900] == epsilon[600] == np.float32(0.05)
    for _, steps in steps_logged(run):
        assert steps == sorted(set(steps))


def test_an_early_stopped_run_is_not_resumed_by_mistake() -> None:
    run = small({"eval": {"target": 1.0}}, name="early").run
    with pytest.raises(UsageError, match="stopped early, at step 150"):
        small(resume=run)
    assert small(resume=run, steps=800).summary["steps"] == 300  # the next evaluation reaches the target again


def test_an_extended_early_stop_that_is_killed_goes_on() -> None:
    """The reason for which it once stopped must not end the extended run."""
    run = small({"eval": {"patience": 1}}, env="toy/Constant-v0", name="early").run
    assert runs.Run(run).checkpoint("last").name == "300"
    with pytest.raises(Crash):
        small(resume=run, steps=800, callbacks=[crash_at(350)])
    assert runs.Run(run).checkpoint("last").name == "300"
    assert small(resume=run).summary["steps"] == 450  # the next evaluation, again without improvement


def test_torch_keeps_the_threads_that_the_caller_had_set() -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        small(name="threads", threads=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_another_configuration_is_refused_by_name() -> None:
    with pytest.raises(Crash):
        small(name="crashed", callbacks=[crash_at(300)])
    with pytest.raises(UsageError, match=r"dqn.gamma = 0.99.*cannot become 0.5"):
        small({"dqn": {"gamma": 0.5}}, resume="crashed")
    with pytest.raises(UsageError, match=r"env.id = 'CartPole-v1'"):
        small(resume="crashed", env="Acrobot-v1")
    with pytest.raises(UsageError, match="recipe"):
        small(resume="crashed", recipe="none")
    small({"dqn": {"gamma": 0.99}}, resume="crashed")  # the same value is no other configuration


def test_a_hidden_state_is_refused_unless_inexact_is_accepted() -> None:
    with pytest.raises(Crash):
        small(env="toy/Hidden-v0", name="hidden", callbacks=[crash_at(300)])
    with pytest.raises(ResumeMismatch, match=r"run.inexact_resume=true"):
        small(resume="hidden")
    seen: list[Event] = []
    small({"run": {"inexact_resume": True}}, resume="hidden", callbacks=[seen.append])
    assert any(event.kind == "warning" and "not exact" in event.data["message"] for event in seen)
    run = Path(os.environ["RLSEQ_RUNS"]) / "hidden"
    assert ("train/inexact_resume", 1.0) in {(tag, value) for _, tag, value in curves(run)}


def test_a_hidden_state_is_exact_with_fresh_environments() -> None:
    fresh = {"env": {"fresh": True}}
    whole = small(fresh, env="toy/Hidden-v0", name="whole").run
    with pytest.raises(Crash):
        small(fresh, env="toy/Hidden-v0", name="crashed", callbacks=[crash_at(300)])
    small(resume="crashed")
    assert_same_run(whole, whole.parent / "crashed")


@pytest.mark.parametrize("file", ["model.safetensors", "trainer.safetensors", "replay.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "missing"])
def test_a_damaged_checkpoint_is_refused_and_nothing_is_touched(file: str, damage: str) -> None:
    with pytest.raises(Crash):
        small(name="crashed", callbacks=[crash_at(300)])
    run = runs.Run(Path(os.environ["RLSEQ_RUNS"]) / "crashed")
    path = run.checkpoint("last") / file
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-3] if damage == "truncated" else data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    before = {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.name != ".lock"}
    with pytest.raises(Exception, match=re.escape(str(path))) as caught:
        small(resume=run.path)
    assert type(caught.value).__module__ == "rlseq.errors"
    assert {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.name != ".lock"} == before


def test_a_checkpoint_of_another_network_is_refused() -> None:
    a, b = small(name="a").run, small({"net": {"hidden": [8]}}, name="b").run
    with pytest.raises(UsageError, match=r"core.layers.0.weight is \[16, 4\] there and \[8, 4\] in this network"):
        small({"net": {"hidden": [8]}}, name="c", init_from=a)
    assert b.exists()
    assert not (b.parent / "c").exists()


def test_from_starts_with_the_weights_of_a_run() -> None:
    parent = small(name="parent").run
    child = small(name="child", init_from=parent).run
    first = weights(child / "checkpoints" / "0")
    best = weights(runs.Run(parent).checkpoint("best"))
    for name, array in best.items():
        np.testing.assert_array_equal(first[name], array)
    steps = [step["run"] for step in runs.Run(child).lineage()]
    assert steps == ["parent", "child"]


def test_the_config_of_a_stranger_cannot_import_code(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        small(name="crashed", callbacks=[crash_at(300)])
    path = tmp_path / "crashed" / "config.json"
    config = json.loads(path.read_text())
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for change in ({"id": "evil:Env-v0"}, {"id": "Evil-v0", "imports": ["evil"]}):
        config["options"]["env"].update(change)
        path.write_text(json.dumps(config))
        process = command("train", "dqn", "--resume", "crashed", cwd=tmp_path)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "import" in err
        assert not (tmp_path / "ran").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux's /proc")
def test_saving_and_loading_a_gigabyte_needs_no_second_copy(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
import numpy as np
from rlseq import checkpoints, runs
from rlseq.replay.uniform import UniformReplay
from rlseq.spec import Leaf
def peak():
    # Not ru_maxrss, which a child inherits from the process that started it.
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
replay = UniformReplay(125_000, [Leaf(name="obs", shape=(1000,))])
base, size = peak(), sum(a.nbytes for a in replay.arrays.values())
if sys.argv[1] == "save":
    for array in replay.arrays.values(): array.fill(1)
    replay.size = replay.capacity
    arrays, numbers = replay.state()
    checkpoints.write_checkpoint(Path("checkpoints"), 1, numbers, {"replay": arrays})
else:
    manifest = checkpoints.read_manifest(Path("checkpoints/1"))
    stored = checkpoints.read_arrays(Path("checkpoints/1"), manifest, "replay", replay.slot)
    replay.restore(manifest["numbers"], stored)
    assert replay.size == replay.capacity and all(a[-1].all() for a in replay.arrays.values())
assert size > 1e9, size
print((peak() - base) / size)
"""
    import sys

    for what in ("save", "load"):
        output = subprocess.run(
            [sys.executable, "-c", code, what], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        assert 0.9 < float(output) < 1.2, what
    shutil.rmtree(tmp_path / "checkpoints")


def test_merged_lays_trees_over_each_other() -> None:
    assert merged(SMALL, {"run": {"steps": 1}})["run"] == {"steps": 1, "log_every": 50, "checkpoint_every": 200}


def test_a_signal_in_the_middle_of_a_long_evaluation(tmp_path: Path) -> None:
    """An evaluation that would never end was warned of, and does not hold up a signal."""
    process = command(
        *("train", "dqn", "CliffWalking-v1", "--name", "endless", "--recipe", "none"),
        *settings([{"run": {"steps": 200}, "eval": {"every": 100, "episodes": 1000, "num_envs": 1}}]),
        cwd=tmp_path,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "endless" / "checkpoints" / "0").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143
    message = " ".join(err.split())
    assert "no time limit" in message
    assert "--resume" in message


def test_a_signal_in_the_final_export_says_how_to_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    with monkeypatch.context() as patched:
        patched.setattr("rlseq.trained.export_network", slow)
        with pytest.raises(Interrupted, match=r"--resume .*late") as caught:
            small(name="late")
    assert caught.value.exit_code == 143
    run = small(resume="late").run
    assert runs.Run(run).summary()["steps"] == 600  # type: ignore[index]
    for tag, steps in steps_logged(run):  # what was evaluated before is not evaluated, nor logged, again
        assert steps == sorted(set(steps)), tag


def test_training_holds_the_lock_before_it_reads_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small(name="whole").run
    with runs.Run(whole).lock():
        monkeypatch.setattr("rlseq.training._resumable", lambda plan: pytest.fail("read before it was locked"))
        with pytest.raises(Exception, match="being trained by another process"):
            small(resume=whole, steps=700)
    seen: list[bool] = []

    def try_lock(event: Event) -> None:
        if event.kind == "progress" and not seen:
            with pytest.raises(Exception, match="being trained"):
                runs.Run(whole.parent / "mine").lock()
            seen.append(True)

    monkeypatch.undo()
    monkeypatch.setenv("RLSEQ_RUNS", str(whole.parent))
    small(name="mine", callbacks=[try_lock])
    assert seen == [True]


def test_an_extended_run_keeps_the_course_of_its_schedules() -> None:
    linear = {"optim": {"schedule": "linear", "final_factor": 0.5}}
    run = small(linear, name="course").run
    small(resume=run, steps=750)
    lr = {step: value for step, tag, value in curves(run) if tag == "train/lr"}
    assert lr[300] == pytest.approx(5e-4 * (1 - 0.5 * 124 / 274), rel=0.01)
    assert lr[750] == pytest.approx(2.5e-4)
    assert runs.Run(run).config()["options"]["run"]["horizon"] == 600


def test_an_inexact_resume_is_accepted_once() -> None:
    with pytest.raises(Crash):
        small(env="toy/Hidden-v0", name="hidden", callbacks=[crash_at(300)])
    small({"run": {"inexact_resume": True}}, resume="hidden")
    assert runs.Run(Path(os.environ["RLSEQ_RUNS"]) / "hidden").config()["options"]["run"]["inexact_resume"] is False


def test_changed_numbers_with_a_right_checksum_are_refused() -> None:
    with pytest.raises(Crash):
        small(name="crashed", callbacks=[crash_at(300)])
    run = runs.Run(Path(os.environ["RLSEQ_RUNS"]) / "crashed")
    path = run.checkpoint("last") / checkpoints.MANIFEST
    original = json.loads(path.read_text())
    for keys, value in (
        (("learner", "updates"), "abc"),
        (("learner", "updates"), -5),
        (("learner", "skipped"), None),
        (("means",), {"train/loss": ["a", 1]}),
        (("means",), {"train/loss": [1]}),
        (("session", "seconds"), float("nan")),
        (("session", "step"), 99),
        (("session", "events_bytes"), -1),
        (("replay", "size"), 299),
        (("exploration_rng",), {}),
    ):
        changed = json.loads(json.dumps(original))
        *parents, last = keys
        inner = changed["numbers"]
        for key in parents:
            inner = inner[key]
        inner[last] = value
        changed["sha256"] = checkpoints._digest(changed)
        path.write_text(json.dumps(changed))
        with pytest.raises(CorruptFile, match="crashed"):
            small(resume=run.path)
    path.write_text(json.dumps(original))
    renamed = path.parent.with_name("900")
    path.parent.rename(renamed)
    with pytest.raises(CorruptFile, match="renamed"):
        small(resume=run.path)
    assert renamed.exists()
