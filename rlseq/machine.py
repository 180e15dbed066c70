"""What a result must carry to be worth anything: versions, commit, command, hardware."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from rlseq.version import __version__

RESULTS = ":(exclude)rlseq/bench/results.json"
PACKAGES = ("numpy", "gymnasium", "torch", "onnx", "onnxruntime")


def describe_machine() -> dict[str, Any]:
    """Versions, commit, command line and hardware, as JSON data; no user or host name."""
    return {
        "rlseq": __version__,
        "commit": commit(),
        "command": shlex.join([_program(), *sys.argv[1:]]),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
    }


def _program() -> str:
    """The command's name, also where it was started as `python -m rlseq`."""
    program = Path(sys.argv[0])
    return "rlseq" if program.name == "__main__.py" and program.parent.name == "rlseq" else program.name


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the source tree, with `+changes` if the code differs from it; None outside a repository.

    Only the package and its requirements count: what a card writes beside the recipes, or a word in a document, does
    not change a result, and the recipe itself stands in every run.
    """
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head = git(root, "rev-parse", "--short=10", "HEAD").strip()
        changed = git(root, "status", "--porcelain", "--", "rlseq", "pyproject.toml", RESULTS)
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+changes" if changed else "")


def git(tree: Path, *arguments: str) -> str:
    """What a git command prints in a source tree.

    Raises:
        OSError, subprocess.SubprocessError: it failed, or took a minute.
    """
    done = subprocess.run(["git", *arguments], cwd=tree, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def cpu_name() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
