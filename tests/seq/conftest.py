"""No test looks into the user's own cache of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the token cache, empty."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("RLSEQ_CACHE", str(folder))
    return folder
