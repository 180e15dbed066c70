"""Ctrl-C, SIGTERM, and a terminal that is closed: finish the update, save, say how to go on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last one is not everywhere


class SignalReceived(KeyboardInterrupt):
    """One of these signals, where it must act at once."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class StopSignals:
    """While active, a first signal only sets `received`; a second one raises `SignalReceived`. One that is ignored, as
    SIGHUP under `nohup`, stays so.

    Args:
        at_once: the first one raises too.

    Outside the main thread, where Python allows no handlers, it does nothing.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self.received: int | None = None
        self._at_once = at_once
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for signum in (getattr(signal, name) for name in NAMES if hasattr(signal, name)):
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._before[signum] = signal.signal(signum, self._handle)
        return self

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._at_once or self.received is not None:
            raise SignalReceived(signum)
        self.received = signum

    @contextlib.contextmanager
    def instead_of(self, failure: type[Exception]) -> Iterator[None]:
        """Raise `SignalReceived` in place of a failure, if there was a signal: a terminal's Ctrl-C also reaches the
        programs that were started, and one that it ended has not failed for a reason of its own."""
        try:
            yield
        except failure:
            if self.received is None:
                raise
            raise SignalReceived(self.received) from None

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before = {}
