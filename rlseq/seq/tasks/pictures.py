"""Pictures of what a model answered, as PNG (extra `plots`)."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rlseq.drawing import COLOURS, encoded, styled
from rlseq.errors import install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBERED = 12  # classes, up to which each field says its number
NAMED = 40  # classes, up to which they are named
LETTERS = 16  # of a class' name
HISTORY = 4  # times the horizon, of what was read before a forecast
SHORTEST_HISTORY = 32
# Inches of a picture of forecasts: fixed, because a layout that fits its numbers takes two thirds longer to draw.
WIDTH, WINDOW, BETWEEN = 6.4, 1.3, 0.18  # of the picture; height of a window, and from one to the next
LEFT, RIGHT, ABOVE, BELOW = 0.93, 0.1, 0.3, 0.5  # to the left the target's name and its values stand


class Forecast(NamedTuple):
    """One window.

    Attributes:
        history: `[T]`, what was read.
        truth: `[H]`, what followed.
        point: `[H]`, the forecast.
        band: its outer quantiles `[H]`, lowest and highest; None without.
    """

    history: np.ndarray
    truth: np.ndarray
    point: np.ndarray
    band: tuple[np.ndarray, np.ndarray] | None


def without_pictures() -> list[str]:
    """A note, if pictures cannot be drawn here."""
    with contextlib.suppress(ModuleNotFoundError):  # what keeps a package out may say so
        if importlib.util.find_spec("matplotlib") is not None:
            return []
    return [f"evaluations are not drawn, because matplotlib is not installed: {install_command('plots')}"]


def confusion_picture(confusion: np.ndarray, classes: Sequence[str]) -> bytes:
    """How many series of each class (row) were given each (column).

    Args:
        confusion: `[K, K]`.
        classes: names.

    Returns:
        A PNG.
    """
    with styled():
        from matplotlib.figure import Figure

        side = 2.2 + 0.45 * min(len(classes), NUMBERED)
        figure = Figure(figsize=(side + 0.8, side), dpi=110, layout="constrained")
        axes = figure.add_subplot()
        axes.grid(False)
        # Shares of each class: a frequent one would outshine the others.
        shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(image, ax=axes, label="share of the class", shrink=0.8)
        axes.set_xlabel("what the model says")
        axes.set_ylabel("class")
        ticks = range(len(classes)) if len(classes) <= NAMED else []
        names = [_short(classes[tick]) for tick in ticks]
        axes.set_xticks(ticks, names, rotation=90 if len(classes) > 4 else 0)
        axes.set_yticks(ticks, names)
        if len(classes) <= NUMBERED:
            for row, column in np.ndindex(confusion.shape):
                colour = "white" if shares[row, column] > 0.5 else "black"
                number = f"{confusion[row, column]:.0f}"
                # Inside its field, so the layout need not measure it: for 12 classes that would be 144 of them.
                axes.text(column, row, number, ha="center", va="center", color=colour, in_layout=False)
        return encoded(figure, "png")


def _short(name: str) -> str:
    # "$" would begin a formula.
    return (name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…").replace("$", r"\$")


def forecast_picture(windows: Sequence[Forecast], target: str, quantiles: tuple[float, float] | None) -> bytes:
    """Windows below each other: the end of what was read, what followed, and its forecast.

    Args:
        windows: one or more.
        target: the name of what is forecast.
        quantiles: the outer ones, if the windows have a band.

    Returns:
        A PNG.
    """
    with styled():
        from matplotlib.figure import Figure

        height = ABOVE + len(windows) * (WINDOW + BETWEEN) - BETWEEN + BELOW
        figure = Figure(figsize=(WIDTH, height), dpi=110)
        figure.subplots_adjust(
            left=LEFT / WIDTH,
            right=1 - RIGHT / WIDTH,
            top=1 - ABOVE / height,
            bottom=BELOW / height,
            hspace=BETWEEN / WINDOW,
        )
        axes = figure.subplots(len(windows), 1, sharex=True, squeeze=False)[:, 0]
        for window, part in zip(windows, axes, strict=True):
            _draw_window(part, window, quantiles)
        figure.supylabel(_short(target), x=0.05 / WIDTH, fontsize=9.0)
        axes[-1].set_xlabel("rows after the last one read")
        axes[0].legend(loc="upper left", ncols=4, bbox_to_anchor=(0.0, 1.25))
        return encoded(figure, "png")


def _draw_window(axes: Axes, window: Forecast, quantiles: tuple[float, float] | None) -> None:
    ahead = np.arange(1, len(window.truth) + 1)
    history = window.history[-max(SHORTEST_HISTORY, HISTORY * len(ahead)) :]
    axes.plot(np.arange(1 - len(history), 1), history, color=COLOURS[6], linewidth=1.0, label="read")
    axes.plot(ahead, window.truth, color=COLOURS[0], marker=".", linewidth=1.2, label="followed")
    axes.plot(ahead, window.point, color=COLOURS[1], marker=".", linestyle="--", linewidth=1.2, label="forecast")
    if window.band is not None and quantiles is not None:
        label = f"{100 * quantiles[0]:g} to {100 * quantiles[1]:g} %"
        axes.fill_between(ahead, *window.band, color=COLOURS[1], alpha=0.2, linewidth=0, label=label)
    axes.axvline(0, color="#888888", linewidth=0.8, linestyle=":")
