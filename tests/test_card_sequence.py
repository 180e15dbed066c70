"""The card of a sequence model."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlseq import card, card_data, zoo
from rlseq.card import Card, make_card
from rlseq.card_text import card_text
from rlseq.curves import curve_of
from rlseq.errors import CorruptFile, UsageError
from rlseq.files import read_json, sha256_file
from rlseq.pipeline import train
from rlseq.player.generation_speed import GenerationSpeed, PredictionSpeed, measure_generation
from rlseq.runs import Run
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.table import TASKS
from tests.made_runs import SEQUENCE_PARITY, made_sequence_run, made_task_run
from tests.shared_trainings import without_export
from tests.training import SMALL_SEQ, write_text

RECIPE = '# small\nalgorithm = "seq"\n'
SPEED = GenerationSpeed(2_000, 128, 0.25, 0.5, 3_800.0)
ANSWERING = PredictionSpeed(500, 1.25, 2.0, 790.0)
T_2 = 4.302653  # Student's t, two degrees of freedom


@pytest.fixture(autouse=True)
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shipped model `mine` that has a recipe alone."""
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))
    folder = tmp_path / "agents" / "mine"
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE)
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "agents")
    monkeypatch.setattr(card_data, "measure_generation", lambda path: SPEED)
    return folder


def finished(*losses: float, **more: Any) -> list[Run]:
    """A finished run for each seed."""
    return [
        made_sequence_run(f"card-mine-s{k}", [3.0, loss], seed=k, score=loss, **more) for k, loss in enumerate(losses)
    ]


def make(seeds: Sequence[int], said: list[str] | None = None, **more: Any) -> Card:
    """The card, as the command makes it."""
    words: dict[str, Any] = {"command": "rlseq card mine", "watch": lambda: contextlib.nullcontext(lambda event: None)}
    return make_card("mine", seeds=seeds, note=(said if said is not None else []).append, **words, **more)


