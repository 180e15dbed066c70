"""A text, and one thread for whatever would take all cores."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rlseq.engine import device


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run beside each other: threads that wait for one another would make them slow."""
    monkeypatch.setattr(device, "cpu_settings", lambda number, processes=1: contextlib.nullcontext())


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text of 1,200 characters; the cache of tokens is the test's own."""
    monkeypatch.setenv("RLSEQ_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "book.txt"
    path.write_bytes(b"pack my box with five dozen jugs\r\n" * 35 + b"0123456789")
    return path
