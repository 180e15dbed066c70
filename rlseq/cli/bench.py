"""`rlseq bench`: measurements against others, in one run on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rlseq.bench.measure import RUNS
from rlseq.bench.results import LARGE, score_text
from rlseq.cli.output import Output, number, show_pairs, size, write_json
from rlseq.cli.params import OUTPUT, Json, Quiet
from rlseq.errors import UsageError


def complete_bench(incomplete: str) -> list[str]:
    """The benchmarks."""
    from rlseq.bench.benches import BENCHES

    return [name for name in BENCHES if name.startswith(incomplete)]


def complete_peer(incomplete: str) -> list[str]:
    """The peers, and none."""
    from rlseq.bench.peers import NONE, PEERS

    return [name for name in (*PEERS, NONE) if name.startswith(incomplete)]


def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="dqn, play, seq, ddp, tasks or gpu.", autocompletion=complete_bench, show_default=False
        ),
    ],
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="dqn: environment steps of a training.", show_default="50000")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option("--episodes", min=1, help="play: episodes of a repeat.", show_default="20")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="seq, ddp, gpu: a text file.",
            show_default="the source of Python's standard library",
        ),
    ] = None,
    part: Annotated[
        int | None,
        typer.Option("--part", min=1, help="seq, ddp, tasks, gpu: one of their parts; see above.", show_default="all"),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", help="How often each side runs, in turn.", show_default="3")
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(
            "--peer",
            metavar="sb3|none",
            help="dqn, play: against whom: stable-baselines3, or nobody.",
            autocompletion=complete_peer,
            show_default="sb3",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="dqn: any option of our training; repeatable."),
    ] = None,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help="Add the result to rlseq/bench/results.json; the git tree must be clean.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure speed against others, in turn, in one run on one machine.

    dqn trains: the same steps and updates as stable-baselines3's DQN, one
    thread each. play plays: cartpole-dqn's network with ONNX Runtime against
    stable-baselines3 with the same weights, and against a bare loop. seq
    measures sequence models, against a plain GPT that comes with rlseq: 1 loss
    and wall time of a training, 2 tokens per second, 3 mixed precision, 4
    generation, 5 memory. ddp measures many processes: 1 that two compute what
    one does, 2 one under torchrun, 3 two cores against one, 4 a process killed.
    tasks trains every sequence task with its recipe, and says what it comes to.
    gpu checks and times both trainers on a GPU: 1 losses against the CPU's, 2
    DQN in CUDA graphs, 3 sequence models in float32, bf16, fp16, compiled.

    Examples:

      rlseq bench dqn
      rlseq bench dqn --repeats 5 --json
      rlseq bench dqn --peer none --steps 10000 --set net.hidden=64,64
      rlseq bench play --episodes 50
      rlseq bench seq --data book.txt
      rlseq bench seq --part 4
      rlseq bench ddp
      rlseq bench tasks --part 1
      rlseq bench gpu

    dqn and play need the extra named bench. An otherwise idle machine gives
    the smallest spread. With --json: every repeat, medians, ratios, and the
    options, commit, versions and machine they belong to.
    """
    from rlseq.bench import results
    from rlseq.bench.benches import command_of, run
    from rlseq.bench.peers import NONE
    from rlseq.config import set_values

    out = Output(as_json, quiet)
    given: dict[str, Any] = {
        "steps": steps,
        "episodes": episodes,
        "data": data,
        "part": part,
        "repeats": repeats,
        "peer": peer,
    }
    typed = assignments or []
    values = set_values(typed) if typed else None
    arguments = {key: value for key, value in given.items() if value is not None}
    tree = results.root()
    if publish and peer == NONE:
        raise UsageError("--publish and --peer none: only a comparison is published; leave one of them out.")
    commit = results.clean_commit(tree) if publish else None
    with out.working():
        report = run(name, out.note, command=command_of(name, typed, given), values=values, **arguments)
    if commit is not None:
        out.note(f"published in {results.publish(report, tree, commit)}")
        report["commit"] = commit  # it may say of README or a card that it was changed
    if as_json:
        write_json(report)
    else:
        show_pairs(report_rows(report))


def report_rows(report: Mapping[str, Any]) -> dict[str, str]:
    """A benchmark's report for people."""
    rows: dict[str, str] = {}
    measurements = report.get("measurements") or {report["name"]: report}
    for name, one in measurements.items():
        rows[name] = one["what"]
        rows[f"{name}: rlseq"] = _side(one["ours"], one["unit"])
        if one["peer"] is not None:
            rows[f"{name}: {one['peer']['name']}"] = _side(one["peer"], one["unit"])
            low, high, ratio = map(_ratio, (*one["spread"], one["ratio"]))
            how = f"times as fast ({low} to {high} in pairs)"
            if one["ours"].keys() & {"bytes", "error"}:
                how = "times less"
            elif "score" in one["ours"]:
                how = f"times as good ({low} to {high}, by seeds)"
            rows[f"{name}: ratio"] = f"{ratio} {how}"
        if "overhead" in one:
            rows[f"{name}: overhead"] = f"{100 * one['overhead']:.1f} % more time a step"
        if "split" in one["ours"]:
            shares = one["ours"]["split"]["shares"]
            parts = ", ".join(f"{part} {100 * share:.1f} %" for part, share in shares.items())
            rows[f"{name}: time"] = f"{parts} (one more run, slowed by the timers; nothing is evaluated)"
    rows["commit"] = str(report["commit"])
    rows["machine"] = f"{report['machine']['cpu']}, {report['machine']['cores']} cores"
    return rows


def _ratio(value: float) -> str:
    return number(value) if value < LARGE else f"{value:.1e}"


def _side(side: Mapping[str, Any], unit: str) -> str:
    if "bytes" in side:
        return size(side["bytes"])
    if "score" in side:
        return score_text(side)
    if "error" in side:
        return f"{side['error']:.1e} off"
    low, high = (f"{value:.3f}" for value in side["spread"])
    text = f"{side['median']:.3f} s ({low} to {high})"
    if unit != RUNS:
        text += f", {side['steps_per_second']:.0f} {unit}/s, {side['steps'][0]} {unit}"
    if "updates" in side:
        text += f", {side['updates']} updates"
    if "loss" in side:
        text += f", loss {', '.join(f'{loss:.4f}' for loss in side['loss'])}"
    return text
