"""A DQN training as a checkpoint holds it, and back: of one process or several.

Process 0 has the network, target, optimiser and its own part in the files that a single process has; the others' parts
(half-played episodes, replay memory, random streams) lie in files with their number. With another number of processes
than before, transitions are dealt out anew and every environment begins a new episode: the training goes on, but not
exactly as it would have.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from rlseq.checkpoints import REPLAY as REPLAY_FILE
from rlseq.checkpoints import read_arrays
from rlseq.engine.checkpoint import NOTHING, Snapshot, of_rank
from rlseq.engine.metrics import Means
from rlseq.engine.update import UNFIT
from rlseq.envs.seeding import EXPLORATION, REPLAY, generator
from rlseq.errors import CorruptFile

if TYPE_CHECKING:
    from rlseq.dqn.train import DqnTrainer

ACTING = "acting.weights"  # one burst behind, in `FlatParameters`' order


class _LearnerNumbers(msgspec.Struct):
    updates: Annotated[int, Meta(ge=0)]
    skipped: Annotated[int, Meta(ge=0)]
    scaler: dict[str, float]


class OwnNumbers(msgspec.Struct):
    """What a process has of its own."""

    replay: dict[str, Annotated[int, Meta(ge=0)]]
    means: dict[str, tuple[float, float]]
    exploration_rng: dict[str, Any]
    replay_rng: dict[str, Any]


class TrainerNumbers(OwnNumbers):
    """A DQN trainer's part of a checkpoint's numbers; `ranks` are processes 1, 2, ..."""

    learner: _LearnerNumbers
    ranks: list[OwnNumbers] = []


def snapshot(trainer: DqnTrainer) -> Snapshot:
    """Everything from which `load` goes on exactly; of all processes, in process 0."""
    world, learner = trainer.world, trainer.learner
    trainer.read()
    world.check_same("the weights", learner.update_step.flat.data)
    env_arrays = {f"envs.{name}": array for name, array in trainer.envs.state().items()}
    replay_arrays, replay_numbers = trainer.replay.state()
    own = {
        "replay": replay_numbers,
        "means": trainer.means.state(),
        "exploration_rng": _rng_state(trainer.actor.rng),
        "replay_rng": _rng_state(trainer.replay_rng),
    }
    numbers = world.gather(own)
    others = {
        of_rank(name, rank): arrays
        for name, mine in (("trainer", env_arrays), (REPLAY_FILE, replay_arrays))
        for rank, arrays in enumerate(world.gather_arrays(mine), 1)
    }
    if not world.first:
        return NOTHING
    learner_arrays, learner_numbers = learner.state()
    if trainer.mirror is not None:
        learner_arrays[ACTING] = trainer.mirror.state()
    more = {} if world.alone else {"ranks": numbers[1:]}
    return Snapshot(
        trainer.model(),
        {**learner_arrays, **env_arrays},
        replay_arrays,
        {"learner": learner_numbers, **numbers[0], **more},
        others,
    )


def load(trainer: DqnTrainer, checkpoint: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Put a checkpoint into a trainer that is as new.

    Returns:
        What is not as it was.

    Raises:
        CorruptFile, ResumeMismatch
    """
    numbers, where = manifest["numbers"], str(checkpoint)
    first = read_arrays(checkpoint, manifest, "trainer")
    trainer.learner.load_model(read_arrays(checkpoint, manifest, "model"), where)
    try:
        stored: TrainerNumbers = msgspec.convert(dict(numbers), TrainerNumbers)
        trainer.learner.load_state(first, numbers["learner"], where)
        if trainer.mirror is not None:
            acting = first.get(ACTING)  # missing if it acted on the CPU with the network's own weights
            trainer.mirror.restart() if acting is None else trainer.mirror.load(acting)
        if len(stored.ranks) + 1 != trainer.world.size:
            return _deal_out(trainer, checkpoint, manifest, [stored, *stored.ranks])
        _load_own(trainer, checkpoint, manifest, [stored, *stored.ranks][trainer.world.rank])
    except UNFIT as error:
        raise _unfit(checkpoint, f"{type(error).__name__}: {error}") from None
    rank = trainer.world.rank
    arrays = first if rank == 0 else read_arrays(checkpoint, manifest, of_rank("trainer", rank))
    try:
        renewed = trainer.envs.load(_env_state(arrays), inexact=trainer.options.run.inexact_resume)
    except CorruptFile as error:
        raise _unfit(checkpoint, str(error).removesuffix(".")) from None
    return [f"environment {i} began a new episode" for i in renewed]


