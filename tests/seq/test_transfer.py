"""A training of a sequence model that begins with another run's weights, freezes some and begins others anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq import runs
from rlseq.errors import UsageError
from rlseq.events import Event
from rlseq.pipeline import train
from tests.seq.test_train import Crash, crash_at
from tests.training import SMALL_SEQ, assert_same_run, curves, merged, small_seq, weights, write_text

FREEZE = ["core.blocks.0.*", "embedding.*"]
TUNED: dict[str, Any] = {
    "net": {"layers": 2},
    "optim": {"freeze": FREEZE, "lr_multipliers": {"*": 0.5, "norm.*": 2.0}, "weight_decay": 0.1, "ema": 0.9},
}


def no_export(*arguments: Any) -> dict[str, Any]:
    """What follows the training is tested elsewhere, and takes longer than these trainings do."""
    return {"bytes": arguments[6].write_bytes(b"")}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the runs of all tests here lie; nothing is exported."""
    made = tmp_path_factory.mktemp("transfer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLSEQ_RUNS", str(made / "runs"))
        patch.setattr("rlseq.planned_sequence.export_sequence_run", no_export)
        yield made


@pytest.fixture(scope="module")
def text(folder: Path) -> Path:
    return write_text(folder / "text.txt")


@pytest.fixture(scope="module")
def parent(text: Path) -> Path:
    return small_seq(text, {"net": {"layers": 2}}, name="parent").run


@pytest.fixture
def told() -> list[str]:
    return []


def listen(told: list[str]) -> Any:
    def callback(event: Event) -> None:
        if event.kind == "warning":
            told.append(str(event.data["message"]))

    return callback


def test_frozen_weights_are_the_parents_and_a_resume_is_exact(text: Path, parent: Path) -> None:
    whole = small_seq(text, TUNED, name="whole", init_from=parent)
    best = weights(runs.Run(parent).checkpoint("best"))
    last = weights(runs.Run(whole.run).checkpoint("last"))
    names = [name for name in last if name.startswith("model/")]
    still = [name for name in names if name.startswith(("model/core.blocks.0.", "model/embedding."))]
    assert 1 < len(still) < len(names)
    for name in names:
        assert np.array_equal(last[name], best[name]) == (name in still), name
    with pytest.raises(Crash):
        small_seq(text, TUNED, name="broken", init_from=parent, callbacks=[crash_at(14)])
    broken = runs.Run(whole.run.parent / "broken")
    other_order = {"optim": {"lr_multipliers": {"norm.*": 2.0, "*": 0.5}}}  # a table is the same in any order
    small_seq(None, other_order, resume=broken.path)
    assert_same_run(whole.run, broken.path)
    step = runs.Run(broken.path).lineage()[-1]
    checkpoint = int(runs.Run(parent).checkpoint("best").name)
    assert step["begun_with"]["run"] == "parent" and step["begun_with"]["checkpoint"] == checkpoint
    assert step["begun_with"]["loaded"] == ["embedding.weight", "core.*", "norm.weight", "head.weight"]
    summary = runs.Run(broken.path).summary()
    assert summary is not None
    assert (summary["begun_with"], summary["frozen"]) == (step["begun_with"], FREEZE)


def test_a_new_head_for_other_characters(text: Path, parent: Path, tmp_path: Path, told: list[str]) -> None:
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().replace("a", "x"))  # as many characters, but others
    slow = {"net": {"layers": 2}, "optim": {"lr": 1e-12}}
    child = small_seq(other, slow, name="b", init_from=parent, new_head=True, callbacks=[listen(told)]).run
    fresh = small_seq(other, slow, name="c").run
    first, best, drawn = (
        weights(runs.Run(run).checkpoint(which)) for run, which in ((child, "0"), (parent, "best"), (fresh, "0"))
    )
    for name in (name for name in first if name.startswith("model/")):
        expected = drawn if name.startswith(("model/head", "model/embedding")) else best
        np.testing.assert_array_equal(first[name], expected[name], err_msg=name)
    (message,) = told
    assert "Begun anew: embedding.weight [" in message and "head.weight [" in message
    assert f"--from {parent}: " in message
    assert runs.Run(child).lineage()[-1]["begun_with"]["anew"] == ["embedding.weight", "head.weight"]
    same = small_seq(text, slow, name="d", init_from=parent, new_head=True, callbacks=[listen(told)]).run
    np.testing.assert_array_equal(  # the characters are those that it knows
        weights(runs.Run(same).checkpoint("0"))["model/embedding.weight"], best["model/embedding.weight"]
    )
    assert runs.Run(same).lineage()[-1]["begun_with"]["anew"] == ["head.weight"]
    tied = {"net": {"layers": 2, "tied": True}, "optim": {"lr": 1e-12}}
    run = small_seq(text, tied, name="e", init_from=parent, new_head=True, callbacks=[listen(told)]).run
    assert runs.Run(run).lineage()[-1]["begun_with"]["anew"] == ["embedding.weight"]  # which is the head too


