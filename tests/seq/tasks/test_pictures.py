"""Pictures of evaluations: files that do not change, and that draw what they are given."""

from __future__ import annotations

import io

import matplotlib
import numpy as np
import pytest
from PIL import Image

from rlseq.seq.tasks import pictures
from rlseq.seq.tasks.pictures import Forecast, confusion_picture, forecast_picture, without_pictures


def pixels(picture: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)


def test_a_confusion_picture_shows_shares() -> None:
    right, wrong = np.diag([5, 500]), np.diag([5, 500])[::-1]
    first, again, other = (pixels(confusion_picture(m, ("a", "b"))) for m in (right, right, wrong))
    np.testing.assert_array_equal(first, again)
    # The same fields are dark in another place: 3,000 of the pixels at least, of a class of 5 as of one of 500.
    assert first.shape == other.shape and (np.abs(first - other).sum(-1) > 200).sum() > 10_000


def test_many_and_odd_classes_are_drawn() -> None:
    names = tuple(f"a very long name of a class ${k}" for k in range(60))
    assert confusion_picture(np.zeros((60, 60)), names).startswith(b"\x89PNG")
    assert confusion_picture(np.eye(13), ("$x^$", "_{", "\\", *names[:10])).startswith(b"\x89PNG")


def test_a_forecast_picture_shows_band_and_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    history, truth = np.sin(np.arange(50) / 3), np.sin(np.arange(50, 60) / 3)
    band = (truth - 0.5, truth + 0.5)
    plain = pixels(forecast_picture([Forecast(history, truth, truth + 0.1, None)], "x", None))
    banded = pixels(forecast_picture([Forecast(history, truth, truth + 0.1, band)], "x", (0.1, 0.9)))
    assert plain.shape == banded.shape and (np.abs(plain - banded).sum(-1) > 20).sum() > 1000
    # The user's own settings change nothing, and are left as they were.
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "red")
    np.testing.assert_array_equal(
        pixels(forecast_picture([Forecast(history, truth, truth + 0.1, None)], "x", None)), plain
    )
    assert matplotlib.rcParams["axes.facecolor"] == "red"


@pytest.mark.parametrize("scale", [1e-7, -0.012345, 99_999.5, -999_999, 1e30])
def test_the_numbers_beside_a_forecast_leave_room_for_the_targets_name(scale: float) -> None:
    values = scale * (1 + np.arange(8) / 8)
    windows = [Forecast(values, values[:4], values[:4], None), Forecast(-values, values[:4], values[:4], None)]
    ink = (pixels(forecast_picture(windows, "a long name of it", None)) < 230).any(-1)
    assert not (ink[[0, -1]].any() or ink[:, [0, -1]].any())  # nothing is cut off
    first = int(ink.any(0).argmax())
    end = first + int(ink[:, first:].any(0).argmin())
    assert 8 < end - first < 20 and not ink[:, end : end + 3].any()


def test_without_matplotlib_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_pictures() == []
    monkeypatch.setattr(pictures.importlib.util, "find_spec", lambda name: None)
    assert without_pictures() == [
        'evaluations are not drawn, because matplotlib is not installed: pip install "rlseq[plots]"'
    ]
