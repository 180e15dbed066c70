"""Ctrl-C and SIGTERM at random moments: everything is saved, the exit code says so, and a resume goes on exactly."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
import pytest

from rlseq import runs
from tests.fire.forks import HERE, NAME, Ended, Server, assert_intact, assert_same, begin, go_on, in_parallel

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals to forks")

SEED = 21
SIGNALS = 30  # of each kind
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
FIRST = begin("CartPole-v1", {"run": {"steps": 360, "checkpoint_every": 90}})


class Strike(NamedTuple):
    """A signal at a share of the run's duration, and a second one some seconds later (None: no second)."""

    number: int
    signum: signal.Signals
    share: float
    then: float | None


@pytest.fixture(scope="module")
def whole(pool: SimpleQueue[Server], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """An uninterrupted run and its duration, timed with both workers busy."""
    places = [tmp_path_factory.mktemp("whole") for _ in range(4)]
    done = in_parallel(pool, lambda server, place: server(*FIRST, cwd=place, env=HERE, export="stub"), places)
    assert [ended.code for ended in done] == [0] * 4, done
    return places[0] / NAME, float(np.median([ended.seconds for ended in done]))


def signalled(server: Server, place: Path, strike: Strike, seconds: float) -> Ended:
    """The run, struck."""
    at = strike.share * seconds
    signals = [[at, strike.signum]] + ([] if strike.then is None else [[at + strike.then, strike.signum]])
    ended = server(*FIRST, cwd=place, env=HERE, export="stub", signals=signals)
    context = f"seed {SEED}, {strike}, {seconds} s: {ended}"
    assert not ended.hung and "Traceback" not in ended.err, context
    done = (place / NAME / "summary.json").exists()
    if ended.code == -signal.SIGTERM:  # as for any other program, while it has nothing to save
        assert done or strike.then is not None or not (place / NAME).exists(), context
        return ended
    assert ended.code == 0 if done and ended.code == 0 else ended.code == CODES[strike.signum], context
    if ended.err == "" and (strike.then is not None or done or not (place / NAME).exists()):
        return ended  # before or after the work, or a second Ctrl-C while the first was being told
    if ended.code:
        assert ended.err.startswith("Interrupted: "), context
    if ended.code and not done and (place / NAME / "config.json").exists():
        assert f"rlseq train dqn --resume {NAME}" in ended.err, context
    return ended


def survived(server: Server, place: Path, strike: Strike, whole: Path) -> None:
    """The run goes on, and nothing is different."""
    if (place / NAME).exists():
        assert_intact(place / NAME)
    if not (place / NAME / "summary.json").exists():
        ended = go_on(server, place, FIRST, export="stub")
        assert ended.code == 0, f"seed {SEED}, {strike}: {ended}"
    try:
        assert_same(whole, place / NAME, stopped=True)
    except AssertionError as error:
        raise AssertionError(f"seed {SEED}, {strike}: {error}") from error
    shutil.rmtree(place)


@pytest.mark.parametrize("signum", CODES, ids=lambda signum: signum.name)
def test_a_signal_at_any_moment_saves_everything(
    pool: SimpleQueue[Server], tmp_path: Path, whole: tuple[Path, float], signum: signal.Signals
) -> None:
    def strike(server: Server, one: Strike) -> tuple[bool, bool]:
        place = tmp_path / str(one.number)
        place.mkdir()
        ended = signalled(server, place, one, whole[1])
        stopped = "everything is saved" in ended.message
        if stopped:  # at the very step that the message names, and not at a checkpoint before it
            assert f"stopped at step {runs.Run(place / NAME).checkpoint('last').name} of 360;" in ended.message
        survived(server, place, one, whole[0])
        return ended.code in (CODES[signum], -signum), stopped

    rng = np.random.default_rng([SEED, signum])
    strikes = [Strike(k, signum, share, None) for k, share in enumerate(rng.uniform(0, 1, SIGNALS))]
    done = in_parallel(pool, strike, strikes)
    # How many strike while there is something to save depends on how the machine's speed changes.
    assert sum(stopped for stopped, _ in done) >= 0.3 * SIGNALS
    assert sum(saved for _, saved in done) >= 0.1 * SIGNALS


def test_two_signals_in_quick_succession(pool: SimpleQueue[Server], tmp_path: Path, whole: tuple[Path, float]) -> None:
    """The second one means: at once. What was saved stays whole."""

    def strike(server: Server, one: Strike) -> bool:
        place = tmp_path / str(one.number)
        place.mkdir()
        ended = signalled(server, place, one, whole[1])
        survived(server, place, one, whole[0])
        return "stopped at once" in ended.message

    rng = np.random.default_rng([SEED, 2])
    kinds = list(CODES)
    strikes = [
        Strike(k, kinds[k % 2], share, then)
        for k, (share, then) in enumerate(rng.uniform((0, 1e-4), (1, 0.03), (SIGNALS, 2)).tolist())
    ]
    assert any(in_parallel(pool, strike, strikes))
