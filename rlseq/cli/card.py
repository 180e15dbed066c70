"""`rlseq card`: a shipped agent or sequence model trained over seeds, measured, and written down."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rlseq.cli.output import Output, duration, figure, number, show_list, show_pairs, size, write_json
from rlseq.cli.params import Json, Quiet, complete_agent
from rlseq.cli.training import parse_seeds
from rlseq.errors import UsageError
from rlseq.purposes import purpose_of


def card(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A shipped agent with a recipe.", autocompletion=complete_agent)
    ],
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N|A:B", help="The seeds 0 to N-1, or A to B-1: one training each.")
    ] = "10",
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes", min=1, help="A policy's: episodes of each final score.", show_default="the recipe's, or 100"
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, help="Trainings at the same time; they share the processor.")
    ] = 1,
    folder: Annotated[
        str | None,
        typer.Option("--out", metavar="FOLDER", help="Write into this folder.", show_default="the agent's own"),
    ] = None,
    baselines: Annotated[
        str | None,
        typer.Option(
            "--baselines",
            metavar="FILE",
            help='Results to show beside it: JSON, {"baselines": [{"what", "result", "source"}]}, all of them texts.',
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a shipped recipe over seeds, and write the agent's card.

    The runs are card-NAME-s0, card-NAME-s1, ... in the runs folder. Stopped, the
    same command goes on: finished runs of the same code and options are kept,
    interrupted ones resumed. Then card.md, card.json, curve.png and policy.onnx
    (model.onnx of a sequence model, and pictures of what it says to a series)
    are written into agents/NAME; the .onnx file is that of the median run.

    Examples:

      rlseq card cartpole-dqn
      rlseq card cartpole-dqn --seeds 0:5 --jobs 2
      rlseq card cartpole-dqn --seeds 3 --episodes 20 --out trial --json
      rlseq card text-gpt --seeds 5
      rlseq card mackey-glass-lstm --seeds 3
    """
    out = Output(as_json, quiet)
    chosen = card_seeds(seeds)
    words = ["rlseq", "card", name, "--seeds", f"{chosen.start}:{chosen.stop}"]
    words += [] if episodes is None else ["--episodes", str(episodes)]
    words += [] if jobs == 1 else ["--jobs", str(jobs)]
    words += [] if baselines is None else ["--baselines", baselines]
    with out.working():
        from rlseq.card import make_card
        from rlseq.cli.progress import progress

        made = make_card(
            name,
            seeds=chosen,
            episodes=episodes,
            jobs=jobs,
            out=folder,
            baselines=baselines,
            command=shlex.join(words),
            watch=lambda: progress(out),
            note=out.note,
        )
    data = made.data
    if as_json:
        write_json(data)
        return
    rows = [_row(run, data) for run in data["runs"]]
    show_list(list(rows[0]), [list(row.values()) for row in rows], right=("seed",))
    typer.echo()
    show_pairs(_rows(data, made.folder))


def card_seeds(text: str) -> range:
    """`10` as the seeds 0 to 9, `3:6` as 3, 4, 5.

    Raises:
        UsageError: it is neither.
    """
    if ":" in text:
        return parse_seeds(text, None, None)
    if not text.isdecimal() or int(text[:20]) == 0:
        raise UsageError(f"--seeds {text}: write how many (--seeds 10), or A:B for the seeds A to B-1.")
    return parse_seeds(f"0:{text}", None, None)


def _row(run: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, str]:
    from rlseq.card_words import metrics_in

    if data["algorithm"] == "dqn":
        scores = {"score": f"{number(run['mean_return'])} ± {number(run['std_return'])}"}
    else:
        scores = {m.words: figure(run, m) for m in metrics_in(data)}
    return {
        "seed": str(run["seed"]),
        **scores,
        "best step": str(run["best_step"]),
        "training": duration(run["training_seconds"]),
        "run": run["run"],
    }


def _rows(data: Mapping[str, Any], folder: Path) -> dict[str, str]:
    from rlseq.algorithms import ALGORITHMS
    from rlseq.card_words import metrics_in, score_line

    shipped, metrics = data["shipped"], metrics_in(data)
    pictures = [f"{name}.png" for name in data.get("pictures", ())]
    files = ["card.md", "card.json", "curve.png", *pictures, ALGORITHMS[data["algorithm"]].exported]
    return {
        metrics[0].words: score_line(data["score"], metrics[0]),
        **{metric.words: score_line(data["other_scores"][metric.key], metric) for metric in metrics[1:]},
        "shipped": f"seed {shipped['seed']}, the median run: {size(shipped['bytes'])}, {shipped['parameters']} "
        "parameters",
        **_speed(data),
        "written": f"{', '.join(files)} in {folder}",
    }


def _speed(data: Mapping[str, Any]) -> dict[str, str]:
    if "generation" in data:
        speed = data["generation"]
        return {
            "speed": f"{speed['p50_ms']:.3g} ms a token (p50), {speed['p99_ms']:.3g} ms (p99), "
            f"{speed['tokens_per_second']:.0f} tokens/s"
        }
    if "prediction" in data:
        speed = data["prediction"]
        return {
            "latency": f"{speed['p50_ms']:.3g} ms {purpose_of(data).one} (p50), {speed['p99_ms']:.3g} ms (p99), "
            f"{speed['per_second']:.0f} a second"
        }
    latency = data["latency"]
    return {
        "latency": f"{latency['p50_us']:.1f} µs (p50), {latency['p99_us']:.1f} µs (p99), "
        f"{latency['observations_per_second']:.0f} observations/s in batches of {latency['batch']}"
    }
