"""Run folders: the only currency between commands.

runs/<name>/config.json     options as resolved          env.json       commit, versions, command, hardware
            events.out...   TensorBoard                  lineage.json   how it came to be
            checkpoints/<step>/   best/<step>/           summary.json, and policy.onnx or model.onnx, once finished
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from rlseq.algorithms import ALGORITHMS, Algorithm
from rlseq.checkpoints import numbered
from rlseq.errors import CorruptFile, RlseqError, UsageError, check_name, did_you_mean
from rlseq.files import checked_version, explained, read_json, write_json
from rlseq.locking import claimed
from rlseq.scores import is_number, score_keys

RUN_FORMAT = 1


def runs_folder() -> Path:
    """Where runs are: `$RLSEQ_RUNS`, else `runs` in the current folder."""
    return Path(os.environ.get("RLSEQ_RUNS") or "runs")


class _Config(msgspec.Struct):
    """The shape of `config.json`."""

    algorithm: str
    options: dict[str, dict[str, Any]]
    recipe: str | None = None


class _Env(msgspec.Struct):
    """Of what types the entries of `env.json` are that are used."""

    threads: list[int] = []


class _Lineage(msgspec.Struct):
    steps: list[dict[str, Any]]


class _Summary(msgspec.Struct):
    """Of what types the entries of `summary.json` are."""

    mean_return: float = 0.0
    std_return: float = 0.0
    episodes: int = 0
    seed: int = 0
    steps: int = 0
    policy: dict[str, Any] = {}
    parity: dict[str, Any] = {}


def words_of(algorithm: str) -> Algorithm:
    """Words and names of an algorithm; of one that is not known here, those of dqn."""
    return ALGORITHMS.get(algorithm, ALGORITHMS["dqn"])


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
    def algorithm(self) -> str:
        """As in `rlseq train ALGORITHM`."""
        return str(self.config()["algorithm"])

    @property
    def exported(self) -> Path:
        """The exported file; it exists once the run is finished."""
        return self.path / words_of(self.algorithm).exported

    def config(self) -> dict[str, Any]:
        """The options as resolved: `{"format_version", "algorithm", "options"}`."""
        return self._read("config.json", _Config)

    def env(self) -> dict[str, Any]:
        """Commit, versions, command, hardware; `threads` of torch, one more for each resume with another number."""
        return self._read("env.json", _Env)

    def summary(self) -> dict[str, Any] | None:
        """Final scores, or None while the run is not finished."""
        if not (self.path / "summary.json").exists():
            return None
        summary = self._read("summary.json", _Summary)
        config = self.config()
        keys = score_keys(config["algorithm"], config["options"])
        missing = [key for key in keys if not is_number(summary.get(key))]
        if missing:
            raise CorruptFile(f"{self.path / 'summary.json'} was changed or damaged: it lacks {', '.join(missing)}.")
        return summary

    def lineage(self) -> list[dict[str, Any]]:
        """How the run came to be, oldest step first."""
        steps: list[dict[str, Any]] = self._read("lineage.json", _Lineage)["steps"]
        return steps

    def _read(self, file: str, shape: type | None = None) -> dict[str, Any]:
        path = self.path / file
        value = checked_version(read_json(path), path, RUN_FORMAT)
        try:
            msgspec.convert(value, dict if shape is None else shape)
        except msgspec.ValidationError as error:
            raise CorruptFile(f"{path} was changed or damaged: {error}.") from None
        return value

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
                f"{self.path} holds no checkpoint: the training ended before it wrote one. Begin it anew: "
                f"rlseq train {self.algorithm} --resume {self.path}"
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
            RlseqError: another process is training it, or there are no locks on its disk.
        """
        return claimed(self.path)

    def disk_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def is_run(path: Path) -> bool:
    """Whether a folder is a run."""
    try:
        return (path / "config.json").is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def open_run(path: str | Path) -> Run:
    """The run at a path, or of a name below the runs folder.

    Raises:
        UsageError: there is none; the nearest names are given.
    """
    check_name(path, "the run")
    candidates = (Path(path), runs_folder() / path)
    for candidate in candidates:
        if is_run(candidate):
            return Run(candidate)
    for candidate in candidates:
        if _is_begun(candidate):
            raise UsageError(f"{_stillborn(candidate)} Delete {candidate} and start it again.")
    names = [run.name for run in list_runs()]
    raise UsageError(
        f"there is no run {str(path)!r} here or in {runs_folder()}.{did_you_mean(str(path), names)} "
        "`rlseq list runs` lists them."
    )


def _is_begun(path: Path) -> bool:
    """Whether a folder holds what a training writes before its config.json, and nothing else."""
    try:
        names = [file.name for file in path.iterdir()]
    except (OSError, ValueError):  # no folder
        return False
    return all(name in ("env.json", "lineage.json", ".lock") or name.endswith(".tmp") for name in names)


def _stillborn(path: Path) -> str:
    return f"{path} is no run: a training was stopped before it had written its config.json."


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


def _plain(name: str) -> bool:
    """Whether a folder of this name can be made anywhere."""
    try:
        length = len(os.fsencode(name))
    except UnicodeError:
        return False
    return 0 < length <= 200 and Path(name).name == name and name[0] not in ". " and "\0" not in name


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
    if name is not None and not _plain(name):
        shown = repr(name) if len(name) <= 80 else f"{name[:40]!r}... ({len(name)} letters; 200 bytes are allowed)"
        raise UsageError(
            f"run.name = {shown}: give a plain name without folders; RLSEQ_RUNS chooses the folder of all runs."
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
            if name is not None and _is_begun(path):
                raise UsageError(f"{_stillborn(path)} Delete {path}, or choose another --name.") from None
            if name is not None and not is_run(path):
                raise UsageError(f"{path} exists and is no run. Choose another --name.") from None
            if name is not None:
                raise UsageError(
                    f"the run {path} exists. Choose another --name, or go on with it: "
                    f"rlseq train {Run(path).algorithm} --resume {path}"
                ) from None
    raise RlseqError(f"no free name for a run in {folder} after {base}-999.")
