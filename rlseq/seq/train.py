"""Training of sequence models: the loop, and what it consists of.

An update is one batch of windows; `optim.accumulate` cuts it into parts, each of which counts by its share of the
batch's tokens, so the update is that of the whole batch.

Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from rlseq.checkpoints import read_arrays
from rlseq.engine.checkpoint import Arrays, Snapshot
from rlseq.engine.device import choose_device, choose_precision
from rlseq.engine.metrics import Means
from rlseq.engine.session import Curves, Evaluation, Session
from rlseq.engine.update import SMALLEST_SCALE, UNFIT, Autograd, Loss, Part, UpdateStep
from rlseq.engine.weights import load_arrays, state_arrays
from rlseq.envs.seeding import REPLAY, WEIGHTS, derived_seed, generator
from rlseq.errors import CorruptFile, NonFiniteLoss, UsageError
from rlseq.nets.network import NetInput, num_parameters
from rlseq.nets.sizes import dimensions, training_bytes
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqTraining
from rlseq.seq.flops import peak_flops, training_flops
from rlseq.seq.losses import elementwise, masked_mean
from rlseq.seq.model import build_network, compiled, sample_text, validation_loss
from rlseq.seq.tasks.task import Task
from rlseq.seq.trial import time_precisions


class _UpdateNumbers(msgspec.Struct):
    updates: Annotated[int, Meta(ge=0)]
    skipped: Annotated[int, Meta(ge=0)]
    scaler: dict[str, float]


class SeqNumbers(msgspec.Struct):
    """A sequence trainer's part of a checkpoint's numbers."""

    update_step: _UpdateNumbers
    means: dict[str, tuple[float, float]]
    data_rng: dict[str, Any]
    data_sha256: str


class SeqTrainer:
    """Task, network and update step of one run.

    Args:
        options: everything that decides the training.
        task: what is learnt.

    Attributes:
        net: the network, on its device.
    """

    step_rate = "time/updates_per_second"

    def __init__(self, options: SeqTraining, task: Task) -> None:
        self.options, self.task = options, task
        self.device = choose_device(options.engine)
        self.precision = choose_precision(options.engine.amp, self.device)
        self.net = build_network(options, task).to(self.device)
        total = options.run.horizon or options.run.steps
        self.update_step = UpdateStep(self.net, options.optim, total_updates=total, precision=self.precision)
        self._forward: Callable[..., Any] = compiled(self.net) if options.engine.compile else self.net
        self._element_loss = elementwise(options.seq.loss, options.seq.label_smoothing, vocabulary=task.vocabulary)
        self._gradients: Autograd[TokenBatch[Tensor]] = Autograd(self.loss, self.precision, self.device)
        self._rng = generator(REPLAY, options.run.seed)
        self._means = Means()
        self._tokens = 0
        self._dropout_seed = derived_seed(WEIGHTS, options.run.seed, 1)
        self._dropout_state = torch.Generator().manual_seed(self._dropout_seed).get_state()  # outside the loop
        self._in_loop = False

    def loss(self, batch: TokenBatch[Tensor]) -> Loss:
        """The mean loss of a batch's tokens."""
        logits_BTV = self._forward(NetInput((batch.inputs,)))[0]
        return Loss(masked_mean(self._element_loss(logits_BTV, batch.targets), batch.mask), {})

    def loop(self, session: Session) -> None:
        """Draw a batch, learn from it, until the session ends."""
        batch_size = self.options.seq.batch_size
        self.net.train()
        with self._dropout_stream():
            while session.running:
                batch = self.task.sample(self._rng, batch_size)
                self._learn(batch, session.step)
                session.advance(1)

    def _learn(self, batch: TokenBatch[np.ndarray], step: int) -> None:
        info = self.update_step(self._parts(batch), self._gradients)
        self._tokens += batch.targets.size if batch.mask is None else int(batch.mask.sum())
        loss, norm = float(info.loss), float(info.grad_norm)
        if info.skipped and np.isfinite(loss) and self.update_step.scaler.get_scale() >= SMALLEST_SCALE:
            return  # an overflow of fp16, which a smaller loss scale mends
        if not (np.isfinite(loss) and np.isfinite(norm)):
            raise NonFiniteLoss(
                f"update {step + 1} gave loss {loss:g}, gradient norm {norm:g}: the training has diverged. The last "
                "checkpoint is untouched. Start again with a smaller learning rate "
                f"(--lr {self.options.optim.lr / 10:g})."
            )
        self._means.add("train/loss", loss)
        self._means.add("train/grad_norm", norm)

    def _parts(self, batch: TokenBatch[np.ndarray]) -> list[Part[TokenBatch[Tensor]]]:
        """The batch in `optim.accumulate` parts, each with its share of the tokens that count."""
        tensors = batch.map(self._to_device)
        rows = len(batch.inputs)
        count = min(self.options.optim.accumulate, rows)
        if count == 1:
            return [Part(tensors, 1.0)]
        bounds = [round(k * rows / count) for k in range(count + 1)]
        parts = [tensors.map(lambda leaf, a=a, b=b: leaf[a:b]) for a, b in itertools.pairwise(bounds)]  # type: ignore[misc]
        counts = [p.targets.numel() if p.mask is None else int(p.mask.sum()) for p in parts]
        total = sum(counts)
        return [Part(part, tokens / total) for part, tokens in zip(parts, counts, strict=True) if tokens]

    def _to_device(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor

    def _cuda_devices(self) -> list[int]:
        return [torch.cuda.current_device()] if self.device.type == "cuda" else []

    @contextlib.contextmanager
    def _dropout_stream(self) -> Iterator[None]:
        """torch's own random stream is dropout's for a while; checkpoints before and after it hold where it stands."""
        with torch.random.fork_rng(devices=self._cuda_devices()):
            torch.manual_seed(self._dropout_seed)
            torch.set_rng_state(self._dropout_state)
            self._in_loop = True
            try:
                yield
            finally:
                self._dropout_state, self._in_loop = torch.get_rng_state(), False

    def curves(self) -> Curves:
        """Points of the curves since the last call."""
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
                counts["gpu/mfu"] = tokens * training_flops(self.options.net, self.net, self.options.seq.context) / peak
        return Curves(points, counts)

    def evaluate(self, should_stop: Callable[[], bool] | None = None) -> Evaluation | None:
        """The task's metrics on the validation split, and a sample; None if told to stop."""
        o = self.options.eval
        with self.update_step.averaged():
            total = validation_loss(self.net, self.task, self.options, o.max_tokens, should_stop)
            if total is None:
                return None
            sample = sample_text(self.net, self.task, self.options, o.sample_tokens)
        metrics = self.task.metrics_of(*total, sample)
        if self.options.optim.schedule == "plateau":
            self.update_step.see_metric(metrics[o.metric], lower_is_better=self.task.metrics[o.metric] == "lower")
        curves = {f"eval/{name}": value for name, value in metrics.items()}
        texts = {"sample": sample} if sample else {}
        return Evaluation(metrics[o.metric], curves, self.task.metrics[o.metric] == "lower", texts)

    def model(self) -> Arrays:
        """The weights, averaged if the run averages them."""
        with self.update_step.averaged():
            return {name: array.copy() for name, array in state_arrays(self.net).items()}

    def snapshot(self) -> Snapshot:
        """Everything from which `load` goes on exactly."""
        moments, numbers = self.update_step.state()
        trainer = {f"optimizer.{name}": array for name, array in moments.items()}
        trainer["dropout_rng"] = (torch.get_rng_state() if self._in_loop else self._dropout_state).numpy()
        return Snapshot(
            self.model(),
            trainer,
            {},
            {
                "update_step": numbers,
                "means": self._means.state(),
                "data_rng": dict(self._rng.bit_generator.state),
                "data_sha256": self.task.sha256,
            },
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
            self._rng.bit_generator.state = numbers["data_rng"]
            self._dropout_state = torch.from_numpy(trainer["dropout_rng"].copy())
        except UNFIT as error:
            raise CorruptFile(
                f"{checkpoint} does not fit the run's options, or was changed: {type(error).__name__}: {error}."
            ) from None
        return []

    def load_weights(self, arrays: Arrays, where: str) -> None:
        """Begin with these weights."""
        load_arrays(self.net, arrays, where)

    @property
    def updates(self) -> int:
        """Updates done."""
        return self.update_step.updates

    def warnings(self) -> list[str]:
        """What the user should know before it begins."""
        return [note for note in (self.precision.note, *self.task.notes) if note]

    def describe(self) -> dict[str, str]:
        """What is about to run, as label -> text."""
        o, d = self.options, dimensions(self.options.net)
        heads = f", {d.heads} heads" if o.net.core == "gpt" else ""
        shape = f"{d.layers} layer{'s' * (d.layers > 1)}, {d.width} wide{heads}"
        rows = o.seq.batch_size // o.optim.accumulate or 1
        memory = training_bytes(o.net, self.task.vocabulary, o.seq.context, rows)
        return {
            "task": f"{self.task.name}: {self.task.description}",
            "network": f"{o.net.core}, {shape}, {num_parameters(self.net)} parameters",
            "memory": f"about {memory / 2**20:.0f} MiB",
            "updates": f"{o.run.steps}, each of {o.seq.batch_size} x {o.seq.context} = "
            f"{o.seq.batch_size * o.seq.context} tokens",
            "device": f"{self.device.type}, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}",
            "precision": self._precision(),
        }

    def _precision(self) -> str:
        """What mixed precision gains here, measured: on small models it may lose."""
        if self.precision.dtype is None:
            return "float32"
        name = str(self.precision.dtype).removeprefix("torch.")
        mixed, plain = time_precisions(self._trial(), self.precision, self.device)
        return (
            f"{name}: {1e3 * mixed:.1f} ms for a batch forward and back, {1e3 * plain:.1f} ms in float32 "
            f"({plain / mixed:.2f} times as fast)"
        )

    def _trial(self) -> Callable[[], Tensor]:
        """The loss of one batch, drawn from a random stream of its own."""
        rows = self.options.seq.batch_size // self.options.optim.accumulate or 1
        batch = self.task.sample(np.random.default_rng(0), rows).map(self._to_device)
        return lambda: self.loss(batch).mean

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
