"""Where the processes of one attempt meet: a part of torchrun's store that no earlier attempt has written in.

The agent's store outlives a restart, and torch (2.5 to 2.13 at least, pytorch#135712) gives the processes that are
started anew the same one without a prefix: they read the addresses of processes that are dead. The number of restarts
is no prefix either, as the agents of several machines count for themselves.
"""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta

import torch.distributed as dist

from rlseq.ranks import Place

_HERE, _ANSWER, _HEARD = "rlseq/here", "rlseq/answer", "rlseq/heard"
POLL_SECONDS = 0.02


def uses_agent_store() -> bool:
    """Whether the store is torchrun's agent's, and not one that process 0 makes and that ends with it."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def attempt_store(agent: dist.Store, place: Place, seconds: float) -> dist.Store:
    """The part of the agent's store that belongs to this attempt alone.

    Every other process leaves a new word, process 0 answers each word with one that it has made up, and each says that
    it has heard it. What earlier attempts have left is answered too, and nobody hears that.

    Args:
        agent: the store, which may hold what earlier attempts have written.
        place: of this process.
        seconds: how long to wait for the others.

    Raises:
        RuntimeError: they did not come (torch's own DistStoreError is one).
    """
    word = uuid.uuid4().hex
    if place.rank == 0:
        _answer(agent, word, set(range(1, place.size)), time.monotonic() + seconds)
    else:
        agent.set(f"{_HERE}/{place.rank}", word)
        agent.wait([f"{_ANSWER}/{word}"], timedelta(seconds=seconds))
        word = agent.get(f"{_ANSWER}/{word}").decode()
        agent.set(f"{_HEARD}/{word}/{place.rank}", "")
    return dist.PrefixStore(f"rlseq/{word}", agent)


def _answer(agent: dist.Store, word: str, silent: set[int], deadline: float) -> None:
    """Tell the others the word of this attempt, until all have heard it."""
    while True:
        for rank in sorted(silent):
            if agent.check([f"{_HERE}/{rank}"]):
                agent.set(f"{_ANSWER}/{agent.get(f'{_HERE}/{rank}').decode()}", word)
            if agent.check([f"{_HEARD}/{word}/{rank}"]):
                silent.discard(rank)
        if not silent:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {min(silent)} did not come")
        time.sleep(POLL_SECONDS)
