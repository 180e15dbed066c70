"""Runs the command line in forks of one process: the imports are paid once, a command then starts in milliseconds.

A process of its own (`python -m tests.fire.server`), because a fork is only sound while torch has computed nothing and
no thread runs. It reads requests and writes answers as JSON, a line each; see `tests.fire.forks`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

# Imported late by what they belong to: without these each fork would import them anew.
LATE = (
    "gymnasium.envs.classic_control",
    "onnxscript",
    "rich.table",
    "networkx",
    "onnxscript.function_libs.torch_lib.ops",
    "onnxscript.optimizer",
    "onnxscript.rewriter.onnx_fusions",
    "tensorboard.plugins.hparams.summary_v2",
    "torch._dynamo",
    "torch.onnx._internal.exporter._core",
    "torch.export._trace",
    "torch.onnx._internal.exporter._torchlib.ops",
    "typer.testing",
)
PIPE_BYTES = 1 << 20  # a command says less
STUB_PARITY = {"max_error": 0.0, "episodes": 1, "episodes_with_equal_return": 1}
STUB_SEQUENCE_PARITY = {"max_error": 0.0, "batch_sizes": [1], "lengths": [1]}


def preload() -> None:
    """Import everything that a command may need."""
    import rlseq

    for module in pkgutil.walk_packages(rlseq.__path__, "rlseq."):
        if module.name != "rlseq.__main__":
            importlib.import_module(module.name)
    for name in (*LATE, "tests.toy_envs"):
        importlib.import_module(name)
    import torch

    from rlseq import machine

    torch.set_num_threads(1)
    machine.commit = lambda: None  # two calls of git in every run, which take longer than its training
    warm_up()


def warm_up() -> None:
    """Read a command line that is refused, with options of every type: typer imports and builds a lot for its first."""
    import typer.main

    from rlseq.cli.main import app

    command = typer.main.get_command(app)
    words = "train dqn X --seeds 0:1 --seed 1 --lr 0.1 --steps 2 --set a.b=c --quiet"
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(SystemExit):
        command(words.split())
    assert "give one of them" in said.getvalue(), said.getvalue()
    typer.main.get_command = lambda app: command  # as it is built anew in every process


def stub_export(net: Any, spec: Any, path: Path, make: Any) -> dict[str, Any]:
    """Stands in for seconds of export; it writes the file as the real one does."""
    from rlseq.files import write_atomic

    write_atomic(path, lambda file: file.write(b"stub" * 100) and None)
    return STUB_PARITY


def stub_sequence_export(net: Any, spec: Any, path: Path, opset: int | None = None) -> dict[str, Any]:
    """Likewise."""
    from rlseq.files import write_atomic

    write_atomic(path, lambda file: file.write(b"stub" * 100) and None)
    return STUB_SEQUENCE_PARITY


def obey_permissions() -> None:
    """Give up what lets root write where no permission is (CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, of Linux)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice, for the upper 32 too
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    for index in range(3):
        sets[index] &= ~0b110
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def child(request: dict[str, Any], out: int, err: int) -> NoReturn:
    """One command, in a fork."""
    from rlseq import trained
    from rlseq.cli import main
    from rlseq.dqn.train import DqnTrainer
    from rlseq.exporter import sequence
    from rlseq.seq.train import SeqTrainer

    code = 130  # where a second Ctrl-C comes while the first one's end is noted
    try:
        os.chdir(request["cwd"])
        os.environ.update(request.get("env") or {})
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115 - they stay
        if request.get("export") == "stub":
            trained.export_network = stub_export  # type: ignore[assignment]
            sequence.export_sequence = stub_sequence_export
        if request.get("loop") == "none":
            for trainer in (DqnTrainer, SeqTrainer):
                trainer.loop = lambda self, session: os._exit(0)  # type: ignore[method-assign]
        if request.get("limit") is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], request["limit"]))
        if request.get("obey") and os.getuid() == 0:
            obey_permissions()
        sys.path[:0] = request.get("path") or []
        sys.argv = ["rlseq", *request["argv"]]
        main.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except KeyboardInterrupt:  # before rlseq began: the interpreter's own affair
        code = 130
    except BaseException:  # told to the test, which fails
        import traceback

        traceback.print_exc()
        code = 98
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Fork, send the signals, wait.

    Returns:
        `code` as Python counts it (negative: killed by this signal), `out`, `err`, `hits`: how many signals found it
        running, `hung`: whether it had to be killed after `timeout` seconds, `seconds`, and `rss`, its peak of memory
        in bytes.
    """
    pipes = [_pipe() for _ in range(2)]  # no files, which a limit on their size would cut
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        child(request, pipes[0][1], pipes[1][1])
    events = [(float(delay), int(number)) for delay, number in request.get("signals") or []]
    events.append((float(request.get("timeout", 60)), 0))
    hits, hung, ended = 0, False, None
    for delay, number in events:
        ended = ended or _wait(pid, started + delay)
        if ended is None:
            hung = hung or number == 0
            hits += number != 0
            os.kill(pid, number or signal.SIGKILL)
    if ended is None:
        ended = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(ended[1])
    rss = ended[2].ru_maxrss * 1024
    seconds = time.monotonic() - started
    out, err = (_drain(*pipe) for pipe in pipes)
    return {"code": code, "out": out, "err": err, "hits": hits, "hung": hung, "seconds": seconds, "rss": rss}


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read, write


def _drain(read: int, write: int) -> str:
    os.close(write)
    with open(read, "rb") as file:
        return file.read().decode(errors="replace")


def _wait(pid: int, until: float) -> Any:
    """What `os.wait4` says if the process ends before a moment, else None."""
    while True:
        ended = os.wait4(pid, os.WNOHANG)
        if ended[0] == pid:
            return ended
        left = until - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(left, 0.002))


def main() -> None:
    """Answer until stdin ends."""
    preload()
    gc.freeze()  # no fork looks through, and thereby copies, what all have
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
