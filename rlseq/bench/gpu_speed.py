"""Both trainers on a GPU, timed: DQN in CUDA graphs and without them, sequence models in every precision.

A trainer is made once for each side and goes on from repeat to repeat, so that recording and compiling are not timed.
Before the clock is read the GPU has finished.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlseq.bench import dqn, seq_training
from rlseq.bench.gpu_equal import Until
from rlseq.bench.loop import wait
from rlseq.bench.measure import Side, Tell, Timing, alternate, measurement
from rlseq.bench.seq_training import Shape, shape_text

if TYPE_CHECKING:
    from rlseq.seq.train import SeqTrainer

KERNELS = "rlseq, one kernel after the other"
ON_CPU = "rlseq on the CPU, one thread"
FLOAT32 = "rlseq in float32, in CUDA graphs"
STEPS = 10_240  # of the environment, in a repeat
WARM_UP_STEPS = 2_048  # the first updates come after 1,000
# The work of `rlseq bench dqn`, and one for which a GPU is made; that one is not repeated on the CPU.
DQN_WORKS: dict[str, dict[str, Any]] = {
    "dqn": {},
    "dqn-wide": {
        "env": {"num_envs": 16},
        "net": {"hidden": (1024, 1024)},
        "replay": {"batch_size": 1024},
        "dqn": {"updates_per_train": 32},
    },
}
FOR_A_CPU = ("dqn",)
WARM_UP_UPDATES = 5
LONG = 1_000_000  # steps or updates: no schedule comes to its end
SEQ_SHAPES = {"gpt-384": Shape(6, 6, 384, 64, 256, 20), "gpt-768": Shape(12, 12, 768, 16, 1024, 10)}


class Way(NamedTuple):
    """How a sequence model is trained: `engine.amp`, `engine.compile` and `engine.graphs`."""

    amp: str
    compile: bool
    graphs: bool = True

    @property
    def name(self) -> str:
        """In a measurement's name."""
        amp = "float32" if self.amp == "off" else self.amp
        return amp + "-compiled" * self.compile + "-kernels" * (not self.graphs)


PLAIN = Way("off", False)
WAYS = {
    "gpt-384": [
        *(Way(amp, compiled) for compiled in (False, True) for amp in ("off", "bf16", "fp16")),
        Way("bf16", False, graphs=False),
    ],
    "gpt-768": [PLAIN, Way("bf16", False), Way("bf16", True)],
}


# Part 2


class _DqnSide:
    """A trainer that goes on by `STEPS` at every call."""

    def __init__(self, values: Mapping[str, Any], device: str, graphs: bool) -> None:
        from rlseq.config import merge_into

        # The environment is acted in at random for the warm-up only.
        tree: dict[str, Any] = {
            "engine": {"device": device, "graphs": graphs},
            "dqn": {"exploration_fraction": WARM_UP_STEPS / LONG},
        }
        merge_into(tree, values)
        self._device = device
        self._trainer = dqn.job_for(LONG, 0, tree).trainer()
        self._step = 0
        self._advance(WARM_UP_STEPS)

    def __call__(self, seed: int) -> Timing:
        before = self._trainer.updates
        started = time.perf_counter()
        self._advance(STEPS)
        return Timing(time.perf_counter() - started, STEPS, self._trainer.updates - before)

    def _advance(self, steps: int) -> None:
        self._trainer.loop(Until(self._step, self._step + steps))  # type: ignore[arg-type]
        self._trainer.read()
        wait(self._device)
        self._step += steps

    def close(self) -> None:
        self._trainer.close()


def measure_dqn(tell: Tell, repeats: int, data: Path, device: str) -> dict[str, dict[str, Any]]:
    """Environment steps and updates per second.

    Args:
        tell: takes lines of progress.
        repeats: how often each side runs; each goes on with its training.
        data: not used.
        device: what is measured.
    """
    from rlseq.engine.device import cpu_settings

    rows: dict[str, dict[str, Any]] = {}
    for name, values in DQN_WORKS.items():
        tell(f"{name}, warm-up: {WARM_UP_STEPS} steps of each")
        with cpu_settings(1):
            made = {"rlseq": _DqnSide(values, device, True), KERNELS: _DqnSide(values, device, False)}
            if name in FOR_A_CPU:
                made[ON_CPU] = _DqnSide(values, "cpu", False)
            try:
                timings = alternate(dict(made), repeats, tell)
            finally:
                for side in made.values():
                    side.close()
        for number, other in enumerate(list(made)[1:]):
            ours, theirs = timings["rlseq"], timings[other]
            rates = [f"{sum(t.updates for t in ts) / sum(t.seconds for t in ts):,.0f}" for ts in (ours, theirs)]
            what = f"{_dqn_text(values)}: {rates[0]} updates/s against {rates[1]}"
            row = measurement(what, ours, theirs, {"name": other})
            row["ours"] |= {"updates": ours[0].updates}
            row["peer"] |= {"updates": theirs[0].updates}
            rows[f"{name}-{('graphs', 'cpu')[number]}"] = row
    return rows


