"""Computed series: against plain formulas, and the same everywhere."""

from __future__ import annotations

import math

import numpy as np

from rlseq.seq.series.generated import WAVEFORMS, digest, lorenz, mackey_glass, sine, waveforms


def test_mackey_glass_against_a_plain_integration() -> None:
    """Runge and Kutta with `pow` and a dictionary of the past; from t = 0, where it is exact to the last digits."""
    past = dict.fromkeys(range(-172, 1), 1.2)

    def slope(x: float, delayed: float) -> float:
        return 0.2 * delayed / (1 + delayed**10) - 0.1 * x

    for step in range(10_500):
        x, k = past[step], step - 170
        middle = (-past[k - 1] + 9 * past[k] + 9 * past[k + 1] - past[k + 2]) / 16
        k1 = slope(x, past[k])
        k2 = slope(x + 0.05 * k1, middle)
        k3 = slope(x + 0.05 * k2, middle)
        k4 = slope(x + 0.1 * k3, past[k + 1])
        past[step + 1] = x + 0.1 * (k1 + 2 * k2 + 2 * k3 + k4) / 6
    made = mackey_glass(51)
    assert made.shape == (51, 1) and made.dtype == np.float64
    # A thousand units of chaos (a Lyapunov exponent of 0.006) enlarge a difference of 1e-16 four hundred times.
    np.testing.assert_allclose(made[:, 0], [past[10_000 + 10 * row] for row in range(51)], rtol=0, atol=1e-11)


def test_mackey_glass_is_the_known_attractor() -> None:
    series = mackey_glass(3000)[:, 0]
    assert 0.2 < series.min() < 0.45 and 1.25 < series.max() < 1.4
    assert abs(series.mean() - 0.93) < 0.01 and abs(series.std() - 0.226) < 0.005
    np.testing.assert_array_equal(mackey_glass(100)[:, 0], series[:100])


def test_lorenz_obeys_its_equations() -> None:
    """Central differences of the rows, 0.02 apart, are the right-hand sides; the error is that of the differences."""
    rows = lorenz(2000)
    x, y, z = rows[1:-1].T
    rate = (rows[2:] - rows[:-2]) / 0.04
    right = np.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], axis=1)
    assert np.abs(rate - right).mean() < 0.02 * np.abs(right).mean()
    # On the attractor the means of dz/dt = 0 and of x y are tied: mean(x y) = 8/3 mean(z).
    assert abs((rows[:, 0] * rows[:, 1]).mean() / rows[:, 2].mean() - 8 / 3) < 0.05
    np.testing.assert_array_equal(lorenz(7), rows[:7])


def test_lorenz_steps_as_runge_and_kutta() -> None:
    def flow(s: np.ndarray) -> np.ndarray:
        return np.array([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])

    first, second = lorenz(2)
    for _ in range(2):
        k1 = flow(first)
        k2 = flow(first + 0.005 * k1)
        k3 = flow(first + 0.005 * k2)
        k4 = flow(first + 0.01 * k3)
        first = first + 0.01 * (k1 + 2 * k2 + 2 * k3 + k4) / 6
    np.testing.assert_allclose(first, second, rtol=1e-13)


def test_the_sine_is_the_sine() -> None:
    turns = np.linspace(0, 1, 4001)
    np.testing.assert_allclose(sine(turns), np.sin(2 * math.pi * turns), rtol=0, atol=1e-7)


def test_waveforms_are_their_shapes_with_noise() -> None:
    waves = waveforms(400, min_length=20, length=40, seed=3)
    assert np.bincount(waves.labels).tolist() == [100] * 4 and waves.values.dtype == np.float32
    assert waves.lengths.min() == 20 and waves.lengths.max() == 40 and waves.lengths.sum() == len(waves.values)
    series = np.split(waves.values, np.cumsum(waves.lengths)[:-1])
    deviation = {
        name: np.mean([s.std() for s, k in zip(series, waves.labels, strict=True) if k == kind])
        for kind, name in enumerate(WAVEFORMS)
    }
    # A mean amplitude of 1.25 times each shape's own deviation: 1/sqrt(2), 1, 1/sqrt(3), 1/sqrt(3).
    assert abs(deviation["sine"] - 0.89) < 0.1 and abs(deviation["square"] - 1.25) < 0.12
    assert abs(deviation["triangle"] - 0.73) < 0.1 and abs(deviation["sawtooth"] - 0.73) < 0.1
    # Squares have two values, with noise around: few values lie near 0.
    square = np.concatenate([s / np.abs(s).mean() for s, k in zip(series, waves.labels, strict=True) if k == 1])
    assert (np.abs(square) < 0.5).mean() < 0.005
    # Sawtooths rise in small steps and fall in large ones: the largest step down is larger than any up.
    saws = [np.diff(s) / np.ptp(s) for s, k in zip(series, waves.labels, strict=True) if k == 3]
    assert np.mean([-steps.min() > 1.5 * steps.max() for steps in saws]) > 0.95


def test_waveforms_of_other_seeds_are_others() -> None:
    first, same, other = (waveforms(50, min_length=8, length=8, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.values, same.values)
    assert (first.values != other.values).mean() > 0.99 and (first.lengths == 8).all()


def test_the_data_are_the_same_everywhere() -> None:
    """No function whose last digit depends on the machine is called; see the module."""
    assert digest(mackey_glass(5000)) == "2d7f2084dffefae3c81be711c085a25b2adc560b760efb33be029882a3c43742"
    assert digest(lorenz(5000)) == "a80a7833871698b1a2f2565bbc284a1a8cd7e50f67e8bccd53e7de1ec77013e1"
    waves = waveforms(11_000, min_length=32, length=64, seed=0)
    assert digest(*waves) == "e856c0038eec6b119afc97556d28470b289db90cabe9f12e4466cb2c1cfc4f41"


def test_a_digest_tells_shape_and_type() -> None:
    zeros = np.zeros(4)
    others = [zeros.reshape(2, 2), zeros.astype(np.float32), np.ones(4), np.zeros(5)]
    assert len({digest(array) for array in (zeros, *others)}) == 5
    assert digest(zeros) == digest(zeros.astype(">f8"))
