"""Student's t interval, against printed tables and by hand."""

from __future__ import annotations

import math

import pytest

from rlseq.intervals import estimate, t_quantile


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (1_000, 1.962), (100_001, 1.960)],
)
def test_the_quantile_is_that_of_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-4)


def test_the_quantile_with_one_and_two_degrees_has_a_closed_form() -> None:
    assert t_quantile(1) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-12)
    assert t_quantile(2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), rel=1e-12)


def test_mean_interval_and_extremes_by_hand() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])  # variance 2.5, standard error sqrt(0.5)
    assert (found.n, found.mean, found.lowest, found.highest) == (5, 3.0, 1.0, 5.0)
    assert found.half_width == pytest.approx(2.776445 * math.sqrt(0.5), rel=1e-6)


def test_equal_values_leave_no_width_and_one_value_no_interval() -> None:
    assert estimate([7.0, 7.0]).half_width == 0.0
    assert estimate([7.0]) == (1, 7.0, None, 7.0, 7.0)
