"""Processes meet where no earlier attempt has been."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from rlseq.engine.meeting import attempt_store, reason_of, uses_agent_store
from rlseq.ranks import Place

SIZE = 3


@pytest.fixture(scope="module")
def agent() -> dist.TCPStore:
    """torchrun's store, which lives as long as the launch."""
    return dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


def attempt(agent: dist.TCPStore, number: int, late: int) -> list[bytes]:
    """All processes meet, one of them later than the others; what each then reads of process 0."""

    def process(rank: int) -> bytes:
        own = dist.TCPStore("localhost", agent.port, is_master=False, timeout=timedelta(seconds=20))
        time.sleep(0.2 * (rank == late))
        store = attempt_store(own, Place(rank, SIZE, rank, SIZE), 20)
        if rank == 0:
            time.sleep(0.1)  # the others read meanwhile, and must not find what the attempt before wrote
            store.set("address", f"attempt {number}")
        return store.get("address")

    with ThreadPoolExecutor(SIZE) as threads:
        return list(threads.map(process, range(SIZE)))


@pytest.mark.parametrize("late", range(SIZE))
def test_nobody_reads_what_an_earlier_attempt_wrote(agent: dist.TCPStore, late: int) -> None:
    for number in range(2):
        assert attempt(agent, number, late) == [f"attempt {number}".encode()] * SIZE


def test_one_that_does_not_come_is_named(agent: dist.TCPStore) -> None:
    attempt(agent, 0, 0)  # has left words of all of them
    with pytest.raises(RuntimeError, match="process 1 did not come"):
        attempt_store(agent, Place(0, SIZE, 0, SIZE), 0.1)
    with pytest.raises(RuntimeError, match="process 0 did not come"):
        attempt_store(agent, Place(2, SIZE, 2, SIZE), 0.1)


def test_whose_store_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert not uses_agent_store()
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    assert not uses_agent_store()
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert uses_agent_store()


def test_who_is_waited_for_is_said_once(agent: dist.TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlseq.engine.meeting.NOTE_SECONDS", 0.05)
    named: list[int] = []
    with pytest.raises(RuntimeError, match="process 1 did not come"):
        attempt_store(agent, Place(0, SIZE, 0, SIZE), 0.3, named.append)
    assert named == [1]


def test_a_reason_is_one_sentence_without_torchs_source() -> None:
    said = "[/a/b/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:32180. This is typical. GLHF!"
    assert reason_of(RuntimeError(said)) == "Connection closed by peer [127.0.0.1]:32180"
    assert reason_of(RuntimeError("one line.\nand another")) == "one line"
