"""Where the time of a run goes: calls are timed by wrapping them, each second counted once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any


class Stopwatch:
    """Exclusive times by name: while a wrapped call runs inside another, the outer one's time stands still.

    Args:
        names: everything that may be measured; what never happened counts 0.
        clock: gives seconds.
    """

    def __init__(self, names: Sequence[str], clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = dict.fromkeys(names, 0.0)
        self._clock = clock
        self._open: list[str] = []
        self._since = 0.0

    def wrap(self, owner: Any, method: str, name: str) -> None:
        """Time `owner.method` under `name` from now on; of this one object, not of its class."""
        inner = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._book()
            self._open.append(name)
            try:
                return inner(*args, **kwargs)
            finally:
                self._book()
                self._open.pop()

        setattr(owner, method, timed)

    def _book(self) -> None:
        """The time since the last look belongs to the innermost call that is open."""
        now = self._clock()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def shares(self, total: float) -> dict[str, Any]:
        """Seconds and shares of a run of `total` seconds; what was not wrapped is `other`."""
        seconds = {**self.seconds, "other": total - sum(self.seconds.values())}
        return {
            "seconds": {**seconds, "total": total},
            "shares": {name: value / total for name, value in seconds.items()},
        }
