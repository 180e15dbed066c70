"""Series from a CSV file to predictions in another: real, tiny models, and what predicts them has no torch."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from rlseq import zoo
from rlseq.cli.main import app
from tests.cli.conftest import Cli, failed

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--recipe", "none", "--threads", "1", "--batch-size", "16", "--lr", "0.02")
NET = ("--set", "net.layers=1", "--set", "net.width=16")
BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "onnx", "onnxscript", "tensorboard", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from rlseq.cli.main import main
main()
"""


class Trained(NamedTuple):
    """A folder with a run and its data, and the training's JSON."""

    place: Path
    summary: dict[str, Any]


def train(place: Path, *words: str) -> Trained:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("RLSEQ_RUNS", raising=False)
        patch.setattr(zoo, "agents_folder", lambda: place / "agents")
        result = CliRunner().invoke(app, ["train", "seq", *words, "--name", "mine", "--json", *SMALL, *NET])
        assert result.exit_code == 0, result.output
    return Trained(place, json.loads(result.stdout))


def without_torch(place: Path, *words: str) -> dict[str, Any]:
    """A command's JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKED, *words, "--json"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(place)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def table(path: Path) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))


def images(run: Path) -> set[str]:
    events = EventAccumulator(str(run), size_guidance={"images": 1})
    events.Reload()
    return set(events.Tags()["images"])


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Series of 3 to 9 rows that rise or fall; the scale of one feature is a thousand times that of the other."""
    place, rng = tmp_path_factory.mktemp("classes"), np.random.default_rng(0)
    lines = ["id,x,noise,trend"]
    for number in range(60):
        sign = 1 - 2 * (number % 2)
        lines += [
            f"s{number},{1000 * (sign * step + rng.normal()):.2f},{rng.normal():.3f},{'rises' if sign > 0 else 'falls'}"
            for step in range(rng.integers(3, 10))
        ]
    (place / "data.csv").write_text("\n".join(lines) + "\n")
    words = "classify --data data.csv --label trend --group id --net encoder --steps 40 --set seq.validation=0.2"
    return train(place, *words.split(), "--set", "seq.buckets=2", "--set", "net.heads=2")


def test_classes_are_learnt_shown_and_predicted(classes: Trained) -> None:
    place, summary = classes
    assert summary["accuracy"] > 0.8 and summary["tokens"] == 12 and summary["f1"] > 0.8
    assert images(place / "runs/mine") >= {"confusion", "confusion/best"}
    told = without_torch(place, "predict", "runs/mine", "--data", "data.csv", "--out", "said.csv")
    header, *rows = table(place / "said.csv")
    assert header == ["id", "trend", "predicted", "p_falls", "p_rises"] and [row[0] for row in rows[:2]] == ["s0", "s1"]
    assert told["accuracy"] == sum(row[1] == row[2] for row in rows) / 60 > 0.8
    # From the file alone the metrics are the training's.
    again = without_torch(place, "eval", "runs/mine/model.onnx", "--data", "data.csv")
    for name in ("accuracy", "f1", "loss"):
        assert again[name] == pytest.approx(summary[name], abs=1e-5)


def test_a_checkpoint_says_the_same_as_its_export(classes: Trained, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(classes.place)
    for out, more in (("a.csv", ""), ("b.csv", "--checkpoint best")):
        assert cli(f"predict runs/mine --data data.csv --out {out} {more}").exit_code == 0
    first, second = table(classes.place / "a.csv"), table(classes.place / "b.csv")
    assert [row[:3] for row in first] == [row[:3] for row in second]
    shares = [np.array([row[3:] for row in rows[1:]], np.float64) for rows in (first, second)]
    np.testing.assert_allclose(*shares, atol=1e-5)
    failed(cli("predict runs/mine/model.onnx --data data.csv --out c.csv --checkpoint best"), 2, "only a run has")


@pytest.fixture(scope="module")
def forecasts(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    place = tmp_path_factory.mktemp("forecasts")
    row = np.arange(400)
    values = 1000 + 50 * np.sin(row / 4)
    (place / "data.csv").write_text("day;x\n" + "".join(f"{n % 7};{x:.3f}\n" for n, x in zip(row, values, strict=True)))
    words = "forecast --data data.csv --target x --horizon 3 --context 12 --net lstm --steps 60 --loss quantile"
    return train(place, *words.split(), "--set", "seq.validation=0.1")


def test_forecasts_are_learnt_shown_and_predicted(forecasts: Trained) -> None:
    place, summary = forecasts
    assert summary["naive_ratio"] < 0.6 and summary["mae"] < 15 and 0 <= summary["coverage"] <= 1
    assert summary["tokens"] == 38 * 3 and images(place / "runs/mine") >= {"forecasts", "forecasts/best"}
    told = without_torch(place, "predict", "runs/mine", "--data", "data.csv", "--out", "said.csv", "--every", "1")
    header, *rows = table(place / "said.csv")
    assert header == ["after_row", "step", "x", "x_q0.1", "x_q0.5", "x_q0.9"] and told["windows"] == 389
    # The windows of the validation part are the last but three, and their error is the training's.
    said = np.array([row for row in rows if 360 <= int(row[0]) <= 397], np.float64)
    truth = 1000 + 50 * np.sin((said[:, 0] + said[:, 1] - 1) / 4)
    assert len(said) == 38 * 3 and np.abs(said[:, 2] - truth).mean() == pytest.approx(summary["mae"], rel=1e-3)
    again = without_torch(place, "eval", "runs/mine/model.onnx", "--data", "data.csv")
    assert again["mase"] == pytest.approx(summary["mase"], rel=1e-4)
    # On another file all windows are measured.
    (place / "other.csv").write_text(
        "x,day\n" + "".join(f"{1000 + 50 * np.sin(n / 4):.3f},{n % 7}\n" for n in range(360, 400))
    )
    for what in ("runs/mine", "runs/mine/model.onnx"):
        other = without_torch(place, "eval", what, "--data", "other.csv")
        assert other["tokens"] == (40 - 12 - 3 + 1) * 3 and other["mae"] == pytest.approx(summary["mae"], rel=0.5)
