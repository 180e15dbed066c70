"""Arguments and flags that several commands share, and what a shell completes for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlseq.errors import UsageError

OUTPUT = "Output"
ENVIRONMENT = "Environment"


def complete_path(incomplete: str) -> list[str]:
    """Runs, agents, folders and .onnx files."""
    from rlseq.runs import list_runs
    from rlseq.zoo import agents

    folder, _, start = incomplete.rpartition("/")
    here = Path(folder + "/" if folder or incomplete.startswith("/") else ".")
    files = [p for p in (here.iterdir() if here.is_dir() else ()) if p.is_dir() or p.suffix == ".onnx"]
    typed = [f"{folder}/{p.name}" if "/" in incomplete else p.name for p in files if p.name.startswith(start or "")]
    names = [*(run.name for run in list_runs()), *agents(), *sorted(typed)]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Runs, the newest first."""
    from rlseq.runs import list_runs

    return [run.name for run in list_runs() if run.name.startswith(incomplete)]


def complete_env(incomplete: str) -> list[str]:
    """Gymnasium's environment ids."""
    import gymnasium

    return [env_id for env_id in gymnasium.registry if env_id.startswith(incomplete)]


def complete_recipe(incomplete: str) -> list[str]:
    """auto, none, and the shipped recipes."""
    from rlseq.zoo import shipped_recipes

    return [name for name in ("auto", "none", *shipped_recipes()) if name.startswith(incomplete)]


def complete_task(incomplete: str) -> list[str]:
    """Sequence tasks."""
    from rlseq.seq.tasks.table import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]


def complete_agent(incomplete: str) -> list[str]:
    """The shipped agents."""
    from rlseq.zoo import agents

    return [name for name in agents() if name.startswith(incomplete)]


def checked_checkpoint(value: str) -> str:
    """`best`, `last` or a step."""
    if value not in ("best", "last") and not value.isdecimal():
        raise UsageError(f"--checkpoint {value}: give best, last, or a step, as `rlseq info RUN` lists them.")
    return value


PathArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="A run (folder or name), a shipped agent's name, or an .onnx file. Left out: the newest run.",
        autocompletion=complete_path,
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, all else on stderr.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print the result, warnings and errors, nothing else.", rich_help_panel=OUTPUT),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import your module first, so that it registers its environments; repeatable.",
        rich_help_panel=ENVIRONMENT,
    ),
]
EnvOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="ID",
        help="Play in this environment, not in the one that the policy names; module:Env-v0 for your own.",
        rich_help_panel=ENVIRONMENT,
        autocompletion=complete_env,
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME",
        help="For an .onnx file of another tool: its input for each part of the observation, in order; repeatable.",
        rich_help_panel=ENVIRONMENT,
    ),
]
ActionOutput = Annotated[
    str | None,
    typer.Option(
        "--action-output",
        metavar="NAME",
        help="For an .onnx file of another tool: the output with the actions or their values.",
        rich_help_panel=ENVIRONMENT,
    ),
]
CheckpointOption = Annotated[
    str,
    typer.Option(
        "--checkpoint", metavar="best|last|STEP", help="Which checkpoint of a run.", callback=checked_checkpoint
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="best|last|STEP",
        help="Of a run: with the network of this checkpoint; needs torch.",
        show_default="the run's model.onnx",
    ),
]
EvaluationSeed = Annotated[
    int, typer.Option("--seed", min=0, help="Episode i is always played with the seed f(SEED, i).")
]
