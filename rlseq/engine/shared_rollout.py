"""Evaluation episodes shared out among the processes of a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlseq.engine.distributed import World
from rlseq.envs.make import MakeEnv
from rlseq.player.rollout import Abandoned, Rollout, rollout
from rlseq.spec import Policy


def shared_rollout(
    world: World,
    policy: Policy[Any],
    make: MakeEnv,
    *,
    episodes: int,
    should_stop: Callable[[], bool] | None = None,
    **arguments: Any,
) -> Rollout:
    """As `rlseq.player.rollout.rollout`, each process playing every n-th episode; all get the whole result.

    An episode's seed depends on its number alone, so the result is that of one process.

    Raises:
        Abandoned: in all processes, if one of them was told to stop.
    """
    share = (world.rank, world.size)
    try:
        own = rollout(policy, make, episodes=episodes, should_stop=should_stop, share=share, **arguments)
    except Abandoned:
        own = None
    if world.alone:
        if own is None:
            raise Abandoned
        return own
    played = world.gather(None if own is None else [own.returns.tolist(), own.lengths.tolist(), own.seconds])
    if None in played:
        raise Abandoned
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    for rank, (some_returns, some_lengths, _) in enumerate(played):
        returns[rank :: world.size], lengths[rank :: world.size] = some_returns, some_lengths
    return Rollout(returns, lengths, max(seconds for *_, seconds in played), int(lengths.sum()))
