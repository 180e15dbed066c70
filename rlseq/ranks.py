"""This process' place among those of one training, as torchrun's environment variables say it; and how many trainings
share the machine."""

from __future__ import annotations

import os
from typing import NamedTuple

from rlseq.errors import UsageError

JOBS = "RLSEQ_JOBS"


class Place(NamedTuple):
    """Which of how many, over all machines and on this one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def place_here() -> Place | None:
    """From RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; None without the first two. Set by hand, the last two may
    be missing: then all processes are on this machine.

    Raises:
        UsageError: a variable is missing, no number, or out of range.
    """
    if "RANK" not in os.environ and os.environ.get("WORLD_SIZE", "1") == "1":
        return None
    for name, other in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        if name not in os.environ:
            raise UsageError(
                f"{other} = {os.environ[other]} is set, {name} is not: start with torchrun or --nproc, which set both, "
                f"or unset {other} to train with one process."
            )
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    local_rank, local_size = _number("LOCAL_RANK", rank), _number("LOCAL_WORLD_SIZE", size)
    if not (0 <= rank < size and 0 <= local_rank < local_size):
        raise UsageError(
            f"RANK = {rank}, WORLD_SIZE = {size}, LOCAL_RANK = {local_rank}, LOCAL_WORLD_SIZE = {local_size}: ranks go "
            "from 0 to one less than the size. torchrun sets them; unset them to train with one process."
        )
    for name in ("MASTER_ADDR", "MASTER_PORT") if size > 1 else ():
        if not os.environ.get(name):
            raise UsageError(
                f"RANK = {rank} and WORLD_SIZE = {size} are set, {name} is not: start with torchrun or --nproc, which "
                "set them all, or unset RANK to train with one process."
            )
    if size > 1 and not 0 < _number("MASTER_PORT") < 2**16:
        raise UsageError(
            f"MASTER_PORT = {os.environ['MASTER_PORT']}: ports go from 1 to 65535. torchrun finds a free one."
        )
    return Place(rank, size, local_rank, local_size)


def rank_here() -> int:
    """Number of this process among those of one training; 0 if it is the only one."""
    place = place_here()
    return 0 if place is None else place.rank


def jobs_here() -> int:
    """How many trainings share this machine's cores, as whoever started them says in RLSEQ_JOBS; else 1.

    Raises:
        UsageError: it is no number, or 0.
    """
    jobs = _number(JOBS, 1)
    if jobs < 1:
        raise UsageError(f"the environment variable {JOBS} = 0: there is at least one training. Unset it.")
    return jobs


def _number(name: str, otherwise: int | None = None) -> int:
    text = os.environ.get(name)
    if text is None and otherwise is not None:
        return otherwise
    if text is None or not text.isdecimal() or len(text) > 9:
        raise UsageError(
            f"the environment variable {name} = {text!r} is no number: rlseq or torchrun sets it; unset it else."
        )
    return int(text)
