"""The update step: the one piece of code that changes weights, for every algorithm and network.

    gradients -> unscale -> norm -> clip -> schedule -> optimiser -> average

Where the gradients come from is not its business: autograd for any network, or a closed-form kernel for one it fits;
both write into the same flat buffer. A batch may come in parts (to save memory, or variable in size); each part counts
by its share of the whole, so the update is that of the whole batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from rlseq.engine.config import OptimOptions
from rlseq.engine.device import Precision, autocast
from rlseq.engine.ema import WeightAverage
from rlseq.engine.flat import FlatParameters
from rlseq.engine.optimizer import OPTIMIZERS, check_shapes
from rlseq.engine.recording import Captured, Recorder
from rlseq.engine.schedule import Plateau, lr_factor
from rlseq.engine.selection import select

Batch = TypeVar("Batch")
SMALLEST_SCALE = 2.0**-14  # of the fp16 loss scaler: below it an overflow is no matter of scale
RAW = "raw"
# What comes of restoring numbers or arrays of another shape than they were saved in.
UNFIT = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RuntimeError)


class Loss(NamedTuple):
    """What a loss function returns for a batch.

    Attributes:
        mean: the loss, averaged over the batch's elements; a scalar.
        metrics: further scalars worth a curve, averaged likewise.
    """

    mean: Tensor
    metrics: Mapping[str, Tensor]


class Part(NamedTuple, Generic[Batch]):
    """A part of a batch and its share of the whole (all shares of an update sum to 1)."""

    batch: Batch
    share: float


class Gradients(Protocol):
    """Sets the parameters' gradients to those of `scale(sum(share * loss))` over the parts; gives each part's loss."""

    def __call__(
        self, parts: Sequence[Part[Any]], flat: FlatParameters, scale: Callable[[Tensor], Tensor]
    ) -> Sequence[Loss]: ...


class Autograd(Generic[Batch]):
    """Gradients of any loss function, by autograd, in the given precision.

    Args:
        loss: of a batch.
        precision: of the forward pass.
        device: of the batches.
        no_sync: within it a network that several processes share does not exchange gradients; only the last part of an
            update does, and carries those of the parts before.
    """

    def __init__(
        self,
        loss: Callable[[Batch], Loss],
        precision: Precision,
        device: torch.device,
        no_sync: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._loss, self._precision, self._device, self._no_sync = loss, precision, device, no_sync

    def __call__(
        self, parts: Sequence[Part[Batch]], flat: FlatParameters, scale: Callable[[Tensor], Tensor]
    ) -> list[Loss]:
        flat.grad.zero_()
        losses = []
        for number, part in enumerate(parts, 1):
            with contextlib.nullcontext() if number == len(parts) else self._no_sync():
                with autocast(self._precision, self._device):
                    loss = self._loss(part.batch)
                share = loss.mean if part.share == 1.0 else loss.mean * part.share
                scale(share).backward()
            losses.append(loss)
        return losses


class Summed(Generic[Batch]):
    """Another source's gradients of a share of the batch, summed over the processes that train together.

    Args:
        gradients: of this process' share.
        add_shares: `rlseq.engine.distributed.World.add_shares`.
        share: this process' part of the whole batch; the shares of all processes sum to 1.
    """

    def __init__(self, gradients: Gradients, add_shares: Callable[[Tensor, float], None], share: float) -> None:
        self._gradients, self._add_shares, self._share = gradients, add_shares, share

    def __call__(
        self, parts: Sequence[Part[Batch]], flat: FlatParameters, scale: Callable[[Tensor], Tensor]
    ) -> Sequence[Loss]:
        losses = self._gradients(parts, flat, scale)
        self._add_shares(flat.grad, self._share)
        return losses


class UpdateInfo(NamedTuple):
    """What an update did; tensors are not yet read from the device.

    Attributes:
        loss: of the whole batch, a scalar without gradient; where several processes train together, of the parts given.
        grad_norm: of the whole gradient before clipping, unscaled; a scalar.
        metrics: of the loss, for the whole batch.
        lr: learning rate used.
        skipped: the fp16 gradient overflowed, nothing was changed.
    """

    loss: Tensor
    grad_norm: Tensor
    metrics: dict[str, Tensor]
    lr: float
    skipped: bool


class UpdateStep:
    """Optimiser, schedule, clipping, loss scaling, accumulation and averaging for one module.

    Args:
        net: its parameters are laid out flat, on the device they are on; `optim.freeze` freezes some of them.
        options: of the optimiser.
        total_updates: length of the learning-rate schedule.
        precision: fp16 brings a loss scaler.
        recorder: records clipping, optimiser and average as one CUDA graph; None: nothing does.

    Attributes:
        recorded: whether they are recorded.
    """

    def __init__(
        self,
        net: nn.Module,
        options: OptimOptions,
        *,
        total_updates: int,
        precision: Precision,
        recorder: Recorder | None = None,
    ) -> None:
        self.options = options
        self.total_updates = total_updates
        self.flat = FlatParameters(net, select([name for name, _ in net.named_parameters()], options))
        self.optimizer = OPTIMIZERS[options.name](self.flat, options)
        device = self.flat.data.device.type
        self.scaler = torch.amp.GradScaler(device, enabled=precision.scaled)
        self._scaled = precision.scaled and self.scaler.is_enabled()
        self.recorded = recorder is not None and self.optimizer.recordable
        self._look_at_norm = device == "cpu" and not self.recorded
        self._change = Captured(self._changed, recorder if self.recorded else None)
        self._average = None if options.ema is None else WeightAverage(self.flat.data, options.ema)
        self._plateau = Plateau(options) if options.schedule == "plateau" else None
        self.updates = 0
        self.skipped = 0

    def __call__(self, parts: Sequence[Part[Batch]], gradients: Gradients) -> UpdateInfo:
        """One update from all parts of a batch."""
        losses = gradients(parts, self.flat, self.scaler.scale)
        if self._scaled:
            self.scaler.unscale_(cast(torch.optim.Optimizer, self.optimizer))  # it reads nothing but param_groups
        norm = torch.linalg.vector_norm(self.flat.grad)
        lr = self.lr
        skip = self._scaled and not bool(torch.isfinite(norm))
        if skip:
            self.skipped += 1
        else:
            self.updates += 1
            self._change(norm, lr, 0.0 if self._average is None else self._average.share(self.updates))
        if self._scaled:
            self.scaler.update()
        return UpdateInfo(*_whole(parts, losses, norm), lr, skip)

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        lr = self.options.lr * lr_factor(self.options, self.updates, self.total_updates)
        return lr if self._plateau is None else lr * self._plateau.factor

    def describe(self) -> dict[str, str]:
        """What is not trained as the rest, as label -> text."""
        return self.flat.selection.describe(len(self.flat.data), len(self.flat.weights))

    def see_metric(self, value: float, *, lower_is_better: bool) -> None:
        """An evaluation's value, for the schedule that waits for a plateau; the others have no use for it."""
        if self._plateau is not None:
            self._plateau.see(value, lower_is_better=lower_is_better)

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Within it the network has the averaged weights, if `optim.ema` is set; no update may happen meanwhile."""
        if self._average is None or self.updates == 0:
            return contextlib.nullcontext()
        return self._average.applied()

    def _changed(self, norm: Tensor, lr: float | Tensor, share: float | Tensor) -> tuple[()]:
        """Change the weights by the gradients, and the average by the weights, in which they count by this share."""
        self._clip(norm)
        self.optimizer.step(lr)
        if self._average is not None:
            self._average.update(share)
        return ()

    def _clip(self, norm: Tensor) -> None:
        limit = self.options.clip_norm
        if limit is not None:
            # On a CPU the norm can be looked at for nothing, and clipping is rare; a GPU would have to be waited for.
            if self._look_at_norm and norm.item() + 1e-6 <= limit:
                return
            self.flat.grad.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
        elif self.options.clip_value is not None:
            self.flat.grad.clamp_(-self.options.clip_value, self.options.clip_value)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and numbers from which an exact resume goes on.

        The weights are not among them: a checkpoint holds them as its model, as they are within `averaged`. Where those
        are averages, the array `raw` has the weights themselves.
        """
        arrays, scaler = self.optimizer.arrays(), self.scaler.state_dict()
        numbers: dict[str, Any] = {"updates": self.updates, "skipped": self.skipped, "scaler": scaler}
        if self._average is not None:
            arrays[RAW] = self.flat.data.cpu().numpy().copy()
        if self._plateau is not None:
            numbers["plateau"] = self._plateau.state()
        return arrays, numbers

    def load(self, arrays: dict[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        """Go on from what `state` gave, after the model's weights were loaded into the module.

        Raises:
            ValueError: the arrays are those of another optimiser or network.
            KeyError: the numbers are those of other options.
        """
        if self._average is not None:
            raw = {name: array for name, array in arrays.items() if name == RAW}
            arrays = {name: array for name, array in arrays.items() if name != RAW}
            check_shapes(raw, {RAW: tuple(self.flat.data.shape)})
        if self._plateau is not None:
            self._plateau.load(numbers["plateau"])
        self.optimizer.load(arrays)
        self._change.forget()  # the moments lie elsewhere now
        self.updates, self.skipped = numbers["updates"], numbers["skipped"]
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(numbers["scaler"])
        if self._average is not None:
            self._average.value.copy_(self.flat.data)
            self.flat.data.copy_(torch.from_numpy(raw[RAW]))


def _whole(
    parts: Sequence[Part[Any]], losses: Sequence[Loss], norm: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Loss and metrics of the whole batch from those of its parts."""
    if len(parts) == 1 and parts[0].share == 1.0:
        return losses[0].mean.detach(), norm, dict(losses[0].metrics)
    shares = [part.share for part in parts]
    mean = sum((loss.mean.detach() * share for loss, share in zip(losses, shares, strict=True)), torch.zeros(()))
    metrics = {
        name: sum((loss.metrics[name] * share for loss, share in zip(losses, shares, strict=True)), torch.zeros(()))
        for name in losses[0].metrics
    }
    return mean, norm, metrics
