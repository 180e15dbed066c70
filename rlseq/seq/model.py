"""A sequence model by itself: built for a task, measured on its validation data, made to write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from rlseq.engine.distributed import ALONE, World
from rlseq.envs.seeding import WEIGHTS, derived_seed
from rlseq.errors import RlseqError, UsageError
from rlseq.memory import check_memory
from rlseq.nets.build import sequence_network
from rlseq.nets.network import NetInput, seeded
from rlseq.nets.sequence import SequenceNetwork
from rlseq.nets.sizes import training_bytes
from rlseq.nets.stepper import TorchSequence
from rlseq.player.generate import generate
from rlseq.player.sampling import Sampling
from rlseq.seq.config import SeqTraining
from rlseq.seq.losses import elementwise, masked_mean
from rlseq.seq.tasks.task import Task
from rlseq.sequence import SequenceSpec, Signature
from rlseq.version import __version__

SAMPLES = 101  # the random stream of samples
EVALUATION_TOKENS = 16_384  # at once


def build_network(options: SeqTraining, task: Task) -> SequenceNetwork:
    """The network of a run, with the initial weights of its seed, on the CPU."""
    seq = options.seq
    signature = Signature(vocabulary=task.vocabulary, tokenizer=task.tokenizer)
    size = training_bytes(options.net, signature, seq.context, seq.batch_size // options.optim.accumulate or 1)
    check_memory(size, "training this network", "make net.size, seq.batch_size or seq.context smaller")
    return cast(
        SequenceNetwork,
        seeded(derived_seed(WEIGHTS, options.run.seed), lambda: sequence_network(signature, options.net, seq.context)),
    )


def sequence_spec(net: SequenceNetwork, task: Task, options: SeqTraining) -> SequenceSpec:
    """What the model says of itself, before it is scored."""
    return SequenceSpec(
        rlseq_version=__version__,
        task=task.name,
        model=options.net.core,
        vocabulary=task.vocabulary,
        context=options.seq.context,
        window=net.window,
        tokenizer=task.tokenizer,
        state=net.state_leaves,
    )


def compiled(net: nn.Module) -> Callable[..., Any]:
    """The network under `torch.compile`, which begins to work, or fails, with the first call.

    Raises:
        RlseqError: when called: it cannot be compiled here.
    """
    from torch._dynamo.exc import TorchDynamoException

    inner = torch.compile(net)

    def forward(*arguments: Any) -> Any:
        try:
            return inner(*arguments)
        except TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0].removesuffix(".")
            raise RlseqError(
                f"engine.compile = true: torch.compile failed here: {reason}. On a CPU it needs a C++ compiler: "
                "install g++ or let CXX name one; or leave it out: --set engine.compile=false"
            ) from None

    return forward


def recordable(options: SeqTraining) -> bool:
    """Whether a network's gradients can be recorded as a CUDA graph.

    Not what is compiled, which has its own ways; nor the library that computes LSTM and GRU, a checkpoint's second
    forward pass, or a loss of the user's, which may look at the state of random streams or at values.
    """
    return (
        options.net.core == "gpt"
        and not options.net.checkpoint_activations
        and not options.engine.compile
        and ":" not in options.seq.loss
    )


@contextlib.contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """The network without dropout and gradients, for a while."""
    was_training = net.training
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        net.train(was_training)


def validation_loss(
    net: SequenceNetwork,
    task: Task,
    options: SeqTraining,
    max_tokens: int | None = None,
    should_stop: Callable[[], bool] | None = None,
    world: World = ALONE,
) -> tuple[float, int] | None:
    """Summed cross-entropy of the validation tokens and how many; None if one process was told to stop.

    In float32 and without smoothing, whatever the training minimises: so that it compares. Of every batch each process
    does its rows, so every token counts once, whatever the number of processes.
    """
    device = next(net.parameters()).device
    element_loss = elementwise("cross_entropy", 0.0)
    total, count, told = 0.0, 0, False
    batch_size = max(1, EVALUATION_TOKENS // options.seq.context)
    with evaluating(net):
        for batch in task.validation(batch_size, max_tokens):
            if should_stop is not None and should_stop():
                told = True
                break
            own = batch.rows(world.rows(len(batch.inputs)))
            if not (num := own.num_targets()):
                continue
            tokens = own.map(lambda array: torch.from_numpy(array).to(device))
            logits_BTV = net(NetInput((tokens.inputs,)))[0]
            total += float(masked_mean(element_loss(logits_BTV, tokens.targets), tokens.mask)) * num
            count += num
    total, num_tokens, told_any = world.sum([total, count, told])
    return None if told_any else (total, int(num_tokens))


def sample_text(net: SequenceNetwork, task: Task, options: SeqTraining, num_tokens: int) -> str:
    """A text that the model makes up: the same for the same weights and seed."""
    if num_tokens == 0:
        return ""
    tokenizer = task.tokenizer
    if tokenizer is None:
        raise UsageError(f"the task {task.name} has no text to sample; set eval.sample_tokens=0")
    stepper = TorchSequence(net, sequence_spec(net, task, options))
    rng = np.random.default_rng(np.random.SeedSequence((SAMPLES, options.run.seed)))
    prompt = tokenizer.encode(task.prompt())
    with evaluating(net):
        made = list(generate(stepper, prompt, num_tokens, Sampling(), rng))
    return task.prompt() + tokenizer.decode(np.array(made, np.int64))
