"""A training from its plan to its summary, the same for every algorithm; the loop itself is the algorithm's.

What an algorithm adds is a `Job`: what is to be trained, how its trainer is made, what comes of the best weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from rlseq import checkpoints, runs
from rlseq.algorithms import ALGORITHMS
from rlseq.envs.make import FACTORY, MakeEnv, split_id
from rlseq.errors import Interrupted, RlseqError, UsageError
from rlseq.events import Callback
from rlseq.fields import flattened
from rlseq.machine import describe_machine
from rlseq.resolve import Training, given_values, read_options, resolve_new, resolve_resumed
from rlseq.seq.config import SeqTraining
from rlseq.trained import plan_policy
from rlseq.trained_sequence import plan_sequence
from rlseq.version import __version__

if TYPE_CHECKING:
    from rlseq.engine.checkpoint import Arrays
    from rlseq.engine.session import Session


class Trainer(Protocol):
    """A session's trainee (`rlseq.engine.session.Trainee`) that trains itself."""

    def loop(self, session: Session) -> None:
        """Train until the session ends."""

    def load(self, checkpoint: Path, manifest: Mapping[str, Any]) -> list[str]:
        """Go on from a checkpoint; gives what could not be rebuilt exactly, for a warning."""

    def load_weights(self, arrays: Arrays, where: str) -> None:
        """Begin with these weights."""

    def describe(self) -> dict[str, str]:
        """What is about to run, as label -> text."""

    def warnings(self) -> list[str]:
        """What the user should know before it begins."""

    @property
    def updates(self) -> int:
        """Updates done."""

    def close(self) -> None:
        """Let go of what it holds."""


class Job(Protocol):
    """A training as an algorithm plans it: resolved and checked, nothing written yet."""

    @property
    def algorithm(self) -> str: ...

    @property
    def options(self) -> Training: ...

    @property
    def stem(self) -> str:
        """Beginning of a made-up run name."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the lineage says of this training."""

    def check_parent(self, parent: runs.Run) -> None:
        """Whether the weights of a run can be begun with, apart from their shapes."""

    def trainer(self) -> Any:
        """The `Trainer`; everything heavy begins here."""

    def finish(self, trainer: Any, session: Session, run: runs.Run, checkpoint: Path) -> dict[str, Any]:
        """Score and export the best weights; gives its part of the summary."""


class Plan(NamedTuple):
    """A training about to begin."""

    job: Job
    recipe: str | None
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
    given = given_values(algorithm, env_id if isinstance(env_id, str) else None, imports, values, everyday)
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
    job: Job = (
        plan_sequence(options, typed=given, resumed=run)
        if isinstance(options, SeqTraining)
        else plan_policy(options, factory, imports)
    )
    return Plan(job, recipe_name, run)


def run_training(
    plan: Plan, init_from: str | Path | None, callbacks: Sequence[Callback]
) -> tuple[runs.Run, dict[str, Any]]:
    """Begin or resume, loop, finish. Returns the run and its summary."""
    from rlseq.engine.device import cpu_threads

    with cpu_threads(plan.job.options.engine.threads):
        return _run(plan, init_from, callbacks)


def _run(plan: Plan, init_from: str | Path | None, callbacks: Sequence[Callback]) -> tuple[runs.Run, dict[str, Any]]:
    from rlseq.engine.session import Session
    from rlseq.engine.signals import SignalReceived, StopSignals

    run = plan.run
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(StopSignals(at_once=True))
            if run is not None:
                stack.enter_context(run.lock())  # before anything of it is read: another process may be writing
            manifest = _resumable(plan) if run is not None else None
            trainer = plan.job.trainer()
            stack.callback(trainer.close)
            lineage = _initial_weights(plan, trainer, init_from) if init_from is not None else []
            run = run or _new_run(plan, lineage, stack)
            options = plan.job.options
            session = Session(plan.job.algorithm, run, options.run, options.eval, callbacks)
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
        f"  rlseq train {plan.job.algorithm} --resume {run.path}"
    )


def _new_run(plan: Plan, lineage: list[dict[str, Any]], stack: contextlib.ExitStack) -> runs.Run:
    job = plan.job
    run = runs.create_run(job.options.run.name, f"{job.stem}-s{job.options.run.seed}")
    stack.enter_context(run.lock())
    step = {
        "step": "train",
        "algorithm": job.algorithm,
        "run": run.name,
        **job.facts,
        ALGORITHMS[job.algorithm].steps_key: job.options.run.steps,
        "seed": job.options.run.seed,
        "rlseq_version": __version__,
    }
    run.write("env.json", describe_machine())
    run.write("lineage.json", {"steps": [*lineage, step]})
    # Last, because a folder with a config.json is a run.
    run.write(
        "config.json",
        {"algorithm": job.algorithm, "recipe": plan.recipe, "options": msgspec.to_builtins(job.options)},
    )
    return run


def _initial_weights(plan: Plan, trainer: Any, init_from: str | Path) -> list[dict[str, Any]]:
    """Load a run's best weights; returns that run's lineage."""
    parent = runs.open_run(init_from)
    plan.job.check_parent(parent)
    checkpoint = parent.checkpoint("best")
    arrays = checkpoints.read_arrays(checkpoint, checkpoints.read_manifest(checkpoint), "model")
    trainer.load_weights(arrays, str(checkpoint))
    return parent.lineage()


def _resumable(plan: Plan) -> dict[str, Any] | None:
    """The last checkpoint's numbers, if there is anything left to do; None if the run was stopped before its first."""
    run, options = plan.run, plan.job.options
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
        renewed = trainer.load(checkpoint, manifest)
        session.begin(trainer, numbers)
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


def _tell_start(plan: Plan, trainer: Any, session: Session, run: runs.Run) -> None:
    session.tell("start", {**trainer.describe(), "recipe": plan.recipe or "none", "run": str(run.path)})
    for message in trainer.warnings():
        session.tell("warning", {"message": message})


def _finish(plan: Plan, trainer: Any, session: Session, run: runs.Run) -> dict[str, Any]:
    """Score and export the best weights, write the summary."""
    trained = session.seconds
    result = plan.job.finish(trainer, session, run, run.checkpoint("best"))
    assert session.best is not None, "the last step is always evaluated"
    summary = {
        "algorithm": plan.job.algorithm,
        "run": str(run.path),
        "steps": session.step,
        "updates": trainer.updates,
        "stopped": session.stopped,
        "best_step": session.best.step,
        "best_evaluation": session.best.score,
        "training_seconds": round(trained, 3),  # with its evaluations and checkpoints
        **result,
    }
    session.log.hparams(
        dict(flattened(msgspec.to_builtins(plan.job.options))),
        {f"hparam/{name}": summary[name] for name in ALGORITHMS[plan.job.algorithm].headline},
        session.step,
    )
    session.log.sync()  # the summary says that all is done, so all must be there
    run.write("summary.json", summary)
    return summary
