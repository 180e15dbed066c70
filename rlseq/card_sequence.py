"""What the card of a sequence model says, by what its task is for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlseq.card_words import Words, mean_text, metrics_in, parity_words, rounded
from rlseq.purposes import TEXTS, Purpose, purpose_of
from rlseq.scores import number


class Use(NamedTuple):
    """What a card says of using the shipped file.

    Attributes:
        speed: rows of the file's table.
        timed: how speed was measured.
        sections: what it writes or says.
    """

    speed: list[list[str]]
    timed: str
    sections: list[str]


def of_sequence_model(data: Mapping[str, Any]) -> Words:
    """The words of a sequence model's card."""
    purpose, score = purpose_of(data), metrics_in(data)[0]
    use = _of_text(data) if purpose is TEXTS else _of_predictions(data, purpose)
    others = [f"{m.words} {mean_text(data['other_scores'][m.key], m)}" for m in metrics_in(data)[1:]]
    split = purpose.split.format(part=number(100 * data["validation"]))
    windows = purpose.windows.format(context=data["context"])
    of_all = data["selection_tokens"] is None or data["selection_tokens"] >= data["tokens"]
    chosen = "all" if of_all else f"{data['selection_tokens']:,}"
    return Words(
        what=f"A sequence model ({data['model']}) for the task `{data['task']}`",
        more=[
            f"{score.better.capitalize()} is better. Of the same runs: {', '.join(others)}.",
            f"Data: {data['data']}{split}. SHA-256 `{data['data_sha256']}`.",
        ],
        columns={
            "updates": lambda run: f"{run['steps']:,}",
            "best update": lambda run: f"{run['best_step']:,}",
        },
        scored=(
            f"scored at its best checkpoint on the whole validation split: {data['tokens']:,} {purpose.targets}"
            f"{windows}. The checkpoint was chosen by evaluations ({data['selection_metric']}) on {chosen} "
            f"{purpose.targets} of the same split, so the numbers flatter it by as much as that choice can."
        ),
        picture=f"Validation {score.words} of {data['name']} against updates",
        file=[["parity", _parity(data["shipped"]["parity"])], *use.speed],
        middle="higher" if score.better == "lower" else "lower",
        selected="the numbers that are reported",
        timed=use.timed,
        sections=use.sections,
    )


def _parity(report: Mapping[str, Any]) -> str:
    text = parity_words(report)
    if "greedy_tokens" in report:
        text += f"; {report['greedy_tokens_equal']} of {report['greedy_tokens']} tokens of a greedy text equal"
    return text


def _of_text(data: Mapping[str, Any]) -> Use:
    speed = data["generation"]
    return Use(
        speed=_speed("speed", speed, speed["tokens_per_second"], TEXTS, "one text at a time"),
        timed=(
            f"Speed and throughput are of ONNX Runtime alone, with one thread and a cache that is full (after "
            f"{speed['context']:,} tokens), over {speed['tokens']:,} tokens"
        ),
        sections=[_sample(data)],
    )


def _of_predictions(data: Mapping[str, Any], purpose: Purpose) -> Use:
    speed = data["prediction"]
    return Use(
        speed=_speed("latency", speed, speed["per_second"], purpose, "one at a time"),
        timed=(
            f"Latency and throughput are of ONNX Runtime alone, with one thread, over {speed['calls']:,} {purpose.uses}"
        ),
        sections=[_examples(data, purpose)],
    )


def _speed(name: str, took: Mapping[str, Any], a_second: float, purpose: Purpose, alone: str) -> list[list[str]]:
    """Rows of the file's table: how long one use takes, and how many of them a second has."""
    return [
        [name, f"{took['p50_ms']:.3g} ms {purpose.one} (p50), {took['p99_ms']:.3g} ms (p99)"],
        ["throughput", f"{rounded(a_second)} {purpose.uses} a second, {alone}"],
    ]


def _sample(data: Mapping[str, Any]) -> str:
    """What the shipped file writes."""
    sample = data["sample"]
    command = f"rlseq generate {data['name']} --tokens {sample['tokens']} --seed {sample['seed']}"
    return f"## A sample\n\n`{command}` writes\n\n{_fenced(sample['text'])}"


def _examples(data: Mapping[str, Any], purpose: Purpose) -> str:
    """Pictures of what the shipped file says of validation data, or examples in words, and how to ask it."""
    pictures = [f"![{name.capitalize()} of {data['name']}]({name}.png)" for name in data.get("pictures", ())]
    shown = pictures or [f"{purpose.sample}, at the first of the validation data:\n\n{_fenced(data['examples'])}"]
    command = purpose.use.format(path=data["name"], question=shlex.quote(data["question"]))
    return "\n\n".join(["## Examples", *shown, f"```sh\n{command}\n```"])


def _fenced(text: str) -> str:
    """A text in a fence that nothing in it can close."""
    text = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
    longest = max((len(found) for found in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
