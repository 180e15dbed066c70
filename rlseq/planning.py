"""What is to be trained, from what was asked for: resolved and checked, the same for every algorithm.

What an algorithm adds is a `Job`: what is to be trained, how its trainer is made, what comes of the best weights.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from rlseq import runs
from rlseq.envs.make import FACTORY, MakeEnv, split_id
from rlseq.errors import RlseqError, UsageError
from rlseq.fields import flattened
from rlseq.files import sha256_file
from rlseq.idle import check_idle
from rlseq.planned_sequence import plan_sequence
from rlseq.purposes import TEXT
from rlseq.resolve import Training, given_values, resolve_new, resolve_resumed
from rlseq.seq.config import SeqTraining
from rlseq.trained import plan_policy

if TYPE_CHECKING:
    from rlseq.engine.checkpoint import Arrays
    from rlseq.engine.distributed import World
    from rlseq.engine.inheritance import Inherited
    from rlseq.engine.session import Session
    from rlseq.parents import Terms


class Trainer(Protocol):
    """A session's trainee (`rlseq.engine.trainee.Trainee`) that trains itself."""

    def loop(self, session: Session) -> None:
        """Train until the session ends."""

    def load(self, checkpoint: Path, manifest: Mapping[str, Any]) -> list[str]:
        """Go on from a checkpoint; gives what could not be rebuilt exactly, for a warning."""

    def load_weights(self, arrays: Arrays, parent: str, *, anew: Sequence[str] = (), fix: str = "") -> Inherited:
        """Begin with these weights, as far as they fit; see `rlseq.engine.inheritance.inherit`."""

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

    def check_parent(self, parent: runs.Run, *, new_head: bool = False) -> Terms:
        """On which terms the weights of a run can be begun with, if their shapes fit.

        Args:
            parent: the run.
            new_head: the network's head begins anew, and what reads its inputs if those mean something else.
        """

    def trainer(self, world: World | None = None) -> Any:
        """The `Trainer`, of one of the processes that train together; everything heavy begins here."""

    def finish(self, trainer: Any, session: Session, run: runs.Run, checkpoint: Path) -> dict[str, Any]:
        """Score the best weights, all processes together, and export them in the first; gives its part of the
        summary, and nothing in the others."""


class Plan(NamedTuple):
    """A training about to begin."""

    job: Job
    recipe: str | None
    run: runs.Run | None  # of a resume
    init_from: str | Path | None  # the run whose weights it begins with
    new_head: bool = False


class Request(NamedTuple):
    """What was asked for; see `rlseq.pipeline.train`."""

    algorithm: str
    env: str | MakeEnv | None = None
    recipe: str | Path = "auto"
    values: Mapping[str, Any] = {}
    imports: Sequence[str] = ()
    resume: str | Path | None = None
    init_from: str | Path | None = None
    new_head: bool = False
    everyday: Mapping[str, Any] = {}
    source: str = "arguments"


def plan_training(request: Request) -> Plan:
    """Resolve and check everything that was given."""
    env, imports, resume = request.env, request.imports, request.resume
    if request.new_head and request.init_from is None:
        raise UsageError(
            "--new-head is of a training that begins with another run's weights: add --from RUN, or leave it out."
        )
    factory = None if env is None or isinstance(env, str) else env
    env_id = getattr(factory, "__name__", "environment") + FACTORY if factory else env
    if isinstance(env_id, str) and factory is None:
        env_id, more = split_id(env_id)
        imports = [*imports, *more]
    named = env_id if isinstance(env_id, str) else None
    given = given_values(request.algorithm, named, imports, request.values, request.everyday)
    run = runs.open_run(resume) if resume is not None else None
    if run is None:
        options, recipe_name = resolve_new(request.algorithm, given, request.recipe, request.source)
        _check_data_named(options, request.source)
    else:
        if request.recipe != "auto":
            raise UsageError(
                f"--recipe {request.recipe}: a resumed run keeps its options; leave it out, or start anew with "
                f"--from {run.path}"
            )
        options = resolve_resumed(run, request.algorithm, given, request.source)
        recipe_name = run.config().get("recipe")
    job: Job = (
        plan_sequence(options, typed=given, resumed=run)
        if isinstance(options, SeqTraining)
        else plan_policy(options, factory, imports)
    )
    if run is None:
        check_idle(request.algorithm, job.options, given)
    return Plan(job, recipe_name, run, request.init_from, request.new_head)


def _check_data_named(options: Training, source: str) -> None:
    """Refuse a task about a file that was not named, in the words of whoever asks.

    Raises:
        UsageError
    """
    if not isinstance(options, SeqTraining) or options.seq.data is not None or options.seq.task == TEXT:
        return
    from rlseq.seq.tasks.table import TASKS

    if "data" in TASKS[options.seq.task].takes:
        how = "--data FILE" if source == "command line" else 'data="FILE.csv"'
        raise UsageError(f"the task {options.seq.task} is about a CSV file, and none was named: {how}")


def check_same_plan(plan: Plan, world: World) -> None:
    """See that all processes were started with the same options and data.

    Raises:
        UsageError: they were not; the first difference is named.
    """
    own = {
        "algorithm": plan.job.algorithm,
        "--recipe": plan.recipe,
        "--resume": None if plan.run is None else plan.run.name,
        "--from": None if plan.init_from is None else str(plan.init_from),
        "--new-head": plan.new_head,
        **dict(flattened(msgspec.to_builtins(plan.job.options))),
        **plan.job.facts,
    }
    plans = world.gather({name: str(value) for name, value in own.items()})
    world.together(lambda: _compare(plans))


def _compare(plans: Sequence[Mapping[str, str]]) -> None:
    first = plans[0]
    for rank, other in enumerate(plans):
        for name in [*first, *other]:
            a, b = first.get(name, "nothing"), other.get(name, "nothing")
            if a != b:
                raise UsageError(
                    f"process 0 was started with {name} = {a}, process {rank} with {b}: all processes of a training "
                    "need the same command and the same data."
                )


def check_shared_folder(path: Path, world: World) -> None:
    """See that every process sees the run's folder that the first one writes to.

    Raises:
        RlseqError: one does not.
    """

    def look() -> None:
        """The folder's identity card is its config.json: another run of the same name would have another."""
        if config.is_file() and sha256_file(config) == digest:
            return
        raise RlseqError(
            f"{platform.node()} does not see the run {path} that process 0 writes to. Let RLSEQ_RUNS name a folder "
            "that all machines share, for all processes."
        )

    config = path / "config.json"
    digest = world.from_first(sha256_file(config) if world.first else None)
    world.together(look)
