"""`rlseq board`: TensorBoard on the runs folder."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Annotated

import typer

from rlseq.cli.output import Output, write_json
from rlseq.cli.params import Json, Quiet
from rlseq.errors import RlseqError, UsageError, require

HOST = "localhost"
START_SECONDS = 60.0
STOP_SECONDS = 5.0


def board(
    port: Annotated[int, typer.Option("--port", min=1, max=65_535, help="Port of the page.")] = 6006,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look at the curves of all runs in TensorBoard; Ctrl-C ends it.

    The page is served to this machine only. The x-axis counts environment steps; updates where there is no environment.

    Examples:

      rlseq board
      rlseq board --port 6007
      RLSEQ_RUNS=/data/runs rlseq board
    """
    from rlseq.runs import newest_run, runs_folder

    out = Output(as_json, quiet)
    require("tensorboard", "the board")
    newest_run()  # says what to type if there is none
    check_port(port)
    url = f"http://{HOST}:{port}/"
    with tempfile.TemporaryFile("w+") as log, _server(runs_folder(), port, log) as server:
        _wait_until_it_answers(server, port, log)
        if as_json:
            write_json({"url": url, "runs": str(runs_folder())})
            sys.stdout.flush()
        else:
            typer.echo(url)
            out.note(f"TensorBoard shows {runs_folder()}. Ctrl-C ends it.")
        with contextlib.suppress(KeyboardInterrupt):  # the way to end it, not a failure
            server.wait()
            raise RlseqError(f"TensorBoard ended by itself:\n{_tail(log)}")


def check_port(port: int) -> None:
    """Refuse a port on which something listens already.

    Raises:
        UsageError: names a free one.
    """
    if not _answers(port):
        return
    free = next((other for other in range(port + 1, min(port + 100, 65_536)) if not _answers(other)), None)
    fix = f": rlseq board --port {free}" if free else ". Choose another with --port."
    raise UsageError(f"--port {port} is in use, perhaps by another board (http://{HOST}:{port}/). Take a free one{fix}")


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _server(folder: Path, port: int, log: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """TensorBoard as a child process that never outlives us."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--host", HOST, "--port", str(port)]
    before = signal.signal(signal.SIGTERM, _terminated)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True)
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        signal.signal(signal.SIGTERM, before)


def _terminated(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def _wait_until_it_answers(server: subprocess.Popen[str], port: int, log: IO[str]) -> None:
    end = time.monotonic() + START_SECONDS
    while not _answers(port):
        if server.poll() is not None:
            raise RlseqError(f"TensorBoard did not start:\n{_tail(log)}")
        if time.monotonic() > end:
            raise RlseqError(f"TensorBoard did not answer on port {port} within {START_SECONDS:.0f} s:\n{_tail(log)}")
        time.sleep(0.1)


def _tail(log: IO[str]) -> str:
    log.seek(0)
    return "\n".join(log.read().strip().splitlines()[-5:]) or "it said nothing."
