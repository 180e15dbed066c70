"""What a training's options come to: defaults, recipe, arguments; or those of the run that is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from rlseq.config import Layer, differences, merge_into, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.errors import CorruptFile, UsageError, check_name, did_you_mean
from rlseq.purposes import use_of
from rlseq.recipe import Recipe, read_recipe
from rlseq.runs import Run
from rlseq.seq.config import SeqTraining
from rlseq.zoo import recipe_for, shipped_recipes, task_recipe

TREES: dict[str, type[DqnTraining] | type[SeqTraining]] = {"dqn": DqnTraining, "seq": SeqTraining}
Training = DqnTraining | SeqTraining

_SHARED = {
    "steps": "run.steps",
    "seed": "run.seed",
    "name": "run.name",
    "device": "engine.device",
    "amp": "engine.amp",
    "threads": "engine.threads",
    "lr": "optim.lr",
    "freeze": "optim.freeze",
    "lr_multiplier": "optim.lr_multipliers",
}
# Everyday flags of the command line and keywords of `rlseq.train` -> the option each one sets, by algorithm.
EVERYDAY = {
    "dqn": {**_SHARED, "batch_size": "replay.batch_size", "envs": "env.num_envs"},
    "seq": {
        **_SHARED,
        "task": "seq.task",
        "batch_size": "seq.batch_size",
        "data": "seq.data",
        "context": "seq.context",
        "length": "seq.length",
        "columns": "seq.columns",
        "label": "seq.label",
        "group": "seq.group",
        "target": "seq.target",
        "horizon": "seq.horizon",
        "loss": "seq.loss",
        "net": "net.core",
        "size": "net.size",
        "accumulate": "optim.accumulate",
    },
}
# By a resume; anything else would be another training. Other data than before is noticed by its content.
MAY_CHANGE = ("run.steps", "run.inexact_resume", "engine.gradients", "seq.data")


class Resolved(NamedTuple):
    """Options, the recipe they came from (None without), and its name for messages."""

    options: Training
    recipe: str | None


def given_values(
    algorithm: str,
    env_id: str | None,
    imports: Sequence[str],
    values: Mapping[str, Any],
    everyday: Mapping[str, Any],
) -> dict[str, Any]:
    """Arguments as one tree of option values.

    Raises:
        UsageError: an unknown everyday keyword.
    """
    tree: dict[str, Any] = {}
    merge_into(tree, values)
    known = EVERYDAY[algorithm]
    for name, value in everyday.items():
        if value is None:
            continue
        if name not in known:
            raise UsageError(f"unknown argument {name!r}.{did_you_mean(name, known)} It is one of {', '.join(known)}.")
        group, _, option = known[name].partition(".")
        if option in tree.get(group, {}):
            raise UsageError(f"{name} and {known[name]} are both given, and are the same option: leave one out.")
        merge_into(tree, {group: {option: value}})
    if env_id is not None:
        merge_into(tree, {"env": {"id": env_id}})
    if imports:
        merge_into(tree, {"env": {"imports": tuple(imports)}})
    return tree


def resolve_new(algorithm: str, given: Mapping[str, Any], recipe: str | Path, source: str) -> Resolved:
    """Options of a new training.

    Args:
        algorithm: a key of `TREES`.
        given: from `given_values`.
        recipe: "auto" (the shipped one for this environment, or task and network, if any), "none", a shipped one's
            name, or a file.
        source: what messages call `given`.

    Raises:
        UsageError: anything wrong with recipe or values.
    """
    found = find_recipe(algorithm, recipe, given)
    layers = [Layer(source, given)]
    if found is not None:
        layers.insert(0, Layer(f"recipe {found.name}", found.values))
    options: Training = resolve(TREES[algorithm], *layers)
    return Resolved(options, found.name if found else None)


def find_recipe(algorithm: str, recipe: str | Path, given: Mapping[str, Any]) -> Recipe | None:
    """The recipe meant by `--recipe`, or None; `given` are the options typed.

    Raises:
        UsageError: there is none of this name, or it is for another algorithm.
    """
    if recipe == "none":
        return None
    shipped = shipped_recipes()
    if recipe == "auto":
        name = _shipped_for(algorithm, given)
        return None if name is None else read_recipe(shipped[name], name)
    check_name(recipe, "--recipe")
    if str(recipe) in shipped:
        found = read_recipe(shipped[str(recipe)], str(recipe))
    elif Path(recipe).is_file():
        found = read_recipe(Path(recipe), Path(recipe).name)
    else:
        raise UsageError(
            f"--recipe {recipe}: neither a file nor a shipped recipe.{did_you_mean(str(recipe), shipped)} "
            f"Shipped: {', '.join(shipped) or 'none'}; or --recipe none."
        )
    if found.algorithm != algorithm:
        raise UsageError(f"recipe {found.name} is for {found.algorithm}, not for {algorithm}.")
    return found


def _shipped_for(algorithm: str, given: Mapping[str, Any]) -> str | None:
    """The name of the recipe for what was typed: an environment, or a task and its network."""
    if algorithm == "seq":
        from rlseq.seq.tasks.table import TASKS

        task, core = _typed(given, "seq", "task"), _typed(given, "net", "core")
        entry = TASKS.get(task) if isinstance(task, str) else None
        return task_recipe(task, core or entry.core) if entry is not None and entry.core is not None else None
    env_id = _typed(given, "env", "id")
    agent = recipe_for(env_id, algorithm) if env_id else None
    return None if agent is None else agent.name


def _typed(given: Mapping[str, Any], group: str, option: str) -> Any:
    values = given.get(group)
    return values.get(option) if isinstance(values, Mapping) else None


def read_options(run: Run) -> tuple[str, Training]:
    """Algorithm and options of a run.

    Raises:
        CorruptFile, NewerFormat: its config.json cannot be read.
    """
    config = run.config()
    algorithm, path = config.get("algorithm"), run.path / "config.json"
    if not isinstance(algorithm, str) or algorithm not in TREES or not isinstance(config.get("options"), dict):
        raise CorruptFile(f"{path} names the algorithm {algorithm!r}; known are {', '.join(TREES)}.")
    try:
        return algorithm, resolve(TREES[algorithm], Layer(str(path), config["options"]))
    except UsageError as error:
        raise CorruptFile(str(error)) from None


def read_policy_options(run: Run) -> DqnTraining:
    """Options of a run that trained a policy.

    Raises:
        UsageError: it trained a sequence model.
        CorruptFile, NewerFormat: its config.json cannot be read.
    """
    options = read_options(run)[1]
    if not isinstance(options, DqnTraining):
        raise UsageError(
            f"{run.path} trained a sequence model, which plays nothing: {use_of(options.seq.task, run.path)}"
        )
    return options


def read_sequence_options(run: Run) -> SeqTraining:
    """Options of a run that trained a sequence model.

    Raises:
        UsageError: it trained a policy.
        CorruptFile, NewerFormat: its config.json cannot be read.
    """
    options = read_options(run)[1]
    if not isinstance(options, SeqTraining):
        raise UsageError(f"{run.path} trained a policy, not a sequence model: rlseq play {run.path}")
    return options


def resolve_resumed(run: Run, algorithm: str, given: Mapping[str, Any], source: str) -> Training:
    """Options of a training that goes on: those of the run, with more steps if given.

    Raises:
        UsageError: another option is given with another value.
    """
    stored_algorithm, stored = read_options(run)
    if stored_algorithm != algorithm:
        raise UsageError(
            f"{run.path} is a training of {stored_algorithm}: rlseq train {stored_algorithm} --resume {run.path}"
        )
    base = cast(dict[str, Any], msgspec.to_builtins(stored))
    options: Training = resolve(type(stored), Layer(str(run.path), base), Layer(source, given))
    for path, (old, new) in differences(type(stored), stored, options).items():
        if path not in MAY_CHANGE:
            group, _, option = path.partition(".")
            why = "" if option in given.get(group, {}) else " by what was given in its place"
            raise UsageError(
                f"{run.path} was trained with {path} = {old!r}, and a resume goes on exactly, so it cannot become "
                f"{new!r}{why}. Leave it out, or start a new run from these weights: --from {run.path}"
            )
    # Tables are equal in any order, but of learning-rate multipliers the last one counts.
    options = msgspec.structs.replace(options, optim=stored.optim)
    if options.run.steps != stored.run.steps and stored.run.horizon is None:
        # Epsilon and learning rate keep the course they were on, and stay at its end.
        options = msgspec.structs.replace(options, run=msgspec.structs.replace(options.run, horizon=stored.run.steps))
    return options
