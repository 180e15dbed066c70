"""`rlseq bench tasks`: what the sequence tasks come to with the settings that rlseq ships for them, against a goal.

Every measurement is a whole command as it is typed, `rlseq train seq TASK --net NET`, one for each seed, and the score
is the one it prints: of the best checkpoint, over all validation data. Seeds are trained side by side, one thread each
and as many at a time as there are cores, for it is scores that are measured here. The last one learns addition of four
digits, once from fresh weights and once from those of three digits, until 99 % of the answers are right.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from rlseq.bench.command import Ran, run_command
from rlseq.bench.measure import RUNS, Tell, Timing, measurement
from rlseq.errors import RlseqError, UsageError, require

Done = TypeVar("Done")


class Goal(NamedTuple):
    """What a task must come to.

    Attributes:
        name: of the measurement.
        words: what is typed after `rlseq train seq`.
        metric: of the summary.
        value: to be reached.
        better: which values are better.
    """

    name: str
    words: tuple[str, ...]
    metric: str
    value: float
    better: Literal["lower", "higher"] = "higher"

    def ratio(self, score: float) -> float:
        """How many times as good as the goal: 1 or more reaches it."""
        return score / self.value if self.better == "higher" else self.value / score


def _generated(task: str, value: float = 0.99, nets: Sequence[str] = ("gpt", "transformer")) -> list[Goal]:
    return [Goal(f"{task}-{net}", (task, "--net", net), "exact_match", value) for net in nets]


GOALS: tuple[Goal, ...] = (
    *_generated("induction", 1.0),
    *_generated("recall"),
    *_generated("selective-copy"),
    *_generated("copy"),
    *_generated("reverse"),
    *_generated("sort"),
    *_generated("addition"),
    Goal("mackey-glass-one-step", ("mackey-glass", "--net", "lstm"), "nrmse_1", 0.01, "lower"),
    Goal("mackey-glass-ten-steps", ("mackey-glass", "--net", "lstm"), "mase", 0.2, "lower"),
    Goal("waveforms", ("waveforms", "--net", "encoder"), "accuracy", 0.98),
)
GOAL = "the goal"
FRESH = "from fresh weights"
ALONE = ("--threads", "1")
# Until this much is right, looked at often: the updates that it took are what is compared.
REACHED = 0.99
UNTIL = ("--set", f"eval.target={REACHED}", "--set", "eval.every=25", "--steps", "2000")
FOUR_DIGITS = ("addition", "--net", "transformer", "--length", "4", *UNTIL)
THREE_DIGITS = ("addition", "--net", "transformer")
# With half the rate, so that less of what was learnt is lost.
TUNED = ("--from", "three", "--lr", "0.0025")

Part = Callable[[Tell, int], dict[str, dict[str, Any]]]


def parts() -> dict[int, Part]:
    """The measurements by number: those that are of the same command together."""
    commands: dict[tuple[str, ...], list[Goal]] = {}
    for goal in GOALS:
        commands.setdefault(goal.words, []).append(goal)
    of_goals = [lambda tell, repeats, goals=goals: measure_goals(tell, repeats, goals) for goals in commands.values()]
    return dict(enumerate([*of_goals, measure_fine_tuning], 1))


def bench_tasks(tell: Tell, *, repeats: int, part: int | None = None) -> dict[str, Any]:
    """Measure what sequence tasks come to.

    Args:
        tell: takes lines of progress.
        repeats: seeds: repeat k has seed k.
        part: one of the measurements; None: all.

    Returns:
        `measurements` by name, and `options` with the commands.

    Raises:
        UsageError: no such part.
        RlseqError: a command failed.
    """
    for module in ("torch", "tensorboard", "onnx", "onnxscript"):
        require(module, "the benchmark of sequence tasks")
    measures = parts()
    if part is not None and part not in measures:
        raise UsageError(f"--part {part}: bench tasks has the parts 1 to {len(measures)}.")
    measurements: dict[str, dict[str, Any]] = {}
    for number, measure in measures.items():
        if part in (None, number):
            tell(f"part {number} of {len(measures)}")
            measurements |= measure(tell, repeats)
    return {"measurements": measurements, "options": {goal.name: " ".join(goal.words) for goal in GOALS}}


def measure_goals(tell: Tell, repeats: int, goals: Sequence[Goal]) -> dict[str, dict[str, Any]]:
    """Goals that are all of one command."""
    words = goals[0].words

    def train(seed: int) -> Ran:
        ran = run_command((*words, *ALONE), seed)
        scores = ", ".join(f"{goal.metric} {ran.summary[goal.metric]:.4f}" for goal in goals)
        tell(f"rlseq train seq {' '.join(words)} --seed {seed}: {scores}, {ran.seconds:.1f} s")
        return ran

    done = side_by_side(train, repeats)
    return {goal.name: _scored(goal, done) for goal in goals}


def side_by_side(work: Callable[[int], Done], repeats: int) -> list[Done]:
    """What becomes of the seeds from 0 on, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(work, range(repeats)))


def _scored(goal: Goal, done: Sequence[Ran]) -> dict[str, Any]:
    """A goal and what the seeds came to, as data."""
    scores = [float(ran.summary[goal.metric]) for ran in done]
    timings = [Timing(ran.seconds, 1, ran.summary["updates"]) for ran in done]
    what = f"rlseq train seq {' '.join(goal.words)}, one thread"
    result = measurement(what, timings, None, None, RUNS)
    result["ours"] |= {"metric": goal.metric, "score": scores, "updates": max(timing.updates for timing in timings)}
    ratios = [goal.ratio(score) for score in scores]
    mean = goal.ratio(statistics.fmean(scores))
    peer = {"name": GOAL, "metric": goal.metric, "score": [goal.value]}
    return {**result, "peer": peer, "ratio": mean, "ratios": ratios, "spread": [min(ratios), max(ratios)]}


def measure_fine_tuning(tell: Tell, repeats: int) -> dict[str, dict[str, Any]]:
    """Updates until addition of four digits is learnt, from the weights of three digits and from fresh ones."""

    def train(seed: int) -> tuple[Timing, Timing]:
        with tempfile.TemporaryDirectory(prefix="rlseq-bench-") as folder:
            runs = Path(folder)
            run_command((*THREE_DIGITS, *ALONE, "--name", "three"), seed, runs)
            done = []
            for how in (TUNED, ()):
                ran = run_command((*FOUR_DIGITS, *ALONE, *how), seed, runs)
                if ran.summary["exact_match"] < REACHED:
                    raise RlseqError(f"four digits {' '.join(how)} came to {ran.summary['exact_match']:.3f} only.")
                done.append(Timing(ran.seconds, 1, ran.summary["updates"]))
                tell(f"four digits {' '.join(how) or FRESH}, seed {seed}: {ran.summary['updates']} updates")
        return done[0], done[1]

    tuned, fresh = zip(*side_by_side(train, repeats), strict=True)
    what = "fine-tuning addition from three digits to four, to 99 % exact match, in updates"
    result = measurement(what, tuned, fresh, {"name": FRESH}, RUNS)
    ratios = [theirs.updates / ours.updates for ours, theirs in zip(tuned, fresh, strict=True)]
    for side, timings in (("ours", tuned), ("peer", fresh)):
        result[side] |= {"metric": "updates", "score": [float(timing.updates) for timing in timings]}
    return {
        "fine-tuning": {
            **result,
            "ratio": statistics.median(ratios),
            "ratios": ratios,
            "spread": [min(ratios), max(ratios)],
        }
    }
