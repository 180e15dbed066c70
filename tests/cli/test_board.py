"""`rlseq board`: TensorBoard on the runs folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlseq.cli import board
from tests.cli.conftest import Cli, failed
from tests.cli.test_main import rlseq


@pytest.fixture
def a_run(place: Path) -> Path:
    """Something to look at."""
    (place / "runs" / "mine").mkdir(parents=True)
    (place / "runs" / "mine" / "config.json").write_text('{"format_version": 1}')
    return place


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which something listens."""
    with socket.create_server(("localhost", 0)) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_no_runs(cli: Cli) -> None:
    failed(cli("board"), 2, "there is no run in runs yet. Begin with: rlseq train dqn CartPole-v1")


def test_a_port_in_use(cli: Cli, a_run: Path, taken: int) -> None:
    result = cli("board", "--port", taken)
    failed(result, 2, f"--port {taken} is in use", "Take a free one: rlseq board --port ")
    offered = int(result.stderr.rstrip().rpartition(" ")[2])
    board.check_port(offered)
    assert offered != taken


def test_tensorboard_is_missing(cli: Cli, a_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    failed(
        cli("board"), 1, 'the board needs the package tensorboard, which is not installed: pip install "rlseq[train]"'
    )


def test_tensorboard_that_fails(cli: Cli, a_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen

    def popen(command: list[str], **more: object) -> object:
        assert command[1:5] == ["-m", "tensorboard.main", "--logdir", "runs"]
        return real([sys.executable, "-c", "import sys; sys.exit('no such plugin')"], **more)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", popen)
    failed(cli("board", "--port", free_port()), 1, "TensorBoard did not start:\nno such plugin")


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_it_serves_until_stopped(a_run: Path, signum: int, code: int) -> None:
    port = free_port()
    process = rlseq("board", "--port", str(port), "--json", cwd=a_run)
    assert process.stdout is not None and process.stderr is not None
    text = "".join(iter(lambda: process.stdout.readline(), "}\n")) + "}"
    assert json.loads(text) == {"url": f"http://localhost:{port}/", "runs": "runs"}
    with urllib.request.urlopen(f"http://localhost:{port}/", timeout=30) as page:
        assert b"TensorBoard" in page.read()
    process.send_signal(signum)
    assert process.wait(30) == code
    assert process.stderr.read() == ""
    process.stdout.close()
    process.stderr.close()
    assert not board._answers(port)
