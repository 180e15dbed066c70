"""A process of a training that runs in several: which one it is, and how it tells the launcher what came of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlseq.errors import UsageError
from rlseq.ranks import rank_here

# In the environment of a worker that `rlseq train --nproc` started: the file for its report, and the launcher.
REPORT, LAUNCHER = "RLSEQ_REPORT", "RLSEQ_LAUNCHER"
_SET_PDEATHSIG = 1  # of prctl(2)


def rank() -> int:
    """Which process of a training this one is; 0 where there is only one, or where torchrun's variables are wrong: that
    is for the training to say."""
    try:
        return rank_here()
    except UsageError:
        return 0


def hand_over(report: Mapping[str, Any]) -> bool:
    """Leave the launcher what this process ends with.

    Args:
        report: `{"summary": ...}`, or `{"error": ..., "exit_code": ..., "kind": ...}`.

    Returns:
        Whether there is a launcher, which then tells it; else that is left to the caller.
    """
    path = os.environ.get(REPORT)
    if path is None or _orphan():
        return False
    Path(path).write_text(json.dumps(report), encoding="utf-8")
    return True


def follow_launcher() -> None:
    """Let this worker be told with SIGTERM when its launcher dies without a word (Linux): it saves and stops."""
    if LAUNCHER not in os.environ or sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGTERM)
    if _orphan() and not Path(f"/proc/{os.environ[LAUNCHER]}").exists():  # it died before that
        sys.exit(128 + signal.SIGTERM)


def _orphan() -> bool:
    """Whether the launcher is gone, or this is not a worker but something that a worker has started."""
    return os.name == "posix" and os.environ.get(LAUNCHER, "") != str(os.getppid())
