"""The arguments and flags of `rlseq train`; an everyday flag's text is its option's own (tested)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from rlseq.cli.launch import MOST_PROCESSES
from rlseq.cli.params import complete_env, complete_path, complete_recipe, complete_run, complete_task
from rlseq.errors import UsageError

START, OPTIONS = "Where to start", "Options (rlseq options lists all)"
PROCESSES = "Processes"


class Device(StrEnum):
    """Where the update runs."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class SequenceNet(StrEnum):
    """Kinds of sequence networks."""

    gpt = "gpt"
    lstm = "lstm"
    gru = "gru"
    encoder = "encoder"
    transformer = "transformer"


class NetSize(StrEnum):
    """Sizes of sequence networks."""

    tiny = "tiny"
    small = "small"
    base = "base"


def _everyday(flag: str, text: str, **more: Any) -> Any:
    """A flag that sets one option; a test compares the text with the option's own."""
    return typer.Option(flag, help=text, rich_help_panel=OPTIONS, **more)


def _argument(flag: str, metavar: str, command: str) -> Any:
    """A flag that there is not, for whoever takes an argument for one."""

    def refuse(value: str | None) -> None:
        if value is not None:
            raise UsageError(f"{flag} {value}: {metavar} is an argument, typed without a flag: {command} {value}")

    return typer.Option(flag, metavar=metavar, hidden=True, expose_value=False, callback=refuse)


EnvId = Annotated[
    str | None,
    typer.Argument(
        metavar="ENV_ID",
        help="A gymnasium id, or module:Env-v0 for your own. Not needed with --resume, or if a recipe names it.",
        autocompletion=complete_env,
        show_default=False,
    ),
]
NoEnvFlag = Annotated[str | None, _argument("--env", "ENV_ID", "rlseq train dqn")]
Steps = Annotated[int | None, _everyday("--steps", "run.steps: environment steps to train for, over all environments")]
Seed = Annotated[int | None, _everyday("--seed", "run.seed: seed of weights, exploration, replay and episodes")]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="A:B",
        help="Train once for each seed from A to B-1 (like a Python slice: 0:5 is five seeds), one after the other.",
        rich_help_panel=OPTIONS,
    ),
]
DeviceFlag = Annotated[Device | None, _everyday("--device", "engine.device: auto: cuda where there is one, else cpu")]
Amp = Annotated[
    bool | None,
    _everyday(
        "--amp/--no-amp",
        "engine.amp: mixed precision; auto: bf16 where the hardware has it, else fp16 with a loss scaler on cuda. "
        "--amp is auto, --no-amp is off",
        show_default=False,
    ),
]
Lr = Annotated[float | None, _everyday("--lr", "optim.lr: peak learning rate")]
BatchSize = Annotated[int | None, _everyday("--batch-size", "replay.batch_size: transitions in one update")]
Envs = Annotated[int | None, _everyday("--envs", "env.num_envs: environments stepped side by side")]
Threads = Annotated[
    int | None, _everyday("--threads", "engine.threads: CPU threads of torch; small networks are fastest with one")
]
Name = Annotated[
    str | None,
    _everyday("--name", "run.name: name of the run folder; none: environment, seed and time", metavar="NAME"),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any option: --set dqn.gamma=0.995, --set env.kwargs.gravity=5; repeatable.",
        rich_help_panel=OPTIONS,
    ),
]
RecipeFlag = Annotated[
    str,
    typer.Option(
        "--recipe",
        metavar="auto|none|NAME|FILE",
        help="Option values to begin with. auto: those that rlseq ships for this environment, or task and network, if "
        "any.",
        rich_help_panel=START,
        autocompletion=complete_recipe,
    ),
]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="RUN",
        help="Go on with a run, exactly where it stopped; a finished one with more --steps (the total).",
        rich_help_panel=START,
        autocompletion=complete_run,
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help="Begin a new run with the best weights of another, as far as they fit; what does not is listed.",
        rich_help_panel=START,
        autocompletion=complete_path,
    ),
]
NewHead = Annotated[
    bool,
    typer.Option(
        "--new-head",
        help="With --from: begin the network's head anew; and what reads its inputs, if those mean something else.",
        rich_help_panel=START,
    ),
]
Freeze = Annotated[
    list[str] | None,
    _everyday(
        "--freeze",
        "optim.freeze: parameters that are not trained, by name; * and ? as in a shell: core.blocks.0.*; repeatable",
        metavar="GLOB",
    ),
]
LrMultipliers = Annotated[
    list[str] | None,
    _everyday(
        "--lr-multiplier",
        "optim.lr_multipliers: factor of the learning rate by name, as in optim.freeze; the last one that matches "
        "counts; repeatable",
        metavar="GLOB=X",
    ),
]

