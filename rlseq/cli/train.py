"""`rlseq train`: one training, or the same one with several seeds."""

from __future__ import annotations

import shlex
from typing import Any

import typer
from typer.core import TyperGroup

from rlseq.cli import worker
from rlseq.cli.everyday import (
    Accumulate,
    Amp,
    Assignments,
    BatchSize,
    Columns,
    Context,
    Data,
    DeviceFlag,
    EnvId,
    Envs,
    Freeze,
    From,
    Group,
    Horizon,
    Label,
    Length,
    LossFlag,
    Lr,
    LrMultipliers,
    MaxRestarts,
    Name,
    Net,
    NewHead,
    NoEnvFlag,
    NoTaskFlag,
    Nproc,
    RecipeFlag,
    Resume,
    Seed,
    Seeds,
    SeqBatchSize,
    SeqName,
    SeqSeed,
    SeqSteps,
    SeqThreads,
    Size,
    Steps,
    Target,
    Task,
    Threads,
)
from rlseq.cli.launch import plan_launch
from rlseq.cli.output import Output
from rlseq.cli.params import Imports, Json, Quiet
from rlseq.cli.training import parse_multipliers, parse_seeds, train_one, train_several
from rlseq.errors import UsageError, nearest


class TrainGroup(TyperGroup):
    """Knows that a word which is no algorithm is likely an environment."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the base class, with a better message."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            meant = nearest(args[0], self.commands)
            command = (
                f"{meant[0]} {shlex.join(args[1:])}" if meant else f"{next(iter(self.commands))} {shlex.join(args)}"
            )
            raise UsageError(
                f"rlseq train {args[0]}: the algorithm comes first, one of {', '.join(self.commands)}. Did you mean: "
                f"rlseq train {command.strip()}"
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=TrainGroup, no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _train() -> None:
    """Train an agent or a sequence model.

    The algorithm comes first, then the environment or the task.

    Examples:

      rlseq train dqn CartPole-v1
      rlseq train seq
    """


@app.command("dqn")
def dqn(
    ctx: typer.Context,
    env_id: EnvId = None,
    _no_env: NoEnvFlag = None,
    steps: Steps = None,
    seed: Seed = None,
    seeds: Seeds = None,
    device: DeviceFlag = None,
    amp: Amp = None,
    lr: Lr = None,
    batch_size: BatchSize = None,
    envs: Envs = None,
    threads: Threads = None,
    name: Name = None,
    assignments: Assignments = None,
    recipe: RecipeFlag = "auto",
    resume: Resume = None,
    init_from: From = None,
    new_head: NewHead = False,
    freeze: Freeze = None,
    lr_multiplier: LrMultipliers = None,
    imports: Imports = None,
    nproc: Nproc = None,
    max_restarts: MaxRestarts = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a deep Q-network on any gymnasium environment with discrete actions.

    Examples:

      rlseq train dqn CartPole-v1
      rlseq train dqn LunarLander-v3 --steps 300000 --envs 4 --lr 3e-4
      rlseq train dqn CartPole-v1 --set dqn.gamma=0.98 --set net.hidden=64,64
      rlseq train dqn CartPole-v1 --seeds 0:5 --json
      rlseq train dqn my_envs:Maze-v0
      rlseq train dqn --resume runs/my-run --steps 100000
      rlseq train dqn CartPole-v1 --from runs/my-run --freeze 'core.*'

    The run's folder holds the checkpoints, the curves (rlseq board) and
    policy.onnx. Ctrl-C saves and says how to go on.

    With --json: the run's summary. With --seeds also: runs (a summary each),
    seeds, and over the runs' final scores mean_return, std_return (of the
    population), min_return, max_return.
    """
    from rlseq.config import set_values

    out = Output(as_json, quiet or worker.rank() > 0)
    processes = plan_launch(ctx.obj, nproc, max_restarts)
    everyday = {
        "steps": steps,
        "device": None if device is None else device.value,
        "amp": None if amp is None else "auto" if amp else "off",
        "lr": lr,
        "batch_size": batch_size,
        "envs": envs,
        "threads": threads,
        "freeze": freeze,
        "lr_multiplier": parse_multipliers(lr_multiplier),
    }
    arguments: dict[str, Any] = {
        "env": env_id,
        "recipe": recipe,
        "values": set_values(assignments or []),
        "imports": imports or (),
        "resume": resume,
        "init_from": init_from,
        "new_head": new_head,
        **everyday,
    }
    if seeds is None:
        train_one(out, "dqn", {**arguments, "seed": seed, "name": name}, processes)
    else:
        train_several(out, "dqn", arguments, parse_seeds(seeds, seed, resume), name, processes)


