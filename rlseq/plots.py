"""Pictures of curves (extra `plots`): the same data give the same file, whatever matplotlib is set up for elsewhere."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlseq.curves import Curve, over_seeds
from rlseq.drawing import COLOURS, encoded, styled
from rlseq.errors import UsageError, require
from rlseq.files import write_bytes
from rlseq.scores import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")
LEGEND_WIDTH = 88  # characters of a line, which is about as wide as the picture
# Dashes tell groups beyond the seventh colour.
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.")
AXIS = {
    "eval/return_mean": "mean return of the evaluation episodes",
    "eval/return_std": "standard deviation of the evaluation episodes' returns",
    "train/return": "return of the exploring agent's episodes",
    "train/episode_length": "steps of the exploring agent's episodes",
    "eval/word_share": "share of the sample's words that occur in the data",
    "train/loss": "loss",
    "train/grad_norm": "norm of the gradient",
    "train/lr": "learning rate",
    "train/tokens_per_second": "tokens, or other predictions, per second",
    "time/env_steps_per_second": "environment steps per second",
    "time/updates_per_second": "updates per second",
}


def axis_of(tag: str, judged: str) -> str:
    """What a curve shows, for its axis.

    Args:
        tag: its name.
        judged: as in `rlseq.scores.METRICS`: a loss is not of the same unit in all tasks.
    """
    metric = next((metric for metric in METRICS[judged] if metric.curve == tag), None)
    if metric is None or tag in AXIS:
        return AXIS.get(tag, tag)
    return f"{metric.words} on the validation split" + (f", {metric.unit}" if metric.unit else "")


def known_curves() -> list[str]:
    """The names of the curves that have words."""
    return list(dict.fromkeys([*AXIS, *(metric.curve for metrics in METRICS.values() for metric in metrics)]))


class Series(NamedTuple):
    """The curves of one group of runs, one a run."""

    label: str
    curves: Sequence[Curve]


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be written in the end.

    Raises:
        UsageError: its name ends in neither .png nor .svg, or its folder does not exist.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: a picture's name must end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}. Make it first, or give another path.")
    require("matplotlib", "drawing curves")


def draw_curves(
    path: Path,
    series: Sequence[Series],
    *,
    title: str,
    axis: str,
    interval: bool = False,
    steps: str = "environment steps",
) -> None:
    """Draw each group's mean over its runs, against the steps, with a band from the lowest run to the highest.

    What a run has beyond the steps that all of its group have is drawn as a thin line of its own.

    Args:
        path: a .png or .svg file; replaced if it exists.
        series: one or more groups.
        title: above the picture.
        axis: what the curves are of; see `axis_of`.
        interval: draw the mean's 95 % interval too (for one group; of several they would cover each other).
        steps: what the steps are, for the axis.

    Raises:
        UsageError, MissingExtra: as `check_picture`.
        RlseqError: the file cannot be written.
    """
    check_picture(path)
    from matplotlib.figure import Figure

    with styled():
        lines = sum(len(textwrap.wrap(group.label, LEGEND_WIDTH)) for group in series)
        figure = Figure(figsize=(7.0, 4.0 + 0.18 * lines), dpi=150, layout="constrained")
        axes = figure.add_subplot()
        for index, group in enumerate(series):
            _draw_group(axes, group, index, interval)
        _label(axes, title, axis, steps)
        figure.legend(loc="outside lower left", ncols=3 if len(series) == 1 else 1)
        picture = encoded(figure, path.suffix.lower().removeprefix("."))
    write_bytes(path, picture)


def _draw_group(axes: Axes, group: Series, index: int, interval: bool) -> None:
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]
    common = over_seeds(group.curves)
    look: dict[str, Any] = {"color": colour, "linestyle": dash, "marker": "o" if len(common.steps) == 1 else None}
    for curve in group.curves:
        beyond = curve.steps >= (common.steps[-1] if len(common.steps) else 0)
        if beyond.sum() > 1:
            axes.plot(curve.steps[beyond], curve.values[beyond], color=colour, linestyle=dash, linewidth=0.7, alpha=0.7)
    if common.half_width is not None:
        label = "lowest to highest run" if interval else None
        axes.fill_between(
            common.steps, common.lowest, common.highest, color=colour, alpha=0.15, linewidth=0, label=label
        )
    if interval and common.half_width is not None:
        limits = axes.get_ylim()
        edges = np.stack([common.mean - common.half_width, common.mean + common.half_width], axis=1)  # [P, 2]
        lines = axes.plot(common.steps, edges, color=colour, linestyle=(0, (4, 2)), linewidth=0.9)
        lines[0].set_label("95 % interval of the mean")
        axes.set_ylim(limits)  # the interval of few runs is far wider than anything they did
    axes.plot(common.steps, common.mean, linewidth=1.8, label=textwrap.fill(group.label, LEGEND_WIDTH), **look)


def _label(axes: Axes, title: str, axis: str, steps: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(title, loc="left", fontsize=10.0)
    axes.set_xlabel(steps)
    axes.set_ylabel(axis)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
    axes.set_xlim(left=0)


def thousands(steps: float) -> str:
    """`0`, `500`, `20,000`, `1.5 M`: a number of steps on an axis."""
    if abs(steps) >= 1e6:
        return f"{steps / 1e6:g} M"
    return f"{round(steps):,}" if np.isclose(steps, round(steps)) else f"{steps:g}"
