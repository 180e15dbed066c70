"""An agent's card: which run is shipped, what is written, and when nothing is."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlseq import card, card_data, zoo
from rlseq.card import Card, make_card
from rlseq.card_data import shipped_index
from rlseq.card_text import card_text
from rlseq.errors import CorruptFile, MissingExtra, RlseqError, UsageError
from rlseq.files import read_json, sha256_file
from rlseq.player.latency import Latency
from rlseq.runs import Run
from rlseq.scores import METRICS
from tests.made_runs import PARITY, made_run

RECIPE = '# fast\nalgorithm = "dqn"\n[env]\nid = "CartPole-v1"\n'
LATENCY = Latency(5_000, 9.5, 21.0, 64, 600_000.0)


@pytest.fixture(autouse=True)
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shipped agent `mine` that has a recipe alone."""
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))
    folder = tmp_path / "agents" / "mine"
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE)
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "agents")
    monkeypatch.setattr(card_data, "measure_latency", lambda path: LATENCY)
    return folder


def finished(*scores: float, **more: Any) -> list[Run]:
    """A finished run for each seed."""
    return [made_run(f"card-mine-s{k}", [5.0, score], seed=k, score=score, **more) for k, score in enumerate(scores)]


def make(seeds: Sequence[int], said: list[str] | None = None, **more: Any) -> Card:
    """The card, as the command makes it."""
    words: dict[str, Any] = {"command": "rlseq card mine", "watch": lambda: contextlib.nullcontext(lambda event: None)}
    return make_card("mine", seeds=seeds, note=(said if said is not None else []).append, **words, **more)


def test_all_that_is_written(agent: Path) -> None:
    runs = finished(500.0, 440.0, 480.0)
    made = make(range(3))
    assert made.folder == agent
    assert sorted(path.name for path in agent.iterdir()) == [
        *("card.json", "card.md", "curve.png", "policy.onnx", "recipe.toml")
    ]
    data = read_json(agent / "card.json")
    assert data == made.data
    assert (agent / "card.md").read_text(encoding="utf-8") == card_text(data)
    assert (agent / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert (agent / "policy.onnx").read_bytes() == runs[2].exported.read_bytes()


def test_the_numbers_are_those_of_the_runs() -> None:
    runs = finished(500.0, 440.0, 480.0)
    for run, threads in zip(runs, ([2], [1], [2, 1]), strict=True):
        run.write("env.json", {**run.env(), "threads": threads})
    data = make(range(3), episodes=100).data
    assert (data["name"], data["algorithm"], data["env_id"]) == ("mine", "dqn", "CartPole-v1")
    assert (data["episodes"], data["final_seed"], data["selection_seed"]) == (100, 0, 1_000_000)
    assert data["score"] == {
        **{"n": 3, "mean": pytest.approx(1420 / 3), "lowest": 440.0, "highest": 500.0},
        "half_width": pytest.approx(4.302653 * (2800 / 9) ** 0.5, rel=1e-6),  # t(2) sqrt(2800 / 3 / 3)
    }
    assert [(row["seed"], row["run"], row["mean_return"]) for row in data["runs"]] == [
        (0, "card-mine-s0", 500.0),
        (1, "card-mine-s1", 440.0),
        (2, "card-mine-s2", 480.0),
    ]
    assert data["shipped"] == {
        **{"seed": 2, "run": "card-mine-s2", "mean_return": 480.0, "checkpoint": 200, "parameters": 10},
        **{"bytes": runs[2].exported.stat().st_size, "sha256": sha256_file(runs[2].exported), "parity": PARITY},
    }
    assert data["latency"] == LATENCY._asdict()
    assert data["seconds"]["training_seconds"] == {"median": 11.0, "lowest": 10.0, "highest": 12.0}
    assert data["seconds"]["export_seconds"] == {"median": 1.0, "lowest": 1.0, "highest": 1.0}
    assert data["curves"][1] == {"steps": [100, 200], "return_mean": [5.0, 440.0]}
    assert (data["recipe"], data["jobs"], data["threads"], data["baselines"]) == (RECIPE, 1, [1, 2], [])
    assert data["machine"].keys() == {"rlseq", "commit", "python", "packages", "platform", "cpu", "cores"}


def test_the_same_runs_give_the_same_files(agent: Path, tmp_path: Path) -> None:
    finished(500.0, 440.0)
    make(range(2))
    make(range(2), out=tmp_path / "again" / "here")
    for path in (tmp_path / "again" / "here").iterdir():
        assert path.read_bytes() == (agent / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("scores", "seeds", "shipped"),
    [
        ((7.0,), (4,), 0),
        ((1.0, 9.0, 5.0), (0, 1, 2), 2),  # the median, not the best
        ((9.0, 1.0, 5.0, 7.0), (0, 1, 2, 3), 2),  # of an even number the lower of the two in the middle
        ((5.0, 9.0, 5.0, 5.0, 1.0), (3, 4, 5, 1, 2), 3),  # of equal ones the lowest seed
        ((500.0,) * 10, tuple(range(10)), 0),
    ],
)
def test_the_median_run_is_shipped(scores: Sequence[float], seeds: Sequence[int], shipped: int) -> None:
    (higher,) = METRICS["dqn"]
    assert shipped_index(scores, seeds, higher) == shipped


@pytest.mark.parametrize(
    ("losses", "seeds", "shipped"),
    [
        ((1.0, 9.0, 5.0), (0, 1, 2), 2),
        ((9.0, 1.0, 5.0, 7.0), (0, 1, 2, 3), 3),  # of an even number the higher loss of the two in the middle
        ((5.0, 9.0, 5.0, 5.0, 1.0), (3, 4, 5, 1, 2), 3),
    ],
)
def test_the_median_run_by_its_loss_is_shipped(losses: Sequence[float], seeds: Sequence[int], shipped: int) -> None:
    assert shipped_index(losses, seeds, METRICS["text"][0]) == shipped


def test_baselines_are_taken_from_a_file(tmp_path: Path) -> None:
    finished(500.0)
    (tmp_path / "b.json").write_text('{"baselines": [{"what": "random", "result": "22", "source": "here"}]}')
    made = make(range(1), baselines=tmp_path / "b.json")
    assert made.data["baselines"] == [{"what": "random", "result": "22", "source": "here"}]
    assert "| random | 22 | here |" in (made.folder / "card.md").read_text(encoding="utf-8")
    (tmp_path / "b.json").write_text('{"baselines": [{"what": "random"}]}')
    with pytest.raises(UsageError, match=r"--baselines .*b.json: .*missing required field `result`"):
        make(range(1), baselines=tmp_path / "b.json")


def test_wrong_names_and_folders(agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(500.0)
    more: dict[str, Any] = {"seeds": range(1), "command": "", "watch": contextlib.nullcontext, "note": print}
    with pytest.raises(UsageError, match=r"no shipped agent 'mein' .*Did you mean mine\? Shipped: mine\."):
        make_card("mein", **more)
    (tmp_path / "file").write_text("")
    with pytest.raises(RlseqError, match=r"cannot create .*file"):
        make(range(1), out=tmp_path / "file")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(UsageError, match=r"mine is not writable\. .*--out mine"):
        make(range(1))
    assert [path.name for path in agent.iterdir()] == ["recipe.toml"]


def test_an_installed_package_is_not_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(500.0)
    (tmp_path / "agents").rename(tmp_path / "_agents")
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "_agents")
    with pytest.raises(UsageError, match=r"belongs to an installed package.*pip install -e .*--out mine"):
        make(range(1))
    assert make(range(1), out=tmp_path / "card").folder == tmp_path / "card"


def test_a_policy_that_is_not_the_trainings_is_not_shipped(agent: Path) -> None:
    (run,) = finished(500.0)
    run.exported.write_bytes(b"another")
    with pytest.raises(CorruptFile, match=r"policy.onnx is not the file that its training exported"):
        make(range(1))
    assert not (agent / "policy.onnx").exists()


def test_a_summary_that_lacks_something_is_named() -> None:
    (run,) = finished(500.0)
    summary = run.summary()
    assert summary is not None
    run.write("summary.json", {key: value for key, value in summary.items() if key != "export_seconds"})
    with pytest.raises(CorruptFile, match=r"summary.json lacks export_seconds"):
        make(range(1))


def test_what_is_missing_is_said_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, purpose: str) -> None:
        if module == "matplotlib":
            raise MissingExtra(f"{purpose} needs {module}")

    said: list[str] = []
    monkeypatch.setattr(card, "require", missing)
    with pytest.raises(MissingExtra, match="making a card needs matplotlib"):
        make(range(1), said)
    assert said == []


