"""Gradients as one CUDA graph: forward and backward pass of an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rlseq.engine.flat import FlatParameters
from rlseq.engine.recording import Captured, Recorder, Tensors
from rlseq.engine.update import Gradients, Loss, Part


class CapturedGradients:
    """`engine.update.Gradients`, recorded. Number, shapes and shares of the parts must stay the same.

    Args:
        gradients: what is recorded.
        recorder: None: nothing is.
    """

    def __init__(self, gradients: Gradients, recorder: Recorder) -> None:
        self._gradients = gradients
        self._captured = Captured(self._work, recorder)
        self._arguments: tuple[list[float], FlatParameters, Callable[[Tensor], Tensor]] | None = None
        self._names: tuple[str, ...] = ()

    def __call__(
        self, parts: Sequence[Part[Any]], flat: FlatParameters, scale: Callable[[Tensor], Tensor]
    ) -> list[Loss]:
        arguments = [part.share for part in parts], flat, scale
        assert self._arguments in (None, arguments), "recorded for other parts, parameters or scale"
        self._arguments = arguments
        losses = []
        for row in self._captured(*(part.batch for part in parts)):
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
