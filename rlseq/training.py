"""A training from a request to its summary, the same for every algorithm; the loop itself is the algorithm's."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rlseq import checkpoints, runs
from rlseq.algorithms import ALGORITHMS
from rlseq.errors import CompileFailed, Interrupted, RlseqError, UsageError
from rlseq.events import Callback
from rlseq.fields import flattened
from rlseq.machine import describe_machine
from rlseq.planning import Plan, Request, check_same_plan, check_shared_folder, plan_training
from rlseq.resolve import read_options
from rlseq.scores import score_keys
from rlseq.version import __version__

if TYPE_CHECKING:
    from rlseq.engine.distributed import World
    from rlseq.engine.launch_memory import LaunchMemory
    from rlseq.engine.session import Session


FROM = "begun_with"  # in lineage and summary: what was taken from which run


class Beginning(NamedTuple):
    """What a training began with.

    Attributes:
        lineage: of the run whose weights were taken.
        facts: for lineage and summary.
        warnings: what the user should know of it.
    """

    lineage: list[dict[str, Any]]
    facts: dict[str, Any]
    warnings: list[str]


NOTHING = Beginning([], {}, [])


def run_training(request: Request, callbacks: Sequence[Callback], world: World) -> tuple[runs.Run, dict[str, Any]]:
    """Begin or resume, loop, finish. Returns the run and its summary, in all processes.

    A launch whose processes were started anew, because one had died, goes on with the run that it had begun.
    """
    from rlseq.engine.device import cpu_settings
    from rlseq.engine.launch_memory import LaunchMemory

    memory = LaunchMemory()
    begun = memory.recall()
    shared = world.from_first(None if begun is None else str(Path(begun).absolute()))
    begun = begun or shared
    if begun is not None:
        request = request._replace(resume=begun, recipe="auto")
    plan = world.together(lambda: plan_training(request))
    check_same_plan(plan, world)
    if begun is not None and plan.run is not None and plan.run.status() == "finished":
        return plan.run, plan.run.summary() or {}
    with cpu_settings(plan.job.options.engine.threads, world.local_size):
        return _run(plan, callbacks, world, memory)


def _run(
    plan: Plan, callbacks: Sequence[Callback], world: World, memory: LaunchMemory
) -> tuple[runs.Run, dict[str, Any]]:
    from rlseq.engine.session import Session
    from rlseq.engine.signals import SignalReceived, StopSignals

    made = [] if plan.run is None else [plan.run]
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(StopSignals(at_once=True))
            world.together(lambda: _claim(plan.run, world, stack))
            manifest = world.together(lambda: _resumable(plan)) if made else None
            trainer = world.together(lambda: plan.job.trainer(world))
            stack.callback(trainer.close)
            world.connect(plan.job.options.engine, trainer.device)
            begun = world.together(lambda: _initial_weights(plan, trainer)) if manifest is None else NOTHING
            run = plan.run or _shared_run(plan, begun, stack, world, made)
            check_shared_folder(run.path, world)
            memory.remember(str(run.path))
            options = plan.job.options
            session = Session(plan.job.algorithm, run, options.run, options.eval, callbacks, world)
            _tell_start(plan, trainer, session, run, begun)
            with session:
                with session.signals:
                    _begin(plan, trainer, session, manifest)
                    with session.signals.instead_of(CompileFailed):
                        trainer.loop(session)
                    session.finish()
                return run, _finish(plan, trainer, session, run, world)
    except SignalReceived as stop:
        raise Interrupted(_stopped_at_once(plan, made), stop.signum) from None


def _stopped_at_once(plan: Plan, made: Sequence[runs.Run]) -> str:
    if not made or not runs.is_run(made[0].path):
        return "stopped before the training began."
    return (
        "stopped at once; the training is saved up to its last checkpoint. Go on with:\n"
        f"  rlseq train {plan.job.algorithm} --resume {made[0].path}"
    )


def _new_run(plan: Plan, begun: Beginning, stack: contextlib.ExitStack, world: World, made: list[runs.Run]) -> runs.Run:
    import torch

    job = plan.job
    run = runs.create_run(job.options.run.name, f"{job.stem}-s{job.options.run.seed}")
    made.append(run)  # at once: a signal may come before this returns
    stack.enter_context(run.lock())
    step = {
        "step": "train",
        "algorithm": job.algorithm,
        "run": run.name,
        **job.facts,
        **begun.facts,
        ALGORITHMS[job.algorithm].steps_key: job.options.run.steps,
        "seed": job.options.run.seed,
        "rlseq_version": __version__,
    }
    run.write("env.json", {**describe_machine(), "processes": world.size, "threads": [torch.get_num_threads()]})
    run.write("lineage.json", {"steps": [*begun.lineage, step]})
    # Last, because a folder with a config.json is a run.
    run.write(
        "config.json",
        {"algorithm": job.algorithm, "recipe": plan.recipe, "options": msgspec.to_builtins(job.options)},
    )
    return run


def _claim(run: runs.Run | None, world: World, stack: contextlib.ExitStack) -> None:
    """Lock a run to be resumed before anything of it is read: another training may be writing."""
    if run is not None and world.first:
        stack.enter_context(run.lock())


def _shared_run(
    plan: Plan, begun: Beginning, stack: contextlib.ExitStack, world: World, made: list[runs.Run]
) -> runs.Run:
    """The new run's folder, made by the first process, for all."""
    run = world.together(lambda: _new_run(plan, begun, stack, world, made) if world.first else None)
    path = world.from_first(None if run is None else str(run.path.absolute()))
    return runs.Run(Path(path)) if run is None else run


