"""How the processes of one training find each other: at torchrun's store, or at one that process 0 makes.

They meet in a part of it that no earlier attempt has written in. The agent's store outlives a restart, and torch (2.5
to 2.13 at least, pytorch#135712) gives the processes that are started anew the same one without a prefix: they read the
addresses of processes that are dead. The number of restarts is no prefix either, as the agents of several machines
count for themselves.

Waiting is done here and not in torch, so that a Ctrl-C ends it, and somebody says what is waited for.
"""

from __future__ import annotations

import math
import os
import re
import socket
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

from rlseq.errors import RlseqError
from rlseq.ranks import Place

_HERE, _ANSWER, _HEARD = "rlseq/here", "rlseq/answer", "rlseq/heard"
POLL_SECONDS = 0.02
WAIT_SECONDS = 600.0  # for all to come; options are not read yet
HELLO_SECONDS = 30.0
NOTE_SECONDS = 5.0  # after which process 0 says that it waits
Tell = Callable[[str], None]


def meet(place: Place, tell: Tell) -> None:
    """Make the process group of a training (gloo), as MASTER_ADDR and MASTER_PORT say where.

    Args:
        place: of this process.
        tell: takes what is worth a message meanwhile.

    Raises:
        RlseqError: the port is in use, or the others did not come or cannot be reached.
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        agent = _store(place, host, port)
        store = attempt_store(agent, place, WAIT_SECONDS, lambda rank: _tell_waiting(tell, rank, place, host, port))
        wait = timedelta(seconds=WAIT_SECONDS)
        dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.size, timeout=wait)
    except (
        RuntimeError,
        ValueError,
        OSError,
    ) as error:  # torch's own DistNetworkError, DistStoreError are RuntimeErrors
        taken = "EADDRINUSE" in str(error) or "address already in use" in str(error)
        fix = (
            "That port is in use: set MASTER_PORT (torchrun --master-port) to a free one, or let rlseq find one with "
            "--nproc."
            if taken
            else f"Start all {place.size} processes, with the same WORLD_SIZE, and let them reach that address."
        )
        who = f"process {place.rank} of {place.size}"
        raise RlseqError(f"{who} could not meet the others at {host}:{port}: {reason_of(error)}. {fix}") from None


def _tell_waiting(tell: Tell, rank: int, place: Place, host: str, port: int) -> None:
    tell(f"waiting for process {rank} of {place.size} (counted from 0) at {host}:{port}.")


def _store(place: Place, host: str, port: int) -> dist.TCPStore:
    mine = place.rank == 0 and not uses_agent_store()
    socket.getaddrinfo(host, port)  # a name that is none is told at once
    if not mine:
        _reach(host, port, time.monotonic() + WAIT_SECONDS)
    # What listens there answers soon, or is something else.
    store = dist.TCPStore(host, port, is_master=mine, timeout=timedelta(seconds=HELLO_SECONDS), wait_for_workers=False)
    store.set_timeout(timedelta(seconds=WAIT_SECONDS))
    return store


def _reach(host: str, port: int, deadline: float) -> None:
    """Until something listens there."""
    while True:
        try:
            socket.create_connection((host, port), 1.0).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(10 * POLL_SECONDS)


def reason_of(error: Exception) -> str:
    """The first sentence of torch's message, without the place in its source."""
    line = str(error).strip().partition("\n")[0]
    return re.sub(r"^\[\S+:\d+\]\s*", "", line).partition(". ")[0].removesuffix(".")


def uses_agent_store() -> bool:
    """Whether the store is torchrun's agent's, and not one that process 0 makes and that ends with it."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def attempt_store(
    agent: dist.Store, place: Place, seconds: float, note: Callable[[int], None] = lambda rank: None
) -> dist.Store:
    """The part of the agent's store that belongs to this attempt alone.

    Every other process leaves a new word, process 0 answers each word with one that it has made up, and each says that
    it has heard it. What earlier attempts have left is answered too, and nobody hears that.

    Args:
        agent: the store, which may hold what earlier attempts have written.
        place: of this process.
        seconds: how long to wait for the others.
        note: told of a process for which process 0 has waited for a while.

    Raises:
        RuntimeError: they did not come.
    """
    word, deadline = uuid.uuid4().hex, time.monotonic() + seconds
    if place.rank == 0:
        _answer(agent, word, set(range(1, place.size)), deadline, note)
    else:
        agent.set(f"{_HERE}/{place.rank}", word)
        while not agent.check([f"{_ANSWER}/{word}"]):
            _wait(0, deadline)
        word = agent.get(f"{_ANSWER}/{word}").decode()
        agent.set(f"{_HEARD}/{word}/{place.rank}", "")
    return dist.PrefixStore(f"rlseq/{word}", agent)


def _answer(agent: dist.Store, word: str, silent: set[int], deadline: float, note: Callable[[int], None]) -> None:
    """Tell the others the word of this attempt, until all have heard it."""
    note_at = time.monotonic() + NOTE_SECONDS
    while True:
        for rank in sorted(silent):
            if agent.check([f"{_HERE}/{rank}"]):
                agent.set(f"{_ANSWER}/{agent.get(f'{_HERE}/{rank}').decode()}", word)
            if agent.check([f"{_HEARD}/{word}/{rank}"]):
                silent.discard(rank)
        if not silent:
            return
        if time.monotonic() > note_at:
            note(min(silent))
            note_at = math.inf
        _wait(min(silent), deadline)


def _wait(rank: int, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RuntimeError(f"process {rank} did not come")
    time.sleep(POLL_SECONDS)
