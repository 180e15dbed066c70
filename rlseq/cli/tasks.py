"""`rlseq list tasks`: what sequence models can learn, with which networks, and the recipes for it."""

from __future__ import annotations

from typing import Any

from rlseq.cli.output import show_list
from rlseq.scores import METRICS


def task_rows() -> list[dict[str, Any]]:
    """The sequence tasks; of the networks the first is the one that is taken if none is named.

    Raises:
        RlseqError: a shipped recipe cannot be read.
    """
    from rlseq.nets.config import SequenceNetOptions
    from rlseq.nets.sizes import CORE_KINDS
    from rlseq.seq.tasks.table import TASKS

    recipes, rows = _recipes(), []
    for name, entry in TASKS.items():
        first = entry.core or SequenceNetOptions().core
        cores = [core for core, kinds in CORE_KINDS.items() if set(kinds) & set(entry.kinds)]
        rows.append(
            {
                "name": name,
                "about": entry.about,
                "kinds": list(entry.kinds),
                "networks": sorted(cores, key=lambda core: core != first),
                "metrics": {metric.key: metric.better for metric in METRICS[name]},
                "recipes": recipes.get(name, []),
            }
        )
    return rows


def _recipes() -> dict[str, list[str]]:
    """The shipped recipes of each task."""
    from rlseq.recipe import read_recipe
    from rlseq.seq.config import SeqOptions
    from rlseq.zoo import shipped_recipes

    found: dict[str, list[str]] = {}
    for name, path in shipped_recipes().items():
        recipe = read_recipe(path, name)
        if recipe.algorithm == "seq":
            seq = recipe.values.get("seq")
            task = seq.get("task", SeqOptions().task) if isinstance(seq, dict) else SeqOptions().task
            found.setdefault(str(task), []).append(name)
    return found


def show_tasks(rows: list[dict[str, Any]]) -> None:
    """The tasks, on stdout."""
    table = [
        [
            row["name"],
            row["about"],
            METRICS[row["name"]][0].words,
            ", ".join(row["networks"]),
            ", ".join(row["recipes"]) or "-",
        ]
        for row in rows
    ]
    show_list(["task", "what is learnt", "judged by", "networks, the default first", "recipes"], table)
