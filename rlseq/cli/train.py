"""`rlseq train`: one training, or the same one with several seeds."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from rlseq.algorithms import ALGORITHMS
from rlseq.cli.everyday import (
    Accumulate,
    Amp,
    Assignments,
    BatchSize,
    Context,
    Data,
    DeviceFlag,
    EnvId,
    Envs,
    From,
    LossFlag,
    Lr,
    Name,
    Net,
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
    Task,
    Threads,
)
from rlseq.cli.output import (
    Output,
    duration,
    headline,
    metric_rows,
    number,
    score,
    sequence_parity,
    show_list,
    show_pairs,
    size,
    write_json,
)
from rlseq.cli.params import Imports, Json, Quiet
from rlseq.errors import RlseqError, UsageError, nearest

if TYPE_CHECKING:
    from rlseq.pipeline import TrainingResult


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
    env_id: EnvId = None,
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
    imports: Imports = None,
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
      rlseq train dqn CartPole-v1 --from runs/my-run --lr 1e-4

    The run's folder holds the checkpoints, the curves (rlseq board) and
    policy.onnx. Ctrl-C saves and says how to go on.

    With --json: the run's summary. With --seeds also: runs (a summary each),
    seeds, and over the runs' final scores mean_return, std_return (of the
    population), min_return, max_return.
    """
    from rlseq.config import set_values

    out = Output(as_json, quiet)
    everyday = {
        "steps": steps,
        "device": None if device is None else device.value,
        "amp": None if amp is None else "auto" if amp else "off",
        "lr": lr,
        "batch_size": batch_size,
        "envs": envs,
        "threads": threads,
    }
    arguments: dict[str, Any] = {
        "env": env_id,
        "recipe": recipe,
        "values": set_values(assignments or []),
        "imports": imports or (),
        "resume": resume,
        "init_from": init_from,
        **everyday,
    }
    if seeds is None:
        _one(out, "dqn", {**arguments, "seed": seed, "name": name})
    else:
        _several(out, "dqn", arguments, parse_seeds(seeds, seed, resume), name)


