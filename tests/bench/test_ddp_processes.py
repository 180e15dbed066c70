"""Processes that train on demand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlseq.bench import ddp_processes
from rlseq.bench.ddp_processes import Workers, allowed_cores, children, end, environment_of, pinned
from rlseq.errors import RlseqError, UsageError

# In the place of `rlseq.bench.ddp_worker`: needs no torch, and misbehaves on demand.
STUB = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request == {"die": 3}:
        print("unwell", file=sys.stderr, flush=True)
        sys.exit(3)
    if request == {"sleep": 60}:
        time.sleep(60)
    print(json.dumps({"twice": 2 * request["number"], "cores": sorted(os.sched_getaffinity(0)),
                      "rank": os.environ.get("RANK")}), flush=True)
if "stay" in sys.argv:
    time.sleep(60)
"""
linux = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="chooses cores")


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp_processes, "WORKER", ("-c", STUB))


@linux
def test_requests_are_answered_in_their_order(stub: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")  # of the caller, who is one of many himself
    before = allowed_cores()
    core = before[-1]
    with Workers("side", None, [core]) as workers:
        assert allowed_cores() == before  # of the caller
        answers = [workers.ask({"number": number}) for number in (1, 2, 3)]
    assert answers == [{"twice": twice, "cores": [core], "rank": None} for twice in (2, 4, 6)]
    assert workers._process.returncode == 0


def test_a_failure_is_told_with_its_words(stub: None) -> None:
    with Workers("side", None) as workers, pytest.raises(RlseqError, match=r"side: .*without an answer\.\nunwell"):
        workers.ask({"die": 3})


def test_nobody_waits_for_ever(stub: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp_processes, "ENDING", 0.2)
    monkeypatch.setattr(Workers, "_said", lambda self: "")
    started = time.monotonic()
    with Workers("side", None, longest=0.5) as workers, pytest.raises(RlseqError, match=r"side: no answer within 0\.5"):
        workers.ask({"sleep": 60})
    assert workers._process.returncode < 0  # killed
    assert time.monotonic() - started < 15.0


def test_who_does_not_listen_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp_processes, "WORKER", ("-c", STUB, "stay"))
    monkeypatch.setattr(ddp_processes, "ENDING", 0.2)
    with Workers("side", None) as workers:
        assert workers.ask({"number": 1})["twice"] == 2
    assert workers._process.returncode < 0


@linux
def test_cores_are_put_back() -> None:
    before = allowed_cores()
    with pinned(before[:1]):
        assert allowed_cores() == before[:1]
    assert allowed_cores() == before
    with pinned(None):
        assert allowed_cores() == before


def test_where_cores_cannot_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    with pytest.raises(UsageError, match="does not let a process choose its cores"), pinned([0]):
        pass


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_children_and_their_environment_and_their_end() -> None:
    sleeper = "import time; time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeper!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], env={**os.environ, "MARK": "a=b"})
    try:
        assert process.pid in children(os.getpid())
        ends = time.monotonic() + 20.0
        while not children(process.pid) and time.monotonic() < ends:
            time.sleep(0.01)
        (child,) = children(process.pid)
        assert environment_of(child)["MARK"] == "a=b"
    finally:
        end(process, 0.2)
    assert process.returncode < 0
    while environment_of(child) and time.monotonic() < ends:
        time.sleep(0.01)
    assert environment_of(child) == {}
    end(process)  # once more does nothing


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="gloo, and /proc")
def test_two_processes_under_torchrun(book: Path) -> None:
    shape = [1, 2, 8, 5, 16, 3]
    with Workers("two", 2, longest=60.0) as two:
        for seed in (0, 1):
            answer = two.ask({"do": "time_seq", "data": str(book), "shape": shape, "values": {}, "seed": seed})
            assert (answer["tokens"], answer["updates"]) == (3 * 5 * 16, 3)
            assert answer["seconds"] > 0.0
        with pytest.raises(RlseqError, match="nonsense"):
            two.ask({"do": "nonsense"})
