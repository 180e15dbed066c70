"""Options of DQN, and the whole tree of a DQN training."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rlseq.config import RunOptions
from rlseq.engine.config import EngineOptions, OptimOptions
from rlseq.envs.config import EnvOptions, EvalOptions
from rlseq.fields import Options
from rlseq.nets.config import NetOptions
from rlseq.replay.config import ReplayOptions


class DqnOptions(Options, frozen=True, kw_only=True):
    """Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236)."""

    gamma: Annotated[float, Meta(description="discount of a step", ge=0, le=1)] = 0.99
    n_step: Annotated[
        int, Meta(description="rewards summed before the target bootstraps (arXiv 1710.02298)", ge=1, le=1_000)
    ] = 1
    double: Annotated[
        bool, Meta(description="Double DQN: the online network chooses the next action (arXiv 1509.06461)")
    ] = True
    loss: Annotated[Literal["huber", "mse"], Meta(description="loss of the temporal-difference error")] = "huber"
    target_update: Annotated[
        Literal["hard", "soft"], Meta(description="hard: copy now and then; soft: mix a little after every update")
    ] = "hard"
    target_sync_steps: Annotated[
        int, Meta(description="hard: environment steps between copies to the target network", gt=0)
    ] = 1_000
    tau: Annotated[
        float, Meta(description="soft: share of the online weights mixed in after an update", gt=0, le=1)
    ] = 0.005
    epsilon_start: Annotated[float, Meta(description="chance of a random action at the start", ge=0, le=1)] = 1.0
    epsilon_end: Annotated[float, Meta(description="chance of a random action after the exploration", ge=0, le=1)] = (
        0.05
    )
    exploration_fraction: Annotated[
        float, Meta(description="share of the run over which epsilon falls linearly", ge=0, le=1)
    ] = 0.2
    learning_starts: Annotated[int, Meta(description="environment steps before the first update", ge=0)] = 1_000
    train_every_steps: Annotated[int, Meta(description="environment steps between two bursts of updates", gt=0)] = 4
    updates_per_train: Annotated[int, Meta(description="updates in a burst", ge=1, le=100_000)] = 1


class DqnTraining(Options, frozen=True, kw_only=True):
    """Everything that decides a DQN training."""

    run: RunOptions = RunOptions()
    env: EnvOptions = EnvOptions()
    net: NetOptions = NetOptions()
    replay: ReplayOptions = ReplayOptions()
    optim: OptimOptions = OptimOptions()
    engine: EngineOptions = EngineOptions()
    eval: EvalOptions = EvalOptions()
    dqn: DqnOptions = DqnOptions()

    def __post_init__(self) -> None:
        if self.optim.schedule == "plateau":
            raise ValueError(
                "optim.schedule = plateau waits for a validation loss, which DQN does not have. Take another schedule: "
                "linear, cosine, wsd."
            )
        if self.optim.ema is not None:
            raise ValueError(
                f"optim.ema = {self.optim.ema}: DQN does not average its weights, it has a target network. Set it to "
                "none (a slower target: dqn.target_update=soft)."
            )
