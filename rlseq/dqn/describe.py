"""What a DQN training says of itself before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlseq.envs.make import has_time_limit
from rlseq.nets.network import num_parameters
from rlseq.replay.uniform import replay_bytes

if TYPE_CHECKING:
    from rlseq.dqn.train import DqnTrainer


def describe(trainer: DqnTrainer) -> dict[str, str]:
    """What is about to run, as label -> text."""
    o, net, world, learner = trainer.options, trainer.learner.net, trainer.world, trainer.learner
    size = replay_bytes(o.replay.capacity, trainer.spec.observation, o.dqn.n_step)
    precision = str(trainer.precision.dtype or "float32").removeprefix("torch.")
    num_envs = o.env.num_envs * world.size
    copied = ", observations on the GPU too" if trainer.memory is not trainer.replay else ""
    return {
        "environment": f"{o.env.id}, {num_envs} in parallel" if num_envs > 1 else o.env.id,
        "network": f"{o.net.core} {'-'.join(map(str, o.net.hidden)) or 'linear'}, {num_parameters(net)} parameters",
        "replay": f"{o.replay.capacity} transitions, {size / 2**20:.1f} MiB when full{copied}",
        "updates": f"{trainer.total_updates(o.run.steps)} in {o.run.steps} environment steps",
        **world.describe(),
        **learner.update_step.describe(),
        "gradients": "closed form" if learner.closed_form else "autograd" + learner.how_recorded,
        "device": f"{trainer.device.type}, {precision}, {o.engine.threads} thread{'s' * (o.engine.threads > 1)}",
    }


def warnings(trainer: DqnTrainer) -> list[str]:
    """What the user should know before it begins."""
    o, found = trainer.options, [trainer.precision.note] if trainer.precision.note else []
    if not has_time_limit(trainer.make):
        found.append(
            f"{o.env.id} has no time limit: an evaluation ends only if its episodes do. Set one, for example "
            "--set env.max_episode_steps=1000"
        )
    if not trainer.world.alone and trainer.learner.closed_form:
        found.append(
            f"{trainer.world.size} processes are likely slower than one: on a CPU, exchanging gradients of so small "
            "a network takes longer than an update. They pay where the environment is slow."
        )
    if trainer.total_updates(o.run.steps) == 0:
        found.append(
            f"nothing will be learnt: dqn.learning_starts = {o.dqn.learning_starts} and dqn.train_every_steps = "
            f"{o.dqn.train_every_steps} leave no update in run.steps = {o.run.steps}."
        )
    return found
