"""How `rlseq train` trains: once or once for each seed, in this process or in several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlseq.cli import worker
from rlseq.cli.launch import Launch, run
from rlseq.cli.output import Output
from rlseq.cli.summary import show_run, show_series
from rlseq.errors import RlseqError, UsageError

if TYPE_CHECKING:
    from rlseq.pipeline import TrainingResult


def parse_seeds(text: str, seed: int | None, resume: str | None) -> range:
    """`0:5` as range(0, 5).

    Raises:
        UsageError: it is no such range, or does not go with what else was typed.
    """
    if seed is not None:
        raise UsageError(f"--seeds {text} and --seed {seed}: give one of them.")
    if resume is not None:
        raise UsageError(f"--seeds {text} begins new runs, --resume {resume} goes on with one: give one of them.")
    first, colon, end = text.partition(":")
    if not colon or not first.isdecimal() or not end.isdecimal() or int(first[:20]) >= int(end[:20]):
        raise UsageError(f"--seeds {text}: write A:B for the seeds A to B-1, with A < B; --seeds 0:5 is 0, 1, 2, 3, 4.")
    seeds = range(int(first[:20]), int(end[:20]))
    if seeds.stop > 2**53 or len(seeds) > 10_000:
        raise UsageError(f"--seeds {text[:40]}: at most 10000 seeds, none above {2**53}.")
    return seeds


def parse_multipliers(words: Sequence[str] | None) -> dict[str, float] | None:
    """`["core.*=0.1"]` as {"core.*": 0.1}, in the order typed; None if nothing was.

    Raises:
        UsageError: a word is no glob with a number.
    """
    found: dict[str, float] = {}
    for word in words or ():
        glob, _, factor = word.rpartition("=")
        try:
            found.pop(glob, None)  # the last one given counts, so it stands last
            found[glob] = float(factor)
        except ValueError:
            glob = ""
        if not glob:
            raise UsageError(f"--lr-multiplier {word!r}: write GLOB=X, for example --lr-multiplier 'core.*=0.1'")
    return found or None


def _train_once(out: Output, algorithm: str, arguments: Mapping[str, Any], start: Launch | None) -> TrainingResult:
    from rlseq.cli.progress import progress

    if start is not None:
        from rlseq.pipeline import TrainingResult

        summary = run(start)
        return TrainingResult(Path(summary["run"]), summary)
    with out.working(), progress(out) as callback:
        from rlseq.pipeline import train

        return train(algorithm, callbacks=[callback, *worker.callbacks()], source="command line", **arguments)


def train_one(out: Output, algorithm: str, arguments: Mapping[str, Any], processes: Launch | None) -> None:
    """One run, which is shown."""
    result = _train_once(out, algorithm, arguments, processes)
    if not worker.hand_over({"summary": result.summary}) and worker.rank() == 0:
        show_run(out, algorithm, result)


def train_several(
    out: Output,
    algorithm: str,
    arguments: Mapping[str, Any],
    seeds: range,
    name: str | None,
    processes: Launch | None,
) -> None:
    """One run after the other; what is done stays, whatever happens to the next."""
    done: list[TrainingResult] = []
    for number_of, seed in enumerate(seeds, 1):
        out.note(f"\nSeed {seed} (run {number_of} of {len(seeds)})")
        try:
            run_name = None if name is None else f"{name}-s{seed}"
            start = None if processes is None else processes.of_seed(seed, run_name)
            done.append(_train_once(out, algorithm, {**arguments, "seed": seed, "name": run_name}, start))
        except RlseqError:
            if done:
                out.note(f"\nFinished before that: {', '.join(str(result.run) for result in done)}\n")
            raise
    if worker.rank() == 0:
        show_series(out, algorithm, seeds, done)
