"""Weights of another network to begin with: what fits by name and shape is taken, and nothing is left out unseen.

Parameters only: buffers are constants of a task, such as the scale of its columns, and stay those of the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rlseq.engine.selection import covering
from rlseq.errors import UsageError

Shapes = dict[str, tuple[int, ...]]
ENDS = ("head.", "embedding.", "reader.")  # what answers, and what reads tokens or values
SHOWN = 12  # names in a message


class Inherited(NamedTuple):
    """What became of another network's weights.

    Attributes:
        names: of all parameters of the new network.
        loaded: of those that were taken over.
        anew: the others, with their shapes: they begin as they were drawn.
        left_out: the other network's that were not taken, with their shapes.
    """

    names: tuple[str, ...]
    loaded: tuple[str, ...]
    anew: Shapes
    left_out: Shapes

    def facts(self) -> dict[str, Any]:
        """As lineage and summary have it."""
        facts: dict[str, Any] = {"loaded": covering(self.loaded, self.names)}
        facts |= {"anew": sorted(self.anew)} if self.anew else {}
        return facts | ({"left_out": sorted(self.left_out)} if self.left_out else {})

    def warning(self, parent: str) -> str | None:
        """What the user should know; None if all was taken.

        Args:
            parent: the run that the weights came from.
        """
        if not self.anew and not self.left_out:
            return None
        told = [
            f"--from {parent}: {len(self.loaded)} of {len(self.names)} parameters begin with its weights "
            f"({', '.join(covering(self.loaded, self.names))})"
        ]
        told += [f"Begun anew: {_listed(self.anew)}"] if self.anew else []
        told += [f"Not taken from it: {_listed(self.left_out)}"] if self.left_out else []
        return ". ".join(told) + "."


def inherit(
    net: nn.Module, arrays: Mapping[str, np.ndarray], parent: str, *, anew: Sequence[str] = (), fix: str = ""
) -> Inherited:
    """Load what fits into `net`, in place.

    Args:
        net: the new network.
        arrays: the other one's state dict.
        parent: what messages call the other one.
        anew: beginnings of the names that are to begin anew, whatever there is.
        fix: what to do about a parameter of another shape.

    Raises:
        UsageError: a parameter has another shape, or nothing fits; nothing was loaded then.
    """
    own = dict(net.named_parameters())
    buffers = {name for name, _ in net.named_buffers()}
    given = {name: array for name, array in arrays.items() if name not in buffers}
    wanted = [name for name in own if name in given and not name.startswith(tuple(anew))]
    odd = [name for name in wanted if tuple(own[name].shape) != given[name].shape]
    if odd:
        raise UsageError(_misfit(odd, own, given, parent, fix))
    if not wanted:
        raise UsageError(
            f"--from {parent}: none of its weights fits this network. It has {_listed(_shapes(given))}; this network "
            f"has {_listed(_shapes(own))}. Begin without --from, or with a run of a network of the same kind."
        )
    with torch.no_grad():
        for name in wanted:
            own[name].copy_(torch.from_numpy(given[name]))
    return Inherited(
        tuple(own),
        tuple(wanted),
        {name: shape for name, shape in _shapes(own).items() if name not in wanted},
        {name: shape for name, shape in _shapes(given).items() if name not in wanted},
    )


def _misfit(
    odd: Sequence[str], own: Mapping[str, nn.Parameter], given: Mapping[str, np.ndarray], parent: str, fix: str
) -> str:
    name = next((name for name in odd if not name.startswith(ENDS)), odd[0])
    more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
    if name.startswith(ENDS):
        fix = "Add --new-head: the ends of the network then begin anew, and the rest with those weights."
    there, here = list(given[name].shape), list(own[name].shape)
    return f"--from {parent}: {name} is {there} there and {here} in this network{more}. {fix}"


def _shapes(values: Mapping[str, Any]) -> Shapes:
    return {name: tuple(value.shape) for name, value in values.items()}


def _listed(shapes: Shapes) -> str:
    """`head.weight [65, 64], norm.weight [64]`."""
    shown = [f"{name} {list(shape)}" for name, shape in list(shapes.items())[:SHOWN]]
    return ", ".join(shown) + (f" and {len(shapes) - SHOWN} more" if len(shapes) > SHOWN else "")
