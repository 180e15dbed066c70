"""What many processes cost and gain: one under torchrun against none, two cores against one."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from rlseq.bench.ddp_processes import Workers, allowed_cores
from rlseq.bench.measure import Side, Tell, Timing, alternate, measurement
from rlseq.bench.seq_training import Shape
from rlseq.errors import UsageError

PAIRS = 4  # short runs of each side in a repeat: what is looked for is a few percent, and the machine's speed drifts
WIDE = Shape(6, 6, 384, 8, 128, 4)
TORCHRUN_SHAPES = {"torchrun-128": Shape(4, 4, 128, 16, 64, 20), "torchrun-384": WIDE}
CORES_SHAPE = WIDE._replace(batch_size=16, updates=5)
WARM_UP_UPDATES = 2
FREE = "one process without torchrun"
PINNED = "one process on one core"


def measure_torchrun(tell: Tell, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
    """One process under torchrun against one without: the loop, in tokens per second.

    Args:
        tell: takes lines of progress.
        repeats: `PAIRS` pairs of runs each.
        data: the text.
    """
    results = {}
    with Workers("rlseq", 1) as under, Workers(FREE, None) as free:
        for name, shape in TORCHRUN_SHAPES.items():
            sides = {side.name: _side(side, data, shape, {}) for side in (under, free)}
            _warm_up(tell, [under, free], data, shape, {})
            timings = alternate(sides, repeats * PAIRS, tell, "tokens")
            what = f"one process under torchrun, {_text(shape)}; {repeats * PAIRS} pairs in turn"
            result = measurement(what, timings["rlseq"], timings[FREE], {"name": FREE}, "tokens")
            results[name] = {**result, "overhead": statistics.median(1 / ratio for ratio in result["ratios"]) - 1}
    return results


def measure_cores(tell: Tell, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
    """Two processes on two cores, one thread each, against one process with one thread that may use one core only.

    Raises:
        UsageError: there are no two cores, or this system does not say.
    """
    cores = allowed_cores()[:2]
    if len(cores) < 2:
        raise UsageError("--part 3 compares two cores with one, and this process may use a single one.")
    values = {"engine": {"threads": 1}}
    with Workers("rlseq", 2, cores) as two, Workers(PINNED, None, cores[:1]) as one:
        _warm_up(tell, [two, one], data, CORES_SHAPE, values)
        sides = {side.name: _side(side, data, CORES_SHAPE, values) for side in (two, one)}
        timings = alternate(sides, repeats, tell, "tokens")
    what = f"two processes on two cores against one on one, {_text(CORES_SHAPE)}"
    return {"cores": measurement(what, timings["rlseq"], timings[PINNED], {"name": PINNED}, "tokens")}


def _warm_up(tell: Tell, workers: list[Workers], data: Path, shape: Shape, values: dict[str, Any]) -> None:
    tell(f"warm-up: {WARM_UP_UPDATES} updates of each")
    for side in workers:
        _side(side, data, shape._replace(updates=WARM_UP_UPDATES), values)(0)


def _side(workers: Workers, data: Path, shape: Shape, values: dict[str, Any]) -> Side:
    def side(seed: int) -> Timing:
        request = {"do": "time_seq", "data": str(data), "shape": list(shape), "values": values, "seed": seed}
        answer = workers.ask(request)
        return Timing(answer["seconds"], answer["tokens"], answer["updates"])

    return side


def _text(shape: Shape) -> str:
    return (
        f"a gpt, {shape.layers} layers, {shape.width} wide, {shape.batch_size} x {shape.context} tokens an update, "
        "float32"
    )
