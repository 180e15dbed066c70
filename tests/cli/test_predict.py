"""`rlseq predict`: the words, the JSON, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlseq import predicting
from rlseq.locate import Located
from tests.cli.conftest import Cli, failed, only_json
from tests.test_predicting import SERIES, Largest, Line


@pytest.fixture
def classes(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """A model of two classes in m.onnx, and data for it; gives the checkpoints that were asked for."""
    asked: list[str | None] = []

    def opened(found: Located, checkpoint: str | None) -> Largest:
        asked.append(checkpoint)
        return Largest(context=1)

    (place / "m.onnx").touch()
    (place / "data.csv").write_text("a,kind,b\n1,up,2\n-1,up,-1\n3,up,1\n")
    monkeypatch.setattr(predicting, "opened_model", opened)
    return asked


def test_it_says_what_was_written(cli: Cli, place: Path, classes: list[str | None]) -> None:
    result = cli("predict m.onnx --data data.csv --label kind --out out.csv")
    assert result.exit_code == 0, result.output
    assert "3 rows to out.csv" in result.stdout and "66.67 % of the labels in the data" in result.stdout
    assert "Note: series of up to 2 values" in result.stderr and classes == [None]
    assert (place / "out.csv").read_text().splitlines()[1].startswith("1,up,up,0.18")
    quiet = cli("predict m.onnx --data data.csv --label kind --out out.csv --quiet --checkpoint last")
    assert quiet.stderr == "" and quiet.stdout == result.stdout and classes == [None, "last"]


def test_a_dash_is_stdout_and_nothing_else_goes_there(cli: Cli, place: Path, classes: list[str | None]) -> None:
    cli("predict m.onnx --data data.csv --label kind --out out.csv")
    result = cli("predict m.onnx --data data.csv --label kind --out -")
    assert result.exit_code == 0, result.output
    assert result.stdout == (place / "out.csv").read_text() and not (place / "-").exists()
    assert "Note: series of up to 2 values" in result.stderr and "accuracy: 66.67 % of the labels" in result.stderr
    failed(cli("predict m.onnx --data data.csv --out - --json"), 2, "--out - and --json both print on stdout")


def test_json_is_all_there_is(cli: Cli, classes: list[str | None]) -> None:
    told = only_json(cli("predict m.onnx --data data.csv --label kind --out out.csv --json"))
    assert told["accuracy"] == 2 / 3 and told["predictions"] == 3 and told["kind"] == "classify"
    assert (told["data"], told["out"], told["path"]) == ("data.csv", "out.csv", "m.onnx")


def test_every_is_for_forecasts(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "m.onnx").touch()
    (place / "data.csv").write_text(SERIES)
    monkeypatch.setattr(predicting, "opened_model", lambda found, checkpoint: Line())
    assert only_json(cli("predict m.onnx --data data.csv --out out.csv --every 2 --json"))["windows"] == 3
    failed(cli("predict m.onnx --data data.csv --out out.csv --every 0"), 2, "--every")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("m.onnx --out out.csv", "--data"),
        ("m.onnx --data data.csv", "--out"),
        ("m.onnx --data no.csv --out out.csv", "there is no file 'no.csv'"),
        ("m.onnx --data data.csv --label kinds --out out.csv", "Did you mean kind?"),
        ("m.onnx --data data.csv --out data.csv", "is the data itself"),
        ("n.onnx --data data.csv --out out.csv", "there is no file n.onnx"),
    ],
)
def test_mistakes(cli: Cli, place: Path, classes: list[str | None], words: str, message: str) -> None:
    failed(cli(f"predict {words}"), 2, message)
    assert not (place / "out.csv").exists()
