"""One process at a time: a folder is claimed by a lock on a file in it, which goes with the process however it ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from rlseq.errors import RlseqError
from rlseq.files import explained

try:
    import fcntl
except ImportError:  # Windows: no lock there
    fcntl = None  # type: ignore[assignment]


def claimed(folder: Path) -> IO[str]:
    """Claim the folder of a training until the returned file is closed, or this process ends.

    Raises:
        RlseqError: another process has claimed it, or there are no locks on this disk.
    """
    path = folder / ".lock"
    with explained(path, "write"):
        file = open(path, "a+")  # noqa: SIM115 - held open on purpose
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip()
        file.close()
        raise RlseqError(
            f"{folder} is being trained by another process ({owner}). Wait for it, or stop it first."
        ) from None
    except OSError as error:
        file.close()
        raise RlseqError(
            f"cannot lock {path}: {error.strerror}. Set RLSEQ_RUNS to a folder on a disk with locks."
        ) from None
    file.truncate(0)
    file.write(f"process {os.getpid()}")
    file.flush()
    return file
