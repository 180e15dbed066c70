"""The numbers of a card: what came out of its finished runs, and what is measured of the file that is shipped."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlseq.checkpoints import read_arrays, read_manifest
from rlseq.curves import EVALUATIONS, curve_of
from rlseq.errors import CorruptFile, RlseqError, UsageError
from rlseq.files import sha256_file
from rlseq.intervals import estimate
from rlseq.player.answering import answer
from rlseq.player.generation_speed import measure_generation, measure_prediction
from rlseq.player.latency import measure_latency
from rlseq.player.sequence import load_sequence
from rlseq.purposes import PURPOSES, TEXTS
from rlseq.resolve import read_options, read_policy_options, read_sequence_options
from rlseq.runs import Run
from rlseq.scores import Metric, metrics_of
from rlseq.seq.tasks.task import Task

SECONDS = ("training_seconds", "scoring_seconds", "export_seconds")
KEPT = ("steps", "updates", "stopped", "best_step", "best_evaluation", *SECONDS)  # of every run's summary
SAMPLE_TOKENS, SAMPLE_SEED = 300, 0


class Kind(NamedTuple):
    """What a card says of one kind of run only.

    Attributes:
        kept: entries of a run's summary, beside `KEPT` and what it is judged by.
        facts: of the run that is shipped, given its summary.
    """

    kept: tuple[str, ...]
    facts: Callable[[Run, Mapping[str, Any]], dict[str, Any]]


def measured(runs: Sequence[Run]) -> dict[str, Any]:
    """Everything that comes out of finished runs, which differ in their seeds alone.

    Raises:
        CorruptFile: a summary lacks something, or an exported file is not the training's.
        UsageError: the runs were trained on different data.
    """
    algorithm, options = read_options(runs[0])
    _check_data(runs)
    there, kind = finished(runs[0]), KINDS[algorithm]
    metrics = [metric for metric in metrics_of(options) if metric.always or metric.key in there]
    score = metrics[0]
    rows = [_run_row(run, (*(metric.key for metric in metrics), *kind.kept, *KEPT)) for run in runs]
    estimates = {metric.key: estimate([row[metric.key] for row in rows])._asdict() for metric in metrics}
    shipped = rows[shipped_index([row[score.key] for row in rows], [row["seed"] for row in rows], score)]
    run = next(run for run in runs if run.name == shipped["run"])
    summary = finished(run)
    if sha256_file(run.exported) != summary["policy"]["sha256"]:
        raise CorruptFile(f"{run.exported} is not the file that its training exported: it was changed. Train it again.")
    return {
        "algorithm": algorithm,
        "score": estimates.pop(score.key),
        "other_scores": estimates,
        "runs": rows,
        "shipped": {
            **{key: shipped[key] for key in ("seed", "run", score.key)},
            **{key: summary["policy"][key] for key in ("checkpoint", "bytes", "sha256")},
            "parameters": _parameters(run),
            "parity": summary["parity"],
        },
        **kind.facts(run, summary),
        "threads": sorted({threads for run in runs for threads in run.env().get("threads", [])}),
        "seconds": {key: _spread([row[key] for row in rows]) for key in SECONDS},
        "curves": [_curve(run, score) for run in runs],
    }


def shipped_index(scores: Sequence[float], seeds: Sequence[int], metric: Metric) -> int:
    """Which run is shipped: the one with the median score (of an even number the worse of the two in the middle); of
    equal ones, that of the lowest seed."""
    from_the_worst = sorted(scores, reverse=metric.better == "lower")
    median = from_the_worst[(len(scores) - 1) // 2]
    return min((k for k, score in enumerate(scores) if score == median), key=lambda k: seeds[k])


def finished(run: Run) -> dict[str, Any]:
    """The summary of a run that must have ended."""
    summary = run.summary()
    if summary is None:
        raise RlseqError(f"{run.path} is not finished.")
    return summary


def _check_data(runs: Sequence[Run]) -> None:
    first, *others = [(run, finished(run).get("data_sha256")) for run in runs]
    for run, sha256 in others:
        if sha256 != first[1]:
            raise UsageError(
                f"{run.path} was trained on other data than {first[0].path}: the data were changed in between. Move "
                "the runs away, and begin again."
            )


def _run_row(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    summary = finished(run)
    missing = [key for key in (*keys, "policy", "parity") if key not in summary]
    if missing:
        raise CorruptFile(f"{run.path / 'summary.json'} lacks {', '.join(missing)}: it was changed. Train it again.")
    return {"seed": read_options(run)[1].run.seed, "run": run.name, **{key: summary[key] for key in keys}}


def _parameters(run: Run) -> int:
    best = run.checkpoint("best")
    return sum(array.size for array in read_arrays(best, read_manifest(best), "model").values())


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def _curve(run: Run, metric: Metric) -> dict[str, list[float]]:
    curve = curve_of(run, metric.curve)
    return {"steps": curve.steps.tolist(), metric.curve.removeprefix(EVALUATIONS): curve.values.tolist()}


def _policy_facts(run: Run, summary: Mapping[str, Any]) -> dict[str, Any]:
    options = read_policy_options(run)
    return {
        "env_id": options.env.id,
        "episodes": options.eval.final_episodes,
        "final_seed": options.eval.final_seed,
        "selection_seed": options.eval.seed,
        "latency": measure_latency(run.exported)._asdict(),
    }


def _sequence_facts(run: Run, summary: Mapping[str, Any]) -> dict[str, Any]:
    options = read_sequence_options(run)
    description = str(summary["data"])
    if options.seq.data is not None:  # whose folder is nobody's business
        description = description.replace(options.seq.data, Path(options.seq.data).name)
    return {
        "task": options.seq.task,
        "model": options.net.core,
        "data": description,
        "data_sha256": summary["data_sha256"],
        "validation": options.seq.validation,
        "context": options.seq.context,
        "tokens": summary["tokens"],
        "selection_metric": metrics_of(options)[0].key if options.eval.metric == "auto" else options.eval.metric,
        "selection_tokens": options.eval.max_tokens,
        **(_written if PURPOSES[options.seq.task] is TEXTS else _predicted)(run, summary),
    }


def _written(run: Run, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a model of text writes, and how fast."""
    from rlseq.pipeline import generate

    text = generate(run.exported, tokens=SAMPLE_TOKENS, seed=SAMPLE_SEED)
    return {
        "generation": measure_generation(run.exported)._asdict(),
        "sample": {key: text[key] for key in ("prompt", "text", "tokens", "temperature", "seed")},
    }


