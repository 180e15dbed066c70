"""A lock that cannot be had."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from rlseq import locking
from rlseq.errors import RlseqError
from rlseq.locking import claimed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no lock on Windows")


def test_who_holds_it_is_named(tmp_path: Path) -> None:
    held = claimed(tmp_path)
    with pytest.raises(RlseqError, match=rf"being trained by another process \(process {os.getpid()}\)"):
        claimed(tmp_path)
    held.close()
    claimed(tmp_path).close()


def test_a_disk_without_locks_is_not_called_another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locking.fcntl, "flock", refuse)
    with pytest.raises(RlseqError, match="No locks available") as caught:
        claimed(tmp_path)
    assert "another process" not in str(caught.value)
