"""How much memory there is, asked before it is taken."""

from __future__ import annotations

import os

from rlseq.errors import UsageError


def check_memory(needed: int, what: str, fix: str) -> None:
    """Refuse what this machine cannot hold.

    Args:
        needed: bytes.
        what: takes them, for the message.
        fix: what to do, for the message.

    Raises:
        UsageError: less is available.
    """
    available = available_memory()
    if available is not None and needed > available:
        raise UsageError(
            f"{what} takes {needed / 2**30:.2f} GiB, and {available / 2**30:.2f} GiB are free on this machine: {fix}."
        )


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, or None where the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
