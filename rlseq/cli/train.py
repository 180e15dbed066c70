"""`rlseq train`: one training, or the same one with several seeds."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from rlseq.cli.everyday import (
    Amp,
    Assignments,
    BatchSize,
    DeviceFlag,
    EnvId,
    Envs,
    From,
    Lr,
    Name,
    RecipeFlag,
    Resume,
    Seed,
    Seeds,
    Steps,
    Threads,
)
from rlseq.cli.output import Output, duration, number, score, show_list, show_pairs, size, write_json
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
    """Train an agent.

    The algorithm comes first, then the environment.

    Example:

      rlseq train dqn CartPole-v1
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
        typer.echo(f"\nNext:  rlseq play {run}\n       rlseq eval {run}\n       rlseq board")


def summary_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """A run's summary for people."""
    policy, parity = summary["policy"], summary["parity"]
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
    total = over_seeds(summaries)
    if out.as_json:
        write_json({"runs": summaries, "seeds": list(seeds), **total})
    elif out.quiet:
        for result in done:
            typer.echo(str(result.run))
    else:
        rows = [[str(s), score(result.summary), str(result.run)] for s, result in zip(seeds, done, strict=True)]
        show_list(["seed", "score", "run"], rows, right=("seed",))
        extremes = f"min {number(total['min_return'])}, max {number(total['max_return'])}"
        typer.echo(f"\n{score(total)} over {len(done)} seeds ({extremes})")


def over_seeds(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean, standard deviation (of the population), minimum and maximum of the runs' final scores."""
    scores = [float(summary["mean_return"]) for summary in summaries]
    return {
        "mean_return": statistics.fmean(scores),
        "std_return": statistics.pstdev(scores),
        "min_return": min(scores),
        "max_return": max(scores),
    }