def _parent(path: str | Path) -> runs.Run:
    """The run whose weights are begun with.

    Raises:
        UsageError: it is none.
    """
    from rlseq.zoo import agents

    if not runs.is_run(Path(path)) and (Path(path).suffix == ".onnx" or str(path) in agents()):
        raise UsageError(
            f"--from {path}: weights are taken from a run, which has them in its checkpoints, and this is one exported "
            "model. Give a run's folder or name; rlseq list runs lists them."
        )
    return runs.open_run(path)


def _initial_weights(plan: Plan, trainer: Any) -> Beginning:
    """Load the best weights of the run to begin with, if any, as far as they fit."""
    freeze = list(plan.job.options.optim.freeze)
    if plan.init_from is None:
        alone = f"optim.freeze = {', '.join(freeze)} without --from: these weights stay as chance has drawn them."
        return Beginning([], {"frozen": freeze}, [alone] if plan.run is None else []) if freeze else NOTHING
    parent = _parent(plan.init_from)
    terms = plan.job.check_parent(parent, new_head=plan.new_head)
    checkpoint = parent.checkpoint("best")
    arrays = checkpoints.read_arrays(checkpoint, checkpoints.read_manifest(checkpoint), "model")
    inherited = trainer.load_weights(arrays, str(parent.path), anew=terms.anew, fix=terms.fix)
    facts = {FROM: {"run": parent.name, "checkpoint": int(checkpoint.name), **inherited.facts()}}
    warning = inherited.warning(str(parent.path))
    return Beginning(
        parent.lineage(), {**facts, **({"frozen": freeze} if freeze else {})}, [] if warning is None else [warning]
    )


def _resumable(plan: Plan) -> dict[str, Any] | None:
    """The last checkpoint's numbers, if there is anything left to do; None if the run was stopped before its first."""
    run, options = plan.run, plan.job.options
    assert run is not None
    if not run.checkpoints() and run.best() is None and run.status() != "finished":
        if len(run.lineage()) > 1 and plan.init_from is None:
            raise RlseqError(
                f"{run.path} was to start from another run's weights, and was stopped before its first checkpoint. "
                f"Delete {run.path} and start it again with --from."
            )
        return None
    checkpoint = run.checkpoint("last")
    manifest = checkpoints.read_manifest(checkpoint)
    step, (_, stored), words = int(checkpoint.name), read_options(run), ALGORITHMS[plan.job.algorithm]
    if options.run.steps <= step and (run.status() == "finished" or options.run.steps < step):
        raise UsageError(
            f"{run.path} has done {step} {words.steps}, and run.steps = {options.run.steps}. --steps is the total: "
            f"extend it with --steps {2 * step}, for example."
        )
    if run.status() == "finished" and options.run.steps <= stored.run.steps:
        raise UsageError(
            f"{run.path} is finished (it stopped early, at step {step}). "
            f"Extend it with a larger total: --steps {2 * max(step, stored.run.steps)}"
        )
    return manifest


