"""Options of a sequence training, and the whole tree of one."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rlseq.config import RunOptions
from rlseq.engine.config import EngineOptions, OptimOptions
from rlseq.fields import Options
from rlseq.nets.config import SequenceNetOptions


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

    task: Annotated[Literal["text"], Meta(description="kind of task")] = "text"
    data: Annotated[
        str | None,
        Meta(description="a text file, or a folder of them; none: the source of Python's standard library"),
    ] = None
    pattern: Annotated[str, Meta(description="which files of a folder are read")] = "*"
    unit: Annotated[
        Literal["auto", "char", "byte"],
        Meta(description="what a token is; auto: a character, or a byte if there are more than 256 characters"),
    ] = "auto"
    context: Annotated[int, Meta(description="tokens of a sequence", ge=2, le=1_000_000)] = 128
    batch_size: Annotated[int, Meta(description="sequences in one update", ge=1, le=1_000_000)] = 8
    validation: Annotated[
        float, Meta(description="share of the data, its end, that is never trained on", gt=0, lt=1)
    ] = 0.05
    loss: Annotated[
        str, Meta(description="cross_entropy, or package.module:function of your own; only ever typed by the user")
    ] = "cross_entropy"
    label_smoothing: Annotated[
        float, Meta(description="share of the target spread over all tokens (arXiv 1512.00567)", ge=0, lt=1)
    ] = 0.0


class SeqEvalOptions(Options, frozen=True, kw_only=True):
    """Evaluation during training, and what it decides."""

    every: Annotated[int, Meta(description="updates between evaluations", gt=0)] = 100
    metric: Annotated[
        str, Meta(description="which of the task's metrics chooses the best checkpoint; text: loss, word_share")
    ] = "loss"
    max_tokens: Annotated[
        Annotated[int, Meta(gt=0)] | None,
        Meta(description="tokens of an evaluation in training, evenly spread; none: all. The final score is of all"),
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
