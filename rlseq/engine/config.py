"""Options of the optimiser and of the machine."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rlseq.fields import Options


class OptimOptions(Options, frozen=True, kw_only=True):
    """The update step: optimiser, learning rate, clipping, accumulation."""

    name: Annotated[Literal["adam", "adamw", "sgd", "rmsprop", "muon"], Meta(description="optimiser")] = "adam"
    lr: Annotated[float, Meta(description="peak learning rate", gt=0)] = 5e-4
    beta1: Annotated[float, Meta(description="Adam's first decay; momentum of sgd and rmsprop", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Meta(description="Adam's second decay; rmsprop's smoothing", ge=0, lt=1)] = 0.999
    eps: Annotated[float, Meta(description="added to the denominator by adam and rmsprop", gt=0)] = 1e-8
    weight_decay: Annotated[float, Meta(description="weight decay, on matrices only", ge=0)] = 0.0
    muon_momentum: Annotated[float, Meta(description="muon: decay of the momentum (arXiv 2502.16982)", ge=0, lt=1)] = (
        0.95
    )
    adam_lr: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="muon: peak rate of adamw, which moves all but the hidden matrices; none: optim.lr"),
    ] = None
    ema: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        Meta(description="decay of an average of the weights, evaluated and exported in their stead; none: no average"),
    ] = None
    schedule: Annotated[
        Literal["constant", "linear", "cosine", "step", "exponential", "one_cycle", "plateau", "wsd"],
        Meta(description="course of the learning rate after the warm-up"),
    ] = "constant"
    warmup_updates: Annotated[int, Meta(description="updates over which the rate rises linearly to its peak", ge=0)] = 0
    final_factor: Annotated[
        float,
        Meta(
            description="rate at the end, as a factor of the peak: linear, cosine, exponential, one_cycle, wsd; "
            "plateau falls no lower",
            gt=0,
            le=1,
        ),
    ] = 0.01
    step_updates: Annotated[int, Meta(description="step schedule: updates between two drops", gt=0)] = 10_000
    step_factor: Annotated[float, Meta(description="step and plateau schedule: factor of a drop", gt=0, le=1)] = 0.5
    start_factor: Annotated[
        float, Meta(description="one_cycle: rate at the start, as a factor of the peak", gt=0, le=1)
    ] = 0.04
    rise_fraction: Annotated[
        float, Meta(description="one_cycle: share of the updates in which the rate rises", gt=0, lt=1)
    ] = 0.3
    decay_fraction: Annotated[
        float, Meta(description="wsd: share of the updates, at the end, in which the rate falls", gt=0, le=1)
    ] = 0.2
    plateau_patience: Annotated[
        int, Meta(description="plateau: evaluations in a row without improvement that bring a drop", ge=1)
    ] = 3
    clip_norm: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="largest norm of the whole gradient; none: no clipping")
    ] = 10.0
    clip_value: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="largest absolute gradient of one weight; none: no clipping"),
    ] = None
    accumulate: Annotated[
        int,
        Meta(description="parts into which a batch is cut to save memory; the update stays the same", ge=1, le=65_536),
    ] = 1
    freeze: Annotated[
        tuple[str, ...],
        Meta(description="parameters that are not trained, by name; * and ? as in a shell: core.blocks.0.*"),
    ] = ()
    lr_multipliers: Annotated[
        dict[str, float],
        Meta(description="factor of the learning rate by name, as in optim.freeze; the last one that matches counts"),
    ] = {}  # noqa: RUF012

    def __post_init__(self) -> None:
        for glob, factor in self.lr_multipliers.items():
            if not factor > 0:
                wish = f"to keep weights as they are, freeze them: --freeze '{glob}'" if factor == 0 else "give one > 0"
                raise ValueError(f"optim.lr_multipliers: {glob} = {factor:g} is no factor of a learning rate; {wish}.")
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError(
                f"optim.clip_norm = {self.clip_norm} and optim.clip_value = {self.clip_value} exclude each other: "
                "set one of them to none."
            )
        if self.adam_lr is not None and self.name != "muon":
            raise ValueError(
                f"optim.adam_lr = {self.adam_lr} is of muon's helper, and optim.name = {self.name}: set optim.lr, and "
                "optim.adam_lr to none."
            )
        if self.schedule == "one_cycle" and self.warmup_updates:
            raise ValueError(
                f"optim.warmup_updates = {self.warmup_updates} and optim.schedule = one_cycle exclude each other: it "
                "has a rise of its own (optim.rise_fraction). Set optim.warmup_updates to 0."
            )


class EngineOptions(Options, frozen=True, kw_only=True):
    """Where and in which precision the update runs."""

    device: Annotated[Literal["auto", "cpu", "cuda"], Meta(description="auto: cuda where there is one, else cpu")] = (
        "auto"
    )
    amp: Annotated[
        Literal["off", "auto", "bf16", "fp16"],
        Meta(description="mixed precision; auto: bf16 where the hardware has it, else fp16 with a loss scaler on cuda"),
    ] = "off"
    gradients: Annotated[
        Literal["auto", "autograd"],
        Meta(
            description="where gradients come from; auto: a closed form for a plain MLP in float32 on a CPU (the same "
            "bit for bit), else autograd"
        ),
    ] = "auto"
    threads: Annotated[
        int, Meta(description="CPU threads of torch; small networks are fastest with one", ge=1, le=1024)
    ] = 1
    graphs: Annotated[
        bool, Meta(description="cuda: record an update as CUDA graphs, which start all its kernels at once")
    ] = True
    backend: Annotated[
        Literal["auto", "gloo", "nccl"],
        Meta(description="what gradients go over between processes; auto: nccl on cuda, gloo on a CPU"),
    ] = "auto"
    wait_seconds: Annotated[
        float, Meta(description="how long a process waits for the others before it gives up, in seconds", gt=0, le=1e6)
    ] = 600.0