def _begin(plan: Plan, trainer: Any, session: Session, manifest: dict[str, Any] | None) -> None:
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
        renewed = session.world.together(lambda: trainer.load(checkpoint, manifest))
        session.begin(trainer, numbers)
    if not session.world.first:
        return
    _record_threads(run)
    options = plan.job.options
    if options.run.steps != stored.run.steps:
        key = ALGORITHMS[plan.job.algorithm].steps_key
        extension = {"step": "extend", key: options.run.steps, "rlseq_version": __version__}
        run.write("lineage.json", {"steps": [*run.lineage(), extension]})
    # An inexact resume is accepted once, not for good.
    kept = msgspec.structs.replace(
        options, run=msgspec.structs.replace(options.run, inexact_resume=stored.run.inexact_resume)
    )
    if kept != stored:
        (run.path / "summary.json").unlink(missing_ok=True)
        run.write("config.json", {**run.config(), "options": msgspec.to_builtins(kept)})
    if renewed:
        session.log.scalars({"train/inexact_resume": float(len(renewed))}, session.step)
        message = f"{', '.join(renewed)}: the resume at step {session.step} is not exact."
        session.tell("warning", {"message": message})


def _record_threads(run: runs.Run) -> None:
    """Of a resumed run: with how many threads it goes on, if not as before; its last bits may depend on that."""
    import torch

    env, threads = run.env(), torch.get_num_threads()
    known = env.get("threads", [])
    if known[-1:] != [threads]:
        run.write("env.json", {**env, "threads": [*known, threads]})


def _tell_start(plan: Plan, trainer: Any, session: Session, run: runs.Run, begun: Beginning) -> None:
    session.tell("start", {**trainer.describe(), "recipe": plan.recipe or "none", "run": str(run.path)})
    for message in (*begun.warnings, *trainer.warnings()):
        session.tell("warning", {"message": message})


def _finish(plan: Plan, trainer: Any, session: Session, run: runs.Run, world: World) -> dict[str, Any]:
    """Score the best weights, all processes together; the first one exports them and writes the summary."""
    trained = session.seconds
    result = plan.job.finish(trainer, session, run, run.checkpoint("best"))
    return world.from_first(world.together(lambda: _summarise(plan, trainer, session, run, trained, result)))


def _summarise(
    plan: Plan, trainer: Any, session: Session, run: runs.Run, trained: float, result: Mapping[str, Any]
) -> dict[str, Any]:
    if not session.world.first:
        return {}
    assert session.best is not None, "the last step is always evaluated"
    step: dict[str, Any] = next((step for step in reversed(run.lineage()) if step.get("step") == "train"), {})
    summary = {
        "algorithm": plan.job.algorithm,
        "run": str(run.path),
        **{key: step[key] for key in (FROM, "frozen") if key in step},
        "steps": session.step,
        "updates": trainer.updates,
        "stopped": session.stopped,
        "best_step": session.best.step,
        "best_evaluation": session.best.score,
        "training_seconds": round(trained, 3),  # with its evaluations and checkpoints
        **result,
    }
    options = msgspec.to_builtins(plan.job.options)
    scores = {f"hparam/{key}": summary[key] for key in score_keys(plan.job.algorithm, options)}
    session.log.hparams(dict(flattened(options)), scores, session.step)
    session.log.sync()  # the summary says that all is done, so all must be there
    run.write("summary.json", summary)
    return summary