def _dqn_text(values: Mapping[str, Any]) -> str:
    def option(group: str, key: str) -> Any:
        return values.get(group, {}).get(key, dqn.WORK[group][key])

    hidden = "-".join(map(str, option("net", "hidden")))
    envs, batch = option("env", "num_envs"), option("replay", "batch_size")
    return f"DQN on {dqn.ENV_ID} on a GPU, network {hidden}, {envs} environment{'s' * (envs > 1)}, batch {batch}"


# Part 3


class _SeqSide:
    """A trainer that goes on by its shape's updates at every call.

    Attributes:
        trainer: the trainer.
        memory: bytes of the GPU that weights, gradients, moments and an update take; None on a CPU.
    """

    def __init__(self, data: Path, shape: Shape, way: Way, device: str) -> None:
        self._shape, self._device = shape, device
        before = _allocated(device, reset=True)
        engine = {"device": device, "amp": way.amp, "compile": way.compile, "graphs": way.graphs}
        job = seq_training.job_for(data, shape._replace(updates=LONG), {"engine": engine})
        self.trainer: SeqTrainer = job.trainer()
        self._step = 0
        self._advance(WARM_UP_UPDATES)
        peak = _allocated(device, peak=True)
        self.memory = None if before is None or peak is None else peak - before

    def __call__(self, seed: int) -> Timing:
        shape = self._shape
        started = time.perf_counter()
        self._advance(shape.updates)
        seconds = time.perf_counter() - started
        return Timing(seconds, shape.updates * shape.batch_size * shape.context, shape.updates)

    def _advance(self, updates: int) -> None:
        self.trainer.loop(Until(self._step, self._step + updates))  # type: ignore[arg-type]
        self.trainer.curves()  # a loss that is no number would end it here
        wait(self._device)
        self._step += updates


def _allocated(device: str, *, reset: bool = False, peak: bool = False) -> int | None:
    if device != "cuda":
        return None
    import torch

    if reset:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()


def measure_seq(tell: Tell, repeats: int, data: Path, device: str) -> dict[str, dict[str, Any]]:
    """Tokens per second.

    Args:
        tell: takes lines of progress.
        repeats: how often each side runs; each goes on with its training.
        data: the text.
        device: what is measured.
    """
    rows: dict[str, dict[str, Any]] = {}
    for name, shape in SEQ_SHAPES.items():
        made: dict[str, _SeqSide] = {}
        for way in WAYS[name]:
            tell(f"{name}, {way.name}, warm-up: {WARM_UP_UPDATES} updates")
            made[way.name] = _SeqSide(data, shape, way, device)
        sides: dict[str, Side] = dict(made)
        timings = alternate(sides, repeats, tell, "tokens")
        plain = timings[PLAIN.name]
        for way_name, ours in timings.items():
            use = _use(made[way_name], ours, device)
            tell(f"{name}, {way_name}: {use}")
            if way_name == PLAIN.name:
                continue
            what = f"a gpt on a GPU, {shape_text(shape)}, {way_name}: {use}"
            row = measurement(what, ours, plain, {"name": FLOAT32}, "tokens")
            for side in ("ours", "peer"):
                row[side] |= {"updates": shape.updates}
            rows[f"{name}-{way_name}"] = row
    return rows


def _use(side: _SeqSide, timings: list[Timing], device: str) -> str:
    """Share of the GPU's arithmetic that the model used (half precision only), and the memory that it took."""
    rate = sorted(timing.rate for timing in timings)[len(timings) // 2]
    found = [f"{rate:,.0f} tokens/s"]
    share = utilisation(side.trainer, rate, device)
    if share is not None:
        found.append(f"MFU {100 * share:.1f} %")
    if side.memory is not None:
        found.append(f"{side.memory / 2**30:.1f} GiB")
    return ", ".join(found)


def utilisation(trainer: SeqTrainer, tokens_per_second: float, device: str) -> float | None:
    """Model FLOPs utilisation; None in float32, on a CPU, or on a GPU whose peak is not known."""
    if device != "cuda" or trainer.precision.dtype is None:
        return None
    import torch

    from rlseq.seq.flops import peak_flops, training_flops

    peak, o = peak_flops(torch.cuda.get_device_name()), trainer.options
    return None if peak is None else tokens_per_second * training_flops(o.net, trainer.net, o.seq.context) / peak
