"""The commands on a real, tiny sequence model: nothing here is a stand-in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlseq import zoo
from rlseq.cli.main import app
from tests.cli.conftest import Cli, failed, only_json
from tests.training import SMALL_SEQ, settings, write_text


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `mine`, and what its training said."""
    place = tmp_path_factory.mktemp("real")
    write_text(place / "text.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("RLSEQ_RUNS", raising=False)
        patch.setattr(zoo, "agents_folder", lambda: place / "agents")
        words = ["train", "seq", "--data", "text.txt", "--name", "mine", *settings(small=SMALL_SEQ)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        (place / "first.txt").write_text(result.output)
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder as the current one."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLSEQ_RUNS", raising=False)
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "agents")
    return tmp_path


def test_what_training_says(trained: Path) -> None:
    text = (trained / "first.txt").read_text()
    for said in ("1 layer, 16 wide", "parameters", "24, each of 6 x 12 = 72 tokens", "rlseq generate runs/mine"):
        assert said in text, text


def test_export(cli: Cli, place: Path) -> None:
    shown = cli("export runs/mine --out other.onnx")
    assert shown.exit_code == 0, shown.output
    assert "whole and token by token" in " ".join(shown.stdout.split())
    assert (place / "other.onnx").read_bytes() == (place / "runs/mine/model.onnx").read_bytes()
    failed(cli("export runs/mine --import math --out x.onnx"), 2, "--import", "a sequence model, without env")


def test_generate_says_what_is_wrong_before_it_writes(cli: Cli, place: Path) -> None:
    good = only_json(cli("generate runs/mine --tokens 20 --prompt abba --json"))
    assert len(good["text"]) == good["tokens"] == 20
    for words, message in {
        "--top-p 2": "top_p 2.0",
        "--temperature inf": "temperature inf",
        "--tokens 0": "--tokens",
        "--top-k 0": "--top-k",
        "--prompt ''": "the prompt is empty",
        "--prompt Q": "'Q'",
        "--checkpoint 7": "no checkpoint '7'",
    }.items():
        result = cli(f"generate runs/mine {words}")
        failed(result, 2, message)
        assert result.stdout == "", words


def test_what_belongs_to_policies_is_refused(cli: Cli, place: Path) -> None:
    assert only_json(cli("eval runs/mine --json"))["tokens"] > 100
    failed(cli("eval runs/mine --env CartPole-v1"), 2, "--env CartPole-v1: mine is a sequence model")
    failed(cli("eval runs/mine --envs 3"), 2, "--envs 3")
    result = cli("play runs/mine")
    failed(result, 2, "rlseq generate")
    assert "Playing" not in result.stderr
