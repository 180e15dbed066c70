"""A sequence model by itself: built for a task, measured on its validation data, made to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from rlseq.envs.seeding import WEIGHTS, derived_seed
from rlseq.errors import CompileFailed
from rlseq.memory import check_memory
from rlseq.nets.build import Network, sequence_network
from rlseq.nets.network import NetInput, seeded
from rlseq.nets.sizes import training_bytes
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqTraining, task_options
from rlseq.seq.tasks.task import Task
from rlseq.sequence import SequenceSpec, Signature
from rlseq.version import __version__


def build_network(options: SeqTraining, task: Task) -> Network:
    """The network of a run, with the initial weights of its seed, on the CPU."""
    signature = task.signature
    size = training_bytes(options.net, signature, task.context, options.seq.batch_size // options.optim.accumulate or 1)
    check_memory(size, "training this network", "make net.size, seq.batch_size or the sequences smaller")
    return cast(
        Network,
        seeded(derived_seed(WEIGHTS, options.run.seed), lambda: sequence_network(signature, options.net, task.context)),
    )


def sequence_spec(net: Network, task: Task, options: SeqTraining) -> SequenceSpec:
    """What the model says of itself, before it is scored."""
    return SequenceSpec(
        rlseq_version=__version__,
        task=task.name,
        task_options=task_options(options.seq),
        model=options.net.core,
        signature=task.signature,
        context=task.context,
        window=net.window,
        one_pass=net.one_pass,
        state=net.state_leaves,
    )


def compiled(net: nn.Module) -> Callable[..., Any]:
    """The network under `torch.compile`, which begins to work, or fails, with the first call.

    Raises:
        CompileFailed: when called: it cannot be compiled here.
    """
    from torch._dynamo.exc import TorchDynamoException

    inner = torch.compile(net)

    def forward(*arguments: Any) -> Any:
        try:
            return inner(*arguments)
        except TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0].removesuffix(".")
            raise CompileFailed(
                f"engine.compile = true: torch.compile failed here: {reason}. On a CPU it needs a C++ compiler: "
                "install g++ or let CXX name one; or leave it out: --set engine.compile=false"
            ) from None

    return forward


def recordable(options: SeqTraining, task: Task) -> bool:
    """Whether a network's gradients can be recorded as a CUDA graph.

    Not what is compiled, which has its own ways; nor the library that computes LSTM and GRU, a checkpoint's second
    forward pass, a loss of the user's, which may look at the state of random streams or at values, or batches of many
    shapes.
    """
    return (
        options.net.core == "gpt"
        and task.static
        and not options.net.checkpoint_activations
        and not options.engine.compile
        and ":" not in options.seq.loss
    )


def net_input(batch: TokenBatch[Tensor]) -> NetInput:
    """A batch as a network takes it."""
    x = (batch.inputs,) if batch.source is None else (batch.inputs, batch.source)
    return NetInput(x, batch.given)


class Answered(NamedTuple):
    """A batch's outputs and the targets that they are held against, of one shape but for what an output consists of.

    Attributes:
        outputs: tokens `[B, T, V]`, classes `[B, K]`, values `[B, P, H]`, or `[B, P, H, Q]` of Q quantiles.
        targets: `[B, T]`, `[B]`, or `[B, P, H]`.
    """

    outputs: Tensor
    targets: Tensor


def answered(outputs_BPN: Tensor, batch: TokenBatch[Tensor], signature: Signature) -> Answered:
    """The outputs that count: of classes those at each row's last real place, of values all."""
    if signature.reads_tokens:
        return Answered(outputs_BPN, batch.targets)
    if signature.kind == "classify":
        if outputs_BPN.shape[1] == 1 or batch.given is None:
            return Answered(outputs_BPN[:, -1], batch.targets)
        last_B = (batch.given.sum(1) - 1).clamp(min=0)
        return Answered(outputs_BPN[torch.arange(len(last_B), device=last_B.device), last_B], batch.targets)
    if signature.quantiles:
        outputs_BPN = outputs_BPN.unflatten(-1, (signature.horizon, len(signature.quantiles)))
    return Answered(outputs_BPN, batch.targets[:, -outputs_BPN.shape[1] :])
