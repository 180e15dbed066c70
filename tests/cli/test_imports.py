"""What a command does not need it does not import: help is quick, and playing, listing, looking need no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import graphs
from tests.cli.test_inspect import make_run

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    *("torch", "gymnasium", "onnxruntime", "onnx", "tensorboard", "matplotlib", "numpy", "msgspec", "safetensors"),
    "rich.console",
)
RUN = "import sys; from rlseq.cli.main import main; sys.argv[0] = 'rlseq'; main()"
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "onnx", "onnxscript", "tensorboard"):
            raise ImportError(f"{name} must not be imported")

sys.meta_path.insert(0, Blocked())
"""


def python(code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def test_the_command_line_imports_nothing_heavy(tmp_path: Path) -> None:
    code = f"import sys, rlseq.cli.main; print([name for name in {HEAVY} if name in sys.modules])"
    assert python(code, cwd=tmp_path).stdout == "[]\n"


@pytest.mark.parametrize("words", [["--help"], ["train", "dqn", "--help"], ["--version"], ["play", "--help"]])
def test_help_imports_no_package_but_typer_and_rich(tmp_path: Path, words: list[str]) -> None:
    light = [name for name in HEAVY if name != "rich.console"]
    code = f"{BLOCKED}\nimport atexit\natexit.register(lambda: print([n for n in {light} if n in sys.modules]))\n{RUN}"
    done = python(code, *words, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and a policy."""
    place = tmp_path_factory.mktemp("imports")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("RLSEQ_RUNS", raising=False)
        make_run("mine")
    graphs.save_linear(place / "policy.onnx", graphs.spec_of("CartPole-v1"), np.zeros((4, 2)))
    return place


@pytest.mark.parametrize(
    "words",
    [
        "play mine --episodes 1",
        "play policy.onnx --episodes 2 --envs 2 --native",
        "eval policy.onnx --episodes 1",
        "info mine",
        "info policy.onnx",
        "list",
        "list envs",
        "list tasks",
        "options",
        "options dqn --json",
        "options --markdown",
        "bench play --peer none --repeats 1 --episodes 1",
    ],
)
def test_torch_is_not_imported(workplace: Path, words: str) -> None:
    done = python(BLOCKED + RUN, *words.split(), cwd=workplace)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train dqn CartPole-v1", "training needs the package torch"),
        ("train seq --nproc 2", "training needs the package torch"),
        ("eval mine", "needs the package torch"),
        ("export mine", "exporting needs the package onnx"),
        ("board", "the board needs the package tensorboard"),
        ("bench seq", "the benchmark of sequence models needs the package torch"),
        ("bench dqn --peer none", "the benchmark of training needs the package torch"),
        ("compare mine", "reading a run's curves needs the package tensorboard"),
        ("card cartpole-dqn", "making a card needs the package torch"),
    ],
)
def test_what_needs_the_extra_says_so(workplace: Path, words: str, message: str) -> None:
    absent = BLOCKED.replace('ImportError(f"{name} must not be imported")', "ModuleNotFoundError(name=name)")
    done = python(absent + RUN, *words.split(), cwd=workplace)
    assert done.returncode == 1
    assert message in done.stderr
    assert 'which is not installed: pip install "rlseq[train]"' in done.stderr
    assert "Traceback" not in done.stderr
