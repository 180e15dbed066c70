"""A card as Markdown: the same numbers, the same text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rlseq.algorithms import ALGORITHMS
from rlseq.scores import METRICS, Metric

PARITY_WORDS = "values within {:.2g} of the network's"


class Words(NamedTuple):
    """What a card says of one kind of thing; the rest of the page is the same for all.

    Attributes:
        what: what it is, in a sentence that ends before "trained by".
        more: paragraphs after the score.
        columns: of the table of seeds after the metrics, as heading -> text of a run.
        scored: how a row was scored.
        picture: what the picture shows.
        file: rows of the file's table between its size and its checksum.
        middle: which of the two in the middle is shipped.
        selected: what shipping the best run would select by.
        timed: how speed was measured.
        sections: after the file's.
    """

    what: str
    more: list[str]
    columns: dict[str, Callable[[Mapping[str, Any]], str]]
    scored: str
    picture: str
    file: list[list[str]]
    middle: str
    selected: str
    timed: str
    sections: list[str]


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


def metrics_in(data: Mapping[str, Any]) -> tuple[Metric, ...]:
    """What a card's runs are judged by, the score first."""
    return METRICS[data.get("task", data["algorithm"])]


def number(value: float, digits: int = 2) -> str:
    """`499.85`, `-12.3`, `500`: at most so many decimals."""
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if digits else text
    return "0" if text == "-0" else text


def score_line(score: Mapping[str, Any], metric: Metric) -> str:
    """`499.8 ± 0.46 over 5 seeds (95 % interval of the mean, ...)`."""
    mean = _mean(score, metric) + (f" {metric.unit}" if metric.unit else "")
    if score["half_width"] is None:
        return f"{mean} with one seed, which gives no interval"
    lowest, highest = (number(score[key], metric.digits) for key in ("lowest", "highest"))
    return (
        f"{mean} over {score['n']} seeds (mean and its 95 % interval, Student's t; lowest seed {lowest}, "
        f"highest {highest})"
    )


def _mean(score: Mapping[str, Any], metric: Metric) -> str:
    mean, half = number(score["mean"], metric.digits), score["half_width"]
    return mean if half is None else f"{mean} ± {number(half, metric.digits)}"


def _head(data: Mapping[str, Any], words: Words) -> str:
    metric = metrics_in(data)[0]
    text = (
        f"# {data['name']}\n\n"
        f"{words.what}, trained by the recipe below and shipped as `{_file_name(data)}`. This page, the picture and "
        "the file are generated; `card.json` holds every number.\n\n"
        f"**{metric.words.capitalize()} {score_line(data['score'], metric)}.**"
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
    return f"{_table(head, rows)}\n\nEach row is a training of its own, {words.scored}"


def _picture(data: Mapping[str, Any], words: Words) -> str:
    return f"![{words.picture}](curve.png)\n\nThe evaluations during training, by which checkpoints are chosen."


def _baselines(data: Mapping[str, Any]) -> list[str]:
    if not data["baselines"]:
        return []
    rows = [[entry["what"], entry["result"], entry["source"]] for entry in data["baselines"]]
    head = ["what", metrics_in(data)[0].words, "source"]
    return ["## Baselines\n\n" + _table(head, rows, numbers=False)]


def _file(data: Mapping[str, Any], words: Words) -> str:
    shipped, metric = data["shipped"], metrics_in(data)[0]
    rows = [
        ["from", f"seed {shipped['seed']}, {metric.words} {number(shipped[metric.key], metric.digits)}"],
        ["size", f"{shipped['bytes']:,} bytes, {shipped['parameters']:,} parameters"],
        *words.file,
        ["SHA-256", f"`{shipped['sha256']}`"],
    ]
    return (
        f"## The shipped file\n\n{_table([_file_name(data), ''], rows, numbers=False)}\n\n"
        f"The run whose score is the median is shipped (of an even number the {words.middle} of the two in the middle, "
        f"of equal ones the lowest seed): to ship the best one would be to select by {words.selected}. {words.timed}, "
        "on the machine below."
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
                f"{_rounded(latency['observations_per_second'])} observations a second, {latency['batch']} a call",
            ],
        ],
        middle="lower",
        selected="the episodes that are reported",
        timed=(f"Latency and throughput are of ONNX Runtime alone, with one thread, over {latency['calls']:,} calls"),
        sections=[],
    )


def _of_sequence_model(data: Mapping[str, Any]) -> Words:
    parity, speed = data["shipped"]["parity"], data["generation"]
    others = [f"{m.words} {_mean(data['other_scores'][m.key], m)}" for m in metrics_in(data)[1:]]
    part = number(100 * data["validation"])
    chosen = "all" if data["selection_tokens"] is None else f"{data['selection_tokens']:,}"
    batches, lengths = (", ".join(map(str, parity[key])) for key in ("batch_sizes", "lengths"))
    return Words(
        what=f"A sequence model ({data['model']}) for the task `{data['task']}`",
        more=[
            f"{metrics_in(data)[0].better.capitalize()} is better. Of the same runs: {', '.join(others)}.",
            f"Data: {data['data']}, the last {part} % of it for validation. SHA-256 `{data['data_sha256']}`.",
        ],
        columns={
            "updates": lambda run: f"{run['steps']:,}",
            "best update": lambda run: f"{run['best_step']:,}",
        },
        scored=(
            f"scored at its best checkpoint on the whole validation split: {data['tokens']:,} tokens in windows of "
            f"{data['context']}. The checkpoint was chosen by evaluations ({data['selection_metric']}) on {chosen} "
            "tokens of the same split, so the numbers flatter it by as much as that choice can."
        ),
        picture=f"Validation loss of {data['name']} against updates",
        file=[
            [
                "parity",
                f"{PARITY_WORDS.format(parity['max_error'])} at batches of {batches} and lengths of {lengths}, whole "
                f"and token by token; {parity['greedy_tokens_equal']} of {parity['greedy_tokens']} tokens of a greedy "
                "text equal",
            ],
            ["speed", f"{speed['p50_ms']:.3g} ms a token (p50), {speed['p99_ms']:.3g} ms (p99)"],
            ["throughput", f"{_rounded(speed['tokens_per_second'])} tokens a second, one text at a time"],
        ],
        middle="higher",
        selected="the numbers that are reported",
        timed=(
            f"Speed and throughput are of ONNX Runtime alone, with one thread and a cache that is full (after "
            f"{speed['context']:,} tokens), over {speed['tokens']:,} tokens"
        ),
        sections=[_sample(data)],
    )


def _sample(data: Mapping[str, Any]) -> str:
    """What the shipped file writes, in a fence that nothing in it can close."""
    sample = data["sample"]
    text = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in sample["text"])
    longest = max((len(found) for found in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    command = f"rlseq generate {data['name']} --tokens {sample['tokens']} --seed {sample['seed']}"
    return f"## A sample\n\n`{command}` writes\n\n{fence}text\n{text}\n{fence}"


WORDS: dict[str, Callable[[Mapping[str, Any]], Words]] = {"dqn": _of_policy, "seq": _of_sequence_model}


def _rounded(value: float) -> str:
    """Three figures, which is more than a second measurement would agree on."""
    return f"{float(f'{value:.3g}'):,.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    """A Markdown table; the columns after the first are aligned to the right if they hold numbers."""
    lines = [head, ["---", *(["---:" if numbers else "---"] * (len(head) - 1))], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
