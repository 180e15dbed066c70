"""What PATH means: a run, an agent, or an .onnx file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlseq import zoo
from rlseq.errors import RlseqError, UsageError
from rlseq.locate import locate


def make_run(folder: Path, *, age: float = 0.0) -> Path:
    """The least that is a run."""
    folder.mkdir(parents=True)
    config = folder / "config.json"
    config.write_text('{"format_version": 1}')
    os.utime(config, (1e9 - age, 1e9 - age))
    return folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two runs and two agents (one without a policy)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLSEQ_RUNS", raising=False)
    make_run(tmp_path / "runs" / "old-run", age=100)
    make_run(tmp_path / "runs" / "new-run")
    for name in ("cartpole-dqn", "acrobot-dqn"):
        (tmp_path / "shipped" / name).mkdir(parents=True)
        (tmp_path / "shipped" / name / "recipe.toml").write_text('algorithm = "dqn"')
    (tmp_path / "shipped" / "cartpole-dqn" / "policy.onnx").write_bytes(b"")
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "shipped")
    return tmp_path


def test_nothing_is_the_newest_run(place: Path) -> None:
    found = locate(None)
    assert (found.kind, found.name, found.path) == ("run", "new-run", Path("runs/new-run"))
    assert found.run is not None and found.run.path == found.path


def test_nothing_without_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSEQ_RUNS", str(place / "elsewhere"))
    with pytest.raises(
        UsageError, match=r"there is no run in .*elsewhere yet. Begin with: rlseq train dqn CartPole-v1"
    ):
        locate(None)


@pytest.mark.parametrize("text", ["old-run", "runs/old-run", "runs/old-run/", "./runs/../runs/old-run"])
def test_a_run_by_name_or_path(text: str) -> None:
    found = locate(text)
    assert (found.kind, found.name) == ("run", "old-run")
    assert found.path.samefile("runs/old-run")


def test_the_current_folder_can_be_the_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place / "runs" / "old-run")
    assert locate(".").name == "old-run"


def test_a_path_object_will_do() -> None:
    assert locate(Path("runs") / "old-run").name == "old-run"


def test_an_agent_by_name_or_folder(place: Path) -> None:
    policy = place / "shipped" / "cartpole-dqn" / "policy.onnx"
    for text in ("cartpole-dqn", "shipped/cartpole-dqn"):
        found = locate(text)
        assert (found.kind, found.name, found.run) == ("agent", "cartpole-dqn", None)
        assert found.path.samefile(policy)


def test_an_agent_without_policy_says_how_to_train_it() -> None:
    with pytest.raises(RlseqError, match=r"acrobot-dqn has no policy.onnx.*rlseq train dqn --recipe .*recipe.toml"):
        locate("acrobot-dqn")


def test_a_sequence_model_without_its_file_says_how_to_train_it(place: Path) -> None:
    recipe = place / "shipped" / "acrobot-dqn" / "recipe.toml"
    recipe.write_text('algorithm = "seq"')
    with pytest.raises(RlseqError, match=r"has no model.onnx in .*, only its recipe. Train it: rlseq train seq --rec"):
        locate("acrobot-dqn")


@pytest.mark.parametrize("name", ["mine.onnx", "MINE.ONNX"])
def test_an_onnx_file(place: Path, name: str) -> None:
    (place / name).write_bytes(b"")
    found = locate(name)
    assert (found.kind, found.name, found.path, found.run) == ("onnx", name, Path(name), None)


def test_a_runs_exported_file_is_a_file(place: Path) -> None:
    (place / "runs" / "old-run" / "policy.onnx").write_bytes(b"")
    assert locate("runs/old-run/policy.onnx").kind == "onnx"


def test_an_existing_path_wins_over_a_name(place: Path) -> None:
    make_run(place / "cartpole-dqn")
    assert locate("cartpole-dqn").path == Path("cartpole-dqn")


def test_a_folder_that_is_nothing_does_not_hide_a_name(place: Path) -> None:
    (place / "cartpole-dqn").mkdir()
    assert locate("cartpole-dqn").kind == "agent"


def test_a_runs_name_wins_over_an_agents(place: Path) -> None:
    make_run(place / "runs" / "cartpole-dqn")
    assert locate("cartpole-dqn").kind == "run"


@pytest.mark.parametrize(
    ("text", "meant"), [("old-rum", "old-run"), ("OLD-RUN", "old-run"), ("CartPole-DQN", "cartpole-dqn")]
)
def test_the_nearest_names_are_offered_and_case_matters(text: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"no run, agent or file '{text}'.*Did you mean {meant}"):
        locate(text)


def test_what_is_like_nothing_gets_no_guess() -> None:
    with pytest.raises(UsageError) as caught:
        locate("zzzzzz")
    assert "Did you mean" not in str(caught.value)
    assert "`rlseq list` shows what there is" in str(caught.value)


def test_a_missing_file(place: Path) -> None:
    (place / "policy.onnx").write_bytes(b"")
    with pytest.raises(UsageError, match=r"there is no file polcy.onnx. Did you mean policy.onnx"):
        locate("polcy.onnx")
    with pytest.raises(UsageError, match=r"there is no file nowhere/policy.onnx. PATH may be"):
        locate("nowhere/policy.onnx")


def test_what_exists_but_is_none_of_the_three(place: Path) -> None:
    (place / "folder").mkdir()
    (place / "weights.pt").write_bytes(b"")
    with pytest.raises(UsageError, match=r"folder holds no run \(there is no config.json in it\). PATH may be a run's"):
        locate("folder")
    with pytest.raises(UsageError, match=r"weights.pt is no .onnx file by its name. PATH may be a run's"):
        locate("weights.pt")


def test_a_checkpoint_is_not_a_run(place: Path) -> None:
    (place / "runs" / "old-run" / "checkpoints" / "500").mkdir(parents=True)
    with pytest.raises(UsageError, match="give the run: runs/old-run --checkpoint 500"):
        locate("runs/old-run/checkpoints/500")
    with pytest.raises(UsageError, match="a folder inside a run; give the run: runs/old-run"):
        locate("runs/old-run/checkpoints")


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_path(text: str) -> None:
    with pytest.raises(UsageError, match="PATH is empty"):
        locate(text)
