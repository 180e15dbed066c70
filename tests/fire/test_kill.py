"""kill -9 at two hundred random moments: a resume ends as if nothing had happened, wherever it struck."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.fire.forks import HERE, KILL, NAME, RESUME, Server, assert_same, begin, borrowed, go_on, in_parallel

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forks of a process")

SEED = 20
KILLS = 80
KILLS_IN_EXPORT = 6
SECOND_KILL = 0.25  # chance that the resumed process is killed too
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "one environment": ("CartPole-v1", {}),
    "three environments": ("CartPole-v1", {"env": {"num_envs": 3}, "dqn": {"target_update": "soft"}}),
    "early stop": ("toy/Counting-v0", {"run": {"steps": 480}, "eval": {"patience": 2}}),
    "every step is an edge": ("toy/Identity-v0", {"run": {"steps": 60, "checkpoint_every": 4, "log_every": 2}}),
}


class Moment(NamedTuple):
    """When a run is killed, as shares of its duration."""

    number: int
    variant: str
    shares: tuple[float, ...]


class Whole(NamedTuple):
    """An uninterrupted run and how long it takes."""

    path: Path
    seconds: float


def moments(rng: np.random.Generator) -> list[Moment]:
    """What is killed when; the same for a seed."""
    names = list(VARIANTS)
    return [
        Moment(k, names[k % len(names)], tuple(rng.uniform(0, 1, 1 + int(rng.random() < SECOND_KILL))))
        for k in range(KILLS)
    ]


def words(variant: str) -> list[str]:
    env_id, changes = VARIANTS[variant]
    return begin(env_id, changes)


def uninterrupted(pool: SimpleQueue[Server], folder: Path) -> dict[str, Whole]:
    """Every variant, timed while the other worker is busy too, as it will be later."""

    def run(server: Server, item: tuple[int, str]) -> tuple[str, Whole]:
        repeat, variant = item
        place = folder / f"{variant}-{repeat}"
        place.mkdir()
        ended = server(*words(variant), cwd=place, env=HERE, export="stub")
        assert ended.code == 0, ended.err
        return variant, Whole(place / NAME, ended.seconds)

    timed = in_parallel(pool, run, [(repeat, variant) for repeat in range(2) for variant in VARIANTS])
    return dict(timed)


def test_a_killed_run_resumes_exactly_wherever_the_kill_struck(pool: SimpleQueue[Server], tmp_path: Path) -> None:
    whole = uninterrupted(pool, tmp_path)

    def kill(server: Server, moment: Moment) -> int:
        place = tmp_path / f"killed-{moment.number}"
        place.mkdir()
        context, hits = f"seed {SEED}, {moment}", 0
        for share in moment.shares:
            if hits and (place / NAME / "summary.json").exists():
                break  # killed when all was done
            seconds = share * whole[moment.variant].seconds
            ended = go_on(server, place, words(moment.variant), signals=[[seconds, KILL]], export="stub")
            while ended.code == 0 and not hits and seconds > 0.001:  # too late: the machine is quicker than it was
                shutil.rmtree(place / NAME)
                seconds *= 0.7
                ended = go_on(server, place, words(moment.variant), signals=[[seconds, KILL]], export="stub")
            assert ended.code in (0, -KILL), f"{context}: {ended}"
            hits += ended.code == -KILL
            if ended.code == 0:
                break
        if not (place / NAME / "summary.json").exists():
            ended = go_on(server, place, words(moment.variant), export="stub")
            assert ended.code == 0, f"{context}: {ended}"
        try:
            assert_same(whole[moment.variant].path, place / NAME)
        except AssertionError as error:
            raise AssertionError(f"{context}: {error}") from error
        shutil.rmtree(place)
        return hits

    hits = in_parallel(pool, kill, moments(np.random.default_rng(SEED)))
    assert len(hits) == KILLS
    assert min(hits) >= 1, "every kill must find a running training"


def trained_and_finished(server: Server, folder: Path) -> tuple[Path, float]:
    """A finished run `whole`, the same without what follows its training in `trained`, and how long that takes."""
    whole, trained = folder / "whole", folder / "trained"
    whole.mkdir()
    ended = server(*begin("CartPole-v1", {"eval": {"final_episodes": 40}}), cwd=whole, env=HERE)
    assert ended.code == 0, ended.err
    shutil.copytree(whole, trained)
    for file in ("summary.json", "policy.onnx"):
        (trained / NAME / file).unlink()
    timed = folder / "timed"
    shutil.copytree(trained, timed)
    ended = server(*RESUME, cwd=timed, env=HERE)
    assert ended.code == 0, ended.err
    assert_same(whole / NAME, timed / NAME)
    return whole / NAME, ended.seconds


def test_a_run_killed_in_its_last_evaluation_or_export_finishes(pool: SimpleQueue[Server], tmp_path: Path) -> None:
    """The training itself is done and saved: what is left is to score, to export, to write the summary."""
    with borrowed(pool) as server:
        whole, seconds = trained_and_finished(server, tmp_path)

    def kill(server: Server, share: float) -> int:
        place, at, hit = tmp_path / f"killed-{share}", share * seconds, False
        while not hit and at > 0.001:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(tmp_path / "trained", place)
            ended = server(*RESUME, cwd=place, env=HERE, signals=[[at, KILL]])
            hit, at = ended.code == -KILL, 0.7 * at
        assert hit or ended.code == 0, f"seed {SEED}, after {share} of {seconds} s: {ended}"
        if not (place / NAME / "summary.json").exists():
            ended = server(*RESUME, cwd=place, env=HERE)
            assert ended.code == 0, f"seed {SEED}, after {share} of {seconds} s: {ended}"
        assert_same(whole, place / NAME)
        return hit

    hits = in_parallel(pool, kill, np.random.default_rng(SEED).uniform(0, 1, KILLS_IN_EXPORT).tolist())
    assert all(hits)
