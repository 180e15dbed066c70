"""Options of a sequence training, and the whole tree of one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rlseq.config import RunOptions
from rlseq.engine.config import EngineOptions, OptimOptions
from rlseq.errors import CorruptFile
from rlseq.fields import Options
from rlseq.nets.config import SequenceNetOptions
from rlseq.sequence import SequenceSpec


class SeqRunOptions(RunOptions, frozen=True, kw_only=True):
    """How long to train, and what to keep on disk; a step is an update."""

    steps: Annotated[int, Meta(description="updates to train for", gt=0)] = 300
    horizon: Annotated[
        Annotated[int, Meta(gt=0)] | None,
        Meta(description="updates over which the learning rate runs; none: run.steps"),
    ] = None
    seed: Annotated[int, Meta(description="seed of weights, data order and dropout", ge=0, le=2**53)] = 0
    name: Annotated[str | None, Meta(description="name of the run folder; none: task, model, seed and time")] = None
    log_every: Annotated[int, Meta(description="updates between two points of a curve", gt=0)] = 10
    checkpoint_every: Annotated[int, Meta(description="updates between checkpoints", gt=0)] = 100


class SeqOptions(Options, frozen=True, kw_only=True):
    """What is learnt, and from which data."""

    task: Annotated[
        Literal[
            "text",
            "copy",
            "reverse",
            "sort",
            "addition",
            "selective-copy",
            "induction",
            "recall",
            "classify",
            "waveforms",
            "forecast",
            "mackey-glass",
            "lorenz",
        ],
        Meta(description="what is learnt; rlseq list tasks"),
    ] = "text"
    data: Annotated[
        str | None,
        Meta(
            description="text: a file, or a folder of them; none: the source of Python's standard library. "
            "classify, forecast: a CSV file"
        ),
    ] = None
    pattern: Annotated[str, Meta(description="which files of a folder are read")] = "*"
    unit: Annotated[
        Literal["auto", "char", "byte"],
        Meta(description="what a token is; auto: a character, or a byte if there are more than 256 characters"),
    ] = "auto"
    context: Annotated[
        int, Meta(description="text: tokens of a sequence; forecast: values that are read", ge=2, le=1_000_000)
    ] = 128
    length: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Meta(description="copy to recall: symbols of a question, or digits; waveforms: values; none: the task's own"),
    ] = None
    min_length: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Meta(
            description="the shortest that is trained on; none: all are of one length (waveforms: half of the longest)"
        ),
    ] = None
    symbols: Annotated[
        Annotated[int, Meta(ge=2, le=10_000)] | None,
        Meta(description="copy to recall: different symbols; none: the task's own"),
    ] = None
    pairs: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(description="recall: pairs to remember; selective-copy: symbols to copy; none: the task's own"),
    ] = None
    examples: Annotated[
        int,
        Meta(description="copy to recall: validation questions, of each length; waveforms: series", ge=1, le=1_000_000),
    ] = 1_000
    columns: Annotated[
        tuple[str, ...], Meta(description="classify, forecast: the columns that are read; none: all others")
    ] = ()
    label: Annotated[str | None, Meta(description="classify: the column with the label")] = None
    group: Annotated[
        str | None,
        Meta(description="classify: rows with the same value in this column are one series; none: each row is one"),
    ] = None
    target: Annotated[str | None, Meta(description="forecast: the column that is forecast")] = None
    horizon: Annotated[int, Meta(description="forecast: values ahead", ge=1, le=100_000)] = 10
    buckets: Annotated[
        int,
        Meta(description="copy to recall, classify: lengths that rows are padded to; fewer pad more", ge=1, le=1_000),
    ] = 4
    batch_size: Annotated[int, Meta(description="sequences in one update", ge=1, le=1_000_000)] = 8
    validation: Annotated[
        float, Meta(description="share of the data, its end, that is never trained on", gt=0, lt=1)
    ] = 0.05
    loss: Annotated[
        str,
        Meta(
            description="auto (the task's), cross_entropy, focal, mse, huber, quantile, or package.module:function of "
            "your own; only ever typed by the user"
        ),
    ] = "auto"
    label_smoothing: Annotated[
        float, Meta(description="share of the target spread over all tokens (arXiv 1512.00567)", ge=0, lt=1)
    ] = 0.0
    focal_gamma: Annotated[
        float, Meta(description="focal: how much less counts what is well predicted (arXiv 1708.02002)", ge=0)
    ] = 2.0
    huber_delta: Annotated[
        float, Meta(description="huber: errors above it count linearly, in standard deviations of the target", gt=0)
    ] = 1.0
    quantiles: Annotated[
        tuple[Annotated[float, Meta(gt=0, lt=1)], ...], Meta(description="quantile: which are forecast, rising")
    ] = (0.1, 0.5, 0.9)


# Not of a task itself: where its data are, and how it is learnt.
NOT_OF_THE_TASK = ("task", "data", "batch_size", "label_smoothing", "focal_gamma", "huber_delta")


def task_options(options: SeqOptions) -> dict[str, Any]:
    """The options from which a task can be made again where its data are elsewhere; those that are not the defaults.

    A loss of the user's own is not among them: no file names code.
    """
    defaults = msgspec.to_builtins(SeqOptions())
    return {
        name: value
        for name, value in msgspec.to_builtins(options).items()
        if name not in NOT_OF_THE_TASK and value != defaults[name] and not (name == "loss" and ":" in value)
    }


def options_of(spec: SequenceSpec, where: object, data: str | None = None) -> SeqOptions:
    """The options of a model's task, from its description.

    Args:
        spec: the description.
        where: the file, for messages.
        data: where the task's data are.

    Raises:
        CorruptFile: it describes a task that there is not.
    """
    try:
        return msgspec.convert({**spec.task_options, "task": spec.task, "data": data}, SeqOptions)
    except msgspec.ValidationError as error:
        raise CorruptFile(
            f"{where} describes a task that this rlseq does not know: {spec.task[:80]}, {str(error)[:300]}."
        ) from None


class SeqEvalOptions(Options, frozen=True, kw_only=True):
    """Evaluation during training, and what it decides."""

    every: Annotated[int, Meta(description="updates between evaluations", gt=0)] = 100
    metric: Annotated[
        str, Meta(description="which of the task's metrics chooses the best checkpoint; auto: its first")
    ] = "auto"
    max_tokens: Annotated[
        Annotated[int, Meta(gt=0)] | None,
        Meta(description="targets of an evaluation in training, evenly spread; none: all. The final score is of all"),
    ] = 20_000
    target: Annotated[float | None, Meta(description="stop once the metric reaches this")] = None
    patience: Annotated[
        Annotated[int, Meta(gt=0)] | None, Meta(description="stop after this many evaluations without improvement")
    ] = None
    sample_tokens: Annotated[int, Meta(description="length of the sample that is shown", ge=0, le=100_000)] = 300


class SeqOptimOptions(OptimOptions, frozen=True, kw_only=True):
    """The update step: optimiser, learning rate, clipping, accumulation."""

    name: Annotated[Literal["adam", "adamw", "sgd", "rmsprop", "muon"], Meta(description="optimiser")] = "muon"
    lr: Annotated[float, Meta(description="peak learning rate", gt=0)] = 5e-3
    beta2: Annotated[float, Meta(description="Adam's second decay; rmsprop's smoothing", ge=0, lt=1)] = 0.95
    weight_decay: Annotated[float, Meta(description="weight decay, on matrices only", ge=0)] = 0.0
    schedule: Annotated[
        Literal["constant", "linear", "cosine", "step", "exponential", "one_cycle", "plateau", "wsd"],
        Meta(description="course of the learning rate after the warm-up"),
    ] = "linear"
    clip_norm: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="largest norm of the whole gradient; none: no clipping")
    ] = 1.0


class SeqEngineOptions(EngineOptions, frozen=True, kw_only=True):
    """Where and in which precision the update runs."""

    threads: Annotated[
        int,
        Meta(
            description="CPU threads of torch; 0: as many as there are cores, shared by the processes of a machine",
            ge=0,
            le=1024,
        ),
    ] = 0
    compile: Annotated[
        bool, Meta(description="torch.compile: needs a C++ compiler; takes a while to begin, then may be faster")
    ] = False


class SeqTraining(Options, frozen=True, kw_only=True):
    """Everything that decides a sequence training."""

    run: SeqRunOptions = SeqRunOptions()
    seq: SeqOptions = SeqOptions()
    net: SequenceNetOptions = SequenceNetOptions()
    optim: SeqOptimOptions = SeqOptimOptions()
    engine: SeqEngineOptions = SeqEngineOptions()
    eval: SeqEvalOptions = SeqEvalOptions()
