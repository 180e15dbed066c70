"""What a launch of several processes remembers when torchrun starts them anew."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist


class LaunchMemory:
    """What the processes of one launch keep through a restart: the agent's own store, which outlives them.

    torchrun starts all processes anew when one has died (`--max-restarts`), with the same arguments as before.
    """

    _KEY = "rlseq/run"

    def __init__(self) -> None:
        self._store: dist.TCPStore | None = None
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and os.environ.get("RANK") == "0":
            port = int(os.environ["MASTER_PORT"])
            wait = timedelta(seconds=60)
            self._store = dist.TCPStore(os.environ["MASTER_ADDR"], port, is_master=False, timeout=wait)

    def recall(self) -> str | None:
        """The run that an earlier attempt of this launch has begun."""
        if self._store is None or not self._store.check([self._KEY]):
            return None
        return self._store.get(self._KEY).decode()

    def remember(self, run: str) -> None:
        """Note the run that was begun."""
        if self._store is not None:
            self._store.set(self._KEY, run)
