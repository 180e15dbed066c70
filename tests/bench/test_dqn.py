"""The training that is timed: how much of it, what of it, and that the other side did the same."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rlseq.bench import loop
from rlseq.bench.dqn import bench_dqn, check_same_work, job_for, train_ours
from rlseq.bench.measure import Timing
from rlseq.dqn.config import DqnTraining
from rlseq.dqn.train import DqnTrainer
from rlseq.envs.batch import EnvBatch
from rlseq.errors import RlseqError, UsageError
from tests.bench.fakes import fake_peer

SMALL: dict[str, Any] = {"net": {"hidden": (8,)}}


def ignore(line: str) -> None:
    """Progress that nobody reads."""


def test_the_work_is_the_zoos_preset_in_whole_rollouts() -> None:
    o = job_for(50_000, 5, {}).options
    assert (o.run.steps, o.run.horizon, o.run.seed) == (50_176, 50_000, 5)
    assert (o.env.id, o.env.num_envs, o.net.hidden) == ("CartPole-v1", 1, (256, 256))
    assert (o.optim.lr, o.optim.schedule, o.optim.clip_norm) == (2.3e-3, "constant", 10.0)
    assert (o.replay.capacity, o.replay.batch_size, o.engine.threads) == (100_000, 64, 1)
    d = o.dqn
    assert (d.gamma, d.double, d.loss, d.target_update, d.target_sync_steps) == (0.99, False, "huber", "hard", 10)
    assert (d.epsilon_start, d.epsilon_end, d.exploration_fraction) == (1.0, 0.04, 0.16)
    assert (d.learning_starts, d.train_every_steps, d.updates_per_train) == (1_000, 256, 128)
    assert min(o.run.log_every, o.run.checkpoint_every, o.eval.every) > o.run.steps


def test_the_clock_runs_during_the_loop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a second, a checkpoint a thousand; the first and the last of them are not counted."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def slow(owner: type, method: str, seconds: float) -> None:
        inner: Callable[..., Any] = getattr(owner, method)

        def slowed(*args: Any) -> Any:
            clock.now += seconds
            return inner(*args)

        monkeypatch.setattr(owner, method, slowed)

    slow(EnvBatch, "step", 1.0)
    slow(DqnTrainer, "snapshot", 1_000.0)
    monkeypatch.delattr(DqnTrainer, "evaluate")  # nothing may be evaluated
    assert train_ours(job_for(1_100, 0, SMALL)) == Timing(1_280.0, 1_280, 256)
    assert clock.now == 1_280.0 + 2 * 1_000.0


def peer_of(steps: int, updates: int, seen: list[DqnTraining] | None = None) -> Any:
    def train(options: DqnTraining) -> Timing:
        if seen is not None:
            seen.append(options)
        return Timing(100.0, steps, updates)

    return fake_peer(train)


def test_ours_and_the_peer_in_numbers() -> None:
    seen: list[DqnTraining] = []
    told: list[str] = []
    result = bench_dqn(told.append, repeats=2, peer=peer_of(1_280, 256, seen), steps=1_100)
    ours, peer = result["ours"], result["peer"]
    assert (ours["updates"], ours["steps"]) == (256, [1_280, 1_280])
    assert (peer["updates"], peer["steps"], peer["seconds"]) == (256, [1_280, 1_280], [100.0, 100.0])
    assert (peer["name"], peer["version"]) == ("pytest", pytest.__version__)
    assert result["ratio"] == pytest.approx(100.0 / ours["median"])
    assert result["options"]["optim"]["lr"] == 2.3e-3
    assert [(o.run.steps, o.run.seed) for o in seen] == [(1_280, 0), (1_280, 0), (1_280, 1)]  # the first warms up
    assert "the same work: 1280 steps and 256 updates a repeat, on both sides" in told
    shares = ours["split"]["shares"]
    assert list(shares) == ["environment", "acting", "replay", "update", "evaluation", "other"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["evaluation"] == 0.0
    assert all(shares[part] > 0.0 for part in ("environment", "acting", "replay", "update", "other"))
    assert ours["split"]["seconds"]["total"] not in ours["seconds"]  # it was a run of its own


def test_other_work_is_no_comparison() -> None:
    with pytest.raises(RlseqError, match=r"not the same work.*rlseq did \[\(1024, 128\)\], pytest \[\(1024, 127\)\]"):
        bench_dqn(ignore, repeats=1, peer=peer_of(1_024, 127), steps=1_024)


def test_every_repeat_must_be_the_same_work() -> None:
    same, more = Timing(1.0, 10, 3), Timing(1.0, 11, 3)
    check_same_work([same, same], [same, same], "them")
    for ours, theirs in (([same, more], [same, more]), ([same, same], [same, more]), ([same], [more])):
        with pytest.raises(RlseqError, match="not the same work"):
            check_same_work(ours, theirs, "them")


def test_ours_alone_with_other_options() -> None:
    values = {"net": {"hidden": (8,)}, "dqn": {"updates_per_train": 2}}
    result = bench_dqn(ignore, repeats=1, peer=None, steps=1_024, values=values)
    assert (result["ours"]["updates"], result["peer"], result["ratio"]) == (2, None, None)
    assert result["options"]["net"]["hidden"] == (8,)


@pytest.mark.parametrize("steps", [1, 1_023])
def test_too_few_steps_for_one_burst(steps: int) -> None:
    with pytest.raises(UsageError, match=f"--steps {steps}: the first updates come at step 1024; give at least"):
        bench_dqn(ignore, repeats=1, peer=None, steps=steps)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"net": {"hidden": (8,)}}, "--set net.hidden: it belongs to the work that pytest does too"),
        ({"run": {"steps": 5}}, "--set run.steps: bench dqn sets it by itself"),
        ({"eval": {"every": 5}}, "--set eval.every: bench dqn sets it by itself"),
        ({"env": {"id": "Acrobot-v1"}}, "--set env.id: bench dqn sets it by itself"),
        ({"dqn": {"gama": 0.9}}, "command line: unknown option 'dqn.gama'. Did you mean dqn.gamma"),
    ],
)
def test_options_that_do_not_go(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        bench_dqn(ignore, repeats=1, peer=peer_of(0, 0), steps=2_000, values=values)
    assert message in str(caught.value)
