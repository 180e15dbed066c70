"""Help, version, exit codes, and what a mistake looks like."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rlseq import pipeline
from rlseq.cli.main import app
from rlseq.errors import Interrupted, MissingExtra, RlseqError, UsageError
from rlseq.locate import Located
from rlseq.version import __version__
from tests.cli.conftest import Cli, failed, only_json

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "train dqn",
    "train seq",
    "eval",
    "play",
    "generate",
    "predict",
    "export",
    "info",
    "compare",
    "list",
    "options",
    "card",
    "board",
    "bench",
)
EVAL = {"mean_return": 1.0, "std_return": 0.0, "min_return": 1.0, "max_return": 1.0, "episodes": 1, "mean_length": 1.0}


@pytest.mark.parametrize("command", ["", "train", *COMMANDS])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_has_examples_and_fits_80_columns(cli: Cli, command: str, flag: str) -> None:
    result = cli(*command.split(), flag)
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"rlseq {command}".strip() in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.stderr == ""


def examples() -> list[list[str]]:
    """Every command line in the docstrings."""
    found = []
    tops = typer.main.get_command(app)
    train: Any = tops.commands["train"]  # type: ignore[attr-defined]
    for command in (tops, train, *tops.commands.values(), *train.commands.values()):  # type: ignore[attr-defined]
        for line in (command.help or "").splitlines():
            words = line.strip().partition("   ")[0].partition(" > ")[0]
            if line.startswith("  ") and "rlseq " in words:
                found.append(shlex.split(words.partition("rlseq ")[2]))
    return found


def test_there_are_examples() -> None:
    assert len(examples()) >= 30


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_the_examples_of_the_help_are_valid(words: list[str]) -> None:
    top: Any = typer.main.get_command(app)
    called: list[dict[str, Any]] = []
    for command in (*top.commands.values(), *top.commands["train"].commands.values()):
        if not hasattr(command, "commands"):
            command.callback = lambda **given: called.append(given)
    assert top.main(words, prog_name="rlseq", standalone_mode=False) == 0
    assert len(called) == 1


def test_the_order_of_the_commands(cli: Cli) -> None:
    listed = [line[2:].split()[0] for line in cli("-h").stdout.splitlines() if re.match("│ [a-z]", line)]
    assert listed == list(dict.fromkeys(command.split()[0] for command in COMMANDS))


def test_version(cli: Cli) -> None:
    result = cli("--version")
    assert (result.exit_code, result.stdout) == (0, f"rlseq {__version__}\n")


@pytest.mark.parametrize("words", [(), ("train",)])
def test_a_command_is_needed(cli: Cli, words: tuple[str, ...]) -> None:
    result = cli(*words)
    assert result.exit_code == 2
    assert "Usage: rlseq" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("evall", "No such command 'evall'"),
        ("eval --episodes many", "(typed: many)"),
        ("eval --episodes=many", "(typed: many)"),
        ("eval --episodes 0", "Invalid value for '--episodes'"),
        ("eval --seed -1", "Invalid value for '--seed'"),
        ("play --envs 0", "Invalid value for '--envs'"),
        ("play --render video", "(typed: video)"),
        ("play --episode 3", "--episodes"),
        ("board --port 99999", "Invalid value for '--port'"),
        ("list everything", "everything"),
        ("compare", "Missing argument 'RUN'"),
        ("card", "Missing argument 'NAME'"),
        ("card mine --jobs 0", "Invalid value for '--jobs'"),
        ("train dqn A B", "unexpected extra argument"),
        ("train dqn --device gpu", "Invalid value for '--device': 'gpu' is not one of 'auto', 'cpu', 'cuda'"),
        ("train dqn --device gpu", "(typed: gpu)"),
        ("train seq --net lstn", "'transformer'. (typed: lstn) Did you mean lstm"),
        ("train seq --size=tinny", "(typed: tinny) Did you mean tiny?"),
        ("list agent", "'tasks'. Did you mean agents?"),
    ],
)
def test_wrong_usage(cli: Cli, words: str, message: str) -> None:
    result = cli(words)
    failed(result, 2, message, "Usage: rlseq")
    assert result.stdout == ""
    error = cli(words + " --json")
    assert only_json(error)["exit_code"] == 2


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("train CartPole-v1 --steps 5", "rlseq train dqn CartPole-v1 --steps 5"),
        ("train dqnn CartPole-v1", "rlseq train dqn CartPole-v1"),
    ],
)
def test_the_algorithm_comes_first(cli: Cli, words: str, meant: str) -> None:
    failed(cli(words), 2, "the algorithm comes first", f"Did you mean: {meant}\n")


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `rlseq eval` fail."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("rlseq.locate.locate", lambda path: Located("onnx", "x", Path("x"), None))
    monkeypatch.setattr(pipeline, "evaluate", fail)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RlseqError("it [bold]failed[/bold]"), 1),
        (MissingExtra('needs torch: pip install "rlseq[train]"'), 1),
        (UsageError("wrongly typed"), 2),
        (Interrupted("stopped at step 5", 2), 130),
        (Interrupted("stopped at step 5", 15), 143),
    ],
)
def test_exit_codes_and_messages(cli: Cli, monkeypatch: pytest.MonkeyPatch, error: RlseqError, code: int) -> None:
    raising(monkeypatch, error)
    label = "Interrupted" if code > 2 else "Error"
    result = cli("eval", "--quiet")
    failed(result, code)
    assert (result.stdout, result.stderr) == ("", f"{label}: {error}\n")
    result = cli("eval", "--quiet", "--json")
    assert only_json(result) == {"error": str(error), "exit_code": code}
    assert result.exit_code == code


def test_ctrl_c(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    result = cli("eval", "--quiet", "--json")
    assert (result.exit_code, result.stderr) == (130, "Interrupted: stopped by Ctrl-C.\n")
    assert only_json(result) == {"error": "stopped by Ctrl-C.", "exit_code": 130}


def test_a_bug_shows_its_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ZeroDivisionError("division by zero"))
    result = cli("eval", "--quiet", "--json")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last):")
    last = "unexpected ZeroDivisionError: division by zero. This is a bug of rlseq; the traceback is above."
    assert result.stderr.endswith(f"\nError: {last}\n")
    assert only_json(result) == {"error": last, "exit_code": 1}


def test_what_others_print_does_not_get_into_the_json(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(*_: Any, **__: Any) -> dict[str, Any]:
        print("hello from an environment")
        return {"mean_return": float("nan"), "env_id": "[red]X"}

    raising(monkeypatch, RlseqError(""))
    monkeypatch.setattr(pipeline, "evaluate", noisy)
    result = cli("eval", "--json")
    assert only_json(result) == {"mean_return": None, "env_id": "[red]X"}
    assert "hello from an environment" in result.stderr


def rlseq(*words: str, **more: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more.pop("env", {})}
    command = [sys.executable, "-m", "rlseq.cli.main", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment, **more
    )


def test_a_reader_that_leaves_is_no_error() -> None:
    process = rlseq("list", "envs")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 1


def test_a_terminal_that_cannot_show_a_sign(tmp_path: Path) -> None:
    process = rlseq("list", "nos±uch", env={"PYTHONIOENCODING": "ascii"}, cwd=tmp_path)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "UnicodeEncodeError" not in err


def test_completion(tmp_path: Path) -> None:
    (tmp_path / "runs" / "my-run").mkdir(parents=True)
    (tmp_path / "runs" / "my-run" / "config.json").write_text("{}")
    (tmp_path / "mine.onnx").write_text("")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.onnx").write_text("")

    def complete(words: str) -> list[str]:
        position = str(len(words.split(" ")) - 1)
        env = {"_RLSEQ_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": position}
        code = "from rlseq.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert complete("rlseq pl") == ["play"]
    assert complete("rlseq play m") == ["my-run", "mackey-glass-lstm", "mine.onnx", "models"]
    assert complete("rlseq play models/") == ["models/a.onnx"]
    assert complete("rlseq train dqn --resume m") == ["my-run"]
    assert complete("rlseq train dqn CartPole-v") == ["CartPole-v0", "CartPole-v1"]
    assert complete("rlseq options optim.beta") == ["optim.beta1", "optim.beta2"]
    assert complete("rlseq play --render m") == ["mp4"]
    assert complete("rlseq compare my-run m") == ["my-run"]
    assert complete("rlseq compare my-run --tag eval/re") == ["eval/return_mean", "eval/return_std"]
    assert complete("rlseq compare my-run --tag eval/ma") == ["eval/mase", "eval/mae"]
    assert complete("rlseq card cart") == ["cartpole-dqn"]
