"""A training from its plan to its summary; the loop itself is the algorithm's."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rlseq import checkpoints, runs
from rlseq.dqn.config import DqnTraining
from rlseq.envs.make import FACTORY, MakeEnv, env_spec, has_time_limit, maker, spaces_of, split_id
from rlseq.errors import Interrupted, RlseqError, UsageError
from rlseq.events import Callback
from rlseq.machine import describe_machine
from rlseq.resolve import given_values, read_options, resolve_new, resolve_resumed
from rlseq.spec import PolicySpec
from rlseq.trained import export_network, load_network, policy_record, score_network, spec_with
from rlseq.version import __version__

if TYPE_CHECKING:
    from rlseq.dqn.train import DqnTrainer
    from rlseq.engine.session import Session


class Plan(NamedTuple):
    """A training about to begin: resolved, checked, nothing written yet."""

    algorithm: str
    options: DqnTraining
    recipe: str | None
    make: MakeEnv
    spec: PolicySpec
    run: runs.Run | None  # of a resume


def plan_training(
    algorithm: str,
    env: str | MakeEnv | None,
    recipe: str | Path,
    values: Mapping[str, Any],
    imports: Sequence[str],
    resume: str | Path | None,
    everyday: Mapping[str, Any],
    source: str,
) -> Plan:
    """Resolve and check everything that was given; see `rlseq.pipeline.train` for the arguments."""
    factory = None if env is None or isinstance(env, str) else env
    env_id = getattr(factory, "__name__", "environment") + FACTORY if factory else env
    if isinstance(env_id, str) and factory is None:
        env_id, more = split_id(env_id)
        imports = [*imports, *more]
    given = given_values(env_id if isinstance(env_id, str) else None, imports, values, everyday)
    run = runs.open_run(resume) if resume is not None else None
    if run is None:
        options, recipe_name = resolve_new(algorithm, given, recipe, source)
    else:
        if recipe != "auto":
            raise UsageError(
                f"--recipe {recipe}: a resumed run keeps its options; leave it out, or start anew with "
                f"--from {run.path}"
            )
        options, recipe_name = resolve_resumed(run, algorithm, given, source), run.config().get("recipe")
    make = maker(env_spec(options.env), typed_imports=imports) if factory is None else factory
    leaves, action = spaces_of(make, options.env.id)
    spec = PolicySpec(
        rlseq_version=__version__, algorithm=algorithm, env=env_spec(options.env), observation=leaves, action=action
    )
    return Plan(algorithm, options, recipe_name, make, spec, run)


def run_training(
    plan: Plan, init_from: str | Path | None, callbacks: Sequence[Callback]
) -> tuple[runs.Run, dict[str, Any]]:
    """Begin or resume, loop, finish. Returns the run and its summary."""
    from rlseq.engine.device import cpu_threads

    with cpu_threads(plan.options.engine.threads):
        return _run(plan, init_from, callbacks)


def _run(plan: Plan, init_from: str | Path | None, callbacks: Sequence[Callback]) -> tuple[runs.Run, dict[str, Any]]:
    from rlseq.dqn.train import DqnTrainer
    from rlseq.engine.session import Session
    from rlseq.engine.signals import SignalReceived, StopSignals

    run = plan.run
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(StopSignals(at_once=True))
            if run is not None:
                stack.enter_context(run.lock())  # before anything of it is read: another process may be writing
            manifest = _resumable(plan) if run is not None else None
            trainer = DqnTrainer(plan.options, plan.spec, plan.make)
            stack.callback(trainer.close)
            lineage = _initial_weights(trainer, init_from) if init_from is not None else []
            run = run or _new_run(plan, lineage, stack)
            session = Session(plan.algorithm, run, plan.options.run, plan.options.eval, callbacks)
            _tell_start(plan, trainer, session, run)
            with session:
                with session.signals:
                    _begin(plan, trainer, session, manifest)
                    trainer.loop(session)
                    session.finish()
                return run, _finish(plan, trainer, session, run)
    except SignalReceived as stop:
        raise Interrupted(_stopped_at_once(plan, run), stop.signum) from None


def _stopped_at_once(plan: Plan, run: runs.Run | None) -> str:
    if run is None:
        return "stopped before the training began."
    return (
        "stopped at once; the training is saved up to its last checkpoint. Go on with:\n"
        f"  rlseq train {plan.algorithm} --resume {run.path}"
    )


def _new_run(plan: Plan, lineage: list[dict[str, Any]], stack: contextlib.ExitStack) -> runs.Run:
    options = plan.options
    env_name = options.env.id.removesuffix(FACTORY).replace("/", "-")
    run = runs.create_run(options.run.name, f"{env_name}-{plan.algorithm}-s{options.run.seed}")
    stack.enter_context(run.lock())
    step = {
        "step": "train",
        "algorithm": plan.algorithm,
        "run": run.name,
        "env_id": options.env.id,
        "env_steps": options.run.steps,
        "seed": options.run.seed,
        "rlseq_version": __version__,
    }
    run.write("env.json", describe_machine())
    run.write("lineage.json", {"steps": [*lineage, step]})
    # Last, because a folder with a config.json is a run.
    run.write(
        "config.json", {"algorithm": plan.algorithm, "recipe": plan.recipe, "options": msgspec.to_builtins(options)}
    )
    return run


def _initial_weights(trainer: DqnTrainer, init_from: str | Path) -> list[dict[str, Any]]:
    """Load a run's best weights; returns that run's lineage."""
    parent = runs.open_run(init_from)
    checkpoint = parent.checkpoint("best")
    trainer.learner.load_model(
        checkpoints.read_arrays(checkpoint, checkpoints.read_manifest(checkpoint), "model"), str(checkpoint)
    )
    return parent.lineage()


def _resumable(plan: Plan) -> dict[str, Any] | None:
    """The last checkpoint's numbers, if there is anything left to do; None if the run was stopped before its first."""
    run, options = plan.run, plan.options
    assert run is not None
    if not run.checkpoints() and run.best() is None and run.status() != "finished":
        if len(run.lineage()) > 1:
            raise RlseqError(
                f"{run.path} was to start from another run's weights, and was stopped before its first checkpoint. "
                f"Delete {run.path} and start it again with --from."
            )
        return None
    checkpoint = run.checkpoint("last")
    manifest = checkpoints.read_manifest(checkpoint)
    step, (_, stored) = int(checkpoint.name), read_options(run)
    if options.run.steps <= step and (run.status() == "finished" or options.run.steps < step):
        raise UsageError(
            f"{run.path} has done {step} environment steps, and run.steps = {options.run.steps}. --steps is the total: "
            f"extend it with --steps {2 * step}, for example."
        )
    if run.status() == "finished" and options.run.steps <= stored.run.steps:
        raise UsageError(
            f"{run.path} is finished (it stopped early, at step {step}). "
            f"Extend it with a larger total: --steps {2 * max(step, stored.run.steps)}"
        )
    return manifest