@app.command("seq")
def seq(
    ctx: typer.Context,
    task: Task = None,
    _no_task: NoTaskFlag = None,
    data: Data = None,
    net: Net = None,
    size: Size = None,
    context: Context = None,
    length: Length = None,
    columns: Columns = None,
    label: Label = None,
    group: Group = None,
    target: Target = None,
    horizon: Horizon = None,
    steps: SeqSteps = None,
    seed: SeqSeed = None,
    seeds: Seeds = None,
    device: DeviceFlag = None,
    amp: Amp = None,
    lr: Lr = None,
    batch_size: SeqBatchSize = None,
    accumulate: Accumulate = None,
    loss: LossFlag = None,
    threads: SeqThreads = None,
    name: SeqName = None,
    assignments: Assignments = None,
    recipe: RecipeFlag = "auto",
    resume: Resume = None,
    init_from: From = None,
    new_head: NewHead = False,
    freeze: Freeze = None,
    lr_multiplier: LrMultipliers = None,
    nproc: Nproc = None,
    max_restarts: MaxRestarts = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a Transformer, LSTM or GRU on a sequence task; left out, on the text of Python's standard library.

    Examples:

      rlseq train seq --amp
      rlseq train seq --data book.txt --size base --steps 2000
      rlseq train seq --net lstm --data texts/ --set 'seq.pattern=*.md'
      rlseq train seq --set optim.name=adamw --set optim.schedule=cosine
      rlseq train seq --batch-size 64 --accumulate 4
      rlseq train seq addition --net transformer
      rlseq train seq classify --data rows.csv --label kind
      rlseq train seq forecast --data s.csv --target x --horizon 10
      rlseq train seq --resume runs/my-run --steps 2000
      rlseq train seq --loss my_losses:focal
      rlseq train seq --data b.txt --from runs/my-run --new-head
      rlseq train seq --from runs/my-run --lr-multiplier 'core.*=0.1'

    The run's folder holds the checkpoints, the curves (rlseq board) and
    model.onnx, which rlseq generate writes with. Ctrl-C saves and says how to
    go on.

    With --json: the run's summary. With --seeds also: runs (a summary each),
    seeds, and over the runs' final scores mean_loss, std_loss (of the
    population), min_loss, max_loss, or the same of the task's score.
    """
    from rlseq.config import set_values

    out = Output(as_json, quiet or worker.rank() > 0)
    processes = plan_launch(ctx.obj, nproc, max_restarts)
    arguments: dict[str, Any] = {
        "task": task,
        "recipe": recipe,
        "values": set_values(assignments or []),
        "resume": resume,
        "init_from": init_from,
        "new_head": new_head,
        "data": data,
        "net": None if net is None else net.value,
        "size": None if size is None else size.value,
        "context": context,
        "length": length,
        "columns": None if columns is None else tuple(columns.split(",")),
        "label": label,
        "group": group,
        "target": target,
        "horizon": horizon,
        "steps": steps,
        "device": None if device is None else device.value,
        "amp": None if amp is None else "auto" if amp else "off",
        "lr": lr,
        "batch_size": batch_size,
        "accumulate": accumulate,
        "loss": loss,
        "threads": threads,
        "freeze": freeze,
        "lr_multiplier": parse_multipliers(lr_multiplier),
    }
    if seeds is None:
        train_one(out, "seq", {**arguments, "seed": seed, "name": name}, processes)
    else:
        train_several(out, "seq", arguments, parse_seeds(seeds, seed, resume), name, processes)