def test_changed_code_is_said_before_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for commit, words in (("0123456789", 0), ("0123456789+changes", 1)):
        monkeypatch.setattr("rlseq.machine.commit", lambda commit=commit: commit)
        for path in Path(os.environ["RLSEQ_RUNS"]).glob("*"):
            shutil.rmtree(path)
        finished(500.0)
        said: list[str] = []
        assert make(range(1), said).data["machine"]["commit"] == commit
        assert sum("uncommitted changes" in line for line in said) == words


def test_a_real_card(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained, measured, and the shipped file plays."""
    from rlseq.pipeline import play
    from rlseq.player.latency import measure_latency

    monkeypatch.setattr(card_data, "measure_latency", lambda path: measure_latency(path, calls=50, seconds=0.01))
    settings = (
        "[run]\nsteps = 300\n[net]\nhidden = [8]\n[eval]\nevery = 150\nepisodes = 2\n[dqn]\nlearning_starts = 50\n"
    )
    (agent / "recipe.toml").write_text(RECIPE + settings)
    made = make([5, 6], episodes=4)
    assert [row["steps"] for row in made.data["runs"]] == [300, 300]
    assert made.data["shipped"]["parameters"] == 4 * 8 + 8 + 8 * 2 + 2
    assert made.data["episodes"] == 4
    played = play(agent / "policy.onnx", episodes=4, seed=0)
    assert (
        played["mean_return"] == made.data["shipped"]["mean_return"] == min(r["mean_return"] for r in made.data["runs"])
    )
    assert [curve["steps"] for curve in made.data["curves"]] == [[150, 300], [150, 300]]
    before = (agent / "card.md").read_text(encoding="utf-8")
    said: list[str] = []
    make([5, 6], said, episodes=4)
    assert [line.split(":")[0] for line in said if "is kept" in line] == ["Seed 5", "Seed 6"]
    after = (agent / "card.md").read_text(encoding="utf-8")
    same = [line for line in before.splitlines() if not line.startswith(("| latency", "| throughput"))]
    assert [line for line in after.splitlines() if not line.startswith(("| latency", "| throughput"))] == same
