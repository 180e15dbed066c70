"""Comparing runs: what is one group, what it is called, and its numbers."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from rlseq import zoo
from rlseq.compare import compare
from rlseq.errors import CorruptFile, RlseqError, UsageError
from rlseq.recipe import read_recipe
from tests.made_runs import LINEAGE, made_run


@pytest.fixture(autouse=True)
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))


def one(found: dict[str, Any]) -> dict[str, Any]:
    """The only group."""
    (group,) = found["groups"]
    assert isinstance(group, dict)
    return group


def test_runs_that_differ_in_seed_and_name_alone_are_one_group_with_an_interval() -> None:
    for seed, score in enumerate((100.0, 110.0, 130.0)):
        made_run(f"a-s{seed}", [10.0 * (seed + 1), 50.0], seed=seed, score=score)
    group = one(compare(["a-s0", "a-s1", "a-s2"]))
    assert (group["num_runs"], group["num_finished"], group["label"], group["options"]) == (3, 3, "CartPole-v1", {})
    assert group["mean_return"] == pytest.approx(340 / 3)
    assert group["half_width"] == pytest.approx(4.302653 * (700 / 3) ** 0.5 / 3**0.5, rel=1e-6)  # t(2) s / sqrt(3)
    assert (group["lowest"], group["highest"]) == (100.0, 130.0)
    assert (group["best_evaluation"], group["training_seconds"], group["steps"], group["updates"]) == (50, 11, 200, 400)
    assert [run["seed"] for run in group["runs"]] == [0, 1, 2]
    curve = group["curve"]
    assert (curve["steps"], curve["mean"], curve["lowest"], curve["highest"]) == (
        [100, 200],
        [20.0, 50.0],
        [10.0, 50.0],
        [30.0, 50.0],
    )
    assert curve["half_width"] == [pytest.approx(4.302653 * 10 / 3**0.5, rel=1e-6), 0.0]


def test_one_run_has_no_interval() -> None:
    made_run("a", [5.0], score=7.0)
    group = one(compare(["a"]))
    assert (group["mean_return"], group["half_width"], group["curve"]["half_width"]) == (7.0, None, None)


def test_groups_are_named_by_the_options_that_differ() -> None:
    made_run("a", [1.0], score=1.0)
    made_run("b", [1.0], score=2.0, seed=1, options={"dqn": {"gamma": 0.9}, "net": {"hidden": [64, 64]}})
    made_run("c", [1.0], score=3.0, options={"optim": {"clip_norm": None}}, recipe="cartpole-dqn")
    found = compare(["a", "b", "c"])
    assert [group["label"] for group in found["groups"]] == [
        "CartPole-v1",
        "CartPole-v1 net.hidden=[64,64] dqn.gamma=0.9",
        "CartPole-v1 recipe cartpole-dqn optim.clip_norm=none",
    ]
    assert found["groups"][1]["options"] == {"net.hidden": (64, 64), "dqn.gamma": 0.9, "optim.clip_norm": 10.0}
    assert found["warnings"] == []


def test_a_recipe_or_the_same_options_by_hand_are_trained_alike() -> None:
    made_run("a", [1.0], score=1.0, recipe="cartpole-dqn")
    made_run("b", [1.0], score=1.0, seed=1)
    assert one(compare(["a", "b"]))["num_runs"] == 2


def test_a_run_from_other_weights_is_a_group_of_its_own() -> None:
    parent = {**LINEAGE, "run": "parent", "seed": 3, "env_steps": 500}
    made_run("a", [1.0], score=1.0)
    made_run("b", [1.0], score=2.0, origin=[parent])
    made_run("c", [1.0], score=2.0, origin=[{**parent, "seed": 4}], seed=1)
    made_run("d", [1.0], score=2.0, origin=[{**parent, "env_steps": 900}])
    labels = [(group["label"], group["num_runs"]) for group in compare(["a", "b", "c", "d"])["groups"]]
    assert labels == [
        ("CartPole-v1", 1),
        ("CartPole-v1 from other weights (b)", 2),
        ("CartPole-v1 from other weights (d)", 1),
    ]


def test_unfinished_runs_are_counted_and_have_no_score() -> None:
    made_run("a", [10.0, 40.0], score=44.0)
    made_run("b", [20.0, 90.0, 30.0], seed=1)
    group = one(compare(["a", "b"]))
    assert (group["num_runs"], group["num_finished"], group["mean_return"], group["half_width"]) == (2, 1, 44.0, None)
    unfinished = group["runs"][1]
    assert unfinished == {
        **{"run": unfinished["run"], "seed": 1, "status": "interrupted", "mean_return": None},
        **{"best_evaluation": 90.0, "training_seconds": 12.5, "steps": 300, "updates": None},
    }
    assert group["curve"]["mean"] == [15.0, 65.0]  # at the steps that both have
    assert group["updates"] == 400.0
    alone = one(compare(["b"]))
    assert (alone["mean_return"], alone["lowest"], alone["updates"]) == (None, None, None)


def test_other_curves() -> None:
    made_run("a", [10.0, 40.0], score=44.0)
    found = compare(["a"], tag="train/loss")
    assert (found["tag"], one(found)["curve"]["mean"]) == ("train/loss", [1.0, 0.5])
    with pytest.raises(UsageError, match=r"--tag train/los: .*Did you mean train/loss"):
        compare(["a"], tag="train/los")


def test_different_environments_are_compared_with_a_warning(tmp_path: Path) -> None:
    made_run("a", [1.0], score=1.0)
    made_run("b", [-80.0], score=-90.0, options={"env": {"id": "Acrobot-v1"}})
    found = compare(["a", "b"], out=tmp_path / "both.svg")
    assert [group["label"] for group in found["groups"]] == ["CartPole-v1", "Acrobot-v1"]
    (warning,) = found["warnings"]
    assert "different environments (CartPole-v1, Acrobot-v1)" in warning
    picture = (tmp_path / "both.svg").read_text()
    assert "CartPole-v1, Acrobot-v1: mean and range over runs" in picture
    assert found["picture"] == str(tmp_path / "both.svg")


def test_the_picture_marks_what_is_unfinished(tmp_path: Path) -> None:
    made_run("a", [10.0, 40.0], score=44.0)
    made_run("b", [20.0, 90.0, 30.0], seed=1)
    made_run("c", [20.0, 90.0, 30.0], options={"dqn": {"gamma": 0.5}})
    made_run("d", [20.0, 90.0], options={"dqn": {"gamma": 0.6}}, score=3.0)
    compare(["a", "b", "c", "d"], out=tmp_path / "all.svg")
    picture = (tmp_path / "all.svg").read_text().replace("\N{NO-BREAK SPACE}", " ")
    for words in ("CartPole-v1 (1 of 2 runs finished)", "gamma=0.5 (1 run, unfinished)", "gamma=0.6 (1 run)"):
        assert words in picture


def test_values_of_the_recipe_are_not_named() -> None:
    values = read_recipe(zoo.shipped_recipes()["cartpole-dqn"], "cartpole-dqn").values
    made_run("a", [1.0], score=1.0, options=dict(values), recipe="cartpole-dqn")
    made_run("b", [1.0], score=1.0)
    made_run("c", [1.0], score=1.0, options={"optim": {"freeze": ["head.*"]}})
    labels = [group["label"] for group in compare(["a", "b", "c"])["groups"]]
    assert labels == ["CartPole-v1 recipe cartpole-dqn", "CartPole-v1", 'CartPole-v1 optim.freeze=["head.*"]']


def test_runs_of_one_seed_count_once_and_that_is_said() -> None:
    for name, seed, score in (("a", 0, 100.0), ("again", 0, 104.0), ("b", 1, 110.0), ("c", 2, 130.0)):
        made_run(name, [score], seed=seed, score=score)
    found = compare(["a", "again", "b", "c"])
    group = one(found)
    assert (group["num_runs"], group["num_finished"], group["num_samples"]) == (4, 4, 3)
    assert group["mean_return"] == pytest.approx((102 + 110 + 130) / 3)
    deviation = statistics.stdev([102, 110, 130])
    assert group["half_width"] == pytest.approx(4.302653 * deviation / 3**0.5, rel=1e-6)
    assert group["curve"]["mean"] == [pytest.approx((100 + 110 + 130) / 3)]
    assert found["warnings"] == [
        "a and again were trained alike with the same seed (0): they are not independent, and count once in the mean "
        "and its interval."
    ]
    assert compare(["a", "b"])["warnings"] == []
    alone = one(compare(["a", "again"]))
    assert (alone["mean_return"], alone["half_width"]) == (102.0, None)


def test_one_seed_from_the_weights_of_several_runs_is_several_samples() -> None:
    parent = {**LINEAGE, "run": "parent", "env_steps": 500}
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        made_run(name, [1.0], score=2.0, origin=[{**parent, "seed": seed}])
    found = compare(["a", "b", "c"])
    assert one(found)["num_samples"] == 2
    (warning,) = found["warnings"]
    assert warning.startswith("a and b were trained alike")


def test_a_run_named_twice_counts_once(tmp_path: Path) -> None:
    made_run("a", [1.0], score=1.0)
    found = compare(["a", tmp_path / "runs" / "a"])
    assert one(found)["num_runs"] == 1
    assert "named more than once" in found["warnings"][0]


def test_what_cannot_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made_run("a", [1.0], score=1.0)
    agent = tmp_path / "agents" / "mine"
    agent.mkdir(parents=True)
    (agent / "recipe.toml").write_text('algorithm = "dqn"\n')
    (agent / "policy.onnx").write_bytes(b"")
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "agents")
    wrong: list[tuple[list[str | Path], dict[str, Any], str]] = [
        ([], {}, r"name one run or more"),
        ([run.exported], {}, r"policy.onnx is an exported file, which has no curves"),
        (["a", "mine"], {}, r"mine is a shipped agent, which has no curves"),
        (["b"], {}, r"no run, agent or file 'b'"),
        (["a"], {"out": "a.jpg"}, r"a.jpg: .*\.png or \.svg"),
        (["a"], {"out": tmp_path / "no" / "a.png"}, r"there is no folder"),
    ]
    for paths, arguments, message in wrong:
        with pytest.raises(UsageError, match=message):
            compare(paths, **arguments)


def test_a_run_without_evaluations_and_a_damaged_one() -> None:
    made_run("a", [1.0], score=1.0)
    empty, damaged = made_run("empty", []), made_run("damaged", [1.0])
    with pytest.raises(RlseqError, match=r"empty has no evaluation yet"):
        compare(["a", "empty"])
    assert not (empty.path / "summary.json").exists()
    (damaged.path / "config.json").write_text("{")
    with pytest.raises(CorruptFile, match=r"damaged.config.json"):
        compare(["damaged"])
