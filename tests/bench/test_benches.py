"""The table of benchmarks, and what all of them have."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from rlseq.bench import benches
from rlseq.bench.benches import BENCHES, COMMON, command_of, run
from rlseq.bench.measure import Timing, measurement
from rlseq.bench.peers import PEERS
from rlseq.cli.bench import bench as command
from rlseq.errors import UsageError
from tests.bench.fakes import fake_peer


def ignore(line: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A benchmark `toy` with --laps, and the peer `sb3` replaced; gives the arguments of each call."""
    calls: list[dict[str, Any]] = []

    def bench_toy(tell: Any, *, repeats: int, peer: Any, laps: int = 3) -> dict[str, Any]:
        calls.append({"repeats": repeats, "peer": peer, "laps": laps})
        other = None if peer is None else [Timing(3.0, laps)] * repeats
        return measurement("laps", [Timing(1.0, laps)] * repeats, other, {"name": "them"})

    monkeypatch.setitem(BENCHES, "toy", bench_toy)
    monkeypatch.setitem(PEERS, "sb3", fake_peer())
    return calls


def test_a_report_says_what_it_belongs_to(toy: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    machine = {
        "rlseq": "0.1",
        "python": "3.11",
        "packages": {"numpy": "2.0"},
        "commit": "abc",
        "command": "typed",
        "platform": "Linux",
        "cpu": "a chip",
        "cores": 2,
    }
    monkeypatch.setattr(benches, "describe_machine", lambda: machine)
    report = json.loads(json.dumps(run("toy", ignore, laps=6)))
    assert toy == [{"repeats": 3, "peer": PEERS["sb3"], "laps": 6}]
    assert {key: report[key] for key in ("name", "command", "commit", "repeats", "ratio", "spread")} == {
        "name": "toy",
        "command": "typed",
        "commit": "abc",
        "repeats": 3,
        "ratio": 3.0,
        "spread": [3.0, 3.0],
    }
    assert report["machine"] == {"platform": "Linux", "cpu": "a chip", "cores": 2}
    assert report["versions"] == {"rlseq": "0.1", "python": "3.11", "numpy": "2.0", "pytest": pytest.__version__}
    assert report["ours"]["seconds"] == [1.0] * 3 and report["peer"]["seconds"] == [3.0] * 3


def test_none_is_not_given(toy: list[dict[str, Any]]) -> None:
    run("toy", ignore, repeats=1, peer="none", laps=None, steps=None)
    assert toy == [{"repeats": 1, "peer": None, "laps": 3}]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("tooy", {}, "there is no benchmark 'tooy'. Did you mean toy? There is: dqn, play, seq, ddp, tasks, gpu, toy."),
        ("toy", {"steps": 5}, "bench toy has no --steps; it takes --laps, --repeats, --peer."),
        ("play", {"values": {}}, "bench play has no --set; it takes --episodes, --repeats, --peer."),
        ("seq", {"peer": "sb3"}, "bench seq has no --peer; it takes --data, --part, --repeats."),
        ("toy", {"repeats": 0}, "--repeats 0: give at least 1."),
        ("toy", {"peer": "sb4"}, "--peer sb4: Did you mean sb3? It is one of sb3, none."),
    ],
)
def test_what_is_typed_wrongly(toy: list[dict[str, Any]], name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(name, ignore, **arguments)
    assert str(caught.value) == message
    assert toy == []


def test_a_benchmark_may_bring_its_own_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    def bench_solo(tell: Any, *, repeats: int) -> dict[str, Any]:
        return measurement("laps", [Timing(1.0, 3)] * repeats, [Timing(2.0, 3)] * repeats, {"name": "another"})

    monkeypatch.setitem(BENCHES, "solo", bench_solo)
    monkeypatch.setitem(PEERS, "sb3", None)  # type: ignore[arg-type] - nobody looks for it
    report = run("solo", ignore, repeats=2)
    assert (report["peer"]["name"], report["ratio"]) == ("another", 2.0)
    assert "stable-baselines3" not in report["versions"]
    with pytest.raises(UsageError, match="bench solo has no --peer; it takes --repeats"):
        run("solo", ignore, peer="none")


def test_the_command_names_data_without_its_folder() -> None:
    given = {"data": "/home/me/texts/a book.txt", "part": 2}
    assert command_of("seq", [], given) == "rlseq bench seq --data 'a book.txt' --part 2"


def test_the_command_without_what_concerns_the_output() -> None:
    given = {"steps": 5, "repeats": None, "peer": "sb3"}
    assert command_of("dqn", ["engine.threads=2", "env.kwargs.a=b c"], given) == (
        "rlseq bench dqn --steps 5 --peer sb3 --set engine.threads=2 --set 'env.kwargs.a=b c'"
    )


def test_every_benchmark_has_the_common_arguments_and_stands_in_the_help() -> None:
    for name, function in BENCHES.items():
        assert set(COMMON) <= set(inspect.signature(function).parameters)
        assert f"rlseq bench {name}" in (command.__doc__ or "")
