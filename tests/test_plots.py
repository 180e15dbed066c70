"""Pictures of curves: same data, same file; nothing of anybody's matplotlib is touched."""

from __future__ import annotations

import importlib
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from PIL import Image

from rlseq.curves import Curve
from rlseq.errors import MissingExtra, UsageError
from rlseq.plots import AXIS, COLOURS, LEGEND_WIDTH, Series, check_picture, draw_curves, thousands

STEPS = np.arange(1, 9) * 1_000
TITLE, TAG = "CartPole-v1", "eval/return_mean"


def series(label: str = "ours", runs: int = 3) -> Series:
    """A group of runs that rise, the later ones more slowly."""
    return Series(label, [Curve(STEPS, np.linspace(10, 500 - 40 * k, len(STEPS))) for k in range(runs)])


def texts(path: Path) -> list[str]:
    """The words in an SVG."""
    return [text for text in xml.etree.ElementTree.parse(path).getroot().itertext() if text.strip()]


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_the_same_data_give_the_same_file(tmp_path: Path, name: str) -> None:
    draw_curves(tmp_path / name, [series()], title=TITLE, axis=AXIS[TAG], interval=True)
    first = (tmp_path / name).read_bytes()
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 40.0}):
        draw_curves(tmp_path / name, [series()], title=TITLE, axis=AXIS[TAG], interval=True)
        assert matplotlib.rcParams["font.size"] == 40.0
    assert (tmp_path / name).read_bytes() == first
    draw_curves(tmp_path / name, [series(runs=2)], title=TITLE, axis=AXIS[TAG], interval=True)
    assert (tmp_path / name).read_bytes() != first


def test_a_png_says_nothing_of_when_and_by_what_it_was_made(tmp_path: Path) -> None:
    draw_curves(tmp_path / "a.png", [series()], title=TITLE, axis=AXIS[TAG])
    with Image.open(tmp_path / "a.png") as image:
        assert image.size[0] == 1050
        assert set(image.info) == {"dpi"}


def test_each_group_has_its_colour_and_band(tmp_path: Path) -> None:
    draw_curves(tmp_path / "a.png", [series("one"), series("two", runs=1)], title=TITLE, axis=AXIS[TAG])
    with Image.open(tmp_path / "a.png") as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)

    def count(colour: str) -> int:
        rgb = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
        return int((pixels == rgb).all(1).sum())

    assert count(COLOURS[0]) > 500 and count(COLOURS[1]) > 500
    assert count(COLOURS[2]) == 0
    band = [round(255 - 0.15 * (255 - int(COLOURS[0][k : k + 2], 16))) for k in (1, 3, 5)]
    assert (np.abs(pixels.astype(int) - band).max(1) <= 1).sum() > 5_000


def test_words(tmp_path: Path) -> None:
    draw_curves(tmp_path / "a.svg", [series()], title=TITLE, axis=AXIS[TAG], interval=True)
    found = texts(tmp_path / "a.svg")
    for words in (TITLE, "environment steps", "mean return of the evaluation episodes", "ours", "8,000"):
        assert words in found
    assert "95 % interval of the mean" in found and "lowest to highest run" in found
    draw_curves(tmp_path / "a.svg", [series(runs=1)], title=TITLE, axis="my/curve", interval=True)
    found = texts(tmp_path / "a.svg")
    assert "my/curve" in found  # a curve without words of its own
    assert "95 % interval of the mean" not in found  # of one run


def test_a_long_name_is_folded(tmp_path: Path) -> None:
    draw_curves(tmp_path / "a.svg", [series("word " * 40)], title=TITLE, axis=AXIS[TAG])
    lines = [text for text in texts(tmp_path / "a.svg") if "word" in text]
    assert len(lines) == 3
    assert max(map(len, lines)) <= LEGEND_WIDTH


def test_what_one_run_has_beyond_the_others_is_a_thin_line(tmp_path: Path) -> None:
    long, short = Curve(STEPS, STEPS / 10), Curve(STEPS[:4], STEPS[:4] / 20)

    def blue_on_the_right(*curves: Curve) -> int:
        draw_curves(tmp_path / "a.png", [Series("runs", curves)], title=TITLE, axis=AXIS[TAG], interval=True)
        with Image.open(tmp_path / "a.png") as image:
            pixels = np.asarray(image.convert("RGB")).astype(int)
        right = pixels[:500, 700:]  # above the legend, beyond the fifth of eight evaluations
        return int((right[..., 2] - right[..., 0] > 60).sum())

    thick, thin = blue_on_the_right(long), blue_on_the_right(long, short)
    assert 100 < thin < 0.7 * thick


def test_runs_without_a_common_step_are_drawn_each_for_itself(tmp_path: Path) -> None:
    odd, even = Curve(STEPS[::2], STEPS[::2] / 10), Curve(STEPS[1::2], STEPS[1::2] / 20)
    draw_curves(tmp_path / "a.svg", [Series("runs", [odd, even])], title=TITLE, axis=AXIS[TAG], interval=True)
    assert (tmp_path / "a.svg").read_text().count("stroke-opacity: 0.7") == 2


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.pdf"])
def test_other_kinds_of_pictures_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"must end in \.png or \.svg"):
        check_picture(tmp_path / name)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere"):
        check_picture(tmp_path / "nowhere" / "a.png")


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtra, match=r'drawing curves needs .* matplotlib.*pip install "rlseq\[plots\]"'):
        check_picture(tmp_path / "a.png")


def test_pyplot_is_never_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import numpy as np; from rlseq.curves import Curve;"
        "from rlseq.plots import Series, draw_curves; c = Curve(np.arange(3), np.arange(3.0));"
        f"draw_curves(Path({str(tmp_path / 'a.png')!r}), [Series('a', [c])], title='t', axis='x');"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(
    ("steps", "text"), [(0, "0"), (500, "500"), (20_000, "20,000"), (1_500_000, "1.5 M"), (2_000_000, "2 M")]
)
def test_numbers_of_steps(steps: float, text: str) -> None:
    assert thousands(steps) == text
