"""Options of a training that goes on."""

from __future__ import annotations

from typing import Any

import pytest

from rlseq.errors import UsageError
from rlseq.resolve import resolve_resumed
from rlseq.seq.config import SeqTraining
from tests.made_runs import made_sequence_run


def resumed(**net: Any) -> SeqTraining:
    """Options of a run of the smallest network, 8 numbers wide, gone on with."""
    run = made_sequence_run("a", [2.0], options={"net": {"size": "tiny", "width": 8}})
    options = resolve_resumed(run, "seq", {"net": net} if net else {}, "arguments")
    assert isinstance(options, SeqTraining)
    return options


def test_a_size_means_the_same_to_a_resumed_run_as_to_a_new_one() -> None:
    assert resumed().net.width == resumed(size="tiny", width=8).net.width == 8
    with pytest.raises(UsageError, match=r"net\.size = 'tiny'.*cannot become 'base'\. Leave it out"):
        resumed(size="base")
    with pytest.raises(UsageError, match=r"net\.width = 8.*cannot become None by what was given in its place\."):
        resumed(size="tiny")
    with pytest.raises(UsageError, match=r"net\.width = 8.*cannot become 16\. Leave it out"):
        resumed(width=16)
