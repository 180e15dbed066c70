"""`rlseq bench dqn`: the same training by rlseq and by a peer, in turn.

The work is the tuned preset of rl-baselines3-zoo for CartPole-v1. The peer collects whole rollouts of
`dqn.train_every_steps`, so 50,000 steps are 50,176 in truth; ours does as many, with epsilon's course over 50,000, and
that both did as many steps and updates is checked. Timed is the loop alone: nothing is evaluated, and the checkpoint
with which a session ends is written after the clock was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from rlseq.bench.loop import time_loop, undisturbed
from rlseq.bench.measure import Side, Tell, Timing, alternate, measurement
from rlseq.bench.peers import Peer
from rlseq.bench.split import Stopwatch
from rlseq.config import merge_into
from rlseq.errors import RlseqError, UsageError, require

if TYPE_CHECKING:
    from rlseq.dqn.train import DqnTrainer
    from rlseq.trained import PolicyJob

ENV_ID = "CartPole-v1"
WARM_UP_STEPS = 2_000  # imports, first calls, the caches of torch
PARTS = ("environment", "acting", "replay", "update", "evaluation")
WORK: dict[str, dict[str, Any]] = {
    "env": {"num_envs": 1},
    "net": {"core": "mlp", "hidden": (256, 256), "activation": "relu"},
    "replay": {"capacity": 100_000, "batch_size": 64},
    "optim": {"name": "adam", "lr": 2.3e-3, "schedule": "constant", "warmup_updates": 0, "clip_norm": 10.0},
    "engine": {"threads": 1, "device": "cpu", "amp": "off"},
    "dqn": {
        "gamma": 0.99,
        "double": False,
        "loss": "huber",
        "target_update": "hard",
        "target_sync_steps": 10,
        "epsilon_start": 1.0,
        "epsilon_end": 0.04,
        "exploration_fraction": 0.16,
        "learning_starts": 1_000,
        "train_every_steps": 256,
        "updates_per_train": 128,
    },
}
OURS_ALONE = ("run", "eval")  # groups that the benchmark sets by itself


def bench_dqn(
    tell: Tell,
    *,
    repeats: int,
    peer: Peer | None,
    steps: int = 50_000,
    values: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure the training.

    Args:
        tell: takes lines of progress.
        repeats: how often each side trains; repeat k has seed k on both.
        peer: the other side, or None.
        steps: environment steps.
        values: options of ours, as nested dicts; with a peer only such as leave the work what it is.

    Returns:
        A measurement (see `measure.measurement`) with `options`; ours with `updates` and `split`.

    Raises:
        UsageError: too few steps, or options that would make it other work.
        RlseqError: the sides did not do as many steps and updates.
    """
    require("torch", "the benchmark of training")
    require("tensorboard", "the benchmark of training")
    values = values or {}
    _check_values(values, peer)
    jobs = [job_for(steps, seed, values) for seed in range(repeats)]
    _check_steps(jobs[0], steps)
    sides = _sides(jobs, peer)
    _warm_up(job_for(min(steps, WARM_UP_STEPS), 0, values), peer, tell)
    timings = alternate(sides, repeats, tell)
    ours, theirs = timings["rlseq"], timings[peer.name] if peer is not None else None
    if peer is not None and theirs is not None:
        check_same_work(ours, theirs, peer.name)
        tell(f"the same work: {ours[0].steps} steps and {ours[0].updates} updates a repeat, on both sides")
    tell("one more run of ours, with timers: where the time goes")
    split = split_ours(jobs[0])
    other = {"name": peer.name, "version": peer.version()} if peer is not None else None
    what = f"DQN on {ENV_ID}, {ours[0].steps} steps and {ours[0].updates} updates, one thread"
    result = measurement(what, ours, theirs, other)
    result["ours"] |= {"updates": ours[0].updates, "split": split}
    if theirs is not None:
        result["peer"] |= {"updates": theirs[0].updates}
    return {**result, "options": msgspec.to_builtins(jobs[0].options)}


def _sides(jobs: Sequence[PolicyJob], peer: Peer | None) -> dict[str, Side]:
    sides: dict[str, Side] = {"rlseq": lambda seed: train_ours(jobs[seed])}
    if peer is not None:
        sides[peer.name] = lambda seed: _train_peer(peer, jobs[seed])
    return sides


