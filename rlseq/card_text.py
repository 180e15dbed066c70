"""A card as Markdown: the same numbers, the same text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlseq.algorithms import ALGORITHMS
from rlseq.card_sequence import of_sequence_model
from rlseq.card_words import PARITY_WORDS, Words, metrics_in, rounded, score_line, table
from rlseq.scores import number


def card_text(data: Mapping[str, Any]) -> str:
    """The page that goes with `card.json`.

    Args:
        data: what `rlseq.card.make_card` writes as `card.json`.
    """
    words = WORDS[data["algorithm"]](data)
    parts = [_head(data, words), _seeds(data, words), _picture(data, words), *_baselines(data), _file(data, words)]
    parts += [*words.sections, _cost(data), _again(data)]
    parts.append(f"## Recipe\n\n```toml\n{data['recipe'].strip()}\n```")
    return "\n\n".join(parts) + "\n"


def _head(data: Mapping[str, Any], words: Words) -> str:
    metric = metrics_in(data)[0]
    text = (
        f"# {data['name']}\n\n"
        f"{words.what}, trained by the recipe below and shipped as `{_file_name(data)}`. This page, the picture and "
        "the file are generated; `card.json` holds every number.\n\n"
        f"**{metric.words[0].upper()}{metric.words[1:]} {score_line(data['score'], metric)}.**"
    )
    return "\n\n".join([text, *words.more])


def _file_name(data: Mapping[str, Any]) -> str:
    return ALGORITHMS[data["algorithm"]].exported


def _seeds(data: Mapping[str, Any], words: Words) -> str:
    metrics = metrics_in(data)
    rows = [
        [
            str(run["seed"]),
            *(number(run[metric.key], metric.digits) for metric in metrics),
            *(text(run) for text in words.columns.values()),
            f"{run['training_seconds']:.1f} s",
        ]
        for run in data["runs"]
    ]
    head = ["seed", *(metric.words for metric in metrics), *words.columns, "training"]
    return f"{table(head, rows)}\n\nEach row is a training of its own, {words.scored}"


def _picture(data: Mapping[str, Any], words: Words) -> str:
    return f"![{words.picture}](curve.png)\n\nThe evaluations during training, by which checkpoints are chosen."


def _baselines(data: Mapping[str, Any]) -> list[str]:
    if not data["baselines"]:
        return []
    rows = [[entry["what"], entry["result"], entry["source"]] for entry in data["baselines"]]
    head = ["what", metrics_in(data)[0].words, "source"]
    return ["## Baselines\n\n" + table(head, rows, numbers=False)]


def _file(data: Mapping[str, Any], words: Words) -> str:
    shipped, metric = data["shipped"], metrics_in(data)[0]
    rows = [
        ["from", f"seed {shipped['seed']}, {metric.words} {number(shipped[metric.key], metric.digits)}"],
        ["size", f"{shipped['bytes']:,} bytes, {shipped['parameters']:,} parameters"],
        *words.file,
        ["SHA-256", f"`{shipped['sha256']}`"],
    ]
    return (
        f"## The shipped file\n\n{table([_file_name(data), ''], rows, numbers=False)}\n\n"
        f"The run whose score is the median is shipped (of an even number the {words.middle} of the two in the middle, "
        f"of equal ones the lowest seed): to ship the best one would be to select by {words.selected}. {words.timed}, "
        "on the machine below."
    )


def _cost(data: Mapping[str, Any]) -> str:
    machine, jobs = data["machine"], data["jobs"]
    order = "one run after the other" if jobs == 1 else f"{jobs} runs side by side"
    if threads := data.get("threads"):  # not in a card from before they were recorded
        order += f", with {' or '.join(map(str, threads))} thread{'s' * (threads[-1] > 1)} each"
    rows = [
        [name.removesuffix("_seconds"), *(f"{spread[key]:.1f} s" for key in ("median", "lowest", "highest"))]
        for name, spread in data["seconds"].items()
    ]
    return (
        f"## What it costs\n\n{table(['wall time of a run', 'median', 'lowest', 'highest'], rows)}\n\n"
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


def _of_policy(data: Mapping[str, Any]) -> Words:
    parity, latency = data["shipped"]["parity"], data["latency"]
    return Words(
        what=f"A {data['algorithm'].upper()} agent for `{data['env_id']}`",
        more=[],
        columns={
            "std": lambda run: number(run["std_return"]),
            "min": lambda run: number(run["min_return"]),
            "max": lambda run: number(run["max_return"]),
            "steps": lambda run: f"{run['steps']:,}",
            "best step": lambda run: f"{run['best_step']:,}",
        },
        scored=(
            f"scored at its best checkpoint on {data['episodes']} greedy episodes of seed {data['final_seed']}. The "
            f"checkpoint was chosen by evaluations of seed {data['selection_seed']}, so nothing was selected by the "
            "episodes that are reported. `std`, `min` and `max` are over a row's episodes."
        ),
        picture=f"Evaluation return of {data['name']} against environment steps",
        file=[
            [
                "parity",
                f"{PARITY_WORDS.format(parity['max_error'])} on {parity['observations']:,} observations, "
                f"{parity['episodes_with_equal_return']} of {parity['episodes']} episodes with the same return",
            ],
            ["latency", f"{latency['p50_us']:.1f} µs (p50), {latency['p99_us']:.1f} µs (p99): one observation a call"],
            [
                "throughput",
                f"{rounded(latency['observations_per_second'])} observations a second, {latency['batch']} a call",
            ],
        ],
        middle="lower",
        selected="the episodes that are reported",
        timed=(f"Latency and throughput are of ONNX Runtime alone, with one thread, over {latency['calls']:,} calls"),
        sections=[],
    )


WORDS: dict[str, Callable[[Mapping[str, Any]], Words]] = {"dqn": _of_policy, "seq": of_sequence_model}
