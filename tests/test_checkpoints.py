"""A checkpoint is complete or not there, and a changed one is noticed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq import checkpoints
from rlseq.errors import CorruptFile, NewerFormat, RlseqError

ARRAYS = {"model": {"w": np.arange(3.0)}, "replay": {"r": np.zeros((2, 2), np.float32)}}


def write(folder: Path, step: int = 5) -> Path:
    return checkpoints.write_checkpoint(folder, step, {"a": 1, "big": 2**127, "x": 0.1}, ARRAYS)


def test_there_and_back(tmp_path: Path) -> None:
    path = write(tmp_path)
    manifest = checkpoints.read_manifest(path)
    assert (path.name, manifest["step"], manifest["numbers"]) == ("5", 5, {"a": 1, "big": 2**127, "x": 0.1})
    for name, arrays in ARRAYS.items():
        for key, array in checkpoints.read_arrays(path, manifest, name).items():
            np.testing.assert_array_equal(array, arrays[key], strict=True)
    with pytest.raises(CorruptFile, match=r"no other\.safetensors"):
        checkpoints.read_arrays(path, manifest, "other")


def test_an_interrupted_write_leaves_nothing_and_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    real, calls = checkpoints.write_tensors, []

    def fail_late(path: Path, arrays: Any) -> str:
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(path, arrays)

    monkeypatch.setattr(checkpoints, "write_tensors", fail_late)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, 6)
    assert [p.name for p in tmp_path.iterdir()] == ["5"]
    checkpoints.read_manifest(tmp_path / "5")


def test_what_a_killed_process_left_is_no_checkpoint_and_is_swept(tmp_path: Path) -> None:
    write(tmp_path, 12)
    write(tmp_path, 5)
    (tmp_path / ".tmp-20-1").mkdir()
    (tmp_path / ".trash-3-1").mkdir()
    (tmp_path / "30").write_text("a file")
    assert [p.name for p in checkpoints.numbered(tmp_path)] == ["5", "12"]
    checkpoints.sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["12", "30", "5"]
    checkpoints.remove(tmp_path / "5")
    assert [p.name for p in checkpoints.numbered(tmp_path)] == ["12"]
    assert checkpoints.numbered(tmp_path / "nowhere") == []


@pytest.mark.parametrize("key", ["step", "files", "numbers", "sha256", "format_version"])
def test_a_change_of_any_entry_is_noticed(tmp_path: Path, key: str) -> None:
    path = write(tmp_path) / checkpoints.MANIFEST
    manifest = json.loads(path.read_text())
    for value in (None, 0, 1.5, "x", {}, []):
        path.write_text(json.dumps({**manifest, key: value}))
        with pytest.raises(CorruptFile, match=r"checkpoint\.json"):
            checkpoints.read_manifest(path.parent)
    path.write_text(json.dumps({k: v for k, v in manifest.items() if k != key}))
    with pytest.raises(CorruptFile):
        checkpoints.read_manifest(path.parent)


def test_a_right_checksum_does_not_excuse_a_wrong_shape(tmp_path: Path) -> None:
    path = write(tmp_path) / checkpoints.MANIFEST
    manifest = {**json.loads(path.read_text()), "files": {"model.safetensors": 3}}
    path.write_text(json.dumps({**manifest, "sha256": checkpoints._digest(manifest)}))
    with pytest.raises(CorruptFile, match=r"no checkpoint's description.*files"):
        checkpoints.read_manifest(path.parent)


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path) / checkpoints.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 2}))
    with pytest.raises(NewerFormat, match=r"checkpoint\.json has format_version 2"):
        checkpoints.read_manifest(path.parent)


def test_a_checkpoint_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    before = checkpoints.read_manifest(path)
    real = os.rename

    def refuse(source: Path, target: Path) -> None:
        if Path(source).name.startswith(".tmp"):
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(RlseqError, match="Input/output error"):
        write(tmp_path)
    assert checkpoints.read_manifest(path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["5"]


def test_a_checkpoint_is_replaced_and_removed_over_older_rubbish(tmp_path: Path) -> None:
    path = write(tmp_path)
    rubbish = tmp_path / f".trash-5-{os.getpid()}"
    (rubbish / "inner").mkdir(parents=True)
    write(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["5"]
    (rubbish / "inner").mkdir(parents=True)
    checkpoints.remove(path)
    assert not list(tmp_path.iterdir())
