"""Training of sequence models, measured: whole commands, loops at a given shape, mixed precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from rlseq.bench.command import run_command
from rlseq.bench.loop import time_loop, undisturbed
from rlseq.bench.measure import RUNS, Side, Tell, Timing, alternate, measurement
from rlseq.config import merge_into
from rlseq.errors import RlseqError

if TYPE_CHECKING:
    from rlseq.planned_sequence import SequenceJob
    from rlseq.seq.train import SeqTrainer

REFERENCE = "a plain GPT"
FLOAT32 = "rlseq in float32"
WARM_UP_UPDATES = 3
SHAPE_UPDATES = 200


class Shape(NamedTuple):
    """A training to time: layers, heads and width of the network, sequences and tokens of an update, updates."""

    layers: int
    heads: int
    width: int
    batch_size: int
    context: int
    updates: int


AMP_SHAPES = {"amp-384": Shape(6, 6, 384, 16, 256, 6), "amp-128": Shape(4, 4, 128, 16, 64, 100)}
# AdamW as the reference has it, so that what differs is what is measured.
ADAMW: dict[str, Any] = {
    "name": "adamw",
    "lr": 1e-3,
    "beta2": 0.99,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "warmup_updates": 100,
    "final_factor": 0.1,
    "clip_norm": 1.0,
}


def job_for(data: Path, shape: Shape, values: Mapping[str, Any] | None = None) -> SequenceJob:
    """Our training of a gpt on a CPU, with nothing due before its end.

    Args:
        data: the text.
        shape: of network and update.
        values: further options, as nested dicts.
    """
    from rlseq.planning import Request, plan_training

    tree: dict[str, Any] = {
        "seq": {"data": str(data), "context": shape.context, "batch_size": shape.batch_size},
        "net": {"core": "gpt", "layers": shape.layers, "heads": shape.heads, "width": shape.width},
        "run": {"steps": shape.updates},
        "optim": dict(ADAMW),
        "engine": {"device": "cpu"},
    }
    merge_into(tree, values or {})
    job = cast("SequenceJob", plan_training(Request("seq", None, "none", tree, source="the benchmark")).job)
    return job._replace(options=undisturbed(job.options))


def with_run(job: SequenceJob, **changes: int) -> SequenceJob:
    """The training with another seed, or length."""
    run = msgspec.structs.replace(job.options.run, **changes)
    return job._replace(options=undisturbed(msgspec.structs.replace(job.options, run=run)))


class Trained(NamedTuple):
    """A trainer after its last update, and the time of its loop in tokens."""

    trainer: SeqTrainer
    timing: Timing


def train_ours(job: SequenceJob) -> Trained:
    """Train in a temporary run, as `rlseq train seq` does, and time the loop."""
    from rlseq.engine.device import cpu_settings

    o = job.options
    with cpu_settings(o.engine.threads):
        trainer = job.trainer()
        seconds, updates = time_loop(job.algorithm, o, trainer)
    tokens = updates * o.seq.batch_size * o.seq.context
    return Trained(trainer, Timing(seconds, tokens, trainer.updates))


# Part 1


def measure_commands(
    tell: Tell, repeats: int, data: Path, commands: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """Whole commands against all iterations of the reference; each says the loss over the whole validation split.

    Args:
        tell: takes lines of progress.
        repeats: seeds.
        data: the text.
        commands: name -> what is typed after `rlseq train seq --data FILE --seed K`.

    Raises:
        RlseqError: a command failed, or was scored on another validation split than the reference.
    """
    from rlseq.bench import reference
    from rlseq.engine.device import cpu_settings

    text = reference.read_text(data)
    losses: dict[str, list[float]] = {name: [] for name in (REFERENCE, *commands)}
    tokens: dict[str, int] = {}

    def scored(name: str, loss: float, num_tokens: int) -> None:
        losses[name].append(loss)
        tokens[name] = num_tokens
        if len(set(tokens.values())) > 1:
            raise RlseqError(f"not the same validation split, in tokens: {tokens}.")
        tell(f"{name}: loss {loss:.4f} over {num_tokens} tokens")

    def plain(seed: int) -> Timing:
        with cpu_settings(0):
            trained = reference.train(text, seed)
            scored(REFERENCE, *reference.evaluate(trained.model, text.validation))
        return Timing(trained.seconds, 1, reference.ITERATIONS)

    def ours(name: str) -> Side:
        def side(seed: int) -> Timing:
            ran = run_command(("--data", str(data), *commands[name]), seed)
            scored(name, ran.summary["loss"], ran.summary["tokens"])
            return Timing(ran.seconds, 1, ran.summary["updates"])

        return side

    timings = alternate({REFERENCE: plain, **{name: ours(name) for name in commands}}, repeats, tell, RUNS)
    results = {}
    for name in commands:
        what = f"rlseq train seq on {data.name}, the whole command, against {reference.ITERATIONS} iterations"
        result = measurement(what, timings[name], timings[REFERENCE], {"name": REFERENCE}, RUNS)
        result["ours"] |= {"updates": timings[name][0].updates, "loss": losses[name]}
        result["peer"] |= {"updates": reference.ITERATIONS, "loss": losses[REFERENCE]}
        results[name] = result
    return results


# Part 2


def measure_shape(tell: Tell, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
    """Training at the reference's shape in float32 with AdamW, in tokens per second."""
    from rlseq.bench import reference
    from rlseq.engine.device import cpu_settings

    text, plain = reference.read_text(data), reference.Shape()
    job = job_for(data, Shape(*plain[:3], plain.batch_size, plain.context, SHAPE_UPDATES))

    def train_reference(seed: int, updates: int = SHAPE_UPDATES) -> Timing:
        with cpu_settings(0):
            seconds = reference.train(text, seed, until=updates).seconds
        return Timing(seconds, updates * plain.batch_size * plain.context, updates)

    tell(f"warm-up: {WARM_UP_UPDATES} updates of each")
    train_ours(with_run(job, steps=WARM_UP_UPDATES))
    train_reference(0, WARM_UP_UPDATES)
    sides: dict[str, Side] = {
        "rlseq": lambda seed: train_ours(with_run(job, seed=seed)).timing,
        REFERENCE: train_reference,
    }
    timings = alternate(sides, repeats, tell, "tokens")
    what = f"training a gpt, {shape_text(plain)}, float32, AdamW"
    result = measurement(what, timings["rlseq"], timings[REFERENCE], {"name": REFERENCE}, "tokens")
    return {"shape": _with_updates(result, SHAPE_UPDATES)}


