"""The recipes of the tasks: their options are options, fit their task and network, and their names say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlseq.nets.sizes import CORE_KINDS, dimensions, training_bytes
from rlseq.recipe import read_recipe
from rlseq.resolve import find_recipe, resolve_new
from rlseq.seq.config import SeqTraining
from rlseq.seq.tasks.table import TASKS
from rlseq.zoo import shipped_recipes
from tests.seq.tasks.generated import made

GENERATED = ("copy", "reverse", "sort", "addition", "selective-copy", "induction", "recall")
RECIPES = {name: path for name, path in shipped_recipes().items() if path.parent.name == "recipes"}


def resolved(name: str) -> SeqTraining:
    options = resolve_new("seq", {}, name, "the test").options
    assert isinstance(options, SeqTraining)
    return options


@pytest.mark.parametrize("task", GENERATED)
def test_every_generated_task_has_its_recipes(task: str) -> None:
    for core in ("gpt", "transformer", "published"):
        assert f"{task}-{core}" in shipped_recipes()
    for core in ("gpt", "transformer"):
        given = {"seq": {"task": task}, "net": {"core": core}}
        found = find_recipe("seq", "auto", given)
        assert found is not None and found.name == f"{task}-{core}"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_fits(name: str) -> None:
    options = resolved(name)
    task, core = options.seq.task, options.net.core
    assert name in (f"{task}-{core}", f"{task}-published")
    assert dimensions(options.net).layers >= 1
    assert set(CORE_KINDS[core]) & set(TASKS[task].kinds)
    text = RECIPES[name].read_text()
    assert text.startswith("# ") and max(map(len, text.splitlines())) <= 120
    assert read_recipe(RECIPES[name], name).values["seq"]["task"] == task
    assert task not in GENERATED or name.endswith("published") or options.eval.metric in ("auto", "exact_match")


@pytest.mark.parametrize("name", [name for name in RECIPES if name.rpartition("-")[0] in GENERATED])
def test_the_task_of_a_recipe_can_be_made(name: str) -> None:
    options = resolved(name)
    kind = "translate" if options.net.core == "transformer" else "tokens"
    seq = options.seq
    task = made(
        seq.task, kind, examples=5, length=seq.length, min_length=seq.min_length, symbols=seq.symbols, pairs=seq.pairs
    )
    rows = max(1, seq.batch_size // options.optim.accumulate)
    limit = 16 if name.endswith("published") else 1
    assert training_bytes(options.net, task.signature, task.context, rows) < limit * 2**30


def test_published_settings() -> None:
    """A few numbers against their papers."""
    mamba = resolved("selective-copy-published")
    assert (mamba.seq.length, mamba.run.steps, mamba.optim.lr, mamba.seq.batch_size) == (4096, 400_000, 1e-4, 64)
    heads = resolved("induction-published")
    assert (heads.seq.length, heads.seq.symbols, heads.run.steps, heads.seq.batch_size) == (256, 16, 50 * 8192, 8)
    zoology = resolved("recall-published")
    assert (zoology.seq.symbols, zoology.seq.length, zoology.seq.pairs) == (8192, 64, 4)
    assert zoology.run.steps == 64 * 100_000 // zoology.seq.batch_size
    adder = resolved("addition-published")
    assert (adder.net.layers, adder.net.heads, adder.net.width, adder.optim.lr) == (3, 3, 48, 5e-4)


def test_recipes_are_data_of_the_package() -> None:
    import rlseq

    folder = Path(rlseq.__file__).parent / "recipes"
    assert RECIPES and all(path.parent == folder for path in RECIPES.values())
