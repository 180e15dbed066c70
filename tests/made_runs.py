"""Run folders made by hand, with curves and scores of the test's choosing: no training."""

from __future__ import annotations

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
from tests import graphs
from tests.training import merged

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
    log = EventLog(run.path)
    for index, value in enumerate(returns, 1):
        log.scalars({"train/loss": 1 / index}, 100 * index)
        log.scalars({"eval/return_mean": value, "eval/return_std": 0.0}, 100 * index)
    log.close()
    numbers = {
        **{"step": steps, "best": None, "evaluations_without_improvement": 0, "evaluated_at": steps},
        **{"evaluation_pending": False, "stopped": None, "total_steps": 1000, "seconds": 12.5, "events_bytes": 0},
    }
    model = {"w": np.zeros((4, 2)), "b": np.zeros(2)}
    checkpoints.write_checkpoint(run.path / "checkpoints", steps, {"session": numbers}, {"model": model})
    checkpoints.write_checkpoint(run.path / "best", steps, {}, {"model": model})
    if score is not None:
        graphs.save_linear(run.exported, graphs.spec_of("CartPole-v1"), np.eye(4, 2) * (seed + 1))
        policy = {"file": "policy.onnx", "checkpoint": steps, "bytes": run.exported.stat().st_size}
        scores = {"mean_return": score, "std_return": 2.0, "min_return": score - 5, "max_return": score + 5}
        ended = {"steps": steps, "updates": 2 * steps, "stopped": "all steps done", "best_step": steps}
        times = {"training_seconds": 10.0 + seed, "scoring_seconds": 2.0, "export_seconds": 1.0}
        run.write(
            "summary.json",
            {
                "algorithm": "dqn",
                **{"episodes": 100, "seed": 0, "mean_length": score, "best_evaluation": max(returns, default=0.0)},
                **scores,
                **ended,
                **times,
                "policy": {**policy, "sha256": sha256_file(run.exported)},
                "parity": PARITY,
                **(summary or {}),
            },
        )
    return run
