"""The shipped agents: `agents/<env>-<algorithm>/` with `recipe.toml`, and what `rlseq card` makes of it: `policy.onnx`
(a sequence model's is `model.onnx`), `card.md`, `card.json` and `curve.png`.

The wheel carries them as data beside the code (`rlseq/_agents`); an editable install reads them where they stand.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rlseq.recipe import read_recipe


class Agent(NamedTuple):
    """A shipped agent; only the recipe is sure to exist (the rest is generated from it)."""

    name: str
    folder: Path
    recipe: Path
    policy: Path
    card: Path


def agent_in(folder: Path) -> Agent:
    """The agent that a folder holds; a sequence model's file is `model.onnx`."""
    model = folder / "model.onnx"
    policy = model if model.is_file() else folder / "policy.onnx"
    return Agent(folder.name, folder, folder / "recipe.toml", policy, folder / "card.md")


def is_agent(folder: Path) -> bool:
    """Whether a folder is an agent."""
    return (folder / "recipe.toml").is_file()


def agents_folder() -> Path:
    """Where the shipped agents are."""
    package = Path(__file__).resolve().parent
    installed = package / "_agents"
    return installed if installed.is_dir() else package.parent / "agents"


def agents() -> dict[str, Agent]:
    """The shipped agents by name, in alphabetical order."""
    folder = agents_folder()
    if not folder.is_dir():
        return {}
    return {path.name: agent_in(path) for path in sorted(folder.iterdir()) if is_agent(path)}


def shipped_recipes() -> dict[str, Path]:
    """All recipes by name: those of the agents, and those of tasks in `rlseq/recipes`, which ship no model."""
    folder = Path(__file__).resolve().parent / "recipes"
    of_tasks = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return {**of_tasks, **{name: agent.recipe for name, agent in agents().items()}}


def task_recipe(task: str, core: str) -> str | None:
    """The name of the recipe for a sequence task and a kind of network, `<task>-<core>`, if one is shipped."""
    name = f"{task}-{core}"
    return name if name in shipped_recipes() else None


def recipe_for(env_id: str, algorithm: str) -> Agent | None:
    """The agent whose recipe is for this environment and algorithm, if one is shipped.

    Args:
        env_id: as gymnasium spells it ("CartPole-v1").
        algorithm: as in `rlseq train ALGORITHM`.

    Raises:
        UsageError: a shipped recipe cannot be read.
    """
    for agent in agents().values():
        recipe = read_recipe(agent.recipe, agent.name)
        env = recipe.values.get("env")
        if recipe.algorithm == algorithm and isinstance(env, dict) and env.get("id") == env_id:
            return agent
    return None
