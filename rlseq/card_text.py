"""An agent's card as Markdown: the same numbers, the same text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def card_text(data: Mapping[str, Any]) -> str:
    """The page that goes with `card.json`.

    Args:
        data: what `rlseq.card.make_card` writes as `card.json`.
    """
    parts = [_head(data), _seeds(data), _picture(data), *_baselines(data), _file(data), _cost(data), _again(data)]
    parts.append(f"## Recipe\n\n```toml\n{data['recipe'].strip()}\n```")
    return "\n\n".join(parts) + "\n"


def number(value: float) -> str:
    """`499.85`, `-12.3`, `500`: at most two decimals."""
    text = f"{value:,.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def score_line(score: Mapping[str, Any]) -> str:
    """`499.8 ± 0.46 over 5 seeds (95 % interval of the mean, ...)`."""
    mean, n = number(score["mean"]), score["n"]
    if score["half_width"] is None:
        return f"{mean} with one seed, which gives no interval"
    return (
        f"{mean} ± {number(score['half_width'])} over {n} seeds (mean and its 95 % interval, Student's t; lowest seed "
        f"{number(score['lowest'])}, highest {number(score['highest'])})"
    )


def _head(data: Mapping[str, Any]) -> str:
    return (
        f"# {data['name']}\n\n"
        f"A {data['algorithm'].upper()} agent for `{data['env_id']}`, trained by the recipe below and shipped as "
        "`policy.onnx`. This page, the picture and the file are generated; `card.json` holds every number.\n\n"
        f"**Mean return {score_line(data['score'])}.**"
    )


def _seeds(data: Mapping[str, Any]) -> str:
    rows = [
        [
            str(run["seed"]),
            *(number(run[key]) for key in ("mean_return", "std_return", "min_return", "max_return")),
            f"{run['steps']:,}",
            f"{run['best_step']:,}",
            f"{run['training_seconds']:.1f} s",
        ]
        for run in data["runs"]
    ]
    head = ["seed", "mean return", "std", "min", "max", "steps", "best step", "training"]
    return (
        f"{_table(head, rows)}\n\n"
        f"Each row is a training of its own, scored at its best checkpoint on {data['episodes']} greedy episodes of "
        f"seed {data['final_seed']}. The checkpoint was chosen by evaluations of seed {data['selection_seed']}, so "
        "nothing was selected by the episodes that are reported. `std`, `min` and `max` are over a row's episodes."
    )


def _picture(data: Mapping[str, Any]) -> str:
    return (
        f"![Evaluation return of {data['name']} against environment steps](curve.png)\n\n"
        "The evaluations during training, by which checkpoints are chosen."
    )


def _baselines(data: Mapping[str, Any]) -> list[str]:
    if not data["baselines"]:
        return []
    rows = [[entry["what"], entry["result"], entry["source"]] for entry in data["baselines"]]
    return ["## Baselines\n\n" + _table(["what", "mean return", "source"], rows, numbers=False)]


def _file(data: Mapping[str, Any]) -> str:
    shipped, parity, latency = data["shipped"], data["shipped"]["parity"], data["latency"]
    rows = [
        ["from", f"seed {shipped['seed']}, mean return {number(shipped['mean_return'])}"],
        ["size", f"{shipped['bytes']:,} bytes, {shipped['parameters']:,} parameters"],
        [
            "parity",
            f"values within {parity['max_error']:.2g} of the network's on {parity['observations']:,} observations, "
            f"{parity['episodes_with_equal_return']} of {parity['episodes']} episodes with the same return",
        ],
        ["latency", f"{latency['p50_us']:.1f} µs (p50), {latency['p99_us']:.1f} µs (p99): one observation a call"],
        [
            "throughput",
            f"{_rounded(latency['observations_per_second'])} observations a second, {latency['batch']} a call",
        ],
        ["SHA-256", f"`{shipped['sha256']}`"],
    ]
    return (
        f"## The shipped file\n\n{_table(['policy.onnx', ''], rows, numbers=False)}\n\n"
        "The run whose score is the median is shipped (of an even number the lower of the two in the middle, of equal "
        "ones the lowest seed): to ship the best one would be to select by the episodes that are reported. Latency and "
        f"throughput are of ONNX Runtime alone, with one thread, over {latency['calls']:,} calls, on the machine below."
    )


def _cost(data: Mapping[str, Any]) -> str:
    machine, jobs = data["machine"], data["jobs"]
    order = "one run after the other" if jobs == 1 else f"{jobs} runs side by side"
    rows = [
        [name.removesuffix("_seconds"), *(f"{spread[key]:.1f} s" for key in ("median", "lowest", "highest"))]
        for name, spread in data["seconds"].items()
    ]
    return (
        f"## What it costs\n\n{_table(['wall time of a run', 'median', 'lowest', 'highest'], rows)}\n\n"
        f"Training with its evaluations and checkpoints, {order}, on {machine['cpu']} ({machine['cores']} cores, "
        f"{machine['platform']})."
    )


def _again(data: Mapping[str, Any]) -> str:
    machine = data["machine"]
    commit, plus, _ = str(machine["commit"] or "unknown").partition("+")
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"## Again\n\n```sh\n{data['command']}\n```\n\n"
        f"Commit `{commit}`{', with uncommitted changes' if plus else ''}. rlseq {machine['rlseq']}, Python "
        f"{machine['python']}, {versions}."
    )


def _rounded(value: float) -> str:
    """Three figures, which is more than a second measurement would agree on."""
    return f"{float(f'{value:.3g}'):,.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    """A Markdown table; the columns after the first are aligned to the right if they hold numbers."""
    lines = [head, ["---", *(["---:" if numbers else "---"] * (len(head) - 1))], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
