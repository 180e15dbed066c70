"""Which runs a training may begin with."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rlseq.config import Layer, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.errors import UsageError
from rlseq.parents import terms
from rlseq.planned_sequence import SequenceJob
from rlseq.planning import Request, plan_training
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
        UsageError, match=r"a: its network is of another kind, net.core = lstm there and gpt here.*--net lstm"
    ):
        terms(parent, "seq", seq(core="gpt"), ())
    options = resolve(DqnTraining, Layer("test", {"env": {"id": "CartPole-v1"}}))
    with pytest.raises(
        UsageError,
        match=r"a: it trained a sequence model \(seq, net.core = lstm\), and this is a training of a policy \(dqn, "
        r"net.core = mlp\).*Give a run of rlseq train dqn",
    ):
        terms(parent, "dqn", options, ())


def job_of(folder: Path, columns: str, **options: object) -> SequenceJob:
    """A forecast, or a classification, of a table with these columns."""
    names = columns.split(",")
    file = folder / f"{columns}.csv"
    rows = [",".join("xyz"[row % 3] if name == "label" else f"{(row * 7) % 11}" for name in names) for row in range(90)]
    file.write_text("\n".join([columns, *rows]) + "\n")
    context = {"context": 8} if options["task"] == "forecast" else {}
    values = {"seq": {"data": str(file), **context, **options}, "net": {"core": "lstm", "layers": 1, "width": 8}}
    job = plan_training(Request("seq", recipe="none", values=values)).job
    assert isinstance(job, SequenceJob)
    return job


def run_of(job: SequenceJob, folder: Path) -> Run:
    """A run as that training leaves it."""
    run = Run(folder / "parent")
    run.path.mkdir()
    run.write("config.json", {"algorithm": "seq", "options": msgspec.to_builtins(job.options)})
    run.write("lineage.json", {"steps": [{"step": "train", **job.facts}]})
    return run


BOTH = ("head.", "embedding.", "reader.")


def test_columns_and_what_is_forecast_are_what_weights_mean(tmp_path: Path) -> None:
    parent = run_of(job_of(tmp_path, "a,b", task="forecast", target="b", horizon=2), tmp_path)
    same = job_of(tmp_path, "a,b", task="forecast", target="b", horizon=3)  # another shape of the head will tell
    assert same.check_parent(parent).anew == ()
    assert same.check_parent(parent, new_head=True).anew == ("head.",)
    for columns, target, what, anew in (
        ("b,a", "b", "tokens or columns", BOTH),
        ("a,b,c", "b", "tokens or columns", BOTH),
        ("a,b", "a", "answers", ("head.",)),
    ):
        job = job_of(tmp_path, columns, task="forecast", target=target, horizon=2)
        with pytest.raises(UsageError, match=rf"parent: it was trained on other {what} than .*Add --new-head"):
            job.check_parent(parent)
        assert job.check_parent(parent, new_head=True).anew == anew


def test_classes_are_what_weights_mean(tmp_path: Path) -> None:
    parent = run_of(job_of(tmp_path, "a,b,c,label", task="classify", label="label"), tmp_path)
    forecast = job_of(tmp_path, "a,b,c", task="forecast", target="b", horizon=2)
    with pytest.raises(UsageError, match="it was trained on other"):
        forecast.check_parent(parent)
    again = job_of(tmp_path, "a,b,c,label", task="classify", label="label")
    assert again.check_parent(parent).anew == ()
