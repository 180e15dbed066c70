"""`rlseq list tasks`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlseq import zoo
from rlseq.cli.tasks import task_rows
from rlseq.nets.sizes import CORE_KINDS
from rlseq.resolve import resolve_new
from rlseq.seq.tasks.table import TASKS
from tests.cli.conftest import Cli, only_json


def test_every_task_with_what_it_is_and_the_networks_that_can_learn_it(cli: Cli) -> None:
    rows = {row["name"]: row for row in only_json(cli("list", "tasks", "--json"))["tasks"]}
    assert list(rows) == list(TASKS)
    assert rows["addition"]["about"] == TASKS["addition"].about
    assert (rows["addition"]["kinds"], rows["forecast"]["kinds"]) == (["tokens", "translate"], ["forecast"])
    assert set(rows["addition"]["networks"]) == {"gpt", "lstm", "gru", "transformer"}
    assert set(rows["classify"]["networks"]) == set(CORE_KINDS) - {"transformer"}
    assert next(iter(rows["addition"]["metrics"].items())) == ("exact_match", "higher")
    assert next(iter(rows["lorenz"]["metrics"].items())) == ("mase", "lower")


def test_the_first_network_is_the_one_that_is_taken() -> None:
    for row in task_rows():
        resolved = resolve_new("seq", {"seq": {"task": row["name"]}}, "auto", "test")
        assert row["networks"][0] == resolved.options.net.core, row["name"]


def test_recipes_stand_with_their_task(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "sort-gpt": 'algorithm = "seq"\n[seq]\ntask = "sort"\n',
        "sort-published": 'algorithm = "seq"\n[seq]\ntask = "sort"\n',
        "poems": 'algorithm = "seq"\n[seq]\ncontext = 64\n',
        "cartpole-dqn": 'algorithm = "dqn"\nenv.id = "CartPole-v1"\n',
    }
    paths = {name: tmp_path / f"{name}.toml" for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name])
    monkeypatch.setattr(zoo, "shipped_recipes", lambda: paths)
    found = {row["name"]: row["recipes"] for row in only_json(cli("list", "tasks", "--json"))["tasks"]}
    assert {name: recipes for name, recipes in found.items() if recipes} == {
        "text": ["poems"],
        "sort": ["sort-gpt", "sort-published"],
    }
    lines = [" ".join(line.split()) for line in cli("list", "tasks").stdout.splitlines()]
    assert lines[0] == "task what is learnt judged by networks, the default first recipes"
    sort = "sort write the question's symbols in their order exact match gpt, lstm, gru, transformer"
    assert f"{sort} sort-gpt, sort-published" in lines
    assert lines[-1].startswith("lorenz") and lines[-1].endswith("lstm, gpt, gru, encoder -")


def test_tasks_are_not_listed_unasked(cli: Cli) -> None:
    assert "tasks" not in only_json(cli("list", "--json"))
    assert "`rlseq list tasks` the sequence tasks" in cli("list").stderr
