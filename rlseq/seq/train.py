"""Training of sequence models: the loop, and what it consists of.

An update is one batch; `optim.accumulate` cuts it into parts, each of which counts by its share of the batch's targets,
so the update is that of the whole batch. Several processes take rows of the same batch, drawn by all of them from the
same stream: the update is that of one process, but for the rounding.

Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from rlseq.checkpoints import read_arrays
from rlseq.engine.captured import CapturedGradients
from rlseq.engine.checkpoint import NOTHING, Arrays, Snapshot, of_rank
from rlseq.engine.device import choose_device, choose_precision, works_apart
from rlseq.engine.distributed import ALONE, World
from rlseq.engine.inheritance import Inherited, inherit
from rlseq.engine.metrics import Means
from rlseq.engine.recording import recorder_for
from rlseq.engine.session import Session
from rlseq.engine.trainee import Curves, Evaluation
from rlseq.engine.transfer import Batches, Sent
from rlseq.engine.update import SMALLEST_SCALE, UNFIT, Autograd, Gradients, Loss, Part, UpdateInfo, UpdateStep
from rlseq.engine.weights import load_arrays, state_arrays
from rlseq.envs.seeding import REPLAY, generator
from rlseq.errors import CorruptFile, NonFiniteLoss, UsageError
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqTraining
from rlseq.seq.describe import describe
from rlseq.seq.dropout import DROPOUT, DropoutStream
from rlseq.seq.evaluation import evaluate
from rlseq.seq.flops import peak_flops, training_flops
from rlseq.seq.losses import elementwise, masked_mean
from rlseq.seq.model import answered, build_network, compiled, net_input, recordable
from rlseq.seq.numbers import SeqNumbers
from rlseq.seq.tasks.task import Task

UNREAD_UPDATES = 32  # whose losses wait on a GPU to be read at once


class SeqTrainer:
    """Task, network and update step of one run.

    Args:
        options: everything that decides the training.
        task: what is learnt.
        world: the processes that train together.

    Attributes:
        net: the network, on its device.
        recorded: whether its gradients are recorded as a CUDA graph.
    """

    step_rate = "time/updates_per_second"

    def __init__(self, options: SeqTraining, task: Task, world: World = ALONE) -> None:
        if world.size > options.seq.batch_size:
            raise UsageError(
                f"{world.size} processes cannot share seq.batch_size = {options.seq.batch_size} sequences: each needs "
                f"at least one. Give --batch-size {world.size} or more, or start fewer processes."
            )
        self.options, self.task, self.world = options, task, world
        self.device = choose_device(options.engine, world.local_rank)
        self.precision = choose_precision(options.engine.amp, self.device)
        self.net = build_network(options, task).to(self.device)
        total = options.run.horizon or options.run.steps
        recorder = recorder_for(self.device, wanted=options.engine.graphs)
        self.update_step = UpdateStep(
            self.net, options.optim, total_updates=total, precision=self.precision, recorder=recorder
        )
        self._forward: Callable[..., Any] = compiled(self.net) if options.engine.compile else self.net
        self._element_loss = elementwise(options.seq.loss, options.seq, task.signature)
        self._gradients: Gradients = Autograd(self.loss, self.precision, self.device)
        self.recorded = recorder is not None and world.alone and recordable(options, task)
        if recorder is not None and self.recorded:
            self._gradients = CapturedGradients(self._gradients, recorder)
        rows = world.rows(options.seq.batch_size)
        self._batches: Batches[TokenBatch[np.ndarray]] = Batches(
            lambda rng: task.sample(rng, options.seq.batch_size, rows), generator(REPLAY, options.run.seed), self.device
        )
        self._means = Means()
        self._unread: list[tuple[int, UpdateInfo]] = []  # with their steps; still on the device
        self._losses: list[tuple[float, float]] = []  # with norms; of this process' rows
        self._tokens = 0
        self._dropout = DropoutStream(self.device, options.run.seed, world.rank)

    def loss(self, batch: TokenBatch[Tensor]) -> Loss:
        """The mean loss of a batch's targets."""
        outputs, targets = answered(self._forward(net_input(batch))[0], batch, self.task.signature)
        return Loss(masked_mean(self._element_loss(outputs, targets), batch.mask), {})

    def loop(self, session: Session) -> None:
        """Draw a batch, learn from it, until the session ends."""
        self._share()
        self.net.train()
        with self._dropout.running():
            while session.running:
                self._learn(self._batches.take(), session.step)
                self._batches.prepare()
                session.advance(1)

    def _share(self) -> None:
        """Let backward passes average gradients over the processes."""
        if self.world.alone:
            return
        parallel = self.world.parallel(self.net)
        self._forward = compiled(parallel) if self.options.engine.compile else parallel
        self._gradients = Autograd(self.loss, self.precision, self.device, parallel.no_sync)

    def _learn(self, sent: Sent[TokenBatch[np.ndarray]], step: int) -> None:
        batch = sent.arrays
        tokens = batch.num_targets()
        if not self.world.alone:
            whole = self.options.seq.batch_size * (tokens // len(batch.targets))
            tokens = whole if batch.mask is None else int(self.world.sum([tokens])[0])
        info = self.update_step(self._parts(sent, tokens), self._gradients)
        self._tokens += tokens
        if info.skipped and torch.isfinite(info.loss) and self.update_step.scaler.get_scale() >= SMALLEST_SCALE:
            return  # an overflow of fp16, which a smaller loss scale mends
        self._unread.append((step, info))
        # On a CPU numbers can be looked at for nothing; a GPU would have to be waited for.
        if not works_apart(self.device) or len(self._unread) == UNREAD_UPDATES:
            self._read()

    def _read(self) -> None:
        """Take losses and norms from the device, and see that they are numbers."""
        if not self._unread:
            return
        rows = torch.stack([torch.stack((info.loss, info.grad_norm)) for _, info in self._unread]).cpu().tolist()
        for (step, _), (loss, norm) in zip(self._unread, rows, strict=True):
            if not (np.isfinite(loss) and np.isfinite(norm)):
                raise NonFiniteLoss(
                    f"update {step + 1} gave loss {loss:g}, gradient norm {norm:g}: the training has diverged. The "
                    "last checkpoint is untouched. Start again with a smaller learning rate "
                    f"(--lr {self.options.optim.lr / 10:g})."
                )
            self._losses.append((loss, norm))
        self._unread = []

    def _drain(self) -> None:
        """Losses of the whole batches into the means."""
        self._read()
        # Shares are times the number of processes, over which their gradients are averaged.
        losses = self.world.sum([loss / self.world.size for loss, _ in self._losses])
        for loss, (_, norm) in zip(losses, self._losses, strict=True):
            self._means.add("train/loss", loss)
            self._means.add("train/grad_norm", norm)
        self._losses = []

    def _parts(self, sent: Sent[TokenBatch[np.ndarray]], total: int) -> list[Part[TokenBatch[Tensor]]]:
        """The rows of this process in `optim.accumulate` parts, each with its share of the `total` tokens that count in
        the whole batch. Shares are times the number of processes."""
        batch, tensors = sent
        rows = len(batch.targets)
        count = min(self.options.optim.accumulate, rows)
        if count == 1 and self.world.alone:
            return [Part(tensors, 1.0)]
        bounds = [round(k * rows / count) for k in range(count + 1)]
        spans = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        counts = [batch.rows(span).num_targets() for span in spans]
        shares = [tokens / total * self.world.size for tokens in counts]
        parts = [Part(tensors.rows(span), share) for span, share in zip(spans, shares, strict=True)]
        # Every process takes part in the exchange of gradients, also if none of its tokens count.
        return [part for part in parts if part.share] or parts[:1]

    def curves(self) -> Curves:
        """Points of the curves since the last call."""
        self._drain()
        step = self.update_step
        points = {**self._means.drain(), "train/lr": step.lr}
        if self.precision.scaled:
            points |= {"amp/scale": step.scaler.get_scale(), "amp/skipped": float(step.skipped)}
        tokens, self._tokens = self._tokens, 0
        counts = {"train/tokens_per_second": float(tokens)}
        if self.device.type == "cuda":
            points["gpu/memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
            peak = peak_flops(torch.cuda.get_device_name())
            if peak is not None and self.precision.dtype is not None:
                flops = training_flops(self.options.net, self.net, self.task.context)
                counts["gpu/mfu"] = tokens * flops / (peak * self.world.size)
        return Curves(points, counts)

    def evaluate(self, should_stop: Callable[[], bool] | None = None) -> Evaluation | None:
        """The task's metrics on the validation split, a sample and pictures; None if told to stop."""
        with self.update_step.averaged():
            result = evaluate(self.net, self.task, self.options, should_stop, self.world)
        if result is not None and self.options.optim.schedule == "plateau":
            self.update_step.see_metric(result.score, lower_is_better=result.lower_is_better)
        return result

    def model(self) -> Arrays:
        """The weights, averaged if the run averages them."""
        with self.update_step.averaged():
            return {name: array.copy() for name, array in state_arrays(self.net).items()}

    def snapshot(self) -> Snapshot:
        """Everything from which `load` goes on exactly."""
        self._drain()
        self.world.check_same("the weights", self.update_step.flat.data)
        others = self.world.gather_arrays({DROPOUT: self._dropout.state().numpy()})
        if not self.world.first:
            return NOTHING
        moments, numbers = self.update_step.state()
        trainer = {f"optimizer.{name}": array for name, array in moments.items()}
        trainer[DROPOUT] = self._dropout.state().numpy()
        return Snapshot(
            self.model(),
            trainer,
            {},
            {
                "update_step": numbers,
                "means": self._means.state(),
                "data_rng": self._batches.state(),
                "data_sha256": self.task.sha256,
            },
            {of_rank("trainer", rank): arrays for rank, arrays in enumerate(others, 1)},
        )

    def load(self, checkpoint: Path, manifest: Mapping[str, Any]) -> list[str]:
        """Go on from a checkpoint.

        Raises:
            CorruptFile: it was changed, or is of another network.
            UsageError: it was trained on other data.
        """
        numbers, where = manifest["numbers"], str(checkpoint)
        check_data(self.task, numbers.get("data_sha256"), checkpoint.parent.parent)
        trainer = read_arrays(checkpoint, manifest, "trainer")
        load_arrays(self.net, read_arrays(checkpoint, manifest, "model"), where)
        try:
            msgspec.convert(dict(numbers), SeqNumbers)
            moments = {k.removeprefix("optimizer."): a for k, a in trainer.items() if k.startswith("optimizer.")}
            self.update_step.load(moments, numbers["update_step"])
            self._means.load(numbers["means"])
            self._batches.load(numbers["data_rng"])
            self._load_dropout(checkpoint, manifest, trainer)
        except UNFIT as error:
            raise CorruptFile(
                f"{checkpoint} does not fit the run's options, or was changed: {type(error).__name__}: {error}."
            ) from None
        return []

    def _load_dropout(self, checkpoint: Path, manifest: Mapping[str, Any], first: Mapping[str, np.ndarray]) -> None:
        """This process' stream; a fresh one if there was no such process."""
        file = of_rank("trainer", self.world.rank)
        if self.world.rank and f"{file}.safetensors" not in manifest["files"]:
            self._dropout.begin_anew(int(manifest["step"]))
            return
        own = read_arrays(checkpoint, manifest, file) if self.world.rank else first
        self._dropout.load(own[DROPOUT])

    def load_weights(self, arrays: Arrays, parent: str, *, anew: Sequence[str] = (), fix: str = "") -> Inherited:
        """Begin with these weights, as far as they fit; see `rlseq.engine.inheritance.inherit`."""
        return inherit(self.net, arrays, parent, anew=anew, fix=fix)

    @property
    def updates(self) -> int:
        """Updates done."""
        return self.update_step.updates

    def warnings(self) -> list[str]:
        """What the user should know before it begins."""
        return [note for note in (self.precision.note, *self.task.notes) if note]

    def describe(self) -> dict[str, str]:
        """What is about to run, as label -> text."""
        return describe(self)

    def close(self) -> None:
        """Nothing is held."""


def check_data(task: Task, sha256: object, run: Path) -> None:
    """A training goes on with the data that it began with.

    Raises:
        UsageError: it is other data.
    """
    if sha256 != task.sha256:
        raise UsageError(
            f"{run} was trained on other data than {task.description} (its SHA-256 was {str(sha256)[:16]}, this one's "
            f"is {task.sha256[:16]}). Give the same data: --data PATH; or begin anew from these weights: --from {run}"
        )
