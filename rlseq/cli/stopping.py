"""Signals to a launcher: the first one lets the workers save, a second one ends them, whatever they do.

torchrun's agent passes a first signal on and then waits, for as long as it is told to. It cannot know that a worker
will never answer (it is stopped, or hangs in code of its own), nor what a second Ctrl-C means.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

KILL_SECONDS = 5.0  # from a second signal to the kill of what has not ended
STRAGGLER_SECONDS = 60.0  # likewise, from the end of the first worker after a signal: they save together
POLL_SECONDS = 0.1


class Stopping:
    """A signal handler in the place of the agent's.

    Args:
        pids: of the workers that run, each the leader of its process group.
        stop: makes what the agent raises at a signal.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], stop: Callable[[signal.Signals], Exception]) -> None:
        self._pids, self._stop = pids, stop
        self._first: signal.Signals | None = None
        self._second_at: float | None = None

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Raise at the first signal, as the agent does; pass a later one on to the workers, as the first one."""
        if self._first is None:
            self._first = signal.Signals(signum)
            threading.Thread(target=self._see_through, daemon=True).start()
            raise self._stop(self._first)
        if self._second_at is None:
            self._second_at = time.monotonic()
            _signal(self._pids(), self._first)

    def _see_through(self) -> None:
        """Kill what does not end."""
        ended_at: float | None = None
        while running := [pid for pid in self._pids() if not _has_ended(pid)]:
            now = time.monotonic()
            if len(running) < len(list(self._pids())):
                ended_at = ended_at or now
            late = ended_at is not None and now - ended_at > STRAGGLER_SECONDS
            if late or (self._second_at is not None and now - self._second_at > KILL_SECONDS):
                _signal(running, signal.SIGKILL)
                return
            time.sleep(POLL_SECONDS)


def _signal(pids: Iterable[int], signum: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            os.killpg(pid, signum)


def _has_ended(pid: int) -> bool:
    """Whether a child has, without taking its exit code away from whoever waits for it."""
    waitid: Any = getattr(os, "waitid", None)
    try:
        if waitid is None:
            os.kill(pid, 0)
            return False
        return waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:
        return True
