"""Options that were typed and change nothing: each is refused, with what it is for.

Only what a person types for a new training is looked at. A recipe may hold what other options make idle, and a stored
run what an older version took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rlseq.config import value_at
from rlseq.errors import UsageError
from rlseq.nets.sizes import CORES_WITH, RECURRENT
from rlseq.resolve import Training
from rlseq.seq.config import SeqOptions, SeqTraining
from rlseq.seq.tasks.table import ANSWERS, COMMON, TASKS

ALGORITHM = "algorithm"


class Use(NamedTuple):
    """What an option is for.

    Attributes:
        of: another option, or `ALGORITHM`.
        values: of that one, with which the option has an effect.
    """

    of: str
    values: tuple[str, ...]


FALLING = ("linear", "cosine", "exponential", "one_cycle", "wsd")
ADAPTIVE = ("adam", "adamw", "rmsprop", "muon")
DQN = Use(ALGORITHM, ("dqn",))
OF_ALL = {
    "optim.beta2": Use("optim.name", ADAPTIVE),
    "optim.eps": Use("optim.name", ADAPTIVE),
    "optim.muon_momentum": Use("optim.name", ("muon",)),
    "optim.final_factor": Use("optim.schedule", (*FALLING, "plateau")),
    "optim.step_updates": Use("optim.schedule", ("step",)),
    "optim.step_factor": Use("optim.schedule", ("step", "plateau")),
    "optim.start_factor": Use("optim.schedule", ("one_cycle",)),
    "optim.rise_fraction": Use("optim.schedule", ("one_cycle",)),
    "optim.decay_fraction": Use("optim.schedule", ("wsd",)),
    "optim.plateau_patience": Use("optim.schedule", ("plateau",)),
}
OF_SEQUENCES = {
    **OF_ALL,
    "run.horizon": Use("optim.schedule", FALLING),
    "run.inexact_resume": DQN,
    "engine.gradients": DQN,
    "seq.label_smoothing": Use("seq.loss", ("auto", "cross_entropy")),
    "seq.focal_gamma": Use("seq.loss", ("focal",)),
    "seq.huber_delta": Use("seq.loss", ("huber",)),
    "seq.quantiles": Use("seq.loss", ("quantile",)),
    **{f"net.{name}": Use("net.core", cores) for name, cores in CORES_WITH.items()},
    **{
        f"seq.{name}": Use("seq.task", tuple(task for task, entry in TASKS.items() if name in entry.takes))
        for name in SeqOptions.__struct_fields__
        if name not in COMMON
    },
}


def check_idle(algorithm: str, options: Training, typed: Mapping[str, Any]) -> None:
    """Refuse what was typed and has no effect; what says "nothing" (none, false, 0, []) may be typed.

    Args:
        algorithm: of the training.
        options: resolved.
        typed: the option values that the user gave by hand, as a tree.

    Raises:
        UsageError: such an option, its value and what it is for.
    """
    uses = OF_SEQUENCES if isinstance(options, SeqTraining) else OF_ALL
    for path, use in uses.items():
        if not is_typed(typed, path) or not value_at(options, path):
            continue
        now = algorithm if use.of == ALGORITHM else value_at(options, use.of)
        if now not in use.values:
            able = " or ".join(use.values)
            raise _idle(options, path, f"with {use.of} = {now}: it is for {use.of} = {able}")
    if isinstance(options, SeqTraining):
        for path, why in _beside(options, typed):
            raise _idle(options, path, why)


def is_typed(typed: Mapping[str, Any], path: str) -> bool:
    """Whether the option `path` ("net.window") is in a tree of values."""
    group, _, name = path.partition(".")
    values = typed.get(group)
    return isinstance(values, Mapping) and name in values


def _beside(options: SeqTraining, typed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What means nothing beside more than the value of one other option."""
    seq = options.seq
    if is_typed(typed, "seq.buckets"):
        if TASKS[seq.task].kinds == ANSWERS and seq.min_length in (None, seq.length):
            yield "seq.buckets", "where all questions are of one length: it is for those from seq.min_length on"
        if seq.task == "classify" and seq.group is None:
            yield "seq.buckets", "where all series are of one length: it is for those of a column seq.group"
    if is_typed(typed, "seq.pattern") and not (seq.data and Path(seq.data).is_dir()):
        yield "seq.pattern", f"with seq.data = {_text(seq.data)}: it is for a folder, of whose files it chooses"
    parts = ["layers", "width"] if options.net.core in RECURRENT else ["layers", "heads", "width"]
    given = [name for name in parts if is_typed(typed, f"net.{name}") and getattr(options.net, name) is not None]
    if is_typed(typed, "net.size") and given == parts:
        yield "net.size", f"beside net.{', net.'.join(parts)}: it is for those of them that are not given"


def _idle(options: Training, path: str, why: str) -> UsageError:
    return UsageError(f"{path} = {_text(value_at(options, path))} means nothing {why}. Leave it out.")


def _text(value: Any) -> str:
    """As it is typed after `--set NAME=`."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value), separators=(",", ":"))
