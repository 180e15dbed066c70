"""Which runs a training may begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlseq.config import Layer, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.errors import UsageError
from rlseq.parents import terms
from rlseq.runs import Run
from rlseq.seq.config import SeqTraining


@pytest.fixture
def parent(tmp_path: Path) -> Run:
    """A run of an LSTM."""
    run = Run(tmp_path / "a")
    run.path.mkdir()
    run.write("config.json", {"algorithm": "seq", "options": {"net": {"core": "lstm", "width": 32}}})
    return run


def seq(**net: object) -> SeqTraining:
    return resolve(SeqTraining, Layer("test", {"net": net}))


def test_the_same_kind_of_network_will_do(parent: Run) -> None:
    assert terms(parent, "seq", seq(core="lstm", width=32), ("head.",)).anew == ("head.",)
    assert "has another size" in terms(parent, "seq", seq(core="lstm", width=32), ()).fix
    fix = terms(parent, "seq", seq(core="lstm", width=64, layers=3), ()).fix
    assert fix.startswith("The networks differ: ") and "net.width = 32 there and 64 here" in fix


def test_another_kind_is_refused_by_name(parent: Run) -> None:
    with pytest.raises(
        UsageError, match=r"a: its network is of another kind, net.core = lstm there and gpt here.*net.core=l"
    ):
        terms(parent, "seq", seq(core="gpt"), ())
    options = resolve(DqnTraining, Layer("test", {"env": {"id": "CartPole-v1"}}))
    with pytest.raises(
        UsageError,
        match=r"a: it trained a sequence model \(seq, net.core = lstm\), and this is a training of a policy \(dqn, "
        r"net.core = mlp\).*Give a run of rlseq train dqn",
    ):
        terms(parent, "dqn", options, ())
