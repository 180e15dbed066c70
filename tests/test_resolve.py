"""Options of a training that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlseq.errors import UsageError
from rlseq.playing import play
from rlseq.resolve import read_policy_options, resolve_resumed
from rlseq.seq.config import SeqTraining
from tests.made_runs import made_sequence_run


def test_a_size_means_the_same_to_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path))
    run = made_sequence_run("a", [2.0], options={"net": {"size": "tiny", "width": 8}})

    def width(**net: Any) -> int | None:
        options = resolve_resumed(run, "seq", {"net": net}, "arguments")
        assert isinstance(options, SeqTraining)
        return options.net.width

    assert width() == width(size="tiny", width=8) == 8
    with pytest.raises(UsageError, match=r"net\.size = 'tiny'.*cannot become 'base'\. Leave it out"):
        width(size="base")
    with pytest.raises(UsageError, match=r"net\.width = 8.*cannot become None by what was given in its place\."):
        width(size="tiny")
    with pytest.raises(UsageError, match=r"net\.width = 8.*cannot become 16\. Leave it out"):
        width(width=16)


@pytest.mark.parametrize(
    ("task", "command"),
    [
        ("text", "generate {}"),
        ("copy", "generate {} --prompt QUESTION"),
        ("classify", "predict {} --data FILE.csv --out classes.csv"),
        ("forecast", "predict {} --data FILE.csv --out forecast.csv"),
    ],
)
def test_who_would_play_a_sequence_model_is_told_what_it_does(
    task: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path))
    run = made_sequence_run("a", [2.0], options={"seq": {"task": task}})
    with pytest.raises(UsageError, match=rf"a sequence model, which plays nothing: rlseq {command.format('a')}$"):
        play("a")
    with pytest.raises(UsageError, match=rf"a sequence model, which plays nothing: rlseq {command.format(run.path)}$"):
        read_policy_options(run)
