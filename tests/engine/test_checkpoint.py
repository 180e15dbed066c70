"""Which checkpoints are kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from rlseq import checkpoints
from rlseq.engine.checkpoint import Checkpoints, Snapshot, of_rank
from rlseq.errors import RlseqError
from rlseq.runs import Run

SNAPSHOT = Snapshot({"w": np.ones(3)}, {"t": np.ones(2)}, {"r": np.ones(4)}, {"n": 1})


def names(folder: Path) -> list[str]:
    return [path.name for path in checkpoints.numbered(folder)]


@pytest.mark.parametrize(
    ("keep", "left"), [(1, ["0", "50"]), (2, ["0", "40", "50"]), (9, ["0", "10", "20", "30", "40", "50"])]
)
def test_step_0_and_the_newest_are_kept_and_the_replay_with_the_last_alone(
    tmp_path: Path, keep: int, left: list[str]
) -> None:
    kept = Checkpoints(Run(tmp_path), keep)
    kept.prepare(None)
    for step in range(0, 60, 10):
        path = kept.save(step, SNAPSHOT)
        assert path == tmp_path / "checkpoints" / str(step)
        having = [p.name for p in checkpoints.numbered(path.parent) if (p / "replay.safetensors").exists()]
        assert having == [str(step)]
    assert names(tmp_path / "checkpoints") == left
    for path in checkpoints.numbered(tmp_path / "checkpoints"):
        manifest = checkpoints.read_manifest(path)  # an older one is still whole but for its replay
        assert checkpoints.read_arrays(path, manifest, "model")["w"].tolist() == [1, 1, 1]
    last = tmp_path / "checkpoints" / "50"
    assert checkpoints.read_arrays(last, checkpoints.read_manifest(last), "replay")["r"].tolist() == [1] * 4


def test_a_run_that_begins_later_than_0_keeps_no_more(tmp_path: Path) -> None:
    kept = Checkpoints(Run(tmp_path), 1)
    kept.prepare(None)
    for step in (5, 6, 7):
        kept.save(step, SNAPSHOT)
    assert names(tmp_path / "checkpoints") == ["7"]


def test_the_best_before_stays_until_the_next_save(tmp_path: Path) -> None:
    kept = Checkpoints(Run(tmp_path), 2)
    kept.prepare(None)
    for step in (10, 20):
        kept.save_best(step, {"w": np.full(1, step)}, {})
    assert names(tmp_path / "best") == ["10", "20"]
    kept.save(25, SNAPSHOT)
    assert names(tmp_path / "best") == ["20"]


@pytest.mark.parametrize(("step", "left"), [(None, ["0", "10", "20"]), (20, ["0", "10", "20"]), (10, ["0", "10"])])
def test_what_a_killed_process_left_is_swept_and_what_is_later_goes(
    tmp_path: Path, step: int | None, left: list[str]
) -> None:
    kept = Checkpoints(Run(tmp_path), 5)
    kept.prepare(None)
    for number in (0, 10, 20):
        kept.save(number, SNAPSHOT)
    for number in (0, 10, 20):
        kept.save_best(number, {}, {})
    for folder in (tmp_path / "checkpoints", tmp_path / "best"):
        for rubbish in (".tmp-30-99", ".trash-10-99"):
            (folder / rubbish).mkdir()
            (folder / rubbish / "model.safetensors").write_bytes(b"half")
    kept.prepare(step)
    for folder, expected in ((tmp_path / "checkpoints", left), (tmp_path / "best", left[-1:])):
        assert sorted(path.name for path in folder.iterdir()) == expected


@pytest.mark.parametrize("call", range(1, 8))
def test_a_disk_that_fills_at_any_write_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    kept = Checkpoints(Run(tmp_path), 2)
    kept.prepare(None)
    kept.save(10, SNAPSHOT)
    real, calls = os.fsync, [0]

    def fill(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fill)
    with pytest.raises(RlseqError, match="no space is left"):
        kept.save(20, SNAPSHOT)
    monkeypatch.setattr(os, "fsync", real)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["10"]
    manifest = checkpoints.read_manifest(tmp_path / "checkpoints" / "10")
    assert checkpoints.read_arrays(tmp_path / "checkpoints" / "10", manifest, "replay")["r"].tolist() == [1] * 4


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    kept = Checkpoints(Run(tmp_path), 2)
    kept.prepare(None)
    kept.save(10, SNAPSHOT)
    path = kept.save(10, SNAPSHOT._replace(model={"w": np.zeros(2)}))
    assert checkpoints.read_arrays(path, checkpoints.read_manifest(path), "model")["w"].tolist() == [0, 0]
    assert sorted(p.name for p in path.parent.iterdir()) == ["10"]


@pytest.mark.parametrize("file", ["model.safetensors", "trainer.safetensors", "replay.safetensors", "checkpoint.json"])
def test_a_file_that_was_changed_is_noticed(tmp_path: Path, file: str) -> None:
    kept = Checkpoints(Run(tmp_path), 2)
    kept.prepare(None)
    path = kept.save(10, SNAPSHOT)
    data = (path / file).read_bytes()
    for changed in (data[:-2], data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], b""):
        (path / file).write_bytes(changed)
        with pytest.raises(RlseqError, match=file.replace(".", r"\.")):
            manifest = checkpoints.read_manifest(path)
            for name in ("model", "trainer", "replay"):
                checkpoints.read_arrays(path, manifest, name)


def test_what_a_killed_process_had_not_let_go_of_goes_at_the_next_start(tmp_path: Path) -> None:
    """Killed between a checkpoint and the removal of those before it."""
    run = Run(tmp_path)
    kept = Checkpoints(run, 2)
    kept.prepare(None)
    for step in (0, 10, 20, 30):
        checkpoints.write_checkpoint(tmp_path / "checkpoints", step, {}, {"model": {}, "replay": {"x": np.zeros(2)}})
    for step in (10, 20, 30):
        kept.save_best(step, {}, {})
    kept.prepare(20)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["0", "10", "20"]
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["20"]
    assert [path.parent.name for path in (tmp_path / "checkpoints").glob("*/replay.safetensors")] == ["20"]


def test_what_other_processes_have_of_their_own_lies_beside(tmp_path: Path) -> None:
    others = {of_rank("trainer", 1): {"t": np.full(2, 7.0)}, of_rank("replay", 1): {"r": np.full(4, 8.0)}}
    kept = Checkpoints(Run(tmp_path), 5)
    kept.prepare(None)
    paths = [kept.save(step, SNAPSHOT._replace(others=others)) for step in (0, 10)]
    manifest = checkpoints.read_manifest(paths[1])
    assert checkpoints.read_arrays(paths[1], manifest, "trainer-1")["t"].tolist() == [7, 7]
    assert checkpoints.read_arrays(paths[1], manifest, "replay-1")["r"].tolist() == [8] * 4
    assert (of_rank("trainer", 0), of_rank("replay", 0)) == ("trainer", "replay")
    assert sorted(file.name for file in paths[0].glob("*.safetensors")) == [
        "model.safetensors",
        "trainer-1.safetensors",
        "trainer.safetensors",
    ]  # replay memories are kept with the last checkpoint alone
