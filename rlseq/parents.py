"""What a new training may begin with: whether another run's weights mean anything to its network."""

from __future__ import annotations

from typing import NamedTuple

from rlseq.config import differences
from rlseq.errors import UsageError
from rlseq.resolve import Training, read_options
from rlseq.runs import Run

TRAINED = {"dqn": "a policy", "seq": "a sequence model"}


class Terms(NamedTuple):
    """On which another run's weights are taken.

    Attributes:
        anew: beginnings of the names of parameters that begin anew.
        fix: what to do about a parameter of another shape, apart from the network's two ends.
    """

    anew: tuple[str, ...]
    fix: str


def terms(parent: Run, algorithm: str, options: Training, anew: tuple[str, ...]) -> Terms:
    """Check that a run trained the same kind of network.

    Args:
        parent: the run to begin with.
        algorithm, options: of the new training.
        anew: see `Terms`.

    Raises:
        UsageError: it did not.
        CorruptFile, NewerFormat: its config.json cannot be read.
    """
    theirs, old = read_options(parent)
    if theirs != algorithm:
        raise UsageError(
            f"--from {parent.path}: it trained {TRAINED[theirs]} ({theirs}, net.core = {old.net.core}), and this is a "
            f"training of {TRAINED[algorithm]} ({algorithm}, net.core = {options.net.core}): its weights mean nothing "
            f"to this network. Give a run of rlseq train {algorithm}."
        )
    if old.net.core != options.net.core:
        raise UsageError(
            f"--from {parent.path}: its network is of another kind, net.core = {old.net.core} there and "
            f"{options.net.core} here, so its weights mean nothing to this one. Give a run of the same kind; or train "
            f"that kind, --net {old.net.core}, where the task can be learnt by it."
        )
    changed = differences(type(old.net), old.net, options.net)
    if not changed:
        return Terms(anew, "What is read there has another size, and only the same size can begin with those weights.")
    told = ", ".join(f"net.{path} = {was} there and {now} here" for path, (was, now) in changed.items())
    return Terms(anew, f"The networks differ: {told}. Give this one the other's options.")
