"""DQN training: the loop, and what it consists of."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from rlseq.dqn import state
from rlseq.dqn.actor import EpsilonGreedy, epsilon_at, mirrored_values
from rlseq.dqn.config import DqnTraining
from rlseq.dqn.describe import describe, warnings
from rlseq.dqn.learner import STATISTICS, DqnLearner
from rlseq.engine.checkpoint import Arrays, Snapshot
from rlseq.engine.device import choose_device, choose_precision, works_apart
from rlseq.engine.distributed import ALONE, World
from rlseq.engine.inheritance import Inherited, inherit
from rlseq.engine.metrics import Means
from rlseq.engine.recording import recorder_for
from rlseq.engine.session import Session, due
from rlseq.engine.shared_rollout import shared_rollout
from rlseq.engine.trainee import Curves, Evaluation
from rlseq.engine.transfer import WeightMirror
from rlseq.envs.batch import EnvBatch, Episode
from rlseq.envs.make import MakeEnv
from rlseq.envs.seeding import EXPLORATION, REPLAY, WEIGHTS, derived_seed, generator, training_seed
from rlseq.errors import NonFiniteLoss, UsageError
from rlseq.memory import check_memory
from rlseq.nets.network import QNetwork, seeded
from rlseq.nets.policy import TorchPolicy
from rlseq.nets.values import value_function
from rlseq.player.rollout import Abandoned
from rlseq.replay.device import DeviceReplay, fits
from rlseq.replay.uniform import UniformReplay
from rlseq.spec import PolicySpec

UNREAD_UPDATES = 256  # of earlier bursts, whose statistics may wait on a GPU


class DqnTrainer:
    """Environments, actor, replay and learner of one run.

    Each of several processes has environments and a replay memory of its own, with random streams of its own, and
    learns from its share of every batch; gradients are summed, so that all have the same weights.

    Args:
        options: everything that decides the training.
        spec: of the policy that is trained.
        make: makes an environment.
        world: the processes that train together.

    Attributes:
        step: environment steps done, over all processes.
        learner, replay, actor, envs: its parts.
        make: makes an environment.
        memory: the replay memory that batches come from: `replay`, or a copy of it on a GPU.
        mirror: the weights acted with, where they are not the network's own.
        means: of the curves, of this process.
        replay_rng: draws from the replay memory.
    """

    step_rate = "time/env_steps_per_second"

    def __init__(self, options: DqnTraining, spec: PolicySpec, make: MakeEnv, world: World = ALONE) -> None:
        check_shares(options, world.size)
        run, self.options, self.spec, self.make, self.world = options.run, options, spec, make, world
        self.device = choose_device(options.engine, world.local_rank)
        self.precision = choose_precision(options.engine.amp, self.device)
        self.horizon = run.horizon or run.steps
        net = build_network(options, spec).to(self.device)
        total_updates = self.total_updates(self.horizon)
        apart = works_apart(self.device)
        self.learner = DqnLearner(
            net,
            options,
            total_updates=total_updates,
            precision=self.precision,
            world=world,
            recorder=recorder_for(self.device, wanted=options.engine.graphs),
            unread=UNREAD_UPDATES if apart else 0,
        )
        capacity = options.replay.capacity // world.size
        self.replay = UniformReplay(capacity, spec.observation, options.dqn.n_step, options.env.num_envs)
        self.replay_rng = generator(REPLAY, run.seed, world.rank)
        self.memory = DeviceReplay(self.replay, self.device) if fits(self.replay, self.device) else self.replay
        self.mirror: WeightMirror | None = None
        if apart:
            values, self.mirror = mirrored_values(net, self.learner.update_step.flat, options.env.num_envs)
        else:
            values = value_function(net, options.env.num_envs)
        self.actor = EpsilonGreedy(values, spec.action.n, generator(EXPLORATION, run.seed, world.rank))
        self.envs = EnvBatch(
            make,
            options.env.num_envs,
            spec.observation,
            action_start=spec.action.start,
            seed_of=lambda env, episode: training_seed(run.seed, world.rank, env, episode),
            fresh=options.env.fresh,
        )
        self.means = Means()
        self.step = 0

    def total_updates(self, steps: int) -> int:
        """Updates in `steps` environment steps."""
        o = self.options.dqn
        first = max(0, o.learning_starts - 1)
        return due(min(first, steps), steps, o.train_every_steps) * o.updates_per_train

    def loop(self, session: Session) -> None:
        """Act, remember, learn, until the session ends."""
        o, envs, learner, replay = self.options.dqn, self.envs, self.learner, self.replay
        num_steps, gamma, step = envs.num_envs * self.world.size, np.float32(o.gamma), session.step
        while session.running:
            actions = self.actor.act(envs.obs, epsilon_at(o, step, self.horizon))
            moved = envs.step(actions)
            discount = np.where(moved.terminated, np.float32(0), gamma)
            ended = moved.terminated | moved.truncated
            replay.add(moved.obs, actions, moved.reward, discount, moved.next_obs, ended)
            before, step = step, step + num_steps
            self.step = step
            self._count_episodes(moved.finished)
            if o.target_update == "hard" and due(before, step, o.target_sync_steps):
                learner.sync_target()
            if step >= o.learning_starts:
                for _ in range(due(max(before, o.learning_starts - 1), step, o.train_every_steps)):
                    self._count_updates(self._burst(step))
            session.advance(num_steps)

    def _burst(self, step: int) -> np.ndarray:
        with self._diverged(step):
            rows = self.learner.burst(self.memory, self.replay_rng, self.options.dqn.updates_per_train)
        if self.mirror is not None:
            self.mirror.after_burst()
        return rows

    def read(self) -> None:
        """Count the updates whose statistics still wait on a GPU."""
        with self._diverged(self.step):
            rows = self.learner.read()
        if len(rows):
            self._count_updates(rows)

    @contextlib.contextmanager
    def _diverged(self, step: int) -> Iterator[None]:
        """Say what to do if a loss is no number."""
        try:
            yield
        except NonFiniteLoss as error:
            raise NonFiniteLoss(
                f"at environment step {step}, {error}: the training has diverged. The last checkpoint is untouched. "
                f"Start again with a smaller learning rate (--lr {self.options.optim.lr / 10:g}), or clip gradients "
                "(--set optim.clip_norm=1)."
            ) from None

    def _count_episodes(self, finished: Sequence[Episode]) -> None:
        for episode in finished:
            self.means.add("train/return", episode.episode_return)
            self.means.add("train/episode_length", episode.length)

    def _count_updates(self, rows: np.ndarray) -> None:
        totals = rows.sum(axis=0).tolist()
        for name, total in zip(STATISTICS, totals, strict=True):
            self.means.add(f"train/{name}", total, len(rows))

    def curves(self) -> Curves:
        """Points of the curves since the last call."""
        self.read()
        means = Means.merged(self.world.gather(self.means.state()))
        self.means.drain()
        updates = means.count("train/loss") / self.world.size
        points = {
            **means.drain(),
            "train/epsilon": epsilon_at(self.options.dqn, self.step, self.horizon),
            "train/lr": self.learner.update_step.lr,
            **({"amp/skipped": float(self.learner.update_step.skipped)} if self.precision.scaled else {}),
        }
        return Curves(points, {"time/updates_per_second": updates})

    def evaluate(self, should_stop: Callable[[], bool] | None = None) -> Evaluation | None:
        """Greedy episodes in environments of their own, with seeds of their own; None if told to stop."""
        o = self.options.eval
        policy = TorchPolicy(self.learner.net, self.spec)
        try:
            played = shared_rollout(
                self.world,
                policy,
                self.make,
                episodes=o.episodes,
                seed=o.seed,
                num_envs=o.num_envs,
                fresh=self.options.env.fresh,
                should_stop=should_stop,
            )
        except Abandoned:
            return None
        mean = float(played.returns.mean())
        return Evaluation(mean, {"eval/return_mean": mean, "eval/return_std": float(played.returns.std())})

    def model(self) -> Arrays:
        """The online network's weights."""
        return self.learner.model()

    def snapshot(self) -> Snapshot:
        """Everything from which `load` goes on exactly."""
        return state.snapshot(self)

    def load_weights(self, arrays: Arrays, parent: str, *, anew: Sequence[str] = (), fix: str = "") -> Inherited:
        """Begin with these weights, as far as they fit; see `rlseq.engine.inheritance.inherit`."""
        inherited = inherit(self.learner.net, arrays, parent, anew=anew, fix=fix)
        self.learner.sync_target()
        if self.mirror is not None:
            self.mirror.restart()
        return inherited

    @property
    def updates(self) -> int:
        """Updates done."""
        return self.learner.update_step.updates

    def warnings(self) -> list[str]:
        """What the user should know before it begins."""
        return warnings(self)

    def load(self, checkpoint: Path, manifest: Mapping[str, Any]) -> list[str]:
        """Go on from a checkpoint.

        Args:
            checkpoint: its folder.
            manifest: its numbers and checksums.

        Returns:
            What could not be rebuilt: a half-played episode begun anew (only with `run.inexact_resume`), or all of them
            with another number of processes than before.

        Raises:
            CorruptFile, ResumeMismatch
        """
        renewed = state.load(self, checkpoint, manifest)
        self.step = int(manifest["step"])
        return renewed

    def describe(self) -> dict[str, str]:
        """What is about to run, as label -> text."""
        return describe(self)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()


def check_shares(options: DqnTraining, processes: int) -> None:
    """See that every process has something of what they share.

    Raises:
        UsageError: more processes than transitions.
    """
    for path, value, flag in (
        ("replay.batch_size", options.replay.batch_size, "--batch-size "),
        ("replay.capacity", options.replay.capacity, "--set replay.capacity="),
    ):
        if processes > value:
            raise UsageError(
                f"{processes} processes cannot share {path} = {value} transitions: each needs at least one. Give "
                f"{flag}{processes} or more, or start fewer processes."
            )


def build_network(options: DqnTraining, spec: PolicySpec) -> QNetwork:
    """The Q-network of a run, with the initial weights of its seed, on the CPU."""
    seed = derived_seed(WEIGHTS, options.run.seed)
    widths = [sum(leaf.width for leaf in spec.observation), *options.net.hidden, spec.action.n]
    parameters = sum(a * b for a, b in itertools.pairwise(widths))
    check_memory(
        8 * 4 * parameters, f"training the network {widths}", "make net.hidden smaller"
    )  # weights, moments ...
    return cast(QNetwork, seeded(seed, lambda: QNetwork(spec.observation, spec.action.n, options.net)))
