"""Comparing sequence models: groups, losses, lower is better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlseq.compare import compare
from rlseq.errors import RlseqError, UsageError
from tests.made_runs import made_run, made_sequence_run, made_task_run


@pytest.fixture(autouse=True)
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))


def one(found: dict[str, Any]) -> dict[str, Any]:
    """The only group."""
    (group,) = found["groups"]
    assert isinstance(group, dict)
    return group


def test_seeds_are_one_group_with_the_mean_of_their_losses() -> None:
    for seed, loss in enumerate((1.5, 1.25, 1.75)):
        made_sequence_run(f"a-s{seed}", [4.0, 2.0 - seed / 4], seed=seed, score=loss)
    found = compare(["a-s0", "a-s1", "a-s2"])
    group = one(found)
    assert (found["tag"], found["metric"]["key"], found["metric"]["better"]) == ("eval/loss", "loss", "lower")
    assert (group["label"], group["task"], group["num_runs"], group["num_finished"]) == ("text", "text", 3, 3)
    assert (group["loss"], group["lowest"], group["highest"]) == (1.5, 1.25, 1.75)
    assert group["half_width"] == pytest.approx(4.302653 * 0.25 / 3**0.5, rel=1e-6)  # t(2) s / sqrt(3)
    assert group["best_evaluation"] == 1.75
    assert (group["training_seconds"], group["steps"], group["updates"]) == (11, 200, 200)
    assert (group["curve"]["steps"], group["curve"]["mean"]) == ([100, 200], [4.0, 1.75])
    assert "mean_return" not in group and "env_id" not in group


def test_of_an_unfinished_run_the_lowest_evaluation_is_the_best() -> None:
    made_sequence_run("a", [3.0, 1.5, 1.75])
    group = one(compare(["a"]))
    assert (group["loss"], group["best_evaluation"], group["steps"], group["training_seconds"]) == (
        *(None, 1.5, 300, 12.5),
    )


def test_the_best_evaluation_is_of_the_loss_whatever_chose_the_checkpoint() -> None:
    chosen = {"eval": {"metric": "word_share"}}
    made_sequence_run("a", [3.0, 1.5], score=1.6, options=chosen, summary={"best_evaluation": 0.75})
    assert one(compare(["a"]))["best_evaluation"] == 1.5


def test_groups_are_named_by_the_options_that_differ() -> None:
    made_sequence_run("a", [2.0], score=1.5)
    made_sequence_run("b", [2.0], score=1.25, options={"net": {"core": "lstm"}, "optim": {"lr": 0.01}})
    found = compare(["a", "b"])
    assert [group["label"] for group in found["groups"]] == [
        "text",
        "text net.core=lstm optim.lr=0.01",
    ]
    assert found["warnings"] == []


def test_the_same_data_at_another_place_are_the_same_and_other_data_are_warned_of() -> None:
    first = {"seq": {"data": "/here/poems.txt"}}
    made_sequence_run("a", [2.0], score=1.5, options=first)
    made_sequence_run("b", [2.0], score=1.5, seed=1, options={"seq": {"data": "/there/poems.txt"}})
    assert one(compare(["a", "b"]))["num_runs"] == 2
    made_sequence_run("c", [2.0], score=1.5, seed=2, options=first, data_sha256="e" * 64)
    made_sequence_run("d", [2.0], score=1.5, data_sha256="f" * 64)
    found = compare(["a", "b", "c", "d"])
    assert [(group["label"], group["num_runs"]) for group in found["groups"]] == [
        ("text on poems.txt (a)", 2),
        ("text on poems.txt (c)", 1),
        ("text on the standard library", 1),
    ]
    (warning,) = found["warnings"]
    assert "measured on different data (seq.data differs)" in warning and "not comparable" in warning


@pytest.mark.parametrize("option", [{"unit": "byte"}, {"validation": 0.2}])
def test_other_tokens_and_another_split_are_warned_of(option: dict[str, Any]) -> None:
    made_sequence_run("a", [2.0], score=1.5)
    made_sequence_run("b", [2.0], score=1.5, options={"seq": option})
    assert "not comparable" in compare(["a", "b"])["warnings"][0]


def test_other_curves_and_the_picture(tmp_path: Path) -> None:
    made_sequence_run("a", [2.0, 1.0], score=1.5)
    found = compare(["a"], tag="eval/perplexity", out=tmp_path / "a.svg")
    assert one(found)["curve"]["mean"] == pytest.approx([7.389056, 2.718282], rel=1e-6)
    picture = (tmp_path / "a.svg").read_text()
    assert "text: mean and range over runs" in picture and ">updates<" in picture
    assert "perplexity on the validation split" in picture
    with pytest.raises(UsageError, match=r"--tag eval/los: .*Did you mean eval/loss"):
        compare(["a"], tag="eval/los")


def test_policies_and_sequence_models_are_not_mixed(tmp_path: Path) -> None:
    made_run("a", [10.0], score=10.0)
    made_sequence_run("b", [2.0], score=1.5)
    for names in (["a", "b"], ["b", "a"]):
        with pytest.raises(UsageError, match=r"by its (mean return|loss) and .* by its .* cannot be compared"):
            compare(names, tag="train/loss", out=tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_a_run_without_evaluations() -> None:
    made_sequence_run("empty", [])
    with pytest.raises(RlseqError, match=r"empty has no evaluation yet"):
        compare(["empty"])


def test_tasks_are_compared_by_their_own_score(tmp_path: Path) -> None:
    made_task_run("a", "addition", [0.25, 0.75], score=0.5)
    made_task_run("b", "addition", [0.25, 0.5], score=0.25, options={"net": {"core": "transformer"}}, data_sha256="e")
    found = compare(["a", "b"], out=tmp_path / "a.svg")
    assert (found["metric"]["key"], found["metric"]["better"], found["tag"]) == (
        *("exact_match", "higher", "eval/exact_match"),
    )
    rows = [(group["label"], group["exact_match"], group["best_evaluation"]) for group in found["groups"]]
    assert rows == [("addition", 0.5, 0.75), ("addition net.core=transformer", 0.25, 0.5)]
    assert found["warnings"] == []  # both kinds of network were asked the same questions
    assert "exact match on the validation split" in (tmp_path / "a.svg").read_text()
    made_task_run("c", "addition", [0.5], score=0.5, options={"seq": {"length": 4}})
    assert "(seq.length differs)" in compare(["a", "c"])["warnings"][0]
    made_task_run("d", "sort", [0.5], score=0.5)
    assert "(seq.task differs)" in compare(["a", "d"])["warnings"][0]
    made_task_run("e", "lorenz", [0.5], score=0.5)
    with pytest.raises(UsageError, match=r"a is judged by its exact match and .*e by its MASE"):
        compare(["a", "e"])


def test_a_loss_has_the_unit_of_its_task(tmp_path: Path) -> None:
    made_task_run("e", "lorenz", [0.5], score=0.125)
    compare(["e"], tag="eval/loss", out=tmp_path / "e.svg")
    assert "loss on the validation split, squared standard deviations" in (tmp_path / "e.svg").read_text()
    group = one(compare(["e"]))
    assert (group["label"], group["mase"], group["best_evaluation"]) == ("lorenz", 0.125, 0.5)
