"""Optimisers by name, fused where torch has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rlseq.engine.config import OptimOptions

Groups = list[dict[str, object]]


def _adam(groups: Groups, o: OptimOptions) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps, fused=True)


def _adamw(groups: Groups, o: OptimOptions) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps, fused=True)


def _sgd(groups: Groups, o: OptimOptions) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=o.lr, momentum=o.beta1, fused=True)


def _rmsprop(groups: Groups, o: OptimOptions) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(groups, lr=o.lr, alpha=o.beta2, eps=o.eps, momentum=o.beta1)


OPTIMIZERS: dict[str, Callable[[Groups, OptimOptions], torch.optim.Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
    "rmsprop": _rmsprop,
}


MOMENTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.SGD: (),
    torch.optim.RMSprop: ("step", "square_avg"),
}


def optimizer_arrays(optimizer: torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """The optimiser's moments and counters as arrays `<parameter index>.<name>`."""
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value).cpu().numpy()
        for index, entry in state.items()
        for name, value in entry.items()
        if value is not None
    }


def load_optimizer_arrays(optimizer: torch.optim.Optimizer, arrays: dict[str, np.ndarray]) -> None:
    """Put back what `optimizer_arrays` gave; learning rates and the like come from the options, not from a file.

    Raises:
        ValueError: the arrays are not those of this optimiser, and it would fail or begin anew at its next step.
    """
    shapes = {path: array.shape for path, array in arrays.items()}
    expected = _shapes(optimizer)
    if arrays and shapes != expected:
        odd = sorted(path for path in shapes.keys() | expected if shapes.get(path) != expected.get(path))[0]
        raise ValueError(f"optimizer.{odd} is {shapes.get(odd, 'missing')}, not {expected.get(odd, 'expected')}")
    state: dict[int, dict[str, Any]] = {}
    for path, array in arrays.items():
        index, _, name = path.partition(".")
        state.setdefault(int(index), {})[name] = torch.from_numpy(array.copy())
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _shapes(optimizer: torch.optim.Optimizer) -> dict[str, tuple[int, ...]]:
    """The shape of every array that the optimiser holds after an update."""
    shapes: dict[str, tuple[int, ...]] = {}
    parameters = [(group, parameter) for group in optimizer.param_groups for parameter in group["params"]]
    for index, (group, parameter) in enumerate(parameters):
        names = [*MOMENTS[type(optimizer)], *(["momentum_buffer"] if group.get("momentum") else [])]
        shapes |= {f"{index}.{name}": () if name == "step" else tuple(parameter.shape) for name in names}
    return shapes
