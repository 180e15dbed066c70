"""`rlseq bench`: what is typed, what is printed, what is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlseq.bench import results
from rlseq.bench.benches import BENCHES
from rlseq.bench.measure import Timing, measurement
from rlseq.bench.peers import PEERS
from rlseq.errors import UsageError
from tests.bench.fakes import fake_peer
from tests.cli.conftest import Cli, failed, only_json


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """`bench dqn` and `bench play` with numbers made up; gives what they were called with."""
    made: list[dict[str, Any]] = []

    def sides(repeats: int, peer: Any) -> tuple[list[Timing], list[Timing] | None, dict[str, str]]:
        return [Timing(2.0, 3000)] * repeats, [Timing(9.0, 3000)] * repeats if peer else None, {"name": "them"}

    def bench_dqn(tell: Any, *, repeats: int, peer: Any, steps: int = 5, values: Any = None) -> dict[str, Any]:
        made.append({"repeats": repeats, "steps": steps, "values": values})
        print("a peer prints")
        tell("half done")
        result = measurement("training", *sides(repeats, peer))
        result["ours"] |= {"updates": 7, "split": {"shares": {"update": 0.75, "other": 0.25}}}
        return result

    def bench_play(tell: Any, *, repeats: int, peer: Any, episodes: int = 5) -> dict[str, Any]:
        made.append({"repeats": repeats, "episodes": episodes})
        one = measurement("playing", *sides(repeats, peer))
        return {"measurements": {"single": one, "overhead": {**one, "overhead": 0.125}}}

    monkeypatch.setitem(BENCHES, "dqn", bench_dqn)

    def bench_seq(tell: Any, *, repeats: int, data: str | None = None, part: int | None = None) -> dict[str, Any]:
        made.append({"repeats": repeats, "data": data, "part": part})
        runs = measurement("command", [Timing(20.0, 1)], [Timing(60.0, 1)], {"name": "them"}, "runs")
        runs["ours"] |= {"updates": 350, "loss": [1.861, 1.85]}
        kept = {"what": "memory", "unit": "bytes", "ours": {"bytes": 3 * 2**20}, "ratio": 2.0, "spread": [2.0, 2.0]}
        off = {"what": "equal", "unit": "error", "ours": {"error": 3.2e-16}, "ratio": 3.125e9, "spread": [3.125e9] * 2}
        return {
            "measurements": {
                "third": runs,
                "memory": {**kept, "peer": {"name": "all", "bytes": 6 * 2**20}},
                "equal": {**off, "peer": {"name": "at most", "error": 1e-6}},
            }
        }

    monkeypatch.setitem(BENCHES, "play", bench_play)
    monkeypatch.setitem(BENCHES, "seq", bench_seq)
    monkeypatch.setitem(PEERS, "sb3", fake_peer())
    return made


def test_for_people(cli: Cli, calls: list[dict[str, Any]]) -> None:
    result = cli("bench dqn --steps 3000 --repeats 2")
    assert result.exit_code == 0, result.output
    assert calls == [{"repeats": 2, "steps": 3000, "values": None}]
    lines = " ".join(result.stdout.split())
    assert "dqn: rlseq 2.000 s (2.000 to 2.000), 1500 steps/s, 3000 steps, 7 updates" in lines
    assert "dqn: them 9.000 s" in lines
    assert "dqn: ratio 4.5 times as fast (4.5 to 4.5 in pairs)" in lines
    assert "update 75.0 %, other 25.0 % (one more run, slowed by the timers; nothing is evaluated)" in lines
    assert "half done" in result.stderr


def test_json_is_one_object_whatever_a_peer_prints(cli: Cli, calls: list[dict[str, Any]]) -> None:
    result = cli("bench dqn --set engine.threads=2 --set dqn.gamma=0.9 --json")
    report = only_json(result)
    assert calls[0]["values"] == {"engine": {"threads": "2"}, "dqn": {"gamma": "0.9"}}
    assert (report["name"], report["ratio"], report["repeats"]) == ("dqn", 4.5, 3)
    assert report["command"] == "rlseq bench dqn --set engine.threads=2 --set dqn.gamma=0.9"
    assert {"commit", "machine", "versions", "ours", "peer", "spread"} <= report.keys()
    assert "a peer prints" in result.stderr


def test_several_measurements(cli: Cli, calls: list[dict[str, Any]]) -> None:
    result = cli("bench play --episodes 4 --quiet")
    assert calls == [{"repeats": 3, "episodes": 4}]
    lines = " ".join(result.stdout.split())
    assert "single: ratio 4.5 times as fast" in lines
    assert "overhead: overhead 12.5 % more time a step" in lines
    assert result.stderr == ""


def test_losses_and_bytes(cli: Cli, calls: list[dict[str, Any]]) -> None:
    result = cli("bench seq --data texts/a.txt --part 1 --repeats 2 --quiet")
    assert calls == [{"repeats": 2, "data": "texts/a.txt", "part": 1}]
    lines = " ".join(result.stdout.split())
    assert "third: rlseq 20.000 s (20.000 to 20.000), 350 updates, loss 1.8610, 1.8500" in lines
    assert "third: ratio 3 times as fast" in lines
    assert "memory: rlseq 3.0 MiB memory: all 6.0 MiB memory: ratio 2 times less" in lines
    assert "equal: rlseq 3.2e-16 off equal: at most 1.0e-06 off equal: ratio 3.1e+09 times less" in lines
    assert only_json(cli("bench seq --data texts/a.txt --json"))["command"] == "rlseq bench seq --data a.txt"


def test_without_a_peer(cli: Cli, calls: list[dict[str, Any]]) -> None:
    result = cli("bench dqn --peer none")
    assert "ratio" not in result.stdout
    assert "1500 steps/s" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench dqnn", "there is no benchmark 'dqnn'. Did you mean dqn? There is: dqn, play, seq, ddp, tasks, gpu."),
        ("bench dqn --episodes 4", "bench dqn has no --episodes; it takes --steps, --set, --repeats, --peer."),
        ("bench play --set dqn.gamma=1", "bench play has no --set"),
        ("bench seq --peer sb3", "bench seq has no --peer; it takes --data, --part, --repeats."),
        ("bench dqn --data a.txt", "bench dqn has no --data"),
        ("bench seq --part 0", "'--part'"),
        ("bench dqn --repeats 0", "--repeats 0: give at least 1."),
        ("bench dqn --peer sbx", "It is one of sb3, none."),
        ("bench dqn --set gamma", "write NAME=VALUE"),
        ("bench dqn --publish --peer none", "only a comparison is published"),
    ],
)
def test_what_is_typed_wrongly(cli: Cli, calls: list[dict[str, Any]], words: str, message: str) -> None:
    failed(cli(words), 2, message)
    assert calls == []


def test_a_result_is_published(
    cli: Cli, calls: list[dict[str, Any]], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "rlseq/bench").mkdir(parents=True)
    (place / results.RESULTS).write_text('{"format_version": 1, "rows": []}')
    monkeypatch.setattr(results, "root", lambda: place)
    monkeypatch.setattr(results, "clean_commit", lambda tree: "abc1234567")
    result = cli("bench dqn --steps 3000 --publish --json")
    assert result.exit_code == 0, result.output
    assert only_json(result)["commit"] == "abc1234567"
    (row,) = results.read_rows(place)
    assert (row["command"], row["commit"]) == ("rlseq bench dqn --steps 3000", "abc1234567")
    assert (row["ratio"], row["ours"]["updates"]) == (4.5, 7)
    assert f"published in {place / results.RESULTS}" in result.stderr


def test_a_changed_tree_is_refused_before_anything_is_measured(
    cli: Cli, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(tree: Path) -> str:
        raise UsageError("--publish: code.py differ")

    monkeypatch.setattr(results, "clean_commit", changed)
    failed(cli("bench dqn --publish"), 2, "--publish: code.py differ")
    assert calls == []
