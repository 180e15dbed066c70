"""Trainings of sequence models under kill -9, signals and full disks: as those of agents, nothing is lost.

Parts of a batch, averaged weights, a schedule that remembers evaluations and dropout are all state that a resume needs.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import pytest

from rlseq import runs
from tests.fire.forks import (
    HERE,
    KILL,
    NAME,
    RESUME_SEQ,
    Ended,
    Server,
    assert_intact,
    assert_same,
    begin_seq,
    borrowed,
    go_on,
    in_parallel,
)
from tests.fire.test_disk import disk, refused, resize
from tests.training import write_text

__all__ = ["disk"]  # a fixture
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="strikes forks of a process")

SEED = 24
KILLS = 24
KILLS_IN_EXPORT = 3
SIGNALS = 8  # of each kind
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
VARIANTS: dict[str, dict[str, Any]] = {
    "muon, averaged weights": {"optim": {"ema": 0.9}},
    "parts of a batch, plateau, dropout": {
        "optim": {"name": "adamw", "accumulate": 4, "schedule": "plateau"},
        "net": {"dropout": 0.2},
    },
    "lstm, early stop": {"net": {"core": "lstm"}, "optim": {"lr": 1e-9}, "eval": {"patience": 2}},
}
PARTS = "parts of a batch, plateau, dropout"
LIMITS = (600, 3_000, 8_000, 12_000, 20_000, 30_000)
TMPFS_PAGES = (5, 9, 12, 15, 18, 21, 24, 27, 30)


class Whole(NamedTuple):
    """An uninterrupted run, how long it takes, and the words that begin it."""

    path: Path
    seconds: float
    words: list[str]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def whole(pool: SimpleQueue[Server], text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    """Every variant, timed with both workers busy."""

    def run(server: Server, variant: str) -> tuple[str, Whole]:
        place, words = tmp_path_factory.mktemp("whole"), begin_seq(text, VARIANTS[variant])
        ended = server(*words, cwd=place, env=HERE, export="stub")
        assert ended.code == 0, ended
        return variant, Whole(place / NAME, ended.seconds, words)

    timed = in_parallel(pool, run, [*VARIANTS] * 2)
    # The quicker one: a strike that comes too late strikes nothing.
    return dict(sorted(timed, key=lambda one: one[1].seconds, reverse=True))


def assert_goes_on(server: Server, place: Path, whole: Whole, context: str, *, stopped: bool = False) -> None:
    """The run is finished by whatever a user does next, and is the uninterrupted one."""
    if not (place / NAME / "summary.json").exists():
        ended = go_on(server, place, whole.words, export="stub")
        assert ended.code == 0, f"{context}: {ended}"
    try:
        assert_same(whole.path, place / NAME, stopped=stopped)
    except AssertionError as error:
        raise AssertionError(f"{context}: {error}") from error
    shutil.rmtree(place)


def test_a_killed_training_resumes_exactly(pool: SimpleQueue[Server], tmp_path: Path, whole: dict[str, Whole]) -> None:
    def kill(server: Server, moment: tuple[int, float, float]) -> bool:
        number, *shares = moment
        one, place = whole[[*VARIANTS][number % len(VARIANTS)]], tmp_path / str(number)
        place.mkdir()
        hits = 0
        for share in shares:  # the second one strikes what the first one left
            ended = go_on(server, place, one.words, signals=[[share * one.seconds, KILL]], export="stub")
            assert ended.code in (0, -KILL), f"seed {SEED}, {moment}: {ended}"
            hits += ended.code == -KILL
            if ended.code == 0:
                break
        assert_goes_on(server, place, one, f"seed {SEED}, {moment}")
        return hits > 0

    shares = np.random.default_rng(SEED).uniform(0, (1, 0.6), (KILLS, 2)).tolist()
    hits = in_parallel(pool, kill, [(number, *both) for number, both in enumerate(shares)])
    assert sum(hits) >= 0.5 * KILLS, "most kills must find a running training, also where the machine's speed changes"


def test_a_training_killed_while_it_is_scored_or_exported_finishes(
    pool: SimpleQueue[Server], tmp_path: Path, text: Path
) -> None:
    """The training itself is done and saved; the export is the real one."""
    place, request = tmp_path / "whole", {"env": HERE}
    place.mkdir()
    with borrowed(pool) as server:
        ended = server(*begin_seq(text), cwd=place, **request)
        assert ended.code == 0, ended
        trained = tmp_path / "trained"
        shutil.copytree(place, trained)
        for file in ("summary.json", "model.onnx"):
            (trained / NAME / file).unlink()

    def kill(server: Server, share: float) -> bool:
        struck = tmp_path / f"killed-{share}"
        shutil.copytree(trained, struck)
        ended = server(*RESUME_SEQ, cwd=struck, signals=[[share * whole_seconds, KILL]], **request)
        assert ended.code in (0, -KILL), f"seed {SEED}, {share}: {ended}"
        hit = ended.code == -KILL
        if not (struck / NAME / "summary.json").exists():
            ended = server(*RESUME_SEQ, cwd=struck, **request)
            assert ended.code == 0, f"seed {SEED}, {share}: {ended}"
        assert_same(place / NAME, struck / NAME)
        return hit

    whole_seconds = ended.seconds
    hits = in_parallel(pool, kill, np.random.default_rng(SEED).uniform(0, 0.9, KILLS_IN_EXPORT).tolist())
    assert sum(hits) >= KILLS_IN_EXPORT / 2


@pytest.mark.parametrize("signum", CODES, ids=lambda signum: signum.name)
def test_a_signal_saves_everything_also_within_a_batch_of_parts(
    pool: SimpleQueue[Server], tmp_path: Path, whole: dict[str, Whole], signum: signal.Signals
) -> None:
    one = whole[PARTS]

    def strike(server: Server, moment: tuple[int, float]) -> tuple[bool, bool]:
        place = tmp_path / str(moment[0])
        place.mkdir()
        context = f"seed {SEED}, {moment}"
        ended = server(*one.words, cwd=place, env=HERE, export="stub", signals=[[moment[1] * one.seconds, signum]])
        assert not ended.hung and "Traceback" not in ended.err, f"{context}: {ended}"
        assert ended.code in (0, CODES[signum], -signal.SIGTERM), f"{context}: {ended}"
        saved = "everything is saved" in ended.message
        if saved:  # at the very step that the message names
            assert f"stopped at step {runs.Run(place / NAME).checkpoint('last').name} of 24;" in ended.message
            assert f"rlseq train seq --resume {NAME}" in ended.err
        if (place / NAME).exists():
            assert_intact(place / NAME)
        assert_goes_on(server, place, one, context, stopped=True)
        return ended.code != 0, saved

    shares = np.random.default_rng([SEED, signum]).uniform(0, 1, SIGNALS).tolist()
    done = in_parallel(pool, strike, [*enumerate(shares)])
    assert sum(hit for hit, _ in done) >= 0.3 * SIGNALS
    assert any(saved for _, saved in done)


def recovered(server: Server, place: Path, one: Whole, ended: Ended, *words: str) -> str:
    """A training that ran out of space said so and goes on once there is some; returns the file it named."""
    named = ""
    if ended.code:
        named = refused(ended, "Free some space", *words)
        assert_intact(place / NAME)
    return named


def test_a_limit_on_file_sizes(pool: SimpleQueue[Server], tmp_path: Path, whole: dict[str, Whole]) -> None:
    one = whole[PARTS]

    def strike(server: Server, limit: int) -> str:
        place = tmp_path / str(limit)
        place.mkdir()
        ended = server(*one.words, cwd=place, env=HERE, export="stub", limit=limit)
        named = recovered(server, place, one, ended, "the file size limit is reached (ulimit -f)")
        assert_goes_on(server, place, one, f"limit {limit}")
        return named

    struck = set(in_parallel(pool, strike, LIMITS))
    assert {"trainer.safetensors", "model.safetensors"} & struck, struck


def test_a_full_disk(server: Server, disk: Path, whole: dict[str, Whole]) -> None:
    page, one, struck = os.sysconf("SC_PAGE_SIZE"), whole[PARTS], set()
    for pages in TMPFS_PAGES:
        shutil.rmtree(disk / NAME, ignore_errors=True)
        resize(disk, pages * page)
        ended = server(*one.words, cwd=disk, env=HERE, export="stub")
        struck.add(recovered(server, disk, one, ended, "no space is left (0 MiB free on this disk)"))
        resize(disk, 1 << 20)
        ended = go_on(server, disk, one.words, export="stub") if ended.code else ended
        assert ended.code == 0, f"{pages} pages: {ended}"
        assert_same(one.path, disk / NAME)
    assert len(struck) >= 3, struck


@pytest.fixture
def full(disk: Path) -> Iterator[Path]:
    """A disk with hardly any space left."""
    resize(disk, 3 * os.sysconf("SC_PAGE_SIZE"))
    yield disk


def test_a_full_cache_is_no_obstacle(server: Server, full: Path, tmp_path: Path, text: Path) -> None:
    long = tmp_path / "long.txt"
    long.write_text(text.read_text() * 5)
    words = [word for word in begin_seq(long) if word != "--quiet"]
    ended = server(*words, cwd=tmp_path, env={**HERE, "RLSEQ_CACHE": str(full)}, export="stub")
    assert ended.code == 0, ended
    assert "cannot be written" in ended.message and "set RLSEQ_CACHE" in ended.message, ended.err
    assert not list(full.glob("*.json"))