def _predicted(run: Run, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What any other model says to validation data, and how fast."""
    from rlseq.seq.tasks.generated import question_in
    from rlseq.trained_sequence import read_task

    task = read_task(read_sequence_options(run))
    return {
        "context": task.context,
        "prediction": measure_prediction(_prediction(run.exported, task))._asdict(),
        "examples": summary["sample"],
        "question": question_in(summary["sample"]),
    }


def _prediction(path: Path, task: Task) -> Callable[[], object]:
    """What `rlseq predict` does for the first row of a task's validation data."""
    model, batch, start = load_sequence(path), next(iter(task.validation(1))), task.signature.start
    if start is None:
        return lambda: model.whole(batch.inputs, batch.given, batch.source)
    row = batch.inputs if batch.source is None else batch.source
    question_T = row[0] if batch.source is not None else row[0, : int((row[0] == start).argmax())]
    return lambda: answer(model, [question_T])


def pictures_of(run: Run) -> dict[str, bytes]:
    """Pictures of what the best checkpoint says to the validation data, name -> PNG; none of policies and texts."""
    if run.algorithm != "seq" or PURPOSES[read_sequence_options(run).seq.task] is TEXTS:
        return {}
    from rlseq.trained_sequence import open_sequence, score_sequence

    opened = open_sequence(run)
    return score_sequence(opened.net, opened.task, opened.options)[1].pictures


KINDS = {
    "dqn": Kind(("std_return", "min_return", "max_return", "mean_length"), _policy_facts),
    "seq": Kind(("tokens",), _sequence_facts),
}