Nproc = Annotated[
    int | None,
    typer.Option(
        "--nproc",
        metavar="N",
        min=1,
        max=MOST_PROCESSES,
        help="Train in N processes on this machine, by torchrun; for several machines see the README.",
        rich_help_panel=PROCESSES,
        show_default=False,
    ),
]
MaxRestarts = Annotated[
    int | None,
    typer.Option(
        "--max-restarts",
        metavar="M",
        min=0,
        max=1000,
        help="With --nproc: if a process dies, start all again, from the last checkpoint; at most M times.",
        rich_help_panel=PROCESSES,
        show_default=False,
    ),
]

# Of `rlseq train seq`.
Task = Annotated[
    str | None,
    typer.Argument(
        metavar="TASK",
        help="What is learnt: rlseq list tasks. Left out: text.",
        autocompletion=complete_task,
        show_default=False,
    ),
]
NoTaskFlag = Annotated[str | None, _argument("--task", "TASK", "rlseq train seq")]
Data = Annotated[
    str | None,
    _everyday(
        "--data",
        "seq.data: text: a file, or a folder of them; none: the source of Python's standard library. classify, "
        "forecast: a CSV file",
        metavar="PATH",
    ),
]
Net = Annotated[
    SequenceNet | None,
    _everyday(
        "--net", "net.core: decoder-only Transformer, recurrent network, encoder-decoder Transformer, or its encoder"
    ),
]
Size = Annotated[
    NetSize | None,
    _everyday("--size", "net.size: layers, heads and width by name; each of them may be given instead"),
]
Context = Annotated[
    int | None,
    _everyday("--context", "seq.context: text: tokens of a sequence; forecast: values that are read"),
]
Length = Annotated[
    int | None,
    _everyday(
        "--length",
        "seq.length: copy to recall: symbols of a question, or digits; waveforms: values; none: the task's own",
    ),
]
Columns = Annotated[
    str | None,
    _everyday(
        "--columns", "seq.columns: classify, forecast: the columns that are read; none: all others", metavar="A,B,..."
    ),
]
Label = Annotated[str | None, _everyday("--label", "seq.label: classify: the column with the label", metavar="COL")]
Group = Annotated[
    str | None,
    _everyday(
        "--group",
        "seq.group: classify: rows with the same value in this column are one series; none: each row is one",
        metavar="COL",
    ),
]
Target = Annotated[
    str | None, _everyday("--target", "seq.target: forecast: the column that is forecast", metavar="COL")
]
Horizon = Annotated[int | None, _everyday("--horizon", "seq.horizon: forecast: values ahead")]
LossFlag = Annotated[
    str | None,
    _everyday(
        "--loss",
        "seq.loss: auto (the task's), cross_entropy, focal, mse, huber, quantile, or package.module:function of your "
        "own; only ever typed by the user",
        metavar="NAME",
    ),
]
Accumulate = Annotated[
    int | None,
    _everyday(
        "--accumulate",
        "optim.accumulate: parts into which a batch is cut to save memory; the update stays the same",
    ),
]
SeqSteps = Annotated[int | None, _everyday("--steps", "run.steps: updates to train for")]
SeqSeed = Annotated[int | None, _everyday("--seed", "run.seed: seed of weights, data order and dropout")]
SeqBatchSize = Annotated[int | None, _everyday("--batch-size", "seq.batch_size: sequences in one update")]
SeqThreads = Annotated[
    int | None,
    _everyday(
        "--threads",
        "engine.threads: CPU threads of torch; 0: as many as there are cores, shared by the processes of a machine",
    ),
]
SeqName = Annotated[
    str | None,
    _everyday("--name", "run.name: name of the run folder; none: task, model, seed and time", metavar="NAME"),
]