def test_all_that_is_written(agent: Path) -> None:
    runs = finished(1.5, 1.25, 1.4)
    made = make(range(3))
    files = [path.name for path in sorted(agent.iterdir())]
    assert files == ["card.json", "card.md", "curve.png", "model.onnx", "recipe.toml"]
    data = read_json(agent / "card.json")
    assert data == made.data
    assert (agent / "card.md").read_text(encoding="utf-8") == card_text(data)
    assert (agent / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert (agent / "model.onnx").read_bytes() == runs[2].exported.read_bytes()  # the median by its loss
    assert zoo.agents()["mine"].policy == agent / "model.onnx"


def test_the_numbers_are_those_of_the_runs() -> None:
    runs = finished(1.5, 1.25, 1.4)
    data = make(range(3)).data
    known = ("name", "algorithm", "task", "model", "data", "data_sha256", "validation", "context", "tokens")
    assert [data[key] for key in known] == [
        *("mine", "seq", "text", "gpt", "the library (9000 characters)", "d" * 64, 0.05, 128, 1000)
    ]
    assert (data["selection_metric"], data["selection_tokens"]) == ("loss", 20_000)
    deviation = math.sqrt(((1.5 - 4.15 / 3) ** 2 + (1.25 - 4.15 / 3) ** 2 + (1.4 - 4.15 / 3) ** 2) / 2)
    half = T_2 * deviation / math.sqrt(3)
    assert data["score"] == {
        **{"n": 3, "mean": pytest.approx(4.15 / 3), "lowest": 1.25, "highest": 1.5},
        "half_width": pytest.approx(half, rel=1e-6),
    }
    assert data["other_scores"].keys() == {"bits_per_token", "perplexity"}
    assert data["other_scores"]["bits_per_token"]["half_width"] == pytest.approx(half / math.log(2), rel=1e-6)
    perplexities = [math.exp(loss) for loss in (1.5, 1.25, 1.4)]
    assert data["other_scores"]["perplexity"]["mean"] == pytest.approx(sum(perplexities) / 3)
    assert [(row["seed"], row["loss"], row["perplexity"]) for row in data["runs"]] == [
        *zip((0, 1, 2), (1.5, 1.25, 1.4), perplexities, strict=True)
    ]
    assert data["shipped"] == {
        **{"seed": 2, "run": "card-mine-s2", "loss": 1.4, "checkpoint": 200, "parameters": 10},
        **{"bytes": runs[2].exported.stat().st_size, "sha256": sha256_file(runs[2].exported)},
        "parity": SEQUENCE_PARITY,
    }
    assert data["generation"] == SPEED._asdict()
    assert data["seconds"]["training_seconds"] == {"median": 11.0, "lowest": 10.0, "highest": 12.0}
    assert data["curves"][0] == {"steps": [100, 200], "loss": [3.0, 1.5]}


def test_the_sample_is_what_the_shipped_file_writes(agent: Path) -> None:
    from rlseq.pipeline import generate

    finished(1.5)
    sample = make(range(1)).data["sample"]
    assert len(sample["text"]) == 300 and set(sample["text"]) <= set("abcd")
    assert sample["text"] == generate(agent / "model.onnx", tokens=300, seed=0)["text"]


def test_no_folder_of_the_user_is_told(agent: Path, tmp_path: Path) -> None:
    place = tmp_path / "private" / "poems.txt"
    place.parent.mkdir()
    write_text(place)
    (agent / "recipe.toml").write_text(f'{RECIPE}[seq]\ndata = "{place}"\n')
    finished(1.5, options={"seq": {"data": str(place)}})
    made = make(range(1))
    assert made.data["data"] == "poems.txt (9000 characters)"
    (agent / "recipe.toml").unlink()
    told = json.dumps({key: value for key, value in made.data.items() if key != "recipe"})
    assert str(tmp_path) not in told


def test_data_named_from_the_current_folder_are_those_of_the_runs(
    agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (agent / "recipe.toml").write_text(f'{RECIPE}[seq]\ndata = "t.txt"\n')
    finished(1.5, options={"seq": {"data": str(tmp_path / "t.txt")}})
    said: list[str] = []
    assert make(range(1), said).data["data"] == "t.txt (9000 characters)"
    assert "is finished, and is kept" in said[0] or "is finished, and is kept" in said[1]


def test_runs_of_other_data_are_no_series() -> None:
    finished(1.5)
    made_sequence_run("card-mine-s1", [2.0], seed=1, score=1.4, data_sha256="e" * 64)
    with pytest.raises(UsageError, match=r"card-mine-s1 was trained on other data than .*card-mine-s0"):
        make(range(2))


def test_episodes_mean_nothing(agent: Path, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(UsageError, match=r"--episodes 20: mine is a sequence model, which plays no episodes"):
        make(range(1), said, episodes=20, out=tmp_path / "there")
    assert said == [] and not (tmp_path / "there").exists()


def test_a_summary_that_lacks_something_is_named() -> None:
    (run,) = finished(1.5)
    summary = run.summary()
    assert summary is not None
    run.write("summary.json", {key: value for key, value in summary.items() if key != "perplexity"})
    with pytest.raises(CorruptFile, match=r"summary.json lacks perplexity"):
        make(range(1))


def test_a_real_card(agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained, measured, and the shipped file has the loss that the card tells."""
    from rlseq.nets.config import SequenceNetOptions
    from rlseq.nets.sizes import parameters
    from rlseq.pipeline import evaluate
    from rlseq.sequence import Signature

    monkeypatch.setattr(card_data, "measure_generation", lambda path: measure_generation(path, tokens=20))
    data = write_text(tmp_path / "t.txt")
    lines = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in values.items()) for group, values in SMALL_SEQ.items()]
    text = RECIPE + "\n".join(lines).replace("[seq]", f'[seq]\ndata = "{data}"') + "\n"
    (agent / "recipe.toml").write_text(text)
    made = make([5]).data
    scored = evaluate(agent / "model.onnx", data=data)
    assert made["shipped"]["loss"] == made["score"]["mean"] == pytest.approx(scored["loss"], rel=1e-5)
    assert (scored["task"], made["tokens"]) == ("text", scored["tokens"])
    options = SequenceNetOptions(**SMALL_SEQ["net"])
    assert made["shipped"]["parameters"] == parameters(options, Signature(vocabulary=len(set(data.read_text()))))
    assert made["curves"][0]["steps"] == [8, 16, 24]
    assert (made["generation"]["tokens"], made["generation"]["context"]) == (20, 12)
    assert made["score"]["half_width"] is None


# --------------------------------------------------------------------------------------------------------- other tasks


@pytest.mark.parametrize("kind", ["tokens", "translate"])
def test_a_question_is_timed_until_its_answer_ends(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task = TASKS["addition"].make(SeqOptions(task="addition", examples=4), kind)
    asked: list[Any] = []
    model = SimpleNamespace()
    monkeypatch.setattr(card_data, "load_sequence", lambda path: model)
    monkeypatch.setattr(card_data, "answer", lambda *arguments: asked.append(arguments))
    card_data._prediction(Path("model.onnx"), task)()
    ((by, (question_T,)),) = asked
    first = next(iter(task.validation(1)))
    row = first.inputs if first.source is None else first.source
    assert by is model and question_T.tolist() == row[0, :7].tolist()  # without the token that ends it


def test_a_series_is_timed_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    task = TASKS["waveforms"].make(SeqOptions(task="waveforms", examples=4), "classify")
    calls: list[tuple[Any, ...]] = []
    model = SimpleNamespace(whole=lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(card_data, "load_sequence", lambda path: model)
    card_data._prediction(Path("model.onnx"), task)()
    ((inputs, given, source),) = calls
    assert inputs.shape[0] == given.shape[0] == 1 and source is None


def test_the_card_of_a_task_of_questions(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (agent / "recipe.toml").write_text('algorithm = "seq"\n[seq]\ntask = "addition"\n')
    monkeypatch.setattr(card_data, "measure_prediction", lambda predict: ANSWERING)
    for seed, score in enumerate((0.5, 0.75, 0.625)):
        examples = {"sample": f"105+33{seed}=0440\n1+1=2"}
        made_task_run(f"card-mine-s{seed}", "addition", [0.25, score], seed=seed, score=score, summary=examples)
    monkeypatch.setattr(card, "pictures_of", lambda run: {})
    data = make(range(3)).data
    assert (data["score"]["mean"], data["shipped"]["seed"]) == (0.625, 2)  # the median by exact match
    assert data["other_scores"].keys() == {"exact_match_2x", "token_accuracy", "token_accuracy_2x", "loss"}
    assert (data["question"], data["examples"]) == ("105+332", "105+332=0440\n1+1=2")
    assert data["prediction"] == ANSWERING._asdict()
    assert (data["context"], data["selection_metric"]) == (21, "exact_match")  # 6 + 1 + 6, =, and 7 digits
    assert data["curves"][0] == {"steps": [100, 200], "exact_match": [0.25, 0.5]}
    assert not {"generation", "sample", "pictures"} & data.keys()
    assert (agent / "card.md").read_text(encoding="utf-8") == card_text(data)


def test_a_forecasts_picture_stands_beside_the_card(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (agent / "recipe.toml").write_text('algorithm = "seq"\n[seq]\ntask = "lorenz"\n')
    monkeypatch.setattr(card_data, "measure_prediction", lambda predict: ANSWERING)
    monkeypatch.setattr(card, "pictures_of", lambda run: {"forecasts": f"PNG of {run.name}".encode()})
    made_task_run("card-mine-s0", "lorenz", [0.25], score=0.25)
    data = make(range(1)).data
    assert data["pictures"] == ["forecasts"] and "naive_ratio" in data["other_scores"]
    assert (agent / "forecasts.png").read_bytes() == b"PNG of card-mine-s0"
    assert "![Forecasts of mine](forecasts.png)" in (agent / "card.md").read_text(encoding="utf-8")


def test_a_number_that_the_data_do_not_have_is_left_out(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (agent / "recipe.toml").write_text('algorithm = "seq"\n[seq]\ntask = "lorenz"\n')
    monkeypatch.setattr(card_data, "measure_prediction", lambda predict: ANSWERING)
    monkeypatch.setattr(card, "pictures_of", lambda run: {})
    run = made_task_run("card-mine-s0", "lorenz", [0.25], score=0.25)
    summary = run.summary()
    assert summary is not None
    run.write("summary.json", {key: value for key, value in summary.items() if key != "naive_ratio"})
    assert "naive_ratio" not in make(range(1)).data["other_scores"]
    assert "naive" not in (agent / "card.md").read_text(encoding="utf-8")


def test_pictures_are_those_of_the_best_checkpoint_and_the_score_is_the_tasks() -> None:
    values: dict[str, Any] = {"run": {"steps": 2}, "net": {"layers": 1, "width": 8}, "engine": {"threads": 1}}
    values |= {"seq": {"task": "lorenz", "context": 12, "horizon": 3}}
    with without_export():
        result = train("seq", net="lstm", recipe="none", values=values)
    assert (result.summary["task"], "loss" in result.summary) == ("lorenz", True)
    assert curve_of(Run(result.run), "hparam/mase").values[0] == pytest.approx(result.summary["mase"])
    pictures = card_data.pictures_of(Run(result.run))
    assert list(pictures) == ["forecasts"] and pictures["forecasts"][:4] == b"\x89PNG"
    assert card_data.pictures_of(made_sequence_run("text", [2.0], score=1.5)) == {}