def _begin(plan: Plan, trainer: DqnTrainer, session: Session, manifest: dict[str, Any] | None) -> None:
    from rlseq.engine.numbers import session_numbers

    if plan.run is None:
        session.begin(trainer)
        return
    run, (_, stored), renewed = plan.run, read_options(plan.run), []
    if manifest is None:
        session.tell("warning", {"message": f"{run.path} was stopped before its first checkpoint: it begins anew."})
        session.begin(trainer)
    else:
        checkpoint = run.checkpoint("last")
        numbers = session_numbers(manifest, str(checkpoint))
        renewed = trainer.load(checkpoint, manifest)
        session.begin(trainer, numbers)
    if plan.options.run.steps != stored.run.steps:
        extension = {"step": "extend", "env_steps": plan.options.run.steps, "rlseq_version": __version__}
        run.write("lineage.json", {"steps": [*run.lineage(), extension]})
    # An inexact resume is accepted once, not for good.
    kept = msgspec.structs.replace(
        plan.options, run=msgspec.structs.replace(plan.options.run, inexact_resume=stored.run.inexact_resume)
    )
    if kept != stored:
        (run.path / "summary.json").unlink(missing_ok=True)
        run.write("config.json", {**run.config(), "options": msgspec.to_builtins(kept)})
    if renewed:
        message = f"environments {renewed} began a new episode: the resume at step {session.step} is not exact."
        session.log.scalars({"train/inexact_resume": float(len(renewed))}, session.step)
        session.tell("warning", {"message": message})


def _tell_start(plan: Plan, trainer: DqnTrainer, session: Session, run: runs.Run) -> None:
    lines = {**trainer.describe(), "recipe": plan.recipe or "none", "run": str(run.path)}
    session.tell("start", lines)
    options = plan.options
    if trainer.precision.note:
        session.tell("warning", {"message": trainer.precision.note})
    if not has_time_limit(plan.make):
        message = (
            f"{options.env.id} has no time limit: an evaluation ends only if its episodes do. Set one, for example "
            "--set env.max_episode_steps=1000"
        )
        session.tell("warning", {"message": message})
    if trainer.total_updates(options.run.steps) == 0:
        session.tell(
            "warning",
            {
                "message": f"nothing will be learnt: dqn.learning_starts = {options.dqn.learning_starts} and "
                f"dqn.train_every_steps = {options.dqn.train_every_steps} leave no update in "
                f"run.steps = {options.run.steps}."
            },
        )


def _finish(plan: Plan, trainer: DqnTrainer, session: Session, run: runs.Run) -> dict[str, Any]:
    """Score and export the best weights, write the summary."""
    trained = session.seconds
    checkpoint = run.checkpoint("best")
    net = load_network(plan.options, plan.spec, checkpoint)
    score = score_network(net, plan.spec, plan.make, plan.options)
    scored = session.seconds
    spec = spec_with(plan.spec, run, checkpoint, score)
    parity = export_network(net, spec, run.policy, plan.make)
    assert session.best is not None, "the last step is always evaluated"
    summary = {
        "algorithm": plan.algorithm,
        "run": str(run.path),
        **score,
        "steps": session.step,
        "updates": trainer.learner.update_step.updates,
        "stopped": session.stopped,
        "best_step": session.best.step,
        "best_evaluation": session.best.score,
        "training_seconds": round(trained, 3),  # with its evaluations and checkpoints
        "scoring_seconds": round(scored - trained, 3),
        "export_seconds": round(session.seconds - scored, 3),
        **policy_record(run, checkpoint, parity),
    }
    session.log.hparams(
        dict(_flat(msgspec.to_builtins(plan.options))),
        {"hparam/mean_return": score["mean_return"], "hparam/std_return": score["std_return"]},
        session.step,
    )
    session.log.sync()  # the summary says that all is done, so all must be there
    run.write("summary.json", summary)
    return summary


def _flat(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in tree.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else [(prefix + key, value)]
    return rows
