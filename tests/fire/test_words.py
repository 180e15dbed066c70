"""What is said to odd paths, names and runs that were edited by hand, and what to do then."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from rlseq.engine.metrics import EVENT_FILE
from tests.fire.forks import HERE, NAME, RESUME, Ended, Server, begin, borrowed
from tests.training import curves

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="every command is a fork")

LONG = "n" * 300


@pytest.fixture(scope="module")
def trained(pool: SimpleQueue[Server], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    with borrowed(pool) as server:
        assert server(*begin("CartPole-v1"), cwd=place, env=HERE, export="stub").code == 0
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "here")
    return tmp_path / "here"


def refused(ended: Ended, code: int, *words: str) -> None:
    assert ended.code == code, ended
    assert "Traceback" not in ended.err and len(ended.message) < 800, ended.err
    for word in words:
        assert word in ended.message, ended.message


def edit(run: Path, group: str, option: str, value: Any) -> None:
    path = run / "config.json"
    config = json.loads(path.read_text())
    config["options"][group][option] = value
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("group", "option", "value"), [("env", "num_envs", 3), ("replay", "capacity", 50), ("optim", "name", "sgd")]
)
def test_an_option_edited_in_the_config_of_a_run(
    server: Server, place: Path, group: str, option: str, value: Any
) -> None:
    edit(place / NAME, group, option, value)
    ended = server(*RESUME, "--steps", 300, cwd=place, env=HERE, export="stub")
    refused(ended, 1, f"{NAME}/config.json was edited", f"{group}.{option}", "put the old values back", "--from")


def test_an_event_file_that_was_cut_can_be_deleted(server: Server, place: Path) -> None:
    events = place / NAME / EVENT_FILE
    events.write_bytes(events.read_bytes()[:100])
    ended = server(*RESUME, "--steps", 300, cwd=place, env=HERE, export="stub")
    refused(ended, 1, f"{NAME}/{EVENT_FILE} has 100 bytes", f"delete {NAME}/{EVENT_FILE} and resume again")
    assert events.stat().st_size == 100
    events.unlink()
    ended = server(*RESUME, "--steps", 300, cwd=place, env=HERE, export="stub")
    assert ended.code == 0, ended
    assert f"Warning: {NAME}/{EVENT_FILE} is gone: its curves begin anew at step 240." in ended.message
    assert {step for step, *_ in curves(place / NAME)} == {260, 280, 300}


@pytest.mark.parametrize("target", ["nowhere.onnx", "link.onnx"])
def test_a_broken_link(server: Server, tmp_path: Path, target: str) -> None:
    (tmp_path / "link.onnx").symlink_to(target)
    refused(server("play", "link.onnx", cwd=tmp_path), 2, f"link.onnx is a link to {target}, where there is nothing")


@pytest.mark.parametrize("module", ["", " ", ".x", "a..b"])
def test_an_import_that_names_no_module(server: Server, tmp_path: Path, module: str) -> None:
    ended = server("train", "dqn", "CartPole-v1", "--import", module, cwd=tmp_path)
    refused(ended, 2, ": this names no module")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "dqn", "CartPole-v1", "--name", LONG), "(300 letters; 200 bytes are allowed)"),
        (("train", "dqn", "--resume", LONG), "has 300 letters: no file has so long a name"),
        (("train", "dqn", "CartPole-v1", "--from", LONG), "has 300 letters: no file has so long a name"),
        (("train", "dqn", "CartPole-v1", "--recipe", LONG), "--recipe nnn"),
        (("play", LONG), "PATH nnn"),
        (("eval", LONG + ".onnx"), "PATH nnn"),
        (("info", "é" * 200), "has 200 letters"),
    ],
)
def test_a_name_that_no_file_can_have(server: Server, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    refused(server(*words, cwd=tmp_path), 2, message)


def test_an_output_that_no_file_can_have(server: Server, place: Path) -> None:
    refused(server("export", NAME, "--out", f"{LONG}.onnx", cwd=place), 1, "no file can have so long a name")
    refused(server("export", NAME, "--out", f"{LONG[:240]}.onnx", cwd=place), 1, "no file can have so long a name")
    film = ("play", "cartpole-dqn", "--episodes", 1, "--render", "gif", "--out", f"{LONG}.gif")
    refused(server(*film, cwd=place), 1, "no file can have so long a name")


def test_nothing_is_said_to_play_before_it_is_there(server: Server, place: Path) -> None:
    ended = server("eval", NAME, "--checkpoint", 7, cwd=place)
    refused(ended, 2, "no checkpoint '7'")
    assert "Playing" not in ended.err
    (place / NAME / "policy.onnx").unlink()
    ended = server("play", NAME, cwd=place)
    refused(ended, 1, f"{NAME} has no policy.onnx yet")
    assert "Playing" not in ended.err


def test_a_run_that_was_stopped_before_its_first_checkpoint(server: Server, place: Path) -> None:
    run = place / NAME
    for name in ("checkpoints", "best"):
        shutil.rmtree(run / name)
    ended = server(*RESUME, cwd=place, env=HERE, export="stub")
    refused(ended, 1, f"{NAME} holds no checkpoint")  # it is finished: its curves are not thrown away
    (run / "summary.json").unlink()
    lineage = json.loads((run / "lineage.json").read_text())
    (run / "lineage.json").write_text(json.dumps({**lineage, "steps": lineage["steps"] * 2}))
    ended = server(*RESUME, cwd=place, env=HERE, export="stub")
    refused(
        ended, 1, f"{NAME} was to start from another run's weights", f"Delete {NAME} and start it again with --from"
    )
    (run / "lineage.json").write_text(json.dumps(lineage))
    ended = server(*RESUME, cwd=place, env=HERE, export="stub")
    assert ended.code == 0 and "it begins anew" in ended.message, ended


def test_a_folder_that_was_begun_and_one_that_is_something_else(server: Server, tmp_path: Path) -> None:
    new = ("train", "dqn", "CartPole-v1", "--name", NAME)
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "env.json").write_text("{}")
    message = f"{NAME} is no run: a training was stopped before it had written its config.json"
    refused(server(*new, cwd=tmp_path, env=HERE), 2, message, f"Delete {NAME}, or choose another --name")
    refused(server(*RESUME, cwd=tmp_path, env=HERE), 2, message, f"Delete {NAME} and start it again")
    (tmp_path / NAME / "diary.txt").write_text("mine")
    refused(server(*new, cwd=tmp_path, env=HERE), 2, f"{NAME} exists and is no run. Choose another --name")
    ended = server(*RESUME, cwd=tmp_path, env=HERE)
    refused(ended, 2, f"there is no run '{NAME}'")
    assert "Delete" not in ended.err
