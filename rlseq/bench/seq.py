"""`rlseq bench seq`: sequence models against a plain GPT, against themselves in float32, and against torch.

Five measurements:

    1  third, whole         whole commands `rlseq train seq` against 2000 iterations of the reference: time and loss
    2  shape                training at the reference's shape in float32 with AdamW: tokens per second
    3  amp-384, amp-128     `--amp` against float32, both ours
    4  generation           ONNX Runtime with the cache against torch without one, the same greedy text
    5  memory               activation checkpointing; that the gradients are the same, and those of a batch in parts

The reference is `rlseq.bench.reference`. Of a command everything counts, from the start of Python to the exported file;
of the reference only its iterations.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlseq.bench.measure import Tell
from rlseq.bench.seq_model import measure_generation, measure_memory
from rlseq.bench.seq_training import measure_amp, measure_commands, measure_shape
from rlseq.errors import UsageError, require
from rlseq.files import sha256_file

# What is typed after `rlseq train seq --data FILE --seed K`. `third` is to take at most a third of the reference's
# time, `whole` all of it.
COMMANDS: dict[str, tuple[str, ...]] = {
    "third": (
        *("--amp", "--context", "64", "--batch-size", "12", "--steps", "300", "--lr", "0.004"),
        *("--set", "optim.adam_lr=0.01", "--set", "seq.validation=0.1"),
        *("--set", "net.layers=4", "--set", "net.heads=4", "--set", "net.width=128"),
        *("--set", "eval.every=300", "--set", "eval.sample_tokens=0", "--set", "run.checkpoint_every=300"),
    ),
    "whole": (
        *("--amp", "--context", "64", "--batch-size", "24", "--steps", "1000", "--lr", "0.004"),
        *("--set", "optim.adam_lr=0.01", "--set", "seq.validation=0.1"),
        *("--set", "net.layers=4", "--set", "net.heads=4", "--set", "net.width=128"),
        *("--set", "eval.every=1000", "--set", "eval.sample_tokens=0", "--set", "run.checkpoint_every=1000"),
    ),
}

Part = Callable[[Tell, int, Path], dict[str, dict[str, Any]]]
PARTS: dict[int, Part] = {
    1: lambda tell, repeats, data: measure_commands(tell, repeats, data, COMMANDS),
    2: measure_shape,
    3: measure_amp,
    4: measure_generation,
    5: measure_memory,
}


def bench_seq(tell: Tell, *, repeats: int, data: str | None = None, part: int | None = None) -> dict[str, Any]:
    """Measure sequence models.

    Args:
        tell: takes lines of progress.
        repeats: how often each side runs; repeat k has seed k on all.
        data: a text file; None: the source of Python's standard library.
        part: one of the five; None: all.

    Returns:
        `measurements` by name, and `options` with what was trained on and the commands.

    Raises:
        UsageError: no such file or part.
        RlseqError: a command failed, or two sides that must agree do not.
    """
    for module in ("torch", "tensorboard", "onnx", "onnxscript"):
        require(module, "the benchmark of sequence models")
    if part is not None and part not in PARTS:
        raise UsageError(f"--part {part}: bench seq has the parts {', '.join(map(str, PARTS))}.")
    with text_file(data) as path:
        measurements: dict[str, dict[str, Any]] = {}
        for number, measure in PARTS.items():
            if part in (None, number):
                tell(f"part {number} of {len(PARTS)}")
                measurements |= measure(tell, repeats, path)
        options = {
            "data": {"file": path.name, "sha256": sha256_file(path)},
            "commands": {name: " ".join(words) for name, words in COMMANDS.items()},
        }
    return {"measurements": measurements, "options": options}


@contextlib.contextmanager
def text_file(data: str | None, who: str = "bench seq") -> Iterator[Path]:
    """The text as one file, which every side can read; `who` takes it.

    Raises:
        UsageError: there is no such file.
    """
    if data is not None:
        path = Path(data)
        if not path.is_file():
            raise UsageError(f"--data {data}: there is no such file. {who} takes one text file.")
        yield path.resolve()
        return
    from rlseq.seq.corpus import read_corpus

    corpus = read_corpus(None)
    with tempfile.TemporaryDirectory(prefix="rlseq-bench-") as folder:
        path = Path(folder) / "standard-library.txt"
        path.write_text(corpus.tokenizer.decode(corpus.tokens), encoding="utf-8", newline="")
        yield path
