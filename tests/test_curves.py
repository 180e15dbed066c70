"""Curves out of event files, and over seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlseq.curves import Curve, curve_of, over_seeds, read_curves
from rlseq.engine.metrics import EVENT_FILE
from rlseq.errors import RlseqError, UsageError
from tests.made_runs import made_run
from tests.training import small

RETURN = "eval/return_mean"


@pytest.fixture(autouse=True)
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))


def curve(*points: tuple[int, float]) -> Curve:
    """A curve by hand."""
    steps, values = zip(*points, strict=True)
    return Curve(np.array(steps), np.array(values, np.float64))


def test_what_was_logged_is_read() -> None:
    found = read_curves(made_run("a", [9.5, 20.25, 500.0]))
    assert list(found) == ["train/loss", "eval/return_mean", "eval/return_std"]
    np.testing.assert_array_equal(found[RETURN].steps, [100, 200, 300])
    np.testing.assert_array_equal(found[RETURN].values, [9.5, 20.25, 500.0])
    np.testing.assert_allclose(found["train/loss"].values, [1, 1 / 2, 1 / 3], rtol=1e-6)


def test_the_curve_of_a_real_run_is_its_evaluations() -> None:
    events: list[tuple[int, float]] = []
    run = small(callbacks=[lambda e: events.append((e.step, e.data[RETURN])) if e.kind == "evaluation" else None])
    from rlseq.runs import Run

    found = curve_of(Run(run.run), RETURN)
    assert found.steps.tolist() == [150, 300, 450, 600] == [step for step, _ in events]
    np.testing.assert_allclose(found.values, [value for _, value in events], rtol=1e-6)


def test_a_record_that_is_being_written_is_not_there_yet() -> None:
    run = made_run("a", [1.0, 2.0, 3.0])
    path = run.path / EVENT_FILE
    path.write_bytes(path.read_bytes()[:-7])
    np.testing.assert_array_equal(curve_of(run, RETURN).values, [1.0, 2.0])


def test_an_unknown_curve_and_a_run_without_evaluations_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--tag eval/return: .*Did you mean eval/return_.*train/loss, eval/return_me"):
        curve_of(made_run("a", [1.0]), "eval/return")
    run = made_run("b", [])
    with pytest.raises(RlseqError, match=r"b has no evaluation yet"):
        curve_of(run, RETURN)
    (run.path / EVENT_FILE).unlink()
    assert read_curves(run) == {}


def test_over_seeds_only_steps_that_all_have_count() -> None:
    found = over_seeds([curve((100, 1.0), (200, 2.0), (300, 90.0)), curve((100, 3.0), (200, 8.0))])
    np.testing.assert_array_equal(found.steps, [100, 200])
    np.testing.assert_array_equal(found.mean, [2.0, 5.0])
    np.testing.assert_array_equal((found.lowest, found.highest), [[1.0, 2.0], [3.0, 8.0]])
    # of two values d apart: t(1) * d / 2
    np.testing.assert_allclose(found.half_width, [12.7062, 12.7062 * 3], rtol=1e-5)


def test_over_one_seed_there_is_no_interval() -> None:
    found = over_seeds([curve((100, 1.0), (200, 2.0))])
    assert found.half_width is None
    np.testing.assert_array_equal(found.mean, [1.0, 2.0])