def test_to_freeze_without_another_runs_weights_is_worth_a_warning(text: Path, told: list[str]) -> None:
    run = small_seq(text, {"optim": {"freeze": ["embedding.*"]}}, name="alone", callbacks=[listen(told)]).run
    assert told == ["optim.freeze = embedding.* without --from: these weights stay as chance has drawn them."]
    first, last = (weights(runs.Run(run).checkpoint(which)) for which in ("0", "last"))
    np.testing.assert_array_equal(first["model/embedding.weight"], last["model/embedding.weight"])
    assert runs.Run(run).lineage()[-1]["frozen"] == ["embedding.*"]


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"net": {"layers": 2, "core": "lstm"}}, {}, r"net.core = gpt there and lstm here"),
        (
            {"net": {"layers": 2, "width": 32}},
            {},
            r"core.* there and .* here|core\..* net.width = 16 there and 32 here",
        ),
        ({"optim": {"freeze": ["core.block.*"]}}, {}, r"'core.block.\*' matches no parameter"),
        ({"optim": {"freeze": ["*"]}}, {}, r"nothing would be learnt"),
        ({"optim": {"lr_multipliers": {"c.*": 2.0}}}, {}, r"'c.\*' matches no parameter"),
        ({"optim": {"lr_multipliers": {"core.*": 0.0}}}, {}, r"freeze them: --freeze 'core"),
        ({}, {"init_from": None, "new_head": True}, r"--new-head is of a training that begins with another run's"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    text: Path, parent: Path, changes: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        small_seq(text, changes, **{"name": "refused", "init_from": parent, **arguments})
    assert not (parent.parent / "refused").exists()


def test_a_resume_keeps_what_is_frozen(text: Path, parent: Path) -> None:
    with pytest.raises(UsageError, match=r"was trained with optim.freeze = \(\), and a resume goes on exactly"):
        small_seq(None, resume=parent, freeze=["core.*"])


def test_a_longer_question_begins_with_a_shorter_ones_weights(folder: Path) -> None:
    """Of an encoder-decoder, with the encoder frozen: all fits, whatever the length."""
    small = {**SMALL_SEQ, "seq": {"batch_size": 6}}  # a question has no context
    change: dict[str, Any] = {
        "seq": {"task": "addition", "length": 2, "examples": 20, "loss": "focal"},
        "net": {"core": "transformer", "layers": 1, "width": 16, "heads": 2},
        "run": {"steps": 4, "checkpoint_every": 2},
        "eval": {"every": 2, "sample_tokens": 0},
    }
    longer = {"seq": {**change["seq"], "length": 3}, "optim": {"freeze": ["core.encoder.*"]}}
    first = runs.Run(train("seq", values=merged(small, change), recipe="none", name="short").run)
    second = runs.Run(
        train("seq", values=merged(small, change, longer), recipe="none", name="longer", init_from=first.path).run
    )
    best, last = weights(first.checkpoint("best")), weights(second.checkpoint("last"))
    names = [name for name in last if name.startswith("model/")]
    for name in names:
        assert np.array_equal(last[name], best[name]) == name.startswith("model/core.encoder."), name
    begun = second.lineage()[-1]["begun_with"]
    assert "anew" not in begun and "left_out" not in begun
    assert "optimizer" in "".join(last) and not any("encoder" in name for name in last if name.startswith("trainer/"))


@pytest.mark.parametrize("loss", ["mse", "huber", "quantile"])
def test_losses_of_values_reach_the_update(folder: Path, loss: str) -> None:
    rows = [f"{np.sin(row / 3):.4f},{np.cos(row / 3) * 100:.3f}" for row in range(200)]
    (folder / "waves.csv").write_text("\n".join(["a,b", *rows]) + "\n")
    task: dict[str, Any] = {"task": "forecast", "target": "b", "horizon": 2, "loss": loss, "context": 12}
    if loss == "huber":
        task["huber_delta"] = 0.5
    change: dict[str, Any] = {
        "seq": task,
        "net": {"core": "lstm"},
        "run": {"steps": 40, "checkpoint_every": 40, "log_every": 10},
        "eval": {"every": 40, "sample_tokens": 0},
        "optim": {"name": "adam"},
    }
    run = small_seq(folder / "waves.csv", change, name=f"waves-{loss}").run
    losses = [value for _, tag, value in curves(run) if tag == "train/loss"]
    assert 0 < losses[-1] < 0.5 * losses[0] and losses[0] < 2.0  # in the target's scale, not its square of 5000


def test_a_loss_that_does_not_suit_is_refused_before_anything_is_written(folder: Path, text: Path) -> None:
    with pytest.raises(UsageError, match=r"seq.loss = mse does not suit a task whose answers are tokens"):
        small_seq(text, {"seq": {"loss": "mse"}}, name="refused")
    with pytest.raises(UsageError, match=r"seq.loss = focal does not suit a task whose answers are values"):
        train("seq", values={"seq": {"task": "mackey-glass", "loss": "focal"}, "net": {"core": "lstm"}}, name="refused")
    assert not (folder / "runs" / "refused").exists()
