"""Options of the environment."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from rlseq.fields import Options


class EnvOptions(Options, frozen=True, kw_only=True):
    """Which environment, and how many of it."""

    id: Annotated[str, Meta(description="gymnasium id (CartPole-v1), or module:Env-v0 for your own")] = ""
    kwargs: Annotated[dict[str, Any], Meta(description="arguments of the environment's constructor")] = {}  # noqa: RUF012
    imports: Annotated[
        tuple[str, ...], Meta(description="modules that register the environment; only ever typed by the user")
    ] = ()
    num_envs: Annotated[int, Meta(description="environments stepped side by side", ge=1, le=65_536)] = 1
    max_episode_steps: Annotated[
        Annotated[int, Meta(gt=0)] | None, Meta(description="time limit of an episode; none: the environment's own")
    ] = None
    fresh: Annotated[
        bool, Meta(description="make a new environment for every episode, for those whose reset depends on the past")
    ] = False


class EvalOptions(Options, frozen=True, kw_only=True):
    """Evaluation during training, at its end, and what it decides."""

    every: Annotated[int, Meta(description="environment steps between evaluations", gt=0)] = 2_500
    episodes: Annotated[int, Meta(description="greedy episodes per evaluation", ge=1, le=1_000_000)] = 20
    num_envs: Annotated[int, Meta(description="environments of an evaluation", ge=1, le=65_536)] = 10
    seed: Annotated[
        int, Meta(description="evaluations choose the best checkpoint by episodes f(seed, i)", ge=0, le=2**53)
    ] = 1_000_000
    final_episodes: Annotated[
        int, Meta(description="episodes of the final score, of the best checkpoint", ge=1, le=1_000_000)
    ] = 100
    final_seed: Annotated[
        int, Meta(description="seed of the final score's episodes, which no selection has seen", ge=0, le=2**53)
    ] = 0
    target: Annotated[float | None, Meta(description="stop once an evaluation's mean return reaches this")] = None
    patience: Annotated[
        Annotated[int, Meta(gt=0)] | None, Meta(description="stop after this many evaluations without improvement")
    ] = None

    def __post_init__(self) -> None:
        if self.seed == self.final_seed:
            raise ValueError(
                f"eval.seed and eval.final_seed are both {self.seed}: the final score would use the episodes that "
                "chose the checkpoint. Give them different values."
            )
