"""DQN training: the loop, and what it consists of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import numpy as np
from msgspec import Meta

from rlseq.checkpoints import REPLAY as REPLAY_FILE
from rlseq.checkpoints import read_arrays
from rlseq.dqn.actor import EpsilonGreedy, epsilon_at
from rlseq.dqn.config import DqnTraining
from rlseq.dqn.learner import STATISTICS, DqnLearner
from rlseq.engine.checkpoint import Arrays, Snapshot
from rlseq.engine.device import choose_device, choose_precision
from rlseq.engine.metrics import Means
from rlseq.engine.session import Curves, Evaluation, Session, due
from rlseq.engine.update import UNFIT
from rlseq.envs.batch import EnvBatch, Episode
from rlseq.envs.make import MakeEnv, has_time_limit
from rlseq.envs.seeding import EXPLORATION, REPLAY, WEIGHTS, derived_seed, generator, training_seed
from rlseq.errors import CorruptFile, NonFiniteLoss
from rlseq.memory import check_memory
from rlseq.nets.network import QNetwork, num_parameters, seeded
from rlseq.nets.policy import TorchPolicy
from rlseq.nets.values import value_function
from rlseq.player.rollout import Abandoned, rollout
from rlseq.replay.uniform import UniformReplay, replay_bytes
from rlseq.spec import PolicySpec


class _LearnerNumbers(msgspec.Struct):
    updates: Annotated[int, Meta(ge=0)]
    skipped: Annotated[int, Meta(ge=0)]
    scaler: dict[str, float]


class TrainerNumbers(msgspec.Struct):
    """A DQN trainer's part of a checkpoint's numbers."""

    learner: _LearnerNumbers
    replay: dict[str, Annotated[int, Meta(ge=0)]]
    means: dict[str, tuple[float, float]]
    exploration_rng: dict[str, Any]
    replay_rng: dict[str, Any]


class DqnTrainer:
    """Environments, actor, replay and learner of one run.

    Args:
        options: everything that decides the training.
        spec: of the policy that is trained.
        make: makes an environment.
    """

    step_rate = "time/env_steps_per_second"

    def __init__(self, options: DqnTraining, spec: PolicySpec, make: MakeEnv) -> None:
        run, self.options, self.spec, self._make = options.run, options, spec, make
        self.device = choose_device(options.engine)
        self.precision = choose_precision(options.engine.amp, self.device)
        self.horizon = run.horizon or run.steps
        net = build_network(options, spec).to(self.device)
        self.learner = DqnLearner(
            net, options, total_updates=self.total_updates(self.horizon), precision=self.precision
        )
        self.replay = UniformReplay(options.replay.capacity, spec.observation, options.dqn.n_step, options.env.num_envs)
        self._replay_rng = generator(REPLAY, run.seed)
        self.actor = EpsilonGreedy(
            value_function(net, options.env.num_envs), spec.action.n, generator(EXPLORATION, run.seed)
        )
        self.envs = EnvBatch(
            make,
            options.env.num_envs,
            spec.observation,
            action_start=spec.action.start,
            seed_of=lambda env, episode: training_seed(run.seed, 0, env, episode),
            fresh=options.env.fresh,
        )
        self._means = Means()
        self._step = 0

    def total_updates(self, steps: int) -> int:
        """Updates in `steps` environment steps."""
        o = self.options.dqn
        first = max(0, o.learning_starts - 1)
        return due(min(first, steps), steps, o.train_every_steps) * o.updates_per_train

    def loop(self, session: Session) -> None:
        """Act, remember, learn, until the session ends."""
        o, envs, learner, replay = self.options.dqn, self.envs, self.learner, self.replay
        num_envs, gamma, step = envs.num_envs, np.float32(o.gamma), session.step
        while session.running:
            actions = self.actor.act(envs.obs, epsilon_at(o, step, self.horizon))
            moved = envs.step(actions)
            discount = np.where(moved.terminated, np.float32(0), gamma)
            ended = moved.terminated | moved.truncated
            replay.add(moved.obs, actions, moved.reward, discount, moved.next_obs, ended)
            before, step = step, step + num_envs
            self._step = step
            self._count_episodes(moved.finished)
            if o.target_update == "hard" and due(before, step, o.target_sync_steps):
                learner.sync_target()
            if step >= o.learning_starts:
                for _ in range(due(max(before, o.learning_starts - 1), step, o.train_every_steps)):
                    self._count_updates(self._burst(step))
            session.advance(num_envs)

    def _burst(self, step: int) -> np.ndarray:
        try:
            return self.learner.burst(self.replay, self._replay_rng, self.options.dqn.updates_per_train)
        except NonFiniteLoss as error:
            raise NonFiniteLoss(
                f"at environment step {step}, {error}: the training has diverged. The last checkpoint is untouched. "
                f"Start again with a smaller learning rate (--lr {self.options.optim.lr / 10:g}), or clip gradients "
                "(--set optim.clip_norm=1)."
            ) from None

    def _count_episodes(self, finished: Sequence[Episode]) -> None:
        for episode in finished:
            self._means.add("train/return", episode.episode_return)
            self._means.add("train/episode_length", episode.length)

    def _count_updates(self, rows: np.ndarray) -> None:
        totals = rows.sum(axis=0).tolist()
        for name, total in zip(STATISTICS, totals, strict=True):
            self._means.add(f"train/{name}", total, len(rows))

    def curves(self) -> Curves:
        """Points of the curves since the last call."""
        updates = self._means.count("train/loss")
        points = {
            **self._means.drain(),
            "train/epsilon": epsilon_at(self.options.dqn, self._step, self.horizon),
            "train/lr": self.learner.update_step.lr,
            **({"amp/skipped": float(self.learner.update_step.skipped)} if self.precision.scaled else {}),
        }
        return Curves(points, {"time/updates_per_second": updates})

    def evaluate(self, should_stop: Callable[[], bool] | None = None) -> Evaluation | None:
        """Greedy episodes in environments of their own, with seeds of their own; None if told to stop."""
        o = self.options.eval
        policy = TorchPolicy(self.learner.net, self.spec)
        try:
            played = rollout(
                policy,
                self._make,
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
        learner_arrays, learner_numbers = self.learner.state()
        replay_arrays, replay_numbers = self.replay.state()
        env_arrays = {f"envs.{name}": array for name, array in self.envs.state().items()}
        numbers = {
            "learner": learner_numbers,
            "replay": replay_numbers,
            "means": self._means.state(),
            "exploration_rng": _rng_state(self.actor.rng),
            "replay_rng": _rng_state(self._replay_rng),
        }
        return Snapshot(self.model(), {**learner_arrays, **env_arrays}, replay_arrays, numbers)

    def load_weights(self, arrays: Arrays, where: str) -> None:
        """Begin with these weights."""
        self.learner.load_model(arrays, where)

    @property
    def updates(self) -> int:
        """Updates done."""
        return self.learner.update_step.updates

    def warnings(self) -> list[str]:
        """What the user should know before it begins."""
        o, found = self.options, [self.precision.note] if self.precision.note else []
        if not has_time_limit(self._make):
            found.append(
                f"{o.env.id} has no time limit: an evaluation ends only if its episodes do. Set one, for example "
                "--set env.max_episode_steps=1000"
            )
        if self.total_updates(o.run.steps) == 0:
            found.append(
                f"nothing will be learnt: dqn.learning_starts = {o.dqn.learning_starts} and dqn.train_every_steps = "
                f"{o.dqn.train_every_steps} leave no update in run.steps = {o.run.steps}."
            )
        return found

    def load(self, checkpoint: Path, manifest: Mapping[str, Any]) -> list[str]:
        """Go on from a checkpoint.

        Args:
            checkpoint: its folder.
            manifest: its numbers and checksums.

        Returns:
            What could not be rebuilt: a half-played episode begun anew (only with `run.inexact_resume`).

        Raises:
            CorruptFile, ResumeMismatch
        """
        numbers, where = manifest["numbers"], str(checkpoint)
        trainer = read_arrays(checkpoint, manifest, "trainer")
        self.learner.load_model(read_arrays(checkpoint, manifest, "model"), where)
        try:
            msgspec.convert(dict(numbers), TrainerNumbers)
            self.learner.load_state(trainer, numbers["learner"], where)
            stored = read_arrays(checkpoint, manifest, REPLAY_FILE, self.replay.slot)
            self.replay.restore(numbers["replay"], stored)
            _check_transitions(stored, self.spec.action.n)
            self._means.load(numbers["means"])
            self.actor.rng.bit_generator.state = numbers["exploration_rng"]
            self._replay_rng.bit_generator.state = numbers["replay_rng"]
            self._step = int(manifest["step"])
        except UNFIT as error:
            raise _unfit(checkpoint, f"{type(error).__name__}: {error}") from None
        state = {name.removeprefix("envs."): a for name, a in trainer.items() if name.startswith("envs.")}
        try:
            renewed = self.envs.load(state, inexact=self.options.run.inexact_resume)
        except CorruptFile as error:
            raise _unfit(checkpoint, str(error).removesuffix(".")) from None
        return [f"environment {i} began a new episode" for i in renewed]

    def describe(self) -> dict[str, str]:
        """What is about to run, as label -> text."""
        o, net = self.options, self.learner.net
        size = replay_bytes(o.replay.capacity, self.spec.observation, o.dqn.n_step)
        precision = str(self.precision.dtype or "float32").removeprefix("torch.")
        return {
            "environment": f"{o.env.id}, {o.env.num_envs} in parallel" if o.env.num_envs > 1 else o.env.id,
            "network": f"{o.net.core} {'-'.join(map(str, o.net.hidden)) or 'linear'}, {num_parameters(net)} parameters",
            "replay": f"{o.replay.capacity} transitions, {size / 2**20:.1f} MiB when full",
            "updates": f"{self.total_updates(o.run.steps)} in {o.run.steps} environment steps",
            "gradients": "closed form" if self.learner.closed_form else "autograd",
            "device": f"{self.device.type}, {precision}, {o.engine.threads} thread{'s' * (o.engine.threads > 1)}",
        }

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()


def build_network(options: DqnTraining, spec: PolicySpec) -> QNetwork:
    """The Q-network of a run, with the initial weights of its seed, on the CPU."""
    seed = derived_seed(WEIGHTS, options.run.seed)
    widths = [sum(leaf.width for leaf in spec.observation), *options.net.hidden, spec.action.n]
    parameters = sum(a * b for a, b in itertools.pairwise(widths))
    check_memory(
        8 * 4 * parameters, f"training the network {widths}", "make net.hidden smaller"
    )  # weights, moments ...
    return cast(QNetwork, seeded(seed, lambda: QNetwork(spec.observation, spec.action.n, options.net)))


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
