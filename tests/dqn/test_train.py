"""The DQN loop: what enters the replay, how often it learns, and that it learns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq import checkpoints, runs
from rlseq.dqn.learner import DqnLearner
from rlseq.engine.weights import state_arrays
from rlseq.errors import NonFiniteLoss
from rlseq.events import Event
from rlseq.nets.network import num_parameters
from tests import toy_envs  # noqa: F401  registers the toy environments
from tests.training import Steps, assert_same_run, curves, small, trainer, weights


@pytest.fixture
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path))
    monkeypatch.setattr("rlseq.trained.export_network", lambda net, spec, path, make: {"bytes": path.write_bytes(b"")})
    return tmp_path


def played(env_id: str, steps: int, *changes: Any) -> dict[str, np.ndarray]:
    """What is in the replay after some steps without learning."""
    t = trainer({"dqn": {"learning_starts": 10**6}, "replay": {"capacity": 1000}}, *changes, env_id=env_id)
    t.loop(Steps(steps))  # type: ignore[arg-type]
    t.close()
    return {name: array[: t.replay.size] for name, array in t.replay.arrays.items()}


@pytest.mark.parametrize("num_envs", [1, 3])
def test_no_dummy_transition_and_true_last_observations_enter_the_replay(num_envs: int) -> None:
    """toy/Counting observes (step, length): every transition goes one step on in the same episode (R1, R2, R4)."""
    data = played("toy/Counting-v0", 300, {"env": {"num_envs": num_envs}})
    obs, next_obs = data["obs.0"], data["next_obs.0"]
    assert len(obs) == 300
    np.testing.assert_array_equal(next_obs[:, 0], obs[:, 0] + 1)
    np.testing.assert_array_equal(next_obs[:, 1], obs[:, 1])
    np.testing.assert_array_equal(data["discount"] == 0, next_obs[:, 0] == next_obs[:, 1])
    assert set(data["discount"][data["discount"] > 0]) == {np.float32(0.99)}
    np.testing.assert_array_equal(data["reward"], 1)


def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not() -> None:
    """toy/Constant is cut by its time limit alone, so no discount may ever be 0 (R2)."""
    data = played("toy/Constant-v0", 100)
    np.testing.assert_array_equal(data["discount"], np.float32(0.99))
    assert (played("toy/Identity-v0", 100)["discount"] == 0).sum() == 100 // 8


def test_a_reused_observation_buffer_is_copied() -> None:
    data = played("toy/ReusedBuffer-v0", 50)
    assert not np.array_equal(data["obs.0"], data["next_obs.0"])
    assert len(np.unique(data["obs.0"], axis=0)) > 3


def test_q_of_a_constant_reward_cut_by_a_time_limit_approaches_the_infinite_sum() -> None:
    """Q -> 1 / (1 - gamma) = 5 for gamma 0.8, though every episode is cut after 10 steps (R2)."""
    t = trainer(
        {
            "dqn": {"gamma": 0.8, "updates_per_train": 4, "target_sync_steps": 20, "loss": "mse"},
            "optim": {"lr": 1e-2, "schedule": "linear"},
            "replay": {"capacity": 2000},
            "run": {"steps": 1500},
        },
        env_id="toy/Constant-v0",
    )
    t.loop(Steps(1500))  # type: ignore[arg-type]
    q = t.learner.net(type_input(np.ones((1, 1), np.float32)))[0]
    np.testing.assert_allclose(q.detach().numpy(), 5.0, atol=0.1)
    t.close()


def type_input(obs: np.ndarray) -> Any:
    import torch

    from rlseq.nets.network import NetInput

    return NetInput((torch.from_numpy(obs),))


@pytest.mark.parametrize(("num_envs", "train_every", "updates"), [(1, 4, 2), (3, 4, 1), (8, 1, 1), (5, 256, 128)])
def test_updates_keep_their_ratio_to_steps_with_any_number_of_environments(
    num_envs: int, train_every: int, updates: int
) -> None:
    """R15: also when one vector step crosses several intervals or none."""
    changes = {
        "env": {"num_envs": num_envs},
        "dqn": {"train_every_steps": train_every, "updates_per_train": updates, "learning_starts": 0},
    }
    t = trainer(changes, env_id="toy/Identity-v0")
    session = Steps(1200)
    t.loop(session)  # type: ignore[arg-type]
    assert t.learner.update_step.updates == session.step // train_every * updates == t.total_updates(session.step)
    t.close()


def test_a_late_start_causes_no_burst_of_catch_up_updates() -> None:
    t = trainer({"dqn": {"learning_starts": 401, "train_every_steps": 4, "updates_per_train": 1}})
    seen: dict[int, int] = {}
    t.loop(Steps(500, lambda step: seen.__setitem__(step, t.learner.update_step.updates)))  # type: ignore[arg-type]
    assert seen[403] == 0
    assert seen[404] == 1
    assert seen[408] == 2
    assert seen[500] == 25 == t.total_updates(500)
    t.close()


@pytest.mark.parametrize(("num_envs", "interval"), [(1, 30), (4, 30), (7, 30), (8, 3)])
def test_the_target_is_synced_when_a_multiple_of_its_interval_is_passed(
    monkeypatch: pytest.MonkeyPatch, num_envs: int, interval: int
) -> None:
    """R13: exact although the interval is no multiple of the environments."""
    synced: list[int] = []
    t = trainer({"env": {"num_envs": num_envs}, "dqn": {"target_sync_steps": interval}}, env_id="toy/Identity-v0")
    monkeypatch.setattr(DqnLearner, "sync_target", lambda self: synced.append(session.step + num_envs))
    session = Steps(280)
    t.loop(session)  # type: ignore[arg-type]
    expected = [s for s in range(num_envs, session.step + 1, num_envs) if s // interval > (s - num_envs) // interval]
    assert synced == expected
    t.close()


def test_it_learns_the_identity() -> None:
    """A sanity check in a second: the greedy policy repeats what it sees, for every action and with an offset start."""
    for env_id, start in (("toy/Identity-v0", 0), ("toy/Started-v0", 5)):
        t = trainer(
            {
                "dqn": {"gamma": 0.0, "updates_per_train": 4, "epsilon_end": 0.1},
                "optim": {"lr": 5e-3},
                "run": {"steps": 1200},
                "replay": {"capacity": 1200},
            },
            env_id=env_id,
        )
        t.loop(Steps(1200))  # type: ignore[arg-type]
        result = t.evaluate()
        assert t.spec.action.start == start
        assert result.score == 8.0
        t.close()


def test_it_learns_from_dict_observations(runs_here: Path) -> None:
    result = small({"run": {"steps": 800}}, env="toy/Dict-v0").summary
    assert result["steps"] == 800
    assert np.isfinite(result["mean_return"])


def test_same_seed_same_log_bit_for_bit(runs_here: Path) -> None:
    """R21."""
    a, b, other = (small(name=name, seed=seed).run for name, seed in (("a", 3), ("b", 3), ("other", 4)))
    assert_same_run(a, b)
    assert curves(a) != curves(other)


def test_evaluation_leaves_the_training_trace_untouched(runs_here: Path) -> None:
    """R17: with evaluation on or off, weights and curves are the same bit for bit."""
    often = small({"eval": {"every": 60, "episodes": 5}}, name="often").run
    never = small({"eval": {"every": 10_000}}, name="never").run
    a, b = (weights(runs.Run(run).checkpoint("last")) for run in (often, never))
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name], err_msg=name)
    training = [[p for p in curves(run) if p[1].startswith("train/")] for run in (often, never)]
    assert training[0] == training[1] != []


def test_every_curve_is_logged_at_its_steps(runs_here: Path) -> None:
    points = curves(small(name="run").run)
    by_tag: dict[str, list[int]] = {}
    for step, tag, _ in points:
        by_tag.setdefault(tag, []).append(step)
    assert by_tag["train/epsilon"] == by_tag["train/lr"] == list(range(50, 601, 50))
    # Learning starts at step 50, and the first multiple of 4 after that is 52.
    assert by_tag["train/loss"] == by_tag["train/q_mean"] == by_tag["train/grad_norm"] == list(range(100, 601, 50))
    assert by_tag["eval/return_mean"] == by_tag["eval/return_std"] == [150, 300, 450, 600]
    assert set(by_tag["train/return"]) <= set(range(50, 601, 50))
    assert by_tag["hparam/mean_return"] == [600]


def test_epsilon_in_the_curves_follows_its_schedule(runs_here: Path) -> None:
    """R9: 1 -> 0.05 over the first fifth of 600 steps."""
    run = small({"run": {"log_every": 60}}, name="run").run
    epsilon = {step: value for step, tag, value in curves(run) if tag == "train/epsilon"}
    assert epsilon[60] == pytest.approx(0.525)
    assert epsilon[120] == pytest.approx(0.05)
    assert epsilon[600] == pytest.approx(0.05)


def test_a_nan_loss_stops_with_the_step_and_keeps_the_last_good_checkpoint(runs_here: Path) -> None:
    with pytest.raises(NonFiniteLoss, match=r"environment step \d+, update \d+ gave loss (nan|inf).*--lr"):
        small({"optim": {"lr": 1e30, "clip_norm": None}, "run": {"checkpoint_every": 40}}, name="diverged")
    run = runs.Run(runs_here / "diverged")
    for array in weights(run.checkpoint("last")).values():
        assert np.isfinite(array).all()
    assert int(run.checkpoint("last").name) == 40  # the last one before learning started to diverge


def test_a_nan_observation_stops_with_its_name(runs_here: Path) -> None:
    with pytest.raises(Exception, match=r"NaN|nan") as caught:
        small(env="toy/Nan-v0")
    assert type(caught.value).__module__ == "rlseq.errors"


def test_early_stopping_at_a_target_and_by_patience(runs_here: Path) -> None:
    target = small({"eval": {"target": 1.0}}, name="target").summary
    assert (target["steps"], target["stopped"]) == (150, "evaluation reached the target 1")
    patience = small({"eval": {"patience": 2}, "run": {"steps": 3000}}, env="toy/Constant-v0", name="patience").summary
    assert (patience["steps"], patience["stopped"]) == (450, "2 evaluations without improvement")


def test_callbacks_see_everything_and_may_stop(runs_here: Path) -> None:
    seen: list[Event] = []

    def callback(event: Event) -> None:
        seen.append(event)
        if event.kind == "progress" and event.step >= 200:
            event.stop()

    result = small(callbacks=[callback], name="run").summary
    assert result["steps"] == 200
    assert result["stopped"] == "a callback asked to stop"
    kinds = [event.kind for event in seen if event.kind != "tick"]
    assert kinds[:2] == ["start", "checkpoint"]
    assert {"progress", "evaluation", "end"} <= set(kinds)
    assert all(event.total_steps == 600 for event in seen)


def test_the_best_checkpoint_scores_what_was_logged_and_is_what_is_exported(
    runs_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R19: `evaluate` with the evaluation's seed and episodes reproduces the logged score alone."""
    from rlseq import evaluate

    exported: list[dict[str, np.ndarray]] = []

    def keep(net: Any, spec: Any, path: Path, make: Any) -> dict[str, int]:
        exported.append(state_arrays(net))
        return {"bytes": path.write_bytes(b"")}

    monkeypatch.setattr("rlseq.trained.export_network", keep)
    changes = {"eval": {"episodes": 6, "num_envs": 4}, "dqn": {"gamma": 0.0}, "optim": {"lr": 3e-3}}
    result = small(changes, env="toy/Identity-v0", name="run")
    run = result.run
    logged = {step: value for step, tag, value in curves(run) if tag == "eval/return_mean"}
    best = checkpoints.read_manifest(runs.Run(run).checkpoint("best"))
    assert len(set(logged.values())) > 1
    assert np.float32(best["numbers"]["score"]) == max(logged.values()) == logged[best["step"]]
    assert evaluate(run, episodes=6, seed=1_000_000)["mean_return"] == best["numbers"]["score"]
    assert evaluate(run, episodes=6, seed=1_000_000, checkpoint="0")["mean_return"] != best["numbers"]["score"]
    assert evaluate(run, episodes=12, seed=1_000_000)["episodes"] == 12
    for name, array in weights(runs.Run(run).checkpoint("best")).items():
        np.testing.assert_array_equal(exported[0][name.removeprefix("model/")], array)
    assert result.summary["mean_return"] == evaluate(run, episodes=2)["mean_return"]


