"""What a user is told, and the exit code that goes with it."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from rlseq import errors
from rlseq.errors import EXTRA_OF, MissingExtra, RlseqError, did_you_mean, install_command, nearest, require

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTION_OF = {"imageio_ffmpeg": "imageio-ffmpeg", "PIL": "pillow", "stable_baselines3": "stable-baselines3"}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first where modules are looked for."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(EXTRA_OF, "rlseq_fake", "fake")
    for name in [name for name in sys.modules if name.startswith("rlseq_fake")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def package(folder: Path, text: str, name: str = "rlseq_fake") -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)
    importlib.invalidate_caches()


# ------------------------------------------------------------------------------------------------------------ nearness


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("gama", ["gamma", "tau", "lr"], ["gamma"]),
        ("GAMMA", ["gamma"], ["gamma"]),
        ("cartpole-v1", ["CartPole-v1", "Acrobot-v1"], ["CartPole-v1", "Acrobot-v1"]),
        ("cartpole", ["CartPole-v1"], ["CartPole-v1"]),
        ("zzz", ["gamma"], []),
        ("", ["gamma"], []),
        ("gamma", [], []),
        ("ab", ["Abc", "aBc"], ["Abc"]),
    ],
)
def test_the_nearest_come_first_and_case_does_not_matter(word: str, known: list[str], found: list[str]) -> None:
    assert nearest(word, known) == found
    assert nearest(word, iter(known)) == found


def test_no_more_than_asked_for() -> None:
    known = ["run-1", "run-2", "run-3", "run-4", "run"]
    assert nearest("run", known, count=1) == ["run"]
    assert len(nearest("run", known)) == 3
    assert nearest("run", known)[0] == "run"


def test_the_hint_is_a_sentence_or_nothing() -> None:
    assert did_you_mean("gama", ["gamma", "tau"]) == " Did you mean gamma?"
    assert did_you_mean("adamm", ["sgd", "adam", "adamw"]) == " Did you mean adam or adamw?"
    assert did_you_mean("adamm", ["sgd", "adam", "adamw"], count=1) == " Did you mean adam?"
    assert did_you_mean("zzz", ["gamma"]) == ""
    assert did_you_mean("gamma", []) == ""


# ------------------------------------------------------------------------------------------------------------- require


def test_what_is_installed_is_returned() -> None:
    assert require("PIL", "writing a GIF") is importlib.import_module("PIL")


@pytest.mark.parametrize("module", EXTRA_OF)
def test_what_is_missing_comes_with_the_exact_command(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as caught:
        require(module, "writing a GIF")
    assert str(caught.value) == (
        f'writing a GIF needs the package {module}, which is not installed: pip install "rlseq[{EXTRA_OF[module]}]"'
    )
    assert caught.value.exit_code == 1
    assert caught.value.__suppress_context__


def test_what_is_nowhere_is_missing(packages: Path) -> None:
    with pytest.raises(MissingExtra, match=r'pip install "rlseq\[fake\]"'):
        require("rlseq_fake", "nothing")


def test_a_package_that_is_installed_is_imported(packages: Path) -> None:
    package(packages, "ANSWER = 42\n")
    assert require("rlseq_fake", "nothing").ANSWER == 42


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("import rlseq_missing_dependency\n", ModuleNotFoundError, "rlseq_missing_dependency"),
        ("from os import no_such_name\n", ImportError, "no_such_name"),
        ("raise ImportError('libcudart.so.12: cannot open')\n", ImportError, "libcudart"),
        ("raise ModuleNotFoundError('without a name')\n", ModuleNotFoundError, "without a name"),
        ("raise OSError('broken')\n", OSError, "broken"),
        ("import rlseq_fake.lost_part\n", ModuleNotFoundError, "lost_part"),
    ],
)
def test_a_broken_package_is_not_called_missing(
    packages: Path, text: str, error: type[Exception], message: str
) -> None:
    """To install it again would not help; what really is wrong must be seen."""
    package(packages, text)
    with pytest.raises(error, match=message):
        require("rlseq_fake", "nothing")


def test_the_commands_install_extras_that_exist_and_hold_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for module, extra in EXTRA_OF.items():
        asked = " ".join(project[extra]).lower()
        assert (DISTRIBUTION_OF.get(module, module)).lower() in asked, (module, extra)
        assert install_command(extra) == f'pip install "rlseq[{extra}]"'


# ---------------------------------------------------------------------------------------------------------- exit codes


def test_exit_codes() -> None:
    codes = {
        name: kind("x").exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, RlseqError) and kind is not errors.Interrupted
    }
    assert codes == {
        "RlseqError": 1,
        "UsageError": 2,
        "MissingExtra": 1,
        "CorruptFile": 1,
        "CompileFailed": 1,
        "NewerFormat": 1,
        "EnvironmentFailed": 1,
        "ResumeMismatch": 1,
        "NonFiniteLoss": 1,
        "ParityError": 1,
        "Elsewhere": 1,
        "PeerLost": 1,
    }


@pytest.mark.parametrize(("signum", "code"), [(2, 130), (15, 143), (9, 137)])
def test_a_signal_ends_with_128_and_its_number(signum: int, code: int) -> None:
    error = errors.Interrupted("saved at step 5", signum)
    assert (error.exit_code, str(error)) == (code, "saved at step 5")
    assert isinstance(error, RlseqError)
