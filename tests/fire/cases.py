"""What a fuzz test's case is, what must never come of one, and how all of them run."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from tests.fire.forks import HERE, NAME, Ended, Server, in_parallel
from tests.fire.mutate import Rng

RUN = "fuzzed-run"  # a name that no message holds by chance
LIMIT_SECONDS = 20
LIMIT_BYTES = 2 << 30  # of memory, with what is shared with the server
# Clear without the file's name: what sound files with other content come to.
CLEAR = (
    "the training has diverged",
    "replaying its half-played episode gave other observations",
    "there is no environment",
    "its weights are broken",
)


class Case(NamedTuple):
    """What was damaged, and the command that gets it."""

    said: str
    file: str  # a word that the message must hold
    words: tuple[str, ...]
    loop: str = "run"  # "none": everything but the training itself, which may be of any length


def wrong_with(ended: Ended, case: Case, place: Path) -> str | None:
    """What is not as it should be."""
    if ended.hung:
        return "it hangs"
    if ended.code not in (0, 1, 2):
        return f"exit code {ended.code}"
    if (place / "imported").exists():
        return "a file had a module imported"
    if ended.rss > LIMIT_BYTES:
        return f"it took {ended.rss >> 20} MiB of memory"
    if "Traceback" in ended.err or "bug of rlseq" in ended.err:
        return "a traceback"
    if ended.code == 0:
        return None
    message = ended.err.partition("Error: ")[2]
    if case.file not in message and not any(words in message for words in CLEAR):
        return "the message does not name the file"
    if re.match(r"[A-Za-z]+Error\b", message) or len(message) > 1_500 or len(message.splitlines()) > 4:
        return "the message is no paragraph for a user"
    return None


def numbers(default: int) -> range:
    """RLSEQ_FUZZ, or so many."""
    first, colon, end = os.environ.get("RLSEQ_FUZZ", str(default)).partition(":")
    return range(int(first), int(end)) if colon else range(int(first))


def run_cases(
    pool: SimpleQueue[Server],
    material: Path,
    folder: Path,
    kinds: Sequence[Callable[[Rng, Path], Case]],
    seed: int,
    which: range,
) -> None:
    """Every case in a folder of its own with copies of the material; fails with all that went wrong.

    Args:
        material: a folder with files, a run called `NAME`, and a module that must not be imported.
        folder: for the copies.
        kinds: what damages something; a case's number decides which.
    """

    def run(server: Server, number: int) -> tuple[str | None, int]:
        rng = np.random.default_rng([seed, number])
        place = folder / str(number)
        place.mkdir()
        for path in (path for ending in ("toml", "onnx", "txt") for path in material.glob(f"*.{ending}")):
            shutil.copy(path, place / path.name)
        shutil.copytree(material / NAME, place / RUN)
        case = kinds[number % len(kinds)](rng, place)
        request: dict[str, Any] = {"env": HERE, "export": "stub", "timeout": LIMIT_SECONDS, "path": [str(material)]}
        ended = server(*case.words, cwd=place, loop=case.loop, **request)
        if ended.hung:  # a file makes a command hang every time, a busy machine does not
            ended = server(*case.words, cwd=place, loop=case.loop, **request)
        wrong = wrong_with(ended, case, material)
        shutil.rmtree(place)
        return f"RLSEQ_FUZZ={number}:{number + 1}: {wrong}\n  {case}\n  {ended}" if wrong else None, ended.code

    found = in_parallel(pool, run, which)
    wrong = [text for text, _ in found if text is not None]
    assert not wrong, f"{len(wrong)} of {len(found)} cases:\n" + "\n".join(wrong)
    if len(found) >= 100:  # most damage is noticed, and some does no harm
        assert len({code for _, code in found}) == 3
        assert sum(code != 0 for _, code in found) >= 0.5 * len(found)