@app.command("seq")
def seq(
    task: Task = None,
    data: Data = None,
    net: Net = None,
    size: Size = None,
    context: Context = None,
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
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a Transformer, LSTM or GRU on a sequence task; without --data on Python's standard library.

    Examples:

      rlseq train seq --amp
      rlseq train seq --data book.txt --size base --steps 2000
      rlseq train seq --net lstm --data texts/ --set 'seq.pattern=*.md'
      rlseq train seq --set optim.name=adamw --set optim.schedule=cosine
      rlseq train seq --batch-size 64 --accumulate 4
      rlseq train seq --resume runs/my-run --steps 2000
      rlseq train seq --loss my_losses:focal

    The run's folder holds the checkpoints, the curves (rlseq board) and
    model.onnx, which rlseq generate writes with. Ctrl-C saves and says how to
    go on.

    With --json: the run's summary. With --seeds also: runs (a summary each),
    seeds, and over the runs' final losses mean_loss, std_loss (of the
    population), min_loss, max_loss.
    """
    from rlseq.config import set_values

    out = Output(as_json, quiet)
    values = set_values(assignments or [])
    if task is not None:
        values.setdefault("seq", {})["task"] = task
    arguments: dict[str, Any] = {
        "recipe": recipe,
        "values": values,
        "resume": resume,
        "init_from": init_from,
        "data": data,
        "net": None if net is None else net.value,
        "size": None if size is None else size.value,
        "context": context,
        "steps": steps,
        "device": None if device is None else device.value,
        "amp": None if amp is None else "auto" if amp else "off",
        "lr": lr,
        "batch_size": batch_size,
        "accumulate": accumulate,
        "loss": loss,
        "threads": threads,
    }
    if seeds is None:
        _one(out, "seq", {**arguments, "seed": seed, "name": name})
    else:
        _several(out, "seq", arguments, parse_seeds(seeds, seed, resume), name)


def parse_seeds(text: str, seed: int | None, resume: str | None) -> range:
    """`0:5` as range(0, 5).

    Raises:
        UsageError: it is no such range, or does not go with what else was typed.
    """
    if seed is not None:
        raise UsageError(f"--seeds {text} and --seed {seed}: give one of them.")
    if resume is not None:
        raise UsageError(f"--seeds {text} begins new runs, --resume {resume} goes on with one: give one of them.")
    first, colon, end = text.partition(":")
    if not colon or not first.isdecimal() or not end.isdecimal() or int(first[:20]) >= int(end[:20]):
        raise UsageError(f"--seeds {text}: write A:B for the seeds A to B-1, with A < B; --seeds 0:5 is 0, 1, 2, 3, 4.")
    seeds = range(int(first[:20]), int(end[:20]))
    if seeds.stop > 2**53 or len(seeds) > 10_000:
        raise UsageError(f"--seeds {text[:40]}: at most 10000 seeds, none above {2**53}.")
    return seeds


def _train_once(out: Output, algorithm: str, arguments: Mapping[str, Any]) -> TrainingResult:
    from rlseq.cli.progress import progress

    with out.working(), progress(out) as callback:
        from rlseq.pipeline import train

        return train(algorithm, callbacks=[callback], source="command line", **arguments)


def _one(out: Output, algorithm: str, arguments: Mapping[str, Any]) -> None:
    result = _train_once(out, algorithm, arguments)
    if out.as_json:
        write_json(result.summary)
    elif out.quiet:
        typer.echo(str(result.run))
    else:
        show_pairs(summary_rows(result.summary))
        run = shlex.quote(str(result.run))
        if algorithm == "seq":
            typer.echo(f"\n{result.summary['sample']}")
        use = ALGORITHMS[algorithm].use
        typer.echo(f"\nNext:  rlseq {use} {run}\n       rlseq eval {run}\n       rlseq board")


def summary_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """A run's summary for people."""
    policy, parity = summary["policy"], summary["parity"]
    if summary["algorithm"] == "seq":
        return {
            **metric_rows(summary),
            "best evaluation": f"{number(summary['best_evaluation'])} at update {summary['best_step']}",
            "trained": f"{summary['updates']} updates in {duration(summary['training_seconds'])} "
            f"({summary['stopped']})",
            policy["file"]: f"{size(policy['bytes'])}, {sequence_parity(parity)}",
            "run": summary["run"],
        }
    extremes = f"min {number(summary['min_return'])}, max {number(summary['max_return'])}"
    best = f"{number(summary['best_evaluation'])} at step {summary['best_step']}"
    return {
        "score": f"{score(summary)} over {summary['episodes']} episodes ({extremes})",
        "best evaluation": best if summary["best_evaluation"] is not None else "-",
        "trained": f"{summary['steps']} steps, {summary['updates']} updates in {duration(summary['training_seconds'])} "
        f"({summary['stopped']})",
        policy["file"]: f"{size(policy['bytes'])}, values within {parity['max_error']:.2g} of the network's, "
        f"{parity['episodes_with_equal_return']} of {parity['episodes']} episodes with the same return",
        "run": summary["run"],
    }


def _several(out: Output, algorithm: str, arguments: Mapping[str, Any], seeds: range, name: str | None) -> None:
    """One run after the other; what is done stays, whatever happens to the next."""
    done: list[TrainingResult] = []
    for number_of, seed in enumerate(seeds, 1):
        out.note(f"\nSeed {seed} (run {number_of} of {len(seeds)})")
        try:
            one = {**arguments, "seed": seed, "name": None if name is None else f"{name}-s{seed}"}
            done.append(_train_once(out, algorithm, one))
        except RlseqError:
            if done:
                out.note(f"\nFinished before that: {', '.join(str(result.run) for result in done)}\n")
            raise
    summaries = [result.summary for result in done]
    total = over_seeds(summaries, ALGORITHMS[algorithm].headline[0].removeprefix("mean_"))
    if out.as_json:
        write_json({"runs": summaries, "seeds": list(seeds), **total})
    elif out.quiet:
        for result in done:
            typer.echo(str(result.run))
    else:
        rows = [[str(s), headline(result.summary), str(result.run)] for s, result in zip(seeds, done, strict=True)]
        show_list(["seed", "score", "run"], rows, right=("seed",))
        mean, std, lowest, highest = map(number, total.values())
        typer.echo(f"\n{mean} ± {std} over {len(done)} seeds (min {lowest}, max {highest})")


def over_seeds(summaries: Sequence[Mapping[str, Any]], what: str = "return") -> dict[str, float]:
    """Mean, standard deviation (of the population), minimum and maximum of the runs' final scores."""
    scores = [float(summary["mean_return" if what == "return" else what]) for summary in summaries]
    return {
        f"mean_{what}": statistics.fmean(scores),
        f"std_{what}": statistics.pstdev(scores),
        f"min_{what}": min(scores),
        f"max_{what}": max(scores),
    }
