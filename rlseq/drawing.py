"""What all pictures share (extra `plots`): look and file. matplotlib's own settings and state are left aside."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Whatever a user's matplotlibrc says is left aside; text in an SVG stays text, and its ids are not drawn at random.
STYLE: Any = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "rlseq",
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """matplotlib with its defaults and `STYLE`, for a while."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def encoded(figure: Figure, kind: str) -> bytes:
    """A figure as a file, the same whenever it is written.

    Args:
        figure: drawn while `styled`.
        kind: png or svg.
    """
    plain: dict[str, Any] = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box is drawn for a letter it lacks
        figure.savefig(picture, format=kind, metadata=plain)
    return picture.getvalue()
