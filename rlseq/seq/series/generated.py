"""Series that are computed, the same everywhere: waveforms with labels, and two chaotic systems.

Nothing here calls a function whose last bit may differ between machines (`sin`, `pow`, `exp`): only sums, differences,
products and quotients of doubles, each rounded by itself, and uniform numbers of a fixed seed. So the data, and their
SHA-256, are the same on every machine, which chaos would not forgive otherwise.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

WAVEFORMS = ("sine", "square", "triangle", "sawtooth")
NOISE = 0.1  # standard deviation, as a share of the amplitude
CYCLES = (0.03, 0.1)  # of a waveform in one step: 10 to 33 steps a cycle
AMPLITUDE = (0.5, 2.0)
# Taylor's series of the sine, x - x^3/3! + ... as factors from the highest power down: 6e-8 off at a quarter turn.
SINE = (-1 / 110, -1 / 72, -1 / 42, -1 / 20, -1 / 6)
TAU = 17  # of Mackey and Glass' equation: chaos, of dimension about 2.1
STEPS_A_UNIT = 10  # of Runge and Kutta in one unit of time
WARM_UP = 1000  # units of time, after which the series has forgotten how it began
LORENZ_STEP = 0.01
LORENZ_EVERY = 2  # steps between two rows
LORENZ_WARM_UP = 2000  # steps


class Waves(NamedTuple):
    """N sequences of different lengths, one after the other.

    Attributes:
        values: `[sum of lengths]` float32.
        lengths: `[N]` int64.
        labels: `[N]` int64, indices of `WAVEFORMS`.
    """

    values: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray


def waveforms(count: int, *, min_length: int, length: int, seed: int) -> Waves:
    """Sines, squares, triangles and sawtooths of random frequency, phase and amplitude, with noise.

    As many of each, in random order; a length is any from `min_length` to `length`.

    Args:
        count: how many.
        min_length: of the shortest.
        length: of the longest.
        seed: of everything that is random.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    labels = rng.permutation(np.arange(count) % len(WAVEFORMS))
    lengths = rng.integers(min_length, length + 1, size=count)
    frequency, phase, amplitude = (_between(rng, count, *ends) for ends in (CYCLES, (0.0, 1.0), AMPLITUDE))
    of = np.repeat(np.arange(count), lengths)  # the sequence of each value
    step = np.arange(len(of)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    turns = phase[of] + frequency[of] * step
    turns -= np.floor(turns)
    shapes = (sine(turns), np.where(turns < 0.5, 1.0, -1.0), 4 * np.abs(turns - 0.5) - 1, 2 * turns - 1)
    clean = np.select([labels[of] == kind for kind in range(len(WAVEFORMS))], shapes)
    values = amplitude[of] * (clean + NOISE * _noise(rng, len(of)))
    return Waves(values.astype(np.float32), lengths.astype(np.int64), labels.astype(np.int64))


def sine(turns: np.ndarray) -> np.ndarray:
    """The sine of `turns`, in turns from 0 to 1, to 1e-7."""
    folded = np.abs(np.abs(turns - 0.25) - 0.5) - 0.25  # -1/4 to 1/4, of the same sine
    x = (2 * np.pi) * folded
    square = x * x
    series = np.ones_like(x)
    for factor in SINE:
        series = 1.0 + factor * square * series
    return x * series


def _between(rng: np.random.Generator, count: int, low: float, high: float) -> np.ndarray:
    return low + (high - low) * rng.random(count)


def _noise(rng: np.random.Generator, count: int) -> np.ndarray:
    """The sum of twelve uniform numbers, less 6: mean 0, variance 1, close to normal."""
    total = np.full(count, -6.0)
    for _ in range(12):
        total += rng.random(count)
    return total


def mackey_glass(rows: int) -> np.ndarray:
    """`[rows, 1]` float64: x at whole units of time, of dx/dt = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x(t).

    M. C. Mackey and L. Glass, Oscillation and chaos in physiological control systems, Science 197 (1977) 287-289, with
    the delay at which it is chaotic. Runge and Kutta's fourth-order method in steps of 0.1 from x = 1.2 (before t = 0
    too); what was half a step between two values 17 earlier is interpolated by a cubic. The first `WARM_UP` units are
    left out.
    """
    h, delay = 1 / STEPS_A_UNIT, TAU * STEPS_A_UNIT
    past = [1.2] * (delay + 2)  # x at the steps -delay - 1, ..., 0: `past[n + delay + 1]` is x at step n
    x = 1.2
    for n in range((WARM_UP + rows - 1) * STEPS_A_UNIT):
        a, b, c, d = past[n : n + 4]  # n - delay - 1 to n - delay + 2
        first, middle, last = _feedback(b), _feedback((9 * (b + c) - (a + d)) / 16), _feedback(c)
        k1 = first - 0.1 * x
        k2 = middle - 0.1 * (x + h / 2 * k1)
        k3 = middle - 0.1 * (x + h / 2 * k2)
        k4 = last - 0.1 * (x + h * k3)
        x += h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        past.append(x)
    return np.array(past[delay + 1 :: STEPS_A_UNIT][WARM_UP:])[:, None]


def _feedback(delayed: float) -> float:
    square = delayed * delayed
    fourth = square * square
    return 0.2 * delayed / (1.0 + fourth * fourth * square)


def lorenz(rows: int) -> np.ndarray:
    """`[rows, 3]` float64: x, y, z every 0.02 units of time, of Lorenz's equations.

    dx/dt = 10 (y - x), dy/dt = x (28 - z) - y, dz/dt = x y - 8/3 z. E. N. Lorenz, Deterministic nonperiodic flow,
    Journal of the Atmospheric Sciences 20 (1963) 130-141. Runge and Kutta's fourth-order method in steps of 0.01 from
    (1, 1, 1), without the first 20 units.
    """
    state, made = (1.0, 1.0, 1.0), []
    for step in range(LORENZ_WARM_UP + rows * LORENZ_EVERY):
        if step >= LORENZ_WARM_UP and (step - LORENZ_WARM_UP) % LORENZ_EVERY == 0:
            made.append(state)
        k1 = _flow(state)
        k2 = _flow(_moved(state, k1, LORENZ_STEP / 2))
        k3 = _flow(_moved(state, k2, LORENZ_STEP / 2))
        k4 = _flow(_moved(state, k3, LORENZ_STEP))
        x, y, z = (
            s + LORENZ_STEP / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)
        )
        state = (x, y, z)
    return np.array(made)


def _flow(state: tuple[float, float, float]) -> tuple[float, float, float]:
    x, y, z = state
    return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z


def _moved(
    state: tuple[float, float, float], slope: tuple[float, float, float], h: float
) -> tuple[float, float, float]:
    return state[0] + h * slope[0], state[1] + h * slope[1], state[2] + h * slope[2]


def digest(*arrays: np.ndarray) -> str:
    """The SHA-256 of arrays: shapes, types and little-endian bytes."""
    taken = hashlib.sha256()
    for values in arrays:
        little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
        taken.update(f"{little.dtype.str} {little.shape}\n".encode())
        taken.update(little.tobytes())
    return taken.hexdigest()
