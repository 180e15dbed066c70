"""Mean and deviation of what is trained on."""

from __future__ import annotations

import numpy as np
import pytest

from rlseq.errors import UsageError
from rlseq.seq.series.scaling import lost_changes, scaling


def test_mean_and_deviation_of_each_feature() -> None:
    scaled = scaling(np.array([[1, 10], [3, 10], [5, 40]], np.float32), ("a", "b"))
    np.testing.assert_allclose(scaled.shift, (3, 20))
    np.testing.assert_allclose(scaled.scale, ((8 / 3) ** 0.5, 200**0.5))
    assert scaled.notes == ()


def test_a_constant_feature_has_a_scale_of_1_and_a_note() -> None:
    # As doubles their mean would not be 0.1, and their deviation 1.4e-17.
    assert np.full(3, 0.1).std() > 0
    scaled = scaling(np.full((3, 1), 0.1, np.float32), ("still",))
    assert scaled.scale == (1.0,) and scaled.notes == (
        "the feature 'still' is 0.1 everywhere in the training part: nothing is learnt from it",
    )


def test_large_values_that_hardly_change_get_a_note() -> None:
    seconds = (1.7e9 + np.arange(1000.0) * 256)[:, None].astype(np.float32)
    scaled = scaling(np.hstack([seconds, seconds - 1.7e9]), ("time", "shifted"))
    assert len(scaled.notes) == 1 and "'time' changes by 7.4e+04 around 1.70013e+09" in scaled.notes[0]
    assert scaled.scale[0] > 7e4


def test_the_largest_values_do_not_overflow() -> None:
    scaled = scaling(np.array([[3e38], [-3e38]], np.float32), ("x",))
    np.testing.assert_allclose((*scaled.shift, *scaled.scale), (0, 3e38), rtol=1e-6)


def test_changes_that_float32_does_not_hold_are_told() -> None:
    wave = np.sin(np.arange(100.0))
    exact = np.stack([1e8 + wave, 1e-50 * wave, 1e6 + wave, np.full(100, 0.1), 1e-40 * wave], axis=1)
    names = ("far", "tiny", "near", "still", "small")
    lost = lost_changes(exact, names)
    assert list(lost) == ["far", "tiny"]
    assert "changes by 2 around 1e+08, which float32 does not hold apart: take a constant off" in lost["far"]
    assert "changes by 2e-50 around -9.9999e-51" in lost["tiny"] and "multiply it by a power" in lost["tiny"]
    notes = scaling(exact[:, :4].astype(np.float32), names[:4], lost).notes
    assert "'far' changes by 2 around" in notes[0] and "'tiny' changes by 2e-50" in notes[1]
    assert "'near' changes by 0.71 around" in notes[2] and "'still' is 0.1 everywhere" in notes[3] and len(notes) == 4


@pytest.mark.parametrize("size", [1e-40, 1e-36])
def test_changes_too_small_to_divide_by_are_refused(size: float) -> None:
    values = (size * np.sin(np.arange(100.0)))[:, None].astype(np.float32)
    with pytest.raises(UsageError, match=r"the column 'x' changes by only 7.1e-.., too little for float32: multiply"):
        scaling(values, ("x",))
