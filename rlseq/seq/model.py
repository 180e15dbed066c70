"""A sequence model by itself: built for a task, measured on its validation data, made to write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from rlseq.engine.distributed import ALONE, World
from rlseq.envs.seeding import WEIGHTS, derived_seed
from rlseq.errors import RlseqError
from rlseq.memory import check_memory
from rlseq.nets.build import Network, sequence_network
from rlseq.nets.network import NetInput, seeded
from rlseq.nets.sizes import training_bytes
from rlseq.nets.stepper import TorchSequence
from rlseq.player.generate import asked, generate
from rlseq.player.sampling import Sampling
from rlseq.seq.answers import answers_of, rows_at_once
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqTraining, task_options
from rlseq.seq.losses import cross_entropy
from rlseq.seq.tasks.task import Answers, Shown, Task
from rlseq.sequence import SequenceSpec, Signature
from rlseq.version import __version__

SAMPLES = 101  # the random stream of samples


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


class Measured(NamedTuple):
    """What an evaluation came to.

    Attributes:
        sums: of `Task.tally`, over all batches and processes.
        shown: the first batch of this process; None if it had none.
    """

    sums: np.ndarray
    shown: Shown | None


def measure(
    net: nn.Module,
    task: Task,
    max_targets: int | None = None,
    should_stop: Callable[[], bool] | None = None,
    world: World = ALONE,
) -> Measured | None:
    """What a network answers to the validation data; None if one process was told to stop.

    In float32, with cross-entropy whatever the training minimises: so that it compares. Of every batch each process
    does its rows, so every target counts once, whatever the number of processes.
    """
    device = next(net.parameters()).device
    sums, shown, told = np.zeros(0), None, False
    with evaluating(net):
        for batch in task.validation(rows_at_once(task.context), max_targets):
            if should_stop is not None and should_stop():
                told = True
                break
            own = batch.rows(world.rows(len(batch.inputs)))
            if not own.num_targets():
                continue
            tensors = own.map(lambda array: torch.from_numpy(array).to(device))
            answers = _answers(net(net_input(tensors))[0], own, tensors, task.signature)
            tally = task.tally(answers, own)
            sums, shown = tally if shown is None else sums + tally, shown or Shown(own, answers)
    parts = [(told, sums.tolist())] if world.alone else world.gather([told, sums.tolist()])
    if any(told for told, _ in parts):
        return None
    return Measured(np.sum([part for _, part in parts if part], axis=0), shown)


def _answers(
    outputs: Tensor, batch: TokenBatch[np.ndarray], tensors: TokenBatch[Tensor], signature: Signature
) -> Answers:
    """As `answers_of`; the many logits of tokens stay on the device."""
    if not signature.reads_tokens:
        return answers_of(outputs.float().cpu().numpy(), batch, signature)
    loss_BT = cross_entropy(outputs, tensors.targets)
    return Answers(loss_BT.cpu().numpy(), outputs.argmax(-1).cpu().numpy())


def sample_text(net: Network, task: Task, options: SeqTraining, num_tokens: int) -> str:
    """A text that the model makes up: the same for the same weights and seed; "" if the task has none."""
    tokenizer = task.signature.tokenizer
    if num_tokens == 0 or not task.prompt() or tokenizer is None:
        return ""
    stepper = TorchSequence(net, sequence_spec(net, task, options))
    rng = np.random.default_rng(np.random.SeedSequence((SAMPLES, options.run.seed)))
    prompt = tokenizer.encode(task.prompt())
    with evaluating(net):
        made = list(generate(stepper, prompt, num_tokens, Sampling(), rng))
    return asked(task.signature, task.prompt()) + tokenizer.decode(np.array(made, np.int64))


class Shows(NamedTuple):
    """What an evaluation has to show.

    Attributes:
        text: what the model wrote.
        pictures: name -> PNG.
    """

    text: str
    pictures: dict[str, bytes]


def shown(net: Network, task: Task, options: SeqTraining, measured: Measured) -> Shows:
    """A sample, or examples of what was answered, and pictures."""
    text = sample_text(net, task, options, options.eval.sample_tokens)
    if measured.shown is None:
        return Shows(text, {})
    return Shows(text or task.examples(measured.shown), task.pictures(measured.sums, measured.shown))


def metric_name(options: SeqTraining, task: Task) -> str:
    """The metric that chooses the best checkpoint."""
    return next(iter(task.metrics)) if options.eval.metric == "auto" else options.eval.metric


def loss_name(options: SeqTraining, task: Task) -> str:
    """The loss that is minimised."""
    return task.losses[0] if options.seq.loss == "auto" else options.seq.loss
