"""A trained sequence model made ready for use: its task, network, score and export."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np

from rlseq import checkpoints, runs
from rlseq.errors import UsageError, require
from rlseq.locate import Located
from rlseq.player.generate import Stepper
from rlseq.resolve import read_sequence_options
from rlseq.seq.config import SeqTraining
from rlseq.sequence import SequenceSpec
from rlseq.trained import export_record
from rlseq.version import __version__

if TYPE_CHECKING:
    from rlseq.engine.distributed import World
    from rlseq.nets.build import Network
    from rlseq.seq.evaluation import Shows
    from rlseq.seq.tasks.task import Task


TARGETS = "tokens"  # in a summary: the predictions that the score is of


def read_task(options: SeqTraining) -> Task:
    """The task of a training, with its data.

    Raises:
        UsageError: the network is of no kind that the task can be for, or the data are unfit.
    """
    from rlseq.nets.sizes import CORE_KINDS
    from rlseq.seq.tasks.table import TASKS, check_taken

    check_taken(options.seq)
    core, entry = options.net.core, TASKS[options.seq.task]
    kind = next((kind for kind in entry.kinds if kind in CORE_KINDS[core]), None)
    if kind is None:
        fit = [name for name, kinds in CORE_KINDS.items() if set(kinds) & set(entry.kinds)]
        raise UsageError(
            f"net.core = {core} cannot learn the task {options.seq.task} ({entry.about}): take --net {' or '.join(fit)}"
        )
    return entry.make(options.seq, kind)


def load_sequence_network(options: SeqTraining, task: Task, checkpoint: Path) -> Network:
    """The network of a checkpoint, on the CPU.

    Raises:
        CorruptFile: the checkpoint is damaged or of another network.
    """
    from rlseq.engine.weights import load_arrays
    from rlseq.seq.model import build_network

    net = build_network(options, task)
    arrays = checkpoints.read_arrays(checkpoint, checkpoints.read_manifest(checkpoint), "model")
    load_arrays(net, arrays, str(checkpoint))
    return net.eval()


def score_sequence(
    net: Network,
    task: Task,
    options: SeqTraining,
    world: World | None = None,
    told: Callable[[int], None] | None = None,
) -> tuple[dict[str, Any], Shows]:
    """The task's metrics over the whole validation split, and what there is to show; of several processes the first
    one's. `told`: as in `rlseq.seq.evaluation.measure`."""
    from rlseq.engine.device import cpu_settings
    from rlseq.engine.distributed import ALONE
    from rlseq.seq.evaluation import Shows, measure, shown

    world = world or ALONE
    with cpu_settings(options.engine.threads, world.local_size):
        measured = measure(net, task, world=world, told=told)
        assert measured is not None, "nobody asked it to stop"
        shows = shown(net, task, options, measured) if world.first else Shows("", {})
    return {**task.metrics_of(measured.sums, shows.text), TARGETS: int(measured.sums[0])}, shows


def export_sequence_run(
    net: Network,
    task: Task,
    options: SeqTraining,
    run: runs.Run,
    checkpoint: Path,
    score: Mapping[str, Any],
    path: Path,
    opset: int | None = None,
) -> dict[str, Any]:
    """Export with parity; see `rlseq.exporter.sequence.export_sequence`."""
    require("onnx", "exporting")
    require("onnxscript", "exporting")
    from rlseq.exporter.sequence import export_sequence
    from rlseq.seq.model import sequence_spec

    lineage = [*run.lineage(), {"step": "export", "checkpoint": int(checkpoint.name), "rlseq_version": __version__}]
    scores = {key: value for key, value in score.items() if isinstance(value, (int, float))}
    spec: SequenceSpec = msgspec.structs.replace(
        sequence_spec(net, task, options), lineage=tuple(lineage), scores=scores
    )
    return export_sequence(net, spec, path, opset)


class OpenedSequence(NamedTuple):
    """A run of a sequence model made ready for use."""

    run: runs.Run
    options: SeqTraining
    task: Task
    checkpoint: Path
    net: Network


def open_sequence(run: runs.Run, *, checkpoint: str = "best", data: str | None = None) -> OpenedSequence:
    """Network, options and data of a run.

    Args:
        run: of a sequence model.
        checkpoint: "best", "last" or a step.
        data: where its data is now; None: where it was.

    Raises:
        UsageError, CorruptFile, NewerFormat, RlseqError
    """
    require("torch", f"loading the network of a run (its exported {run.exported} needs none: give that instead)")
    from rlseq.seq.train import check_data

    options = read_sequence_options(run)
    if data is not None:
        options = msgspec.structs.replace(options, seq=msgspec.structs.replace(options.seq, data=data))
    where, task = run.checkpoint(checkpoint), read_task(options)
    trained_on = next(
        (step.get("data_sha256") for step in reversed(run.lineage()) if step.get("step") == "train"), None
    )
    check_data(task, trained_on, run.path)
    return OpenedSequence(run, options, task, where, load_sequence_network(options, task, where))


def export_sequence_again(run: runs.Run, checkpoint: str, target: Path, opset: int | None) -> dict[str, Any]:
    """Export a checkpoint of a run; its summary follows if that is the run's own file."""
    opened = open_sequence(run, checkpoint=checkpoint)
    score, _ = score_sequence(opened.net, opened.task, opened.options)
    report = export_sequence_run(opened.net, opened.task, opened.options, run, opened.checkpoint, score, target, opset)
    summary = run.summary()
    if summary is not None and target.resolve() == run.exported.resolve():
        run.write("summary.json", {**summary, **export_record(run, opened.checkpoint, report)})
    return report


class Model(Stepper, Protocol):
    """A sequence model that also reads whole sequences."""

    def whole(
        self, inputs: np.ndarray, given: np.ndarray | None = None, source: np.ndarray | None = None
    ) -> np.ndarray:
        """Outputs `[B, P, N]` float32; the arguments are those of `rlseq.seq.batch.TokenBatch`."""


def opened_model(found: Located, checkpoint: str | None) -> Model:
    """A model to be used: of a run its .onnx file, without torch, or the network of a checkpoint.

    Raises:
        UsageError: a policy, or a checkpoint of what is no run.
    """
    if checkpoint is None:
        from rlseq.player.sequence import load_sequence

        if found.run is not None:
            read_sequence_options(found.run)  # refuses a policy's run
        return load_sequence(found.policy_file())
    if found.run is None:
        raise UsageError(f"--checkpoint {checkpoint}: {found.name} is one exported model; only a run has checkpoints.")
    from rlseq.nets.stepper import TorchSequence
    from rlseq.seq.model import sequence_spec

    opened = open_sequence(found.run, checkpoint=checkpoint)
    return TorchSequence(opened.net, sequence_spec(opened.net, opened.task, opened.options))