# Part 3


def hardware() -> str:
    """What this CPU multiplies bfloat16 with."""
    import torch

    if torch.cpu._is_amx_tile_supported():
        return "a CPU with AMX"
    if torch.cpu._is_avx512_bf16_supported():
        return "a CPU with AVX512-BF16, without AMX"
    return "a CPU without bfloat16, where --amp stays in float32"


def measure_amp(tell: Tell, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
    """Training with `--amp` against the same in float32, in tokens per second."""
    tell(f"this is {hardware()}")
    results = {}
    for name, shape in AMP_SHAPES.items():
        jobs = {
            "rlseq": job_for(data, shape, {"engine": {"amp": "auto"}}),
            FLOAT32: job_for(data, shape, {"engine": {"amp": "off"}}),
        }
        tell(f"{name}, warm-up: {WARM_UP_UPDATES} updates of each")
        for job in jobs.values():
            train_ours(with_run(job, steps=WARM_UP_UPDATES))
        sides: dict[str, Side] = {
            side: lambda seed, job=job: train_ours(with_run(job, seed=seed)).timing  # type: ignore[misc]
            for side, job in jobs.items()
        }
        timings = alternate(sides, repeats, tell, "tokens")
        what = f"--amp, a gpt, {shape_text(shape)}, on {hardware()}"
        result = measurement(what, timings["rlseq"], timings[FLOAT32], {"name": FLOAT32}, "tokens")
        results[name] = {**_with_updates(result, shape.updates), "hardware": hardware()}
    return results


def shape_text(shape: Any) -> str:
    """A shape in words."""
    return (
        f"{shape.layers} layers, {shape.heads} heads, {shape.width} wide, {shape.batch_size} x {shape.context} tokens "
        "an update"
    )


def _with_updates(result: dict[str, Any], updates: int) -> dict[str, Any]:
    for side in ("ours", "peer"):
        result[side] |= {"updates": updates}
    return result