def _warm_up(job: PolicyJob, peer: Peer | None, tell: Tell) -> None:
    tell(f"warm-up: {job.options.run.steps} steps of each")
    train_ours(job)
    if peer is not None:
        _train_peer(peer, job)


def _check_values(values: Mapping[str, Any], peer: Peer | None) -> None:
    for group, options in values.items():
        for name in options if isinstance(options, Mapping) else ():
            if group in OURS_ALONE or (group, name) == ("env", "id"):
                raise UsageError(
                    f"--set {group}.{name}: bench dqn sets it by itself; it has --steps and --repeats, and evaluates "
                    "nothing."
                )
            if peer is not None and name in WORK.get(group, {}):
                raise UsageError(
                    f"--set {group}.{name}: it belongs to the work that {peer.name} does too. Leave it out, or measure "
                    "ours alone with --peer none."
                )


def _check_steps(job: PolicyJob, steps: int) -> None:
    o = job.options.dqn
    first = -(-max(o.learning_starts, 1) // o.train_every_steps) * o.train_every_steps
    if steps < first:
        raise UsageError(f"--steps {steps}: the first updates come at step {first}; give at least --steps {first}.")


def job_for(steps: int, seed: int, values: Mapping[str, Any]) -> PolicyJob:
    """Our training of that many steps, rounded up to whole bursts, with nothing due before its end."""
    from rlseq.planning import Request, plan_training

    tree: dict[str, Any] = {}
    merge_into(tree, WORK)
    merge_into(tree, values)
    job = cast("PolicyJob", plan_training(Request("dqn", ENV_ID, "none", tree, source="command line")).job)
    every = job.options.dqn.train_every_steps
    whole = -(-steps // every) * every
    run = msgspec.structs.replace(job.options.run, steps=whole, horizon=steps, seed=seed)
    return job._replace(options=undisturbed(msgspec.structs.replace(job.options, run=run)))


def _train_peer(peer: Peer, job: PolicyJob) -> Timing:
    """With as many threads of torch as ours."""
    from rlseq.engine.device import cpu_settings

    with cpu_settings(job.options.engine.threads):
        return peer.train_dqn(job.options)


def train_ours(job: PolicyJob, watch: Callable[[DqnTrainer], None] | None = None) -> Timing:
    """Train in a temporary run, as `rlseq train dqn` does, and time the loop.

    Args:
        job: from `job_for`.
        watch: gets the trainer before the loop begins.
    """
    from rlseq.engine.device import cpu_settings

    with cpu_settings(job.options.engine.threads):
        trainer = job.trainer()
        try:
            if watch is not None:
                watch(trainer)
            seconds, steps = time_loop(job.algorithm, job.options, trainer)
            return Timing(seconds, steps, trainer.updates)
        finally:
            trainer.close()


def split_ours(job: PolicyJob) -> dict[str, Any]:
    """One more run, slowed down a little by timers: seconds and shares of each part of the loop."""
    stopwatch = Stopwatch(PARTS)

    def watch(trainer: DqnTrainer) -> None:
        for owner, method, part in (
            (trainer.envs, "step", "environment"),
            (trainer.actor, "act", "acting"),
            (trainer.replay, "add", "replay"),
            (trainer.replay, "sample", "replay"),
            (trainer.learner, "burst", "update"),
            (trainer.learner, "sync_target", "update"),
            (trainer, "evaluate", "evaluation"),
        ):
            stopwatch.wrap(owner, method, part)

    timing = train_ours(job, watch)
    return stopwatch.shares(timing.seconds)


def check_same_work(ours: Sequence[Timing], theirs: Sequence[Timing], peer: str) -> None:
    """Every run must have done as many environment steps and updates as every other.

    Raises:
        RlseqError: with the numbers of both.
    """
    a, b = {(timing.steps, timing.updates) for timing in ours}, {(timing.steps, timing.updates) for timing in theirs}
    if a != b or len(a) != 1:
        raise RlseqError(
            f"not the same work, in (steps, updates): rlseq did {sorted(a)}, {peer} {sorted(b)}. Its version may count "
            "otherwise; measure ours alone with --peer none."
        )
