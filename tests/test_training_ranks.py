"""Trainings of several processes: the numbers of one, files from the first alone, the same end for all."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from rlseq import checkpoints, runs
from rlseq.errors import Elsewhere, Interrupted, RlseqError
from rlseq.pipeline import evaluate, train
from tests.ranks import on_ranks
from tests.shared_trainings import on_two, without_export
from tests.training import SMALL_SEQ, assert_same_run, curves, merged, small, small_seq, weights, write_text

ADAMW = {"optim": {"name": "adamw"}}  # muon's products in bfloat16 make more of a last bit


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))
    return tmp_path


def losses(run: Path) -> dict[tuple[int, str], float]:
    return {(step, tag): value for step, tag, value in curves(run) if tag in ("train/loss", "eval/loss")}


def assert_close(run: Path, other: Path, *, rel: float = 1e-5) -> None:
    a, b = losses(run), losses(other)
    assert a.keys() == b.keys() and len(a) >= 8
    assert all(b[key] == pytest.approx(value, rel=rel) for key, value in a.items()), (a, b)


UNEVEN = {"seq": {"batch_size": 7}, "optim": {"name": "adamw", "accumulate": 2}}


def test_a_sequence_model_trains_as_with_one_process_and_resumes_at_any_number(place: Path) -> None:
    """Seven sequences do not divide by two, nor do the validation windows; the loss is that of one process."""
    text = str(write_text(place / "text.txt"))
    with without_export():
        one = small_seq(Path(text), UNEVEN, name="one")
        first, second = on_two(place, "seq", UNEVEN, data=text, name="two")
        assert first["summary"] == second["summary"] and first["run"] == second["run"]
        assert first["summary"]["loss"] == pytest.approx(one.summary["loss"], rel=1e-5)
        assert first["summary"]["tokens"] == one.summary["tokens"]
        two = Path(first["run"])
        assert_close(one.run, two)
        arrays = weights(runs.Run(two).checkpoint("last"))
        assert arrays.keys() == weights(runs.Run(one.run).checkpoint("last")).keys()  # no `module.` anywhere
        # One that two began, two that one began; against a training that was never interrupted.
        more = {"run": {"steps": 48}}
        long = small_seq(Path(text), UNEVEN, {"run": {"steps": 48, "horizon": 24}}, name="long")
        small_seq(None, more, resume=two)
        on_two(place, "seq", more, resume=str(one.run.absolute()))
    assert_close(long.run, two)
    assert_close(long.run, one.run)


def test_a_crash_of_two_resumes_exactly_with_dropout(place: Path) -> None:
    text = str(write_text(place / "text.txt"))
    dropout = {"net": {"dropout": 0.3}, "optim": {"accumulate": 2}}
    whole, _ = on_two(place, "seq", dropout, data=text, name="whole")
    first, second = on_two(place, "seq", dropout, data=text, name="crashed", at=9, what="crash")
    assert first["error"] == "Crash" and second["error"] == "PeerLost"
    crashed = place / "runs" / "crashed"
    assert runs.Run(crashed).checkpoint("last").name == "6"
    on_two(place, "seq", {}, resume=str(crashed))
    assert_same_run(Path(whole["run"]), crashed)
    streams = checkpoints.read_manifest(crashed / "checkpoints" / "24")["files"]
    assert "trainer-1.safetensors" in streams


DQN = {"dqn": {"n_step": 3, "learning_starts": 60}, "env": {"num_envs": 2}, "replay": {"capacity": 303}}


def test_dqn_of_two_is_repeatable_and_resumes_exactly(place: Path) -> None:
    """Each of two ranks has two environments: as many updates as one process makes in as many steps."""
    whole, second = on_two(place, "dqn", DQN, name="whole")
    assert whole["summary"] == second["summary"]
    assert whole["summary"]["steps"] == 600 and whole["summary"]["updates"] == 2 * (600 // 4 - 59 // 4)
    run = Path(whole["run"])
    last = runs.Run(run).checkpoint("last")
    sizes = [
        len(checkpoints.read_arrays(last, checkpoints.read_manifest(last), f)["action"]) for f in ("replay", "replay-1")
    ]
    assert sizes == [151, 151]
    # 600 steps are 300 transitions of each rank, round a ring of 151.
    assert checkpoints.read_manifest(last)["numbers"]["replay"]["position"] == 300 % 151
    again = evaluate(run, episodes=2, seed=whole["summary"]["seed"])  # by one process, all episodes
    for name in ("mean_return", "std_return", "mean_length", "episodes"):
        assert again[name] == whole["summary"][name], name
    mine, other = (
        checkpoints.read_arrays(last, checkpoints.read_manifest(last), file) for file in ("replay", "replay-1")
    )
    assert not np.array_equal(mine["obs.0"], other["obs.0"])  # episodes and exploration of its own
    first, _ = on_two(place, "dqn", DQN, name="crashed", at=450, what="crash")
    assert first["error"] == "Crash"
    crashed = place / "runs" / "crashed"
    assert runs.Run(crashed).checkpoint("last").name == "400"
    on_two(place, "dqn", {}, resume=str(crashed))
    assert_same_run(run, crashed)  # so the same seed gave the same log twice, too


def test_dqn_goes_on_with_another_number_of_processes(place: Path) -> None:
    with without_export():
        one = small(DQN, name="one")
        more = {"run": {"steps": 900}}
        first, _ = on_two(place, "dqn", more, resume=str(one.run.absolute()))
        assert first["summary"]["steps"] == 900
        assert ("train/inexact_resume", 1.0) in [(tag, value) for _, tag, value in curves(one.run)]
        back = small({"run": {"steps": 1200}}, resume=one.run)
    assert back.summary["steps"] == 1200
    assert back.summary["updates"] == 2 * (1200 // 4 - 59 // 4)


@pytest.mark.parametrize("job", ["seq", "dqn"])
def test_a_signal_to_one_rank_ends_all_at_the_same_step(job: str, place: Path) -> None:
    more = {"data": str(write_text(place / "text.txt"))} if job == "seq" else {}
    endless = {"run": {"steps": 10**6, "checkpoint_every": 10**6}}
    first, second = on_two(place, job, endless, name="a", at=50, what="signal", **more)
    assert first == second and first["error"] == Interrupted.__name__ and first["code"] == 128 + signal.SIGTERM
    last = runs.Run(place / "runs" / "a").checkpoint("last").name
    assert f"stopped at step {last} of 1000000; everything is saved" in first["message"] and int(last) >= 50


def test_a_callback_of_the_first_rank_stops_all(place: Path) -> None:
    text = str(write_text(place / "text.txt"))
    endless = {"run": {"steps": 10**6}, "eval": {"every": 10**6}}
    first, second = on_two(place, "seq", endless, data=text, name="a", at=9, what="stop")
    assert first == second and first["summary"]["stopped"] == "a callback asked to stop"
    assert 9 <= first["summary"]["steps"] < 10**4


def test_early_stopping_stops_all(place: Path) -> None:
    text = str(write_text(place / "text.txt"))
    first, second = on_two(place, "seq", {"eval": {"target": 100.0, "every": 5}}, data=text, name="a")
    assert first == second and first["summary"]["steps"] == 5
    assert first["summary"]["stopped"] == "evaluation reached the target 100"


def differing(*, kind: str, text: str) -> dict[str, Any]:
    """Ranks that were not started alike, or whose disks differ."""
    rank = int(os.environ["RANK"])
    values = merged(SMALL_SEQ, {"optim": {"lr": 0.02 if kind == "option" and rank else 0.01}})
    if kind == "batch":
        values["seq"]["batch_size"] = 1
    data = text + ".other" if kind == "data" and rank else text
    is_file = Path.is_file

    def unseen(path: Path) -> bool:
        return is_file(path) and not (kind == "folder" and rank and path.name == "config.json")

    with mock.patch.object(Path, "is_file", unseen):
        try:
            train("seq", data=data, values=values, name=kind)
        except RlseqError as error:
            return {"kind": type(error).__name__, "message": str(error), "code": error.exit_code}
    raise AssertionError("nobody noticed")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("option", "process 0 was started with optim.lr = 0.01, process 1 with 0.02: all processes"),
        ("data", "text.txt.other: all processes of a training need the same command and the same data"),
        ("folder", "does not see the run"),
        ("batch", "2 processes cannot share seq.batch_size = 1 sequences: each needs at least one"),
    ],
)
def test_ranks_that_are_not_alike_are_refused_at_the_start(kind: str, message: str, place: Path) -> None:
    text = write_text(place / "text.txt")
    write_text(place / "text.txt.other", seed=1)
    first, second = on_ranks(2, differing, place, kind=kind, text=str(text))
    assert message in str(first["message"]) and message in str(second["message"])
    assert second["kind"] == Elsewhere.__name__ and first["kind"] != Elsewhere.__name__
    assert first["code"] == second["code"] == (1 if kind == "folder" else 2)


def test_dqn_cannot_be_shared_by_more_processes_than_transitions(place: Path) -> None:
    first, _ = on_two(place, "dqn", {"replay": {"batch_size": 1}}, name="a")
    assert (
        first["message"].startswith("2 processes cannot share replay.batch_size = 1 transitions") and first["code"] == 2
    )
    assert not (place / "runs" / "a").exists()


def test_an_overflow_in_one_rank_skips_the_update_in_all(place: Path) -> None:
    """The schedule does not advance, the scale falls, and the weights stay the same everywhere, as each save sees."""
    text = str(write_text(place / "text.txt"))
    half = {"engine": {"amp": "fp16"}, "optim": {"name": "adamw", "schedule": "linear"}, "run": {"checkpoint_every": 1}}
    first, second = on_two(place, "seq", half, data=text, name="a", at=9, what="overflow")
    assert first == second and "summary" in first
    points = {(step, tag): value for step, tag, value in curves(Path(first["run"]))}
    skipped = points[24, "amp/skipped"]
    assert skipped >= 1 and first["summary"]["updates"] == 24 - skipped
    # At update 9 alone; whatever overflowed before it did so in both.
    assert points[12, "amp/skipped"] == points[9, "amp/skipped"] + 1
    assert points[12, "amp/scale"] == points[9, "amp/scale"] / 2


def test_compiled_and_shared_and_plain_load_each_other(place: Path) -> None:
    text = str(write_text(place / "text.txt"))
    compiled: dict[str, Any] = {**ADAMW, "engine": {"compile": True}}
    with without_export():
        one = small_seq(Path(text), ADAMW, name="one")
        first, _ = on_two(place, "seq", compiled, data=text, name="two", what="compile")
        assert_close(one.run, Path(first["run"]))
        last = weights(runs.Run(Path(first["run"])).checkpoint("last"))
        assert last.keys() == weights(runs.Run(one.run).checkpoint("last")).keys()
        begun = small_seq(Path(text), ADAMW, init_from=first["run"], name="begun")
    assert begun.summary["loss"] < first["summary"]["loss"]
