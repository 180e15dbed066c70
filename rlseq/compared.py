"""Runs that are compared: which of them were trained alike, and which were measured on the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlseq.config import differences
from rlseq.curves import Curve
from rlseq.purposes import PURPOSES, QUESTIONS, TEXT
from rlseq.resolve import Training
from rlseq.runs import Run
from rlseq.seq.config import SeqTraining

# What may differ within a group; that the data are the same is known by their content.
OF_A_SEED = ("run.seed", "run.name", "seq.data")
# Options of `seq` that say which validation data there are, and how they are measured.
MEASURED_BY = (
    *("unit", "validation", "length", "symbols", "pairs", "examples"),
    *("label", "group", "target", "horizon"),
)


class Member(NamedTuple):
    """A run that is compared.

    Attributes:
        origin: how its first weights came to be, as JSON; `[]` for a run from scratch.
        seeds: its own, and before it those of the runs that its first weights came from.
        data_sha256: of a sequence model's data; None for a policy.
        facts: seed, status, scores: what `--json` says of it; what an unfinished run does not have is None.
    """

    run: Run
    algorithm: str
    options: Training
    recipe: str | None
    origin: str
    seeds: tuple[int | None, ...]
    data_sha256: str | None
    curve: Curve
    facts: dict[str, Any]

    @property
    def learnt(self) -> str:
        """Environment or task."""
        return self.options.seq.task if isinstance(self.options, SeqTraining) else self.options.env.id

    @property
    def judged(self) -> str:
        """As in `rlseq.scores.METRICS`."""
        return self.learnt if isinstance(self.options, SeqTraining) else self.algorithm

    @property
    def measured_on(self) -> dict[str, object]:
        """What must be the same for two scores to compare, by its name."""
        if not isinstance(self.options, SeqTraining):
            return {"env.id": self.learnt}
        seq = self.options.seq
        # The questions of a task are the same for all networks, their data, which the checksum is of, are not.
        data = {} if PURPOSES[seq.task] is QUESTIONS else {"seq.data": self.data_sha256}
        return {"seq.task": seq.task, **data, **{f"seq.{name}": getattr(seq, name) for name in MEASURED_BY}}


def grouped(members: Sequence[Member]) -> list[list[Member]]:
    """The members that were trained alike, in the order in which the first of each was named."""
    groups: list[list[Member]] = []
    for member in members:
        same = next((group for group in groups if alike(group[0], member)), None)
        if same is None:
            groups.append([member])
        else:
            same.append(member)
    return groups


def alike(a: Member, b: Member) -> bool:
    """Whether two runs differ in nothing but what may differ within a group."""
    if (a.algorithm, a.origin, a.data_sha256) != (b.algorithm, b.origin, b.data_sha256):
        return False
    return all(path in OF_A_SEED for path in differences(type(a.options), a.options, b.options))


def independent(group: Sequence[Member]) -> list[list[Member]]:
    """The members of a group by their seeds: runs with the same ones repeat one another, and are one sample."""
    samples: dict[tuple[int | None, ...], list[Member]] = {}
    for member in group:
        samples.setdefault(member.seeds, []).append(member)
    return list(samples.values())


def repeated(groups: Sequence[Sequence[Member]]) -> list[str]:
    """A warning for each set of runs that were trained alike and with the same seed."""
    return [
        f"{' and '.join(member.run.name for member in sample)} were trained alike with the same seed "
        f"({sample[0].options.run.seed}): they are not independent, and count once in the mean and its interval."
        for group in groups
        for sample in independent(group)
        if len(sample) > 1
    ]


def incomparable(groups: Sequence[Sequence[Member]]) -> list[str]:
    """A warning, if the groups were not measured on the same."""
    firsts = [group[0] for group in groups]
    measured = [first.measured_on for first in firsts]
    names = dict.fromkeys(name for one in measured for name in one)
    differing = [name for name in names if len({one.get(name) for one in measured}) > 1]
    if not differing:
        return []
    if isinstance(firsts[0].options, SeqTraining):
        verb = "differ" if len(differing) > 1 else "differs"
        return [
            f"the runs were measured on different data ({', '.join(differing)} {verb}): their scores are not "
            "comparable."
        ]
    envs = ", ".join(dict.fromkeys(first.learnt for first in firsts))
    return [f"the runs are of different environments ({envs}): their returns are not comparable."]


def data_of(member: Member) -> str:
    """The name of a sequence model's data; "" of what is computed."""
    if not isinstance(member.options, SeqTraining):
        return ""
    seq = member.options.seq
    return "the standard library" if seq.data is None and seq.task == TEXT else Path(seq.data or "").name
