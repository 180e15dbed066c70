"""Gradients as one CUDA graph: forward and backward pass of an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rlseq.engine.flat import FlatParameters
from rlseq.engine.recording import Captured, Recorder, Tensors, leaves
from rlseq.engine.update import Gradients, Loss, Part


class CapturedGradients:
    """`engine.update.Gradients`, recorded for parts like the first ones; others are computed as without a recorder.

    Args:
        gradients: what is recorded.
        recorder: records it.
    """

    def __init__(self, gradients: Gradients, recorder: Recorder) -> None:
        self._gradients = gradients
        self._captured = Captured(self._work, recorder)
        self._arguments: tuple[list[float], FlatParameters, Callable[[Tensor], Tensor]] | None = None
        self._shapes: list[Any] = []
        self._names: tuple[str, ...] = ()

    def __call__(
        self, parts: Sequence[Part[Any]], flat: FlatParameters, scale: Callable[[Tensor], Tensor]
    ) -> Sequence[Loss]:
        batches, arguments = tuple(part.batch for part in parts), ([part.share for part in parts], flat, scale)
        shapes = [leaf.shape if isinstance(leaf, Tensor) else None for leaf in leaves(batches)]
        if self._arguments is None:
            self._arguments, self._shapes = arguments, shapes
        if (self._arguments, self._shapes) != (arguments, shapes):
            return self._gradients(parts, flat, scale)
        losses = []
        for row in self._captured(*batches):
            mean, *metrics = row.clone().unbind()  # the next update overwrites the row
            losses.append(Loss(mean, dict(zip(self._names, metrics, strict=True))))
        return losses

    def _work(self, *batches: Any) -> Tensors:
        """A row for every part: its loss and metrics."""
        assert self._arguments is not None
        shares, flat, scale = self._arguments
        parts = [Part(batch, share) for batch, share in zip(batches, shares, strict=True)]
        losses = self._gradients(parts, flat, scale)
        self._names = tuple(losses[0].metrics)
        return tuple(torch.stack([loss.mean.detach(), *loss.metrics.values()]) for loss in losses)

    def forget(self) -> None:
        """See `Captured`."""
        self._captured.forget()