def test_checkpoints_kept(runs_here: Path) -> None:
    run = runs.Run(small({"run": {"checkpoint_every": 100, "keep": 2}}, name="run").run)
    assert [path.name for path in run.checkpoints()] == ["0", "500", "600"]
    assert [path.name for path in run.checkpoints() if (path / "replay.safetensors").exists()] == ["600"]
    assert len(checkpoints.numbered(run.path / "best")) == 1
    assert not list(run.path.glob("**/.t*"))


def test_weights_carry_plain_names_and_the_optimiser_only_the_online_ones(runs_here: Path) -> None:
    """T12, R14."""
    run = runs.Run(small(name="run").run)
    model = checkpoints.read_arrays(run.checkpoint("last"), checkpoints.read_manifest(run.checkpoint("last")), "model")
    assert set(model) == {f"{m}.{p}" for m in ("core.layers.0", "head") for p in ("weight", "bias")}
    t = trainer()
    held = sum(p.numel() for group in t.learner.update_step.optimizer.param_groups for p in group["params"])
    assert held == num_parameters(t.learner.net)
    t.close()


def test_a_run_in_progress_is_not_trained_twice_at_once(runs_here: Path) -> None:
    run = runs.Run(runs_here)
    with run.lock(), pytest.raises(Exception, match=f"process {os.getpid()}"):
        run.lock()
    run.lock().close()


@pytest.mark.slow
def test_cartpole_is_learnt_within_fifteen_thousand_steps(runs_here: Path) -> None:
    """Not a score, a sanity check: the mean of the best evaluations of three seeds is far above chance (about 22)."""
    scores = [
        small(
            {
                "run": {"steps": 12_000, "log_every": 5000, "checkpoint_every": 20_000},
                "net": {"hidden": [64, 64]},
                "replay": {"capacity": 20_000, "batch_size": 64},
                "optim": {"lr": 2.3e-3},
                "eval": {"every": 1000, "episodes": 10, "num_envs": 10},
                "dqn": {"train_every_steps": 128, "updates_per_train": 64, "target_sync_steps": 128},
            },
            seed=seed,
        ).summary["best_evaluation"]
        for seed in range(3)
    ]
    assert np.mean(scores) > 120
