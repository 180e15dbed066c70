"""Run folders made by hand, with curves and scores of the test's choosing: no training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from rlseq import checkpoints, runs
from rlseq.config import Layer, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.engine.metrics import EventLog
from rlseq.files import sha256_file
from rlseq.machine import describe_machine
from rlseq.scores import best_of, metrics_of
from rlseq.seq.config import SeqTraining
from tests import graphs, sequence_graphs
from tests.training import merged

SEQUENCE_PARITY = {
    **{"batch_sizes": [1, 3], "lengths": [1, 5], "stepwise_tokens": 30, "max_error": 2.5e-7},
    **{"greedy_tokens": 64, "greedy_tokens_equal": 63, "seed": 0},
}
PARITY = {"max_error": 1.25e-6, "observations": 1500, "episodes": 20, "episodes_with_equal_return": 20}
LINEAGE = {"step": "train", "algorithm": "dqn", "env_id": "CartPole-v1"}


def made_run(
    name: str,
    returns: Sequence[float],
    *,
    seed: int = 0,
    score: float | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    recipe: str | None = None,
    origin: Sequence[Mapping[str, Any]] = (),
    summary: Mapping[str, Any] | None = None,
) -> runs.Run:
    """A run that was evaluated every 100 steps.

    Args:
        returns: of the evaluations at step 100, 200, ...
        score: the final one; None for an unfinished run.
        options: laid over the defaults.
        origin: lineage before its own training.
        summary: laid over `summary.json`.
    """
    run = runs.create_run(name, "")
    steps = 100 * len(returns)
    given = merged({"env": {"id": "CartPole-v1"}, "run": {"name": name, "seed": seed}}, options or {})
    resolved = resolve(DqnTraining, Layer("test", given))
    run.write("env.json", describe_machine())
    run.write("lineage.json", {"steps": [*origin, {**LINEAGE, "run": name, "seed": seed}]})
    run.write("config.json", {"algorithm": "dqn", "recipe": recipe, "options": msgspec.to_builtins(resolved)})
    _progress(run, [{"eval/return_mean": value, "eval/return_std": 0.0} for value in returns])
    if score is not None:
        graphs.save_linear(run.exported, graphs.spec_of("CartPole-v1"), np.eye(4, 2) * (seed + 1))
        scores = {"mean_return": score, "std_return": 2.0, "min_return": score - 5, "max_return": score + 5}
        scores |= {"episodes": 100, "seed": 0, "mean_length": score, "best_evaluation": max(returns, default=0.0)}
        run.write(
            "summary.json",
            {"algorithm": "dqn", **scores, **_ending(run, steps, 2 * steps, seed), "parity": PARITY, **(summary or {})},
        )
    return run


def made_sequence_run(
    name: str,
    losses: Sequence[float],
    *,
    seed: int = 0,
    score: float | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    recipe: str | None = None,
    data_sha256: str = "d" * 64,
    summary: Mapping[str, Any] | None = None,
    points: Sequence[Mapping[str, float]] | None = None,
) -> runs.Run:
    """A run of a sequence model that was evaluated every 100 updates; its file is that of `tests.sequence_graphs`.

    Args:
        losses: of the evaluations at update 100, 200, ...
        score: the final loss, on 1000 tokens; None for an unfinished run.
        data_sha256: of its data.
        options, recipe, summary: as in `made_run`.
        points: of the curves at each evaluation; None: those of a text with these losses.
    """
    run = runs.create_run(name, "")
    updates = 100 * len(losses)
    resolved = resolve(SeqTraining, Layer("test", merged({"run": {"name": name, "seed": seed}}, options or {})))
    run.write("env.json", describe_machine())
    step = {"step": "train", "algorithm": "seq", "task": "text", "data_sha256": data_sha256, "run": name, "seed": seed}
    run.write("lineage.json", {"steps": [step]})
    run.write("config.json", {"algorithm": "seq", "recipe": recipe, "options": msgspec.to_builtins(resolved)})
    _progress(run, [_text_curves(loss) for loss in losses] if points is None else points)
    if score is not None:
        sequence_graphs.save_counting(run.exported, sequence_graphs.counting_model(bias=float(seed)))
        scores = {"loss": score, "bits_per_token": score / math.log(2), "perplexity": math.exp(score), "tokens": 1000}
        data = {"data": f"{resolved.seq.data or 'the library'} (9000 characters)", "data_sha256": data_sha256}
        best = {"best_evaluation": min(losses, default=0.0)}
        ended = _ending(run, updates, updates, seed)
        run.write(
            "summary.json",
            {"algorithm": "seq", **scores, **data, **best, **ended, "parity": SEQUENCE_PARITY, **(summary or {})},
        )
    return run


def made_task_run(
    name: str,
    task: str,
    values: Sequence[float],
    *,
    seed: int = 0,
    score: float | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    data_sha256: str = "d" * 64,
    summary: Mapping[str, Any] | None = None,
) -> runs.Run:
    """A run of any sequence task, that was evaluated every 100 updates.

    Args:
        task: its name.
        values: its score at update 100, 200, ...
        score: the final one, on 1000 targets; None for an unfinished run. All other metrics are 0.5.
        data_sha256, options, summary: as in `made_sequence_run`.
    """
    changed = merged({"seq": {"task": task}}, options or {})
    metrics = metrics_of(resolve(SeqTraining, Layer("test", changed)))
    scores = {metric.key: 0.5 for metric in metrics} | {metrics[0].key: score}
    best = best_of(list(values), metrics[0])
    told = {"task": task, **scores, "sample": "a=b", "best_evaluation": best, **(summary or {})}
    points = [{metric.curve: 0.5 for metric in metrics} | {metrics[0].curve: value} for value in values]
    return made_sequence_run(
        name,
        values,
        seed=seed,
        score=score,
        options=changed,
        data_sha256=data_sha256,
        summary=told,
        points=points,
    )


def _text_curves(loss: float) -> dict[str, float]:
    return {"eval/loss": loss, "eval/bits_per_token": loss / math.log(2), "eval/perplexity": math.exp(loss)}


def _progress(run: runs.Run, evaluations: Sequence[Mapping[str, float]]) -> None:
    """Curves and checkpoints."""
    log, steps = EventLog(run.path), 100 * len(evaluations)
    for index, points in enumerate(evaluations, 1):
        log.scalars({"train/loss": 1 / index}, 100 * index)
        log.scalars(points, 100 * index)
    log.close()
    numbers = {
        **{"step": steps, "best": None, "evaluations_without_improvement": 0, "evaluated_at": steps},
        **{"evaluation_pending": False, "stopped": None, "total_steps": 1000, "seconds": 12.5, "events_bytes": 0},
    }
    model = {"w": np.zeros((4, 2)), "b": np.zeros(2)}
    checkpoints.write_checkpoint(run.path / "checkpoints", steps, {"session": numbers}, {"model": model})
    checkpoints.write_checkpoint(run.path / "best", steps, {}, {"model": model})


def _ending(run: runs.Run, steps: int, updates: int, seed: int) -> dict[str, Any]:
    """What the summary of every finished run says."""
    file = {"file": run.exported.name, "checkpoint": steps, "bytes": run.exported.stat().st_size}
    return {
        **{"steps": steps, "updates": updates, "stopped": "all steps done", "best_step": steps},
        **{"training_seconds": 10.0 + seed, "scoring_seconds": 2.0, "export_seconds": 1.0},
        "policy": {**file, "sha256": sha256_file(run.exported)},
    }
