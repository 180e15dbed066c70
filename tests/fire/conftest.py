"""Servers that run commands in forks, two for each worker of pytest."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from tests.fire.forks import Server, borrowed, servers


@pytest.fixture(scope="session")
def pool() -> Iterator[SimpleQueue[Server]]:
    with servers() as made:
        yield made


@pytest.fixture
def server(pool: SimpleQueue[Server]) -> Iterator[Server]:
    with borrowed(pool) as taken:
        yield taken
