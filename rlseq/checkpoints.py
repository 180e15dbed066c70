"""Checkpoint folders: `checkpoint.json` (numbers, and the checksum of every file) and safetensors files.

A checkpoint is written under a temporary name and renamed, so a folder with a number for a name is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rlseq.errors import CorruptFile
from rlseq.files import (
    Into,
    checked_version,
    explained,
    fsync_folder,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)

CHECKPOINT_FORMAT = 1
MANIFEST = "checkpoint.json"
REPLAY = "replay"


class _File(msgspec.Struct):
    sha256: str
    bytes: int


class _Manifest(msgspec.Struct):
    """The shape of `checkpoint.json`."""

    step: int
    files: dict[str, _File]
    numbers: dict[str, Any]
    sha256: str


def numbered(folder: Path) -> list[Path]:
    """The complete checkpoints in a folder, by ascending step."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if p.name.isdecimal() and p.is_dir()), key=lambda p: int(p.name))


def _digest(manifest: Mapping[str, Any]) -> str:
    text = json.dumps({key: value for key, value in manifest.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_checkpoint(
    folder: Path, step: int, numbers: Mapping[str, Any], arrays: Mapping[str, Mapping[str, np.ndarray]]
) -> Path:
    """Write a complete checkpoint or none.

    Args:
        folder: `checkpoints` or `best` of a run.
        step: environment steps done; the checkpoint's name.
        numbers: JSON data.
        arrays: file name without ending -> name -> array; streamed, never copied.

    Raises:
        RlseqError: it could not be written; what was there before is untouched.
    """
    target, temporary = folder / str(step), folder / f".tmp-{step}-{os.getpid()}"
    with explained(target, "write"):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            files = {}
            for name, content in arrays.items():
                path = temporary / f"{name}.safetensors"
                digest = write_tensors(path, content)
                files[path.name] = {"sha256": digest, "bytes": path.stat().st_size}
            manifest = {"format_version": CHECKPOINT_FORMAT, "step": step, "files": files, "numbers": dict(numbers)}
            manifest = json.loads(json.dumps(manifest))  # the digest is of what a reader will see
            write_json(temporary / MANIFEST, {**manifest, "sha256": _digest(manifest)})
            _replace(target, temporary)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        fsync_folder(folder)
    return target


def remove(path: Path) -> None:
    """Delete a checkpoint so that no half of it can be taken for a whole."""
    with explained(path, "delete"):
        trash = _aside(path)
        shutil.rmtree(trash, ignore_errors=True)


def _aside(path: Path) -> Path:
    trash = path.with_name(f".trash-{path.name}-{os.getpid()}")
    shutil.rmtree(trash, ignore_errors=True)
    os.rename(path, trash)
    return trash


def _replace(target: Path, temporary: Path) -> None:
    """Put `temporary` in the place of `target`; if that fails, what was there stays."""
    trash = _aside(target) if target.exists() else None
    try:
        os.rename(temporary, target)
    except BaseException:
        if trash is not None:
            os.rename(trash, target)
        raise
    if trash is not None:
        shutil.rmtree(trash, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for path in folder.glob(".t*"):
        shutil.rmtree(path, ignore_errors=True)


def read_manifest(checkpoint: Path) -> dict[str, Any]:
    """The numbers and checksums of a checkpoint.

    Raises:
        CorruptFile: it was truncated or tampered with.
        NewerFormat: a newer rlseq wrote it.
    """
    path = checkpoint / MANIFEST
    manifest = checked_version(read_json(path), path, CHECKPOINT_FORMAT)
    if manifest.get("sha256") != _digest(manifest):
        raise CorruptFile(f"{path} does not have the checksum it states: it was changed or damaged.")
    try:
        msgspec.convert(manifest, _Manifest)
    except msgspec.ValidationError as error:
        raise CorruptFile(f"{path} is no checkpoint's description: {error}.") from None
    if str(manifest["step"]) != checkpoint.name:
        raise CorruptFile(
            f"{path} is of step {manifest['step']}: its folder was renamed. Name it {manifest['step']} again."
        )
    return manifest


def read_arrays(
    checkpoint: Path, manifest: Mapping[str, Any], name: str, into: Into | None = None
) -> dict[str, np.ndarray]:
    """The arrays of one file of a checkpoint, checked against the manifest; see `rlseq.files.read_tensors`."""
    file = f"{name}.safetensors"
    entry = manifest["files"].get(file)
    if entry is None:
        raise CorruptFile(f"{checkpoint} has no {file}.")
    return read_tensors(checkpoint / file, entry["sha256"], into)
