"""Mean and deviation of what is trained on."""

from __future__ import annotations

import numpy as np

from rlseq.seq.series.scaling import scaling


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
