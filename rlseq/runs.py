"""Run folders: the only currency between commands.

    runs/<name>/config.json     options as resolved          env.json       commit, versions, command, hardware
                events.out...   TensorBoard                  lineage.json   how it came to be
                checkpoints/<step>/   best/<step>/           policy.onnx    summary.json (once it is finished)

A checkpoint is a folder with `checkpoint.json` (numbers, and the checksum of every file) and safetensors files. It is
written under a temporary name and renamed, so a folder with a number for a name is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from rlseq.errors import CorruptFile, NewerFormat, RlseqError, UsageError, did_you_mean
from rlseq.files import explained, fsync_folder, read_json, read_tensors, write_json, write_tensors

try:
    import fcntl
except ImportError:  # Windows: no lock there
    fcntl = None  # type: ignore[assignment]

RUN_FORMAT = 1
CHECKPOINT_FORMAT = 1
MANIFEST = "checkpoint.json"
REPLAY = "replay"


def runs_folder() -> Path:
    """Where runs are: `$RLSEQ_RUNS`, else `runs` in the current folder."""
    return Path(os.environ.get("RLSEQ_RUNS") or "runs")


class Run:
    """A run folder.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def policy(self) -> Path:
        """The exported policy; it exists once the run is finished."""
        return self.path / "policy.onnx"

    def config(self) -> dict[str, Any]:
        """The options as resolved: `{"format_version", "algorithm", "options"}`."""
        return self._read("config.json")

    def env(self) -> dict[str, Any]:
        """Commit, versions, command line, hardware."""
        return self._read("env.json")

    def summary(self) -> dict[str, Any] | None:
        """Final scores, or None while the run is not finished."""
        return self._read("summary.json") if (self.path / "summary.json").exists() else None

    def lineage(self) -> list[dict[str, Any]]:
        """How the run came to be, oldest step first."""
        steps = self._read("lineage.json").get("steps")
        if not isinstance(steps, list):
            raise CorruptFile(f"{self.path / 'lineage.json'} lacks the list of steps.")
        return steps

    def _read(self, file: str) -> dict[str, Any]:
        return checked_version(read_json(self.path / file), self.path / file, RUN_FORMAT)

    def write(self, file: str, value: Mapping[str, Any]) -> None:
        """Write one of the run's JSON files."""
        write_json(self.path / file, {"format_version": RUN_FORMAT, **value})

    def status(self) -> str:
        """`finished`, or `interrupted` (which a run in progress also is)."""
        return "finished" if (self.path / "summary.json").exists() else "interrupted"

    def checkpoints(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return numbered(self.path / "checkpoints")

    def best(self) -> Path | None:
        """The checkpoint with the best evaluation, if there was one."""
        return next(reversed(numbered(self.path / "best")), None)

    def checkpoint(self, which: str) -> Path:
        """A checkpoint by name: `best` (the last one if none was evaluated), `last`, or a step.

        Raises:
            UsageError: there is none of this step.
            RlseqError: there is none at all.
        """
        found = self.checkpoints()
        if not found:
            raise RlseqError(
                f"{self.path} holds no checkpoint: the training ended before it wrote one. Start it again."
            )
        if which == "last":
            return found[-1]
        if which == "best":
            return self.best() or found[-1]
        by_step = {path.name: path for path in [*numbered(self.path / "best"), *found]}
        if which not in by_step:
            steps = ", ".join(sorted(by_step, key=int))
            raise UsageError(f"{self.path} has no checkpoint {which!r}. It has: best, last, {steps}.")
        return by_step[which]

    def lock(self) -> IO[str]:
        """Claim the run for this process until the returned file is closed (or the process ends, however it ends).

        Raises:
            RlseqError: another process is training it.
        """
        path = self.path / ".lock"
        with explained(path, "write"):
            file = open(path, "a+")  # noqa: SIM115 - held open on purpose
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise RlseqError(
                f"{self.path} is being trained by another process ({owner}). Wait for it, or stop it first."
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        return file

    def disk_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def checked_version(value: dict[str, Any], path: Path, newest: int) -> dict[str, Any]:
    """`value`, if its format can be read.

    Raises:
        NewerFormat: a newer rlseq wrote it.
        CorruptFile: it states no version.
    """
    version = value.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptFile(f"{path} states no format_version: it was changed, or is no file of rlseq.")
    if version > newest:
        raise NewerFormat(f"{path} has format_version {version}; this rlseq reads up to {newest}: update rlseq.")
    return value


def numbered(folder: Path) -> list[Path]:
    """The complete checkpoints in a folder, by ascending step."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if p.name.isdecimal() and p.is_dir()), key=lambda p: int(p.name))


def is_run(path: Path) -> bool:
    """Whether a folder is a run."""
    return (path / "config.json").is_file()


def open_run(path: str | Path) -> Run:
    """The run at a path, or of a name below the runs folder.

    Raises:
        UsageError: there is none; the nearest names are given.
    """
    for candidate in (Path(path), runs_folder() / path):
        if is_run(candidate):
            return Run(candidate)
    names = [run.name for run in list_runs()]
    raise UsageError(
        f"there is no run {str(path)!r} here or in {runs_folder()}.{did_you_mean(str(path), names)} "
        "`rlseq list runs` lists them."
    )


def list_runs() -> list[Run]:
    """All runs of the runs folder, the newest first."""
    folder = runs_folder()
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if is_run(path)]
    return [Run(p) for p in sorted(found, key=lambda p: ((p / "config.json").stat().st_mtime_ns, p.name), reverse=True)]


def newest_run() -> Run:
    """The run begun last.

    Raises:
        UsageError: there is none.
    """
    runs = list_runs()
    if not runs:
        raise UsageError(f"there is no run in {runs_folder()} yet. Begin with: rlseq train dqn CartPole-v1")
    return runs[0]


def create_run(name: str | None, stem: str) -> Run:
    """Make a new run folder.

    Args:
        name: as the user gave it; must be free. None: `stem` and the time, with a number if that is taken, so that two
            runs started in the same second never share a folder.
        stem: beginning of a made-up name.

    Raises:
        UsageError: the name is taken or is no plain name.
        RlseqError: the folder cannot be written.
    """
    folder = runs_folder()
    if name is not None and (Path(name).name != name or name.startswith(".") or not name.strip()):
        raise UsageError(
            f"run.name = {name!r}: give a plain name without folders; RLSEQ_RUNS chooses the folder of all runs."
        )
    with explained(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    base = name or f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    for attempt in range(1, 1000):
        path = folder / (base if attempt == 1 else f"{base}-{attempt}")
        try:
            with explained(path, "create"):
                path.mkdir()
            return Run(path)
        except RlseqError as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise
            if name is not None:
                raise UsageError(
                    f"the run {path} exists. Choose another --name, or go on with it: rlseq train dqn --resume {path}"
                ) from None
    raise RlseqError(f"no free name for a run in {folder} after {base}-999.")


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
            if target.exists():
                remove(target)
            os.rename(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        fsync_folder(folder)
    return target


def remove(path: Path) -> None:
    """Delete a checkpoint so that no half of it can be taken for a whole."""
    trash = path.with_name(f".trash-{path.name}-{os.getpid()}")
    with explained(path, "delete"):
        os.rename(path, trash)
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
    return manifest


def read_arrays(checkpoint: Path, manifest: Mapping[str, Any], name: str, into: Any = None) -> dict[str, np.ndarray]:
    """The arrays of one file of a checkpoint, checked against the manifest; see `rlseq.files.read_tensors`."""
    file = f"{name}.safetensors"
    entry = manifest["files"].get(file)
    if entry is None:
        raise CorruptFile(f"{checkpoint} has no {file}.")
    return read_tensors(checkpoint / file, entry["sha256"], into)
