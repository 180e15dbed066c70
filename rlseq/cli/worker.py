"""A process of a training that runs in several: which one it is, and how it tells the launcher what came of it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlseq.errors import UsageError
from rlseq.events import Callback, Event
from rlseq.ranks import rank_here

# In the environment of a worker that `rlseq train --nproc` started: the file for its report, and the launcher.
REPORT, LAUNCHER = "RLSEQ_REPORT", "RLSEQ_LAUNCHER"
LOOK_SECONDS = 1.0


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
        report: `{"summary": ...}`, or `{"error": ..., "exit_code": ..., "kind": ...}`; before that `{"pid": ...}` and
            `{"run": ...}`, which stay.

    Returns:
        Whether there is a launcher, which then tells it; else that is left to the caller.
    """
    name = os.environ.get(REPORT)
    if name is None or _orphan():
        return False
    path = Path(name)
    before = read_report(path) if path.exists() else {}
    if "error" not in before:  # the first one counts: a second Ctrl-C may come while it is being told
        path.write_text(json.dumps({**before, **report}), encoding="utf-8")
    return True


def read_report(path: Path) -> dict[str, Any]:
    """What a process has handed over; nothing if it was killed while it wrote."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return {}


def callbacks() -> list[Callback]:
    """In a worker: a callback by which the launcher knows the run to go on with, should this process be killed."""

    def hand_over_run(event: Event) -> None:
        if event.kind == "checkpoint":
            hand_over({"run": str(Path(event.data["path"]).parents[1])})

    return [hand_over_run] if REPORT in os.environ else []


def follow_launcher() -> None:
    """Tell the launcher which process this is, and stop when it dies without a word: as after a SIGTERM, after saving.

    Linux' own signal for that, of prctl(2), comes once for each thread of the launcher, and a second one would stop the
    worker at once.
    """
    if LAUNCHER in os.environ and not _orphan():
        hand_over({"pid": os.getpid()})
        threading.Thread(target=_watch_launcher, daemon=True).start()


def _watch_launcher() -> None:
    while not _orphan():
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _orphan() -> bool:
    """Whether the launcher is gone, or this is not a worker but something that a worker has started."""
    return os.name == "posix" and os.environ.get(LAUNCHER, "") != str(os.getppid())
