"""What a user is told when something is wrong: every message names the thing, the value and the fix.

`RlseqError` ends a command with exit code 1, `UsageError` (something typed or written wrongly) with 2.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

EXTRA_OF = {
    "torch": "train",
    "tensorboard": "train",
    "onnx": "train",
    "onnxscript": "train",
    "imageio_ffmpeg": "video",
    "PIL": "video",
    "matplotlib": "plots",
    "Box2D": "box2d",
    "stable_baselines3": "bench",
}


class RlseqError(Exception):
    """A failure with a message for the user; no traceback is shown for it."""

    exit_code = 1


class UsageError(RlseqError):
    """Something typed, written in a recipe or passed from Python is wrong."""

    exit_code = 2


class MissingExtra(RlseqError):
    """An optional dependency is not installed."""


class CorruptFile(RlseqError):
    """A file is truncated, tampered with, or not what it claims to be."""


class NewerFormat(RlseqError):
    """A file was written by a newer rlseq."""


class EnvironmentFailed(RlseqError):
    """The environment's own code raised an exception."""


class ResumeMismatch(RlseqError):
    """A half-played episode could not be rebuilt by replaying its actions."""


class NonFiniteLoss(RlseqError):
    """The loss or the gradient is NaN or infinite."""


class CompileFailed(RlseqError):
    """`torch.compile` failed."""


class ParityError(RlseqError):
    """An exported graph does not act as the network it came from."""


class Elsewhere(RlseqError):
    """Another process of the same training failed, and says itself why."""


class PeerLost(Elsewhere):
    """Another process of the same training went away without a word."""


class Interrupted(RlseqError):
    """Training was stopped by a signal, after its state was saved.

    Args:
        message: what was saved and how to go on.
        signum: the signal; the exit code is 128 + signum, as shells expect.
    """

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.signum = signum
        self.exit_code = 128 + signum


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The `count` names most like `word`, best first; upper and lower case do not matter."""
    by_lower: dict[str, str] = {}
    for name in known:
        by_lower.setdefault(name.lower(), name)
    found = difflib.get_close_matches(word.lower(), list(by_lower), n=count, cutoff=0.5)
    return [by_lower[name] for name in found]


def did_you_mean(word: str, known: Iterable[str], count: int = 3) -> str:
    """` Did you mean a or b?`, or an empty string when nothing is near."""
    names = nearest(word, known, count)
    return f" Did you mean {' or '.join(names)}?" if names else ""


def counted(number: int, word: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {word}{'s' * (number != 1)}"


def install_command(extra: str) -> str:
    """The exact command that installs an extra."""
    return f'pip install "rlseq[{extra}]"'


def require(module: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or say which command installs it.

    Args:
        module: the top-level module, a key of `EXTRA_OF`.
        purpose: what needs it, as the beginning of a sentence ("training", "writing a GIF").

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise  # it is installed, and something that it needs is not
        extra = EXTRA_OF[module]
        raise MissingExtra(
            f"{purpose} needs the package {module}, which is not installed: {install_command(extra)}"
        ) from None


def check_name(path: str | Path, what: str) -> None:
    """Refuse what no file can be called.

    Args:
        path: as typed.
        what: it is, for the message.

    Raises:
        UsageError: it is too long.
    """
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            shown = f"{str(path)[:40]}..."
            raise UsageError(f"{what} {shown} has {len(str(path))} letters: no file has so long a name.") from None
    except ValueError:  # a NUL character; there is nothing of this name
        pass
