"""`rlseq list`: agents, runs, environments, tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlseq.cli.output import console, headline, number, show_list, size, write_json
from rlseq.cli.params import Imports, Json
from rlseq.cli.tasks import show_tasks, task_rows
from rlseq.errors import RlseqError, install_command
from rlseq.scores import measured_in

if TYPE_CHECKING:
    from rlseq.runs import Run
    from rlseq.zoo import Agent

# What must be known of gymnasium's own groups before one is chosen for DQN.
GROUP_NOTES = {
    "box2d": f"needs {install_command('box2d')}",
    "mujoco": "continuous actions: not for DQN",
}


class Kind(StrEnum):
    """What to list."""

    agents = "agents"
    runs = "runs"
    envs = "envs"
    tasks = "tasks"


def list_all(
    kind: Annotated[
        Kind | None,
        typer.Argument(
            metavar="agents|runs|envs|tasks", help="What to list. Left out: agents and runs.", show_default=False
        ),
    ] = None,
    imports: Imports = None,
    as_json: Json = False,
) -> None:
    """List the shipped agents, the runs, the environments, or the sequence tasks.

    Runs stand newest first. Of a task its networks and recipes are named; the
    first network is the one that rlseq train seq --task NAME takes.

    Examples:

      rlseq list
      rlseq list runs
      rlseq list envs
      rlseq list envs --import my_envs
      rlseq list runs --json
      rlseq list tasks
    """
    rows: dict[str, Any] = {}
    if kind in (None, Kind.agents):
        rows["agents"] = agent_rows()
    if kind in (None, Kind.runs):
        rows["runs"] = run_rows()
    if kind is Kind.envs:
        rows["envs"] = env_groups(imports or [])
    if kind is Kind.tasks:
        rows["tasks"] = task_rows()
    if as_json:
        write_json(rows)
        return
    for index, (name, found) in enumerate(rows.items()):
        if index:
            typer.echo()
        SHOW[name](found)
    if kind is None:
        typer.echo("\n`rlseq list envs` lists the environments, `rlseq list tasks` the sequence tasks.", err=True)


def agent_rows() -> list[dict[str, Any]]:
    """The shipped agents."""
    from rlseq.zoo import agents

    return [_agent_row(agent) for agent in agents().values()]


def _agent_row(agent: Agent) -> dict[str, Any]:
    from rlseq.cli.inspect import file_spec
    from rlseq.sequence import SequenceSpec

    row: dict[str, Any] = {"name": agent.name, "env": None, "algorithm": None, "bytes": None, "path": str(agent.policy)}
    if not agent.policy.is_file():
        return {**row, "problem": "no .onnx file"}
    try:
        spec = file_spec(agent.policy)[1]
    except RlseqError as error:
        return {**row, "problem": str(error)}
    row["bytes"] = agent.policy.stat().st_size
    if isinstance(spec, SequenceSpec):
        row.update(env=f"{spec.task} ({spec.model})", algorithm=spec.algorithm, **_scores(spec.scores, spec.task))
    elif spec is not None:
        row.update(env=spec.env.id, algorithm=spec.algorithm, **_scores(spec.scores))
    return row


def run_rows() -> list[dict[str, Any]]:
    """The runs, the newest first; a damaged one is listed too, with its problem."""
    from rlseq.runs import list_runs

    return [_run_row(run) for run in list_runs()]


def _run_row(run: Run) -> dict[str, Any]:
    row: dict[str, Any] = {"name": run.name, "env": None, "algorithm": None, "steps": None, "status": run.status()}
    row["path"] = str(run.path)
    try:
        config, summary = run.config(), run.summary()
        options = config.get("options", {})
        done = run.checkpoints()
        row.update(
            env=_learnt(options),
            algorithm=config.get("algorithm"),
            steps=int(done[-1].name) if done else 0,
            total_steps=options.get("run", {}).get("steps"),
            **_scores(summary or {}, options.get("seq", {}).get("task")),
        )
    except RlseqError as error:
        row.update(status="damaged", problem=str(error))
    return row


def _learnt(options: dict[str, Any]) -> str | None:
    """The environment, or the task and the kind of network."""
    if "seq" in options:
        return f"{options['seq'].get('task')} ({options.get('net', {}).get('core')})"
    return options.get("env", {}).get("id")


def _scores(values: Mapping[str, Any], task: str | None = None) -> dict[str, Any]:
    """What a row says of the scores: those of a policy, and of a sequence model its task's."""
    known = {key: values.get(key) for key in ("mean_return", "std_return", "episodes", "loss")}
    if task is None:
        return known
    return {"task": task, **known, **{metric.key: values[metric.key] for metric in measured_in(values, task)}}


def env_groups(imports: list[str]) -> dict[str, list[str]]:
    """The registered environments by where they come from."""
    import gymnasium

    from rlseq.envs.make import import_modules

    import_modules(imports)
    found: dict[str, list[str]] = {}
    for env_id, spec in gymnasium.registry.items():
        entry = spec.entry_point
        module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "other")
        own = module.removeprefix("gymnasium.envs.").partition(".")[0]
        found.setdefault(spec.namespace or own, []).append(env_id)
    return {group: sorted(ids) for group, ids in sorted(found.items())}


def _show_agents(rows: list[dict[str, Any]]) -> None:
    if not rows:
        typer.echo("No agents are shipped with this installation.")
        return
    table = [
        [
            row["name"],
            row["env"] or "-",
            row.get("problem") or headline(row),
            size(row["bytes"]) if row["bytes"] else "-",
        ]
        for row in rows
    ]
    show_list(["agent", "environment/task", "score", "size"], table, right=("size",))


def _show_runs(rows: list[dict[str, Any]]) -> None:
    from rlseq.runs import runs_folder

    if not rows:
        typer.echo(f"No runs in {runs_folder()} yet. Begin with: rlseq train dqn CartPole-v1")
        return
    table = [
        [row["name"], str(row["env"] or "-"), number(row["steps"]), row["status"], row.get("problem") or headline(row)]
        for row in rows
    ]
    show_list(["run", "environment/task", "steps", "status", "score"], table, right=("steps",))


def _show_envs(found: dict[str, list[str]]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = console()
    for group, ids in found.items():
        note = f"  ({GROUP_NOTES[group]})" if group in GROUP_NOTES else ""
        out.print(Text(f"{group}{note}", style="bold"))
        out.print(Padding("  ".join(ids), (0, 0, 0, 2), expand=False))


SHOW: dict[str, Callable[[Any], None]] = {
    "agents": _show_agents,
    "runs": _show_runs,
    "envs": _show_envs,
    "tasks": show_tasks,
}
