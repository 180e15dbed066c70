"""A sequence model measured on its validation data, and what there is to show of that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rlseq.engine.distributed import ALONE, World
from rlseq.engine.trainee import Evaluation
from rlseq.nets.build import Network
from rlseq.nets.stepper import TorchSequence
from rlseq.player.generate import asked, generate
from rlseq.player.sampling import Sampling
from rlseq.seq.answers import answers_of, rows_at_once
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqTraining
from rlseq.seq.losses import cross_entropy
from rlseq.seq.model import net_input, sequence_spec
from rlseq.seq.tasks.task import Answers, Shown, Task
from rlseq.sequence import Signature

SAMPLES = 101  # the random stream of samples


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
    told: Callable[[int], None] | None = None,
) -> Measured | None:
    """What a network answers to the validation data; None if one process was told to stop.

    In float32, with cross-entropy whatever the training minimises: so that it compares. Of every batch each process
    does its rows, so every target counts once, whatever the number of processes. After each batch `told` is called with
    the number of this process' targets so far, those that are of no score, as of longer questions, included.
    """
    device = next(net.parameters()).device
    sums, shown, stopped, done = np.zeros(0), None, False, 0
    with evaluating(net):
        for batch in task.validation(rows_at_once(task.context), max_targets):
            if should_stop is not None and should_stop():
                stopped = True
                break
            own = batch.rows(world.rows(len(batch.inputs)))
            if not own.num_targets():
                continue
            tensors = own.map(lambda array: torch.from_numpy(array).to(device))
            answers = _answers(net(net_input(tensors))[0], own, tensors, task.signature)
            tally = task.tally(answers, own)
            sums, shown = tally if shown is None else sums + tally, shown or Shown(own, answers)
            if told is not None:
                done += own.num_targets()
                told(done)
    parts = [(stopped, sums.tolist())] if world.alone else world.gather([stopped, sums.tolist()])
    if any(stopped for stopped, _ in parts):
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


def evaluate(
    net: Network, task: Task, options: SeqTraining, should_stop: Callable[[], bool] | None, world: World
) -> Evaluation | None:
    """The task's metrics on the validation split, a sample and pictures; None if one process was told to stop."""
    measured = measure(net, task, options.eval.max_tokens, should_stop, world)
    if measured is None:
        return None
    shows = shown(net, task, options, measured) if world.first else Shows("", {})
    metrics = world.from_first(task.metrics_of(measured.sums, shows.text) if world.first else None)
    name = metric_name(options, task)
    curves = {f"eval/{metric}": value for metric, value in metrics.items()}
    texts = {"sample": shows.text} if shows.text else {}
    return Evaluation(metrics[name], curves, task.metrics[name] == "lower", texts, shows.pictures)
