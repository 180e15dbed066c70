"""A policy from its plan to its use: the job of training one, and a trained run's network, score and export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rlseq import checkpoints, runs
from rlseq.dqn.config import DqnTraining
from rlseq.envs.make import FACTORY, MakeEnv, env_spec, maker, spaces_of, split_id
from rlseq.errors import require
from rlseq.files import sha256_file
from rlseq.parents import Terms, terms
from rlseq.resolve import read_policy_options
from rlseq.spec import PolicySpec
from rlseq.version import __version__

if TYPE_CHECKING:
    from rlseq.dqn.train import DqnTrainer
    from rlseq.engine.distributed import World
    from rlseq.engine.session import Session
    from rlseq.nets.network import QNetwork


class PolicyJob(NamedTuple):
    """A training of a policy as it was planned; see `rlseq.planning.Job`."""

    algorithm: str
    options: DqnTraining
    make: MakeEnv
    spec: PolicySpec

    @property
    def stem(self) -> str:
        """Beginning of a made-up run name."""
        return f"{self.options.env.id.removesuffix(FACTORY).replace('/', '-')}-{self.algorithm}"

    @property
    def facts(self) -> dict[str, Any]:
        """What the lineage says of this training."""
        return {"env_id": self.options.env.id}

    def check_parent(self, parent: runs.Run, *, new_head: bool = False) -> Terms:
        """See `rlseq.planning.Job`.

        Raises:
            UsageError: the run trained a sequence model, or a network of another kind.
        """
        return terms(parent, self.algorithm, self.options, ("head.",) if new_head else ())

    def trainer(self, world: World | None = None) -> DqnTrainer:
        """Environments, network and replay."""
        from rlseq.dqn.train import DqnTrainer
        from rlseq.engine.distributed import ALONE

        return DqnTrainer(self.options, self.spec, self.make, world or ALONE)

    def finish(self, trainer: DqnTrainer, session: Session, run: runs.Run, checkpoint: Path) -> dict[str, Any]:
        """Score and export the best weights."""
        trained, world = session.seconds, session.world
        net = world.together(lambda: load_network(self.options, self.spec, checkpoint))
        score = score_network(net, self.spec, self.make, self.options, world=world)
        scored = session.seconds
        if not world.first:
            return {}
        spec = spec_with(self.spec, run, checkpoint, score)
        parity = export_network(net, spec, run.exported, self.make)
        return {
            **score,
            "scoring_seconds": round(scored - trained, 3),
            "export_seconds": round(session.seconds - scored, 3),
            **export_record(run, checkpoint, parity),
        }


def plan_policy(options: DqnTraining, factory: MakeEnv | None, imports: Sequence[str]) -> PolicyJob:
    """Check environment and policy.

    Args:
        options: resolved.
        factory: makes the environment, if that is no gymnasium id.
        imports: modules that register it.
    """
    make = maker(env_spec(options.env), typed_imports=imports) if factory is None else factory
    leaves, action = spaces_of(make, options.env.id)
    spec = PolicySpec(
        rlseq_version=__version__, algorithm="dqn", env=env_spec(options.env), observation=leaves, action=action
    )
    return PolicyJob("dqn", options, make, spec)


def load_network(options: DqnTraining, spec: PolicySpec, checkpoint: Path) -> QNetwork:
    """The network of a checkpoint, on the CPU.

    Raises:
        CorruptFile: the checkpoint is damaged or of another network.
    """
    from rlseq.dqn.train import build_network
    from rlseq.engine.weights import load_arrays

    net = build_network(options, spec)
    load_arrays(
        net, checkpoints.read_arrays(checkpoint, checkpoints.read_manifest(checkpoint), "model"), str(checkpoint)
    )
    return net.eval()


def score_network(
    net: QNetwork,
    spec: PolicySpec,
    make: MakeEnv,
    options: DqnTraining,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    num_envs: int | None = None,
    world: World | None = None,
) -> dict[str, Any]:
    """Greedy episodes; by default those of the final score."""
    from rlseq.engine.device import cpu_settings
    from rlseq.engine.distributed import ALONE
    from rlseq.engine.shared_rollout import shared_rollout
    from rlseq.nets.policy import TorchPolicy

    seed = options.eval.final_seed if seed is None else seed
    with cpu_settings(options.engine.threads):
        played = shared_rollout(
            world or ALONE,
            TorchPolicy(net, spec),
            make,
            episodes=options.eval.final_episodes if episodes is None else episodes,
            seed=seed,
            num_envs=options.eval.num_envs if num_envs is None else num_envs,
            fresh=options.env.fresh,
        )
    return played.summary(seed, spec.env.id)


def export_network(
    net: QNetwork, spec: PolicySpec, path: Path, make: MakeEnv, opset: int | None = None
) -> dict[str, Any]:
    """Export with parity; see `rlseq.exporter.export.export_policy`."""
    require("onnx", "exporting")
    require("onnxscript", "exporting")
    from rlseq.exporter.export import export_policy

    return export_policy(net, spec, path, make, opset=opset)


class OpenedRun(NamedTuple):
    """A run made ready for use."""

    run: runs.Run
    options: DqnTraining
    spec: PolicySpec
    make: MakeEnv
    checkpoint: Path
    net: QNetwork


def open_trained(
    run: runs.Run, *, checkpoint: str = "best", imports: Sequence[str] = (), env: str | MakeEnv | None = None
) -> OpenedRun:
    """Network, options and environment of a run.

    Raises:
        UsageError, CorruptFile, NewerFormat, RlseqError
    """
    require("torch", f"loading the network of a run (its exported {run.exported} needs none: give that instead)")
    options = read_policy_options(run)
    where = run.checkpoint(str(checkpoint))
    spec_env = env_spec(options.env)
    if isinstance(env, str):
        env_id, more = split_id(env)
        imports = [*imports, *more]
        spec_env = msgspec.structs.replace(spec_env, id=env_id)
    make = env if callable(env) else maker(spec_env, typed_imports=imports)
    leaves, action = spaces_of(make, spec_env.id)
    spec = PolicySpec(rlseq_version=__version__, algorithm="dqn", env=spec_env, observation=leaves, action=action)
    return OpenedRun(run, options, spec, make, where, load_network(options, spec, where))


def spec_with(spec: PolicySpec, run: runs.Run, checkpoint: Path, score: Mapping[str, Any]) -> PolicySpec:
    """The spec as it goes into an exported file: with lineage and measured return."""
    lineage = [*run.lineage(), {"step": "export", "checkpoint": int(checkpoint.name), "rlseq_version": __version__}]
    kept = ("mean_return", "std_return", "min_return", "max_return", "episodes", "mean_length", "seed")
    return msgspec.structs.replace(spec, lineage=tuple(lineage), scores={key: score[key] for key in kept})


def export_record(run: runs.Run, checkpoint: Path, parity: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's summary says of its exported file."""
    file = run.exported
    return {
        "policy": {
            "file": file.name,
            "checkpoint": int(checkpoint.name),
            "bytes": file.stat().st_size,
            "sha256": sha256_file(file),
        },
        "parity": dict(parity),
    }
