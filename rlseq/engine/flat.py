"""A module's parameters and gradients as views of two flat buffers.

For small networks an update is bound by the number of calls, not by arithmetic: with flat buffers the norm, the
clipping, the optimiser step and the copy to a target network are one call each. Matrices come first, so that weight
decay, which applies to them only, needs no more than two parameter groups; and hidden matrices before all, because some
optimisers treat them apart. Within each of these, parameters of one multiple of the learning rate lie together. Frozen
parameters come last, outside of what is trained: they have no gradient, and nothing that changes weights reaches them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from rlseq.engine.selection import EVERYTHING, Selection

HIDDEN = "core."  # below it lie a network's hidden layers: neither embedding nor head
Named = list[tuple[str, nn.Parameter]]


class Span(NamedTuple):
    """A stretch of the buffer that an optimiser treats alike.

    Attributes:
        start, stop: its elements.
        matrix: whether they belong to parameters of two or more axes.
        multiplier: of the learning rate.
        shapes: if these are hidden matrices: of each, in their order; else empty.
    """

    start: int
    stop: int
    matrix: bool
    multiplier: float
    shapes: tuple[tuple[int, int], ...]


class FlatParameters:
    """Lay the parameters of `net` out in one buffer; the module keeps working and its state dict keeps its names.

    Args:
        net: the module.
        selection: what of it is trained, and how fast.

    Attributes:
        weights: all parameters, `[P + F]` float32 (float64 in exact tests); the last F are frozen.
        data: those that are trained, `[P]`; the same memory.
        grad: their gradients, likewise.
        spans: what `data` consists of.
        matrices: number of leading elements that belong to parameters of two or more axes.
        hidden_shapes: of the matrices at the very front, those of two axes below `core.`, in their order. Where the
            module says in its `stacked` that a parameter is several matrices one above the other, of each of them.
        hidden: number of their elements.
        frozen_hidden: whether there are hidden matrices among what is frozen.
        selection: as given.
    """

    def __init__(self, net: nn.Module, selection: Selection = EVERYTHING) -> None:
        named = list(net.named_parameters())
        dtypes = {parameter.dtype for _, parameter in named}
        assert dtypes in ({torch.float32}, {torch.float64}), f"master weights are float32, not {dtypes}"
        self.selection = selection
        trained = _ordered([(name, p) for name, p in named if name not in selection.frozen], selection)
        frozen = [(name, p) for name, p in named if name in selection.frozen]
        self.spans = _spans(trained, selection, getattr(net, "stacked", {}))
        self.hidden_shapes = [shape for span in self.spans for shape in span.shapes]
        self.hidden = sum(span.stop - span.start for span in self.spans if span.shapes)
        self.frozen_hidden = any(_rank(name, p) == 0 for name, p in frozen)
        self.matrices = sum(span.stop - span.start for span in self.spans if span.matrix)
        self.weights = torch.cat([p.detach().reshape(-1) for _, p in (*trained, *frozen)])
        num_trained = sum(p.numel() for _, p in trained)
        self.data = self.weights[:num_trained] if frozen else self.weights
        self.grad = torch.zeros_like(self.data)
        offset = 0
        for name, parameter in (*trained, *frozen):
            span = slice(offset, offset + parameter.numel())
            parameter.data = self.weights[span].view_as(parameter)
            if name in selection.frozen:
                parameter.requires_grad_(False)
                parameter.grad = None
            else:
                parameter.grad = self.grad[span].view_as(parameter)
            offset += parameter.numel()

    def groups(self, weight_decay: float, *, start: int = 0) -> list[dict[str, object]]:
        """Parameter groups for an optimiser: matrices with decay, the rest without; one group if that is the same. Each
        has the `multiplier` of its learning rate.

        Args:
            weight_decay: of the matrices.
            start: the elements before it are left out.
        """
        groups: list[dict[str, object]] = []
        begun, last = start, len(self.spans) - 1
        for index, span in enumerate(self.spans):
            decay = weight_decay if span.matrix else 0.0
            if index < last:
                following = self.spans[index + 1]
                same = (weight_decay if following.matrix else 0.0, following.multiplier) == (decay, span.multiplier)
                if same:
                    continue
            if begun < span.stop:
                parameter = nn.Parameter(self.data[begun : span.stop])
                parameter.grad = self.grad[begun : span.stop]
                groups.append({"params": [parameter], "weight_decay": decay, "multiplier": span.multiplier})
                begun = span.stop
        return groups


def _rank(name: str, parameter: nn.Parameter) -> int:
    """0: a hidden matrix, 1: another parameter of two or more axes, 2: the rest."""
    if parameter.ndim == 2 and name.startswith(HIDDEN):
        return 0
    return 1 if parameter.ndim >= 2 else 2


def _ordered(named: Named, selection: Selection) -> Named:
    """By rank, then by multiplier, in the order in which multipliers first occur."""
    factors = [selection.multipliers.get(name, 1.0) for name, _ in named]
    place = {factor: index for index, factor in enumerate(dict.fromkeys(factors))}
    return sorted(named, key=lambda one: (_rank(*one), place[selection.multipliers.get(one[0], 1.0)]))


def _spans(ordered: Named, selection: Selection, stacked: dict[str, int]) -> list[Span]:
    spans: list[Span] = []
    last, offset = None, 0
    for name, parameter in ordered:
        rank, factor = _rank(name, parameter), selection.multipliers.get(name, 1.0)
        if (rank, factor) != last:
            spans.append(Span(offset, offset, rank < 2, factor, ()))
            last = (rank, factor)
        offset += parameter.numel()
        shapes = spans[-1].shapes
        if rank == 0:
            count = stacked.get(name, 1)
            shapes = (*shapes, *[(parameter.shape[0] // count, parameter.shape[1])] * count)
        spans[-1] = spans[-1]._replace(stop=offset, shapes=shapes)
    return spans
