"""Servers that run commands in forks, two for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from tests.fire.forks import Server, servers


@pytest.fixture(scope="module")
def pool() -> Iterator[SimpleQueue[Server]]:
    with servers() as made:
        yield made


@pytest.fixture
def server(pool: SimpleQueue[Server]) -> Iterator[Server]:
    taken = pool.get()
    yield taken
    pool.put(taken)
