"""Full disks, limits on file sizes and folders that may not be written: a clear word, and nothing is lost."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.fire.forks import (
    HERE,
    NAME,
    RESUME,
    Ended,
    Server,
    assert_intact,
    assert_same,
    begin,
    borrowed,
    go_on,
    in_parallel,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of a fork")

FIRST = begin("CartPole-v1", {"replay": {"capacity": 200}})
# Runs whose largest file is another one, so that a limit strikes there.
LARGEST = {
    "env.json": {},
    "replay.safetensors": {"replay": {"capacity": 1_000}},
    "trainer.safetensors": {"net": {"hidden": [64]}, "replay": {"capacity": 20}},
    "events.out.tfevents.rlseq": {"run": {"log_every": 1}, "replay": {"capacity": 20}},
}
LIMITS = (500, 800, 1_600, 3_000, 5_000, 8_000, 12_000)
TMPFS_PAGES = (5, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 33, 36, 40)


def refused(ended: Ended, *words: str) -> str:
    """A command that failed said so in words, with the fix; returns the file it named."""
    assert ended.code == 1, ended
    assert not ended.hung
    assert "Traceback" not in ended.err and "Errno" not in ended.err, ended.err
    for word in words:
        assert word in ended.message, ended.message
    named = re.search(r"cannot \w+ (\S+):", ended.message)
    assert named is not None, ended.message
    return Path(named[1]).name if not Path(named[1]).name.isdecimal() else "checkpoint"


@pytest.fixture(scope="module")
def whole(pool: SimpleQueue[Server], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole")
    with borrowed(pool) as server:
        assert server(*FIRST, cwd=place, env=HERE, export="stub").code == 0
    return place / NAME


@pytest.mark.parametrize("largest", LARGEST)
def test_a_limit_on_file_sizes(pool: SimpleQueue[Server], tmp_path: Path, largest: str) -> None:
    first = begin("CartPole-v1", LARGEST[largest])
    (tmp_path / "whole").mkdir()
    with borrowed(pool) as server:
        assert server(*first, cwd=tmp_path / "whole", env=HERE, export="stub").code == 0

    def strike(server: Server, limit: int) -> str:
        place = tmp_path / str(limit)
        place.mkdir()
        ended, named = server(*first, cwd=place, env=HERE, export="stub", limit=limit), ""
        if ended.code:
            named = refused(ended, "the file size limit is reached (ulimit -f)", "Free some space, or set RLSEQ_RUNS")
            assert_intact(place / NAME)
            ended = go_on(server, place, first, export="stub")
        assert ended.code == 0, f"limit {limit}: {ended}"
        assert_same(tmp_path / "whole" / NAME, place / NAME)
        return named

    struck = in_parallel(pool, strike, LIMITS)
    assert largest in struck, struck


def test_a_limit_that_only_the_exported_file_reaches(server: Server, tmp_path: Path) -> None:
    first = begin("CartPole-v1", {"net": {"hidden": [256]}, "run": {"steps": 30}, "dqn": {"learning_starts": 100}})
    ended = server(*first, cwd=tmp_path, env=HERE, limit=13_000)
    assert ended.code == 0, ended
    whole = tmp_path / NAME
    size = (whole / "policy.onnx").stat().st_size
    assert size > max(file.stat().st_size for file in whole.rglob("*") if file.name != "policy.onnx")
    place = tmp_path / "limited"
    place.mkdir()
    ended = server(*first, cwd=place, env=HERE, limit=size - 1_000)
    assert refused(ended, "ulimit -f", "Free some space") == "policy.onnx"
    assert assert_intact(place / NAME) == 2
    ended = server(*RESUME, cwd=place, env=HERE)
    assert ended.code == 0, ended
    assert_same(whole, place / NAME)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A mount point; whatever is mounted there is unmounted at the end."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True)
    except OSError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def resize(disk: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


def test_a_full_disk(server: Server, disk: Path, whole: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    struck = set()
    for pages in TMPFS_PAGES:
        shutil.rmtree(disk / NAME, ignore_errors=True)
        resize(disk, pages * page)
        ended = server(*FIRST, cwd=disk, env=HERE, export="stub")
        if ended.code:
            struck.add(refused(ended, "no space is left (0 MiB free on this disk)", "Free some space"))
            assert_intact(disk / NAME)
            resize(disk, 1 << 20)
            ended = go_on(server, disk, FIRST, export="stub")
        assert ended.code == 0, f"{pages} pages: {ended}"
        assert_same(whole, disk / NAME)
    assert len(struck) >= 3, struck


@pytest.fixture
def readable(server: Server, tmp_path: Path) -> Iterator[Path]:
    """A finished run in a folder that nobody may write."""
    place = tmp_path / "readable"
    place.mkdir()
    assert server(*FIRST, cwd=place, env=HERE).code == 0
    for path in (place, *place.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield place
    for path in (place, *place.rglob("*")):
        path.chmod(0o755)


def test_folders_that_may_not_be_written(server: Server, readable: Path) -> None:
    user = {"cwd": readable, "obey": True, "env": HERE}
    fix = "Choose a folder you may write to: set RLSEQ_RUNS or give another path."
    new = [word if word != NAME else "other" for word in FIRST]
    assert refused(server(*new, **user), "Permission denied", fix) == "other"
    assert refused(server(*new, **{**user, "env": {"RLSEQ_RUNS": "deep/runs"}}), "Permission denied", fix) == "runs"
    assert refused(server(*RESUME, "--steps", 300, **user), "Permission denied", fix) == ".lock"
    assert refused(server("export", NAME, **user), "Permission denied", fix) == "policy.onnx"
    assert refused(server("export", NAME, "--out", "p.onnx", **user), "Permission denied", fix) == "p.onnx"
    for command in ("eval", "info"):  # they only read
        ended = server(command, NAME, **user)
        assert ended.code == 0, ended