def _load_own(trainer: DqnTrainer, checkpoint: Path, manifest: Mapping[str, Any], own: OwnNumbers) -> None:
    file = of_rank(REPLAY_FILE, trainer.world.rank)
    stored = read_arrays(checkpoint, manifest, file, trainer.replay.slot)
    trainer.replay.restore(own.replay, stored)
    _check_transitions(stored, trainer.spec.action.n)
    trainer.means.load({name: list(entry) for name, entry in own.means.items()})
    trainer.actor.rng.bit_generator.state = own.exploration_rng
    trainer.replay_rng.bit_generator.state = own.replay_rng


def _deal_out(
    trainer: DqnTrainer, checkpoint: Path, manifest: Mapping[str, Any], numbers: list[OwnNumbers]
) -> list[str]:
    """Share what other processes had: of every memory each process takes a stretch, and process 0 their means."""
    world, replay, begun = trainer.world, trainer.replay, 0
    for rank, own in enumerate(numbers):
        stored = read_arrays(checkpoint, manifest, of_rank(REPLAY_FILE, rank))
        if stored.keys() != replay.arrays.keys() or any(len(a) != own.replay["size"] for a in stored.values()):
            raise ValueError(f"the replay of process {rank} holds {sorted(stored)}")
        _check_transitions(stored, trainer.spec.action.n)
        replay.add_part(own.replay, stored, world.rank, world.size)
        episodes = read_arrays(checkpoint, manifest, of_rank("trainer", rank))["envs.episode"]
        begun = max(begun, int(episodes.max(initial=0)) + 1)
    if world.first:
        trainer.means.load(Means.merged([msgspec.to_builtins(own.means) for own in numbers]).state())
    trainer.envs.skip_to(np.full(trainer.envs.num_envs, begun))  # seeds of episodes that nobody has begun
    step = int(manifest["step"])
    trainer.actor.rng = generator(EXPLORATION, trainer.options.run.seed, world.rank, step)
    trainer.replay_rng = generator(REPLAY, trainer.options.run.seed, world.rank, step)
    return [f"{len(numbers)} process{'es' * (len(numbers) > 1)} before, {world.size} now: new episodes began"]


def _env_state(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix("envs."): array for name, array in arrays.items() if name.startswith("envs.")}


def _check_transitions(stored: Mapping[str, np.ndarray], num_actions: int) -> None:
    """Stored transitions that no environment gave would fail, or spoil the weights, many updates later."""
    action = stored["action"]
    if action.size and not (action.min() >= 0 and action.max() < num_actions):
        raise ValueError(f"replay holds actions from {action.min()} to {action.max()} of {num_actions}")
    for name in ("reward", "discount"):
        if not np.isfinite(stored[name]).all():
            raise ValueError(f"replay holds a {name} that is not finite")


def _unfit(checkpoint: Path, reason: str) -> CorruptFile:
    run = checkpoint.parent.parent
    return CorruptFile(
        f"{checkpoint} does not fit the run's options, or was changed: {reason}. If {run / 'config.json'} was edited "
        "after the run began (env.num_envs, replay.capacity, optim.name ...), put the old values back; a training with "
        f"other options is a new run, which may start from these weights: --from {run}"
    )


def _rng_state(rng: np.random.Generator) -> dict[str, Any]:
    return dict(rng.bit_generator.state)
