"""`rlseq eval` and `rlseq play`: greedy episodes, scored; with a run's network, or an exported policy without torch."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from rlseq.cli.output import Output, headline, metric_rows, number, score, show_pairs, show_sample, write_json
from rlseq.cli.params import (
    OUTPUT,
    ActionOutput,
    CheckpointOption,
    EnvOption,
    EvaluationSeed,
    Imports,
    Inputs,
    Json,
    PathArgument,
    Quiet,
)
from rlseq.errors import RlseqError
from rlseq.scores import measured_in


class Render(StrEnum):
    """How to show the environment."""

    human = "human"
    gif = "gif"
    mp4 = "mp4"


def evaluate(
    path: PathArgument = None,
    episodes: Annotated[int, typer.Option("--episodes", min=1, help="How many episodes.")] = 100,
    seed: EvaluationSeed = 0,
    checkpoint: CheckpointOption = "best",
    envs: Annotated[
        int | None,
        typer.Option(
            "--envs", min=1, help="Environments side by side; the score does not depend on it.", show_default="10"
        ),
    ] = None,
    imports: Imports = None,
    env: EnvOption = None,
    inputs: Inputs = None,
    action_output: ActionOutput = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="Of a sequence model: its data, or others to be measured on.",
            show_default="as in training",
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a policy over seeded episodes, a sequence model on its validation data.

    A run is scored with its network (this needs torch), an agent or an .onnx
    file with ONNX Runtime. With --data of another file than that of training
    a sequence model is scored on all of it, with its own scaling and columns.

    Examples:

      rlseq eval                                the newest run, at its best
      rlseq eval runs/my-run --checkpoint last
      rlseq eval cartpole-dqn --episodes 500 --seed 7
      rlseq eval policy.onnx --json
      rlseq eval my-forecast --data next-year.csv

    The JSON holds mean_return, std_return (of the population), min_return,
    max_return, episodes, mean_length, steps_per_second, seed and env_id; of a
    sequence model task, its metrics (text: loss in nats a token, bits_per_token,
    perplexity, word_share; rlseq list tasks names the others'), tokens (the
    predictions that were measured), sample and data.
    """
    out = Output(as_json, quiet)
    with out.working():
        from rlseq.pipeline import evaluate as run

        if data is None and not _is_sequence(path):
            _announce(out, path, episodes, checkpoint)
        result = run(
            path,
            episodes=episodes,
            seed=seed,
            checkpoint=checkpoint,
            num_envs=envs,
            imports=imports or (),
            env=env,
            inputs=inputs,
            action_output=action_output,
            data=data,
        )
    _show(out, result)


def play(
    path: PathArgument = None,
    episodes: Annotated[int, typer.Option("--episodes", min=1, help="How many episodes.")] = 10,
    seed: EvaluationSeed = 0,
    envs: Annotated[int, typer.Option("--envs", min=1, help="Environments side by side.")] = 1,
    native: Annotated[
        bool,
        typer.Option(
            "--native",
            help="Step the environment's own vector version: many times faster with many --envs, but its episodes have "
            "no seeds of their own, so the result is marked and compares with no other.",
        ),
    ] = False,
    render: Annotated[
        Render | None,
        typer.Option("--render", help="Show a window, or record environment 0.", rich_help_panel=OUTPUT),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where the video goes.",
            show_default="NAME.gif or NAME.mp4",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    imports: Imports = None,
    env: EnvOption = None,
    inputs: Inputs = None,
    action_output: ActionOutput = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Play a policy with numpy, gymnasium and ONNX Runtime alone, no torch.

    Examples:

      rlseq play                                the newest run's policy.onnx
      rlseq play cartpole-dqn --render human    watch it in a window
      rlseq play cartpole-dqn --episodes 1 --render gif --out cartpole.gif
      rlseq play policy.onnx --episodes 1000 --envs 64 --native --json
      rlseq play other.onnx --env CartPole-v1 --input obs --action-output q

    The JSON holds what rlseq eval gives, and native and video.
    """
    out = Output(as_json, quiet)
    with out.working():
        from rlseq.pipeline import play as run

        if not _is_sequence(path):
            _announce(out, path, episodes)
        result = run(
            path,
            episodes=episodes,
            seed=seed,
            num_envs=envs,
            native=native,
            render=None if render is None else render.value,
            out=file,
            imports=imports or (),
            env=env,
            inputs=inputs,
            action_output=action_output,
        )
    _show(out, result)


def _is_sequence(path: str | None) -> bool:
    """Whether a sequence model is meant; what is no readable file is told of by whoever opens it."""
    from rlseq.locate import locate

    found = locate(path)
    with contextlib.suppress(RlseqError):
        return found.is_sequence()
    return False


def _announce(out: Output, path: str | None, episodes: int, checkpoint: str | None = None) -> None:
    """Say what is about to be played, once it is sure that it is there: the policy, or a checkpoint of a run."""
    from rlseq.locate import locate

    found = locate(path)
    if found.run is None or checkpoint is None:
        found.policy_file()
    else:
        found.run.checkpoint(checkpoint)
    out.note(f"Playing {episodes} episode{'s' * (episodes > 1)} with {found.name} ...")


def _show(out: Output, result: Mapping[str, Any]) -> None:
    if out.as_json:
        write_json(result)
        return
    if out.quiet:
        typer.echo(headline(result))
        return
    if measured_in(result):
        note = {"note": str(result["note"])} if "note" in result else {}
        show_pairs({**metric_rows(result), "data": str(result["data"]), **note})
        show_sample(result)
        return
    extremes = f"min {number(result['min_return'])}, max {number(result['max_return'])}"
    rows = {
        "environment": result["env_id"],
        "return": f"{score(result)} over {result['episodes']} episodes ({extremes})",
        "length": f"{number(result['mean_length'])} steps on average",
        "speed": f"{result['steps_per_second']:.0f} steps/s",
        "seed": str(result["seed"]),
    }
    if result.get("native"):
        rows["native"] = "yes: compares with no result that is not"
    if result.get("video"):
        rows["video"] = str(result["video"])
    show_pairs(rows)
