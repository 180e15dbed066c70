"""Optimisers by name, over flat parameters.

Adam and AdamW call torch's fused kernel itself: on the flat buffer of a small network the bookkeeping around it in
`torch.optim` took as long as the kernel (66 against 31 us for 67,586 parameters). The numbers are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from rlseq.engine.config import OptimOptions
from rlseq.engine.flat import FlatParameters
from rlseq.engine.muon import Muon
from rlseq.errors import UsageError

Groups = list[dict[str, Any]]
MOMENTUM = "muon.momentum"


class Optimizer(Protocol):
    """What the update step needs of an optimiser.

    Attributes:
        param_groups: as torch's, so that a loss scaler can unscale the gradients.
        recordable: whether `step` may be part of a CUDA graph; it then takes the rate as a scalar tensor too.
    """

    param_groups: Groups
    recordable: bool

    def step(self, lr: float | Tensor) -> None:
        """Change the parameters by their gradients at this learning rate."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Moments and counters as `<parameter index>.<name>`; empty before the first step."""

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """Put back a copy of what `arrays` gave; learning rates and the like come from the options, not from a file.

        Raises:
            ValueError: names or shapes are those of another optimiser or network.
        """


class _Moments(NamedTuple):
    """Of one parameter, by torch's names."""

    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor


class FusedAdam:
    """Adam (Kingma & Ba 2015, arXiv 1412.6980), or AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101).

    Args:
        groups: parameters and their weight decay, from `FlatParameters.groups`.
        options: learning rate, decays and epsilon.
        decoupled: decay the weights themselves (AdamW) instead of adding the decay to the gradient.
    """

    recordable = True

    def __init__(self, groups: Groups, options: OptimOptions, *, decoupled: bool) -> None:
        settings = {"lr": options.lr, "betas": (options.beta1, options.beta2), "eps": options.eps}
        self.param_groups: Groups = [{**settings, **group} for group in groups]
        self._kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
        self._state: list[_Moments] = []

    def step(self, lr: float | Tensor) -> None:
        """See `Optimizer`."""
        self._state = self._state or self._zeros()
        at = 0
        for group in self.param_groups:
            parameters = [parameter.detach() for parameter in group["params"]]
            state, at = self._state[at : at + len(parameters)], at + len(parameters)
            group["lr"], (beta1, beta2) = multiplied(lr, group["multiplier"]), group["betas"]
            steps = [moments.step.add_(1) for moments in state]
            self._kernel(
                parameters,
                [parameter.grad for parameter in group["params"]],
                [moments.exp_avg for moments in state],
                [moments.exp_avg_sq for moments in state],
                [],
                steps,
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def _zeros(self) -> list[_Moments]:
        parameters = [parameter.detach() for group in self.param_groups for parameter in group["params"]]
        return [
            _Moments(torch.zeros_like(p), torch.zeros_like(p), torch.zeros((), device=p.device)) for p in parameters
        ]

    def arrays(self) -> dict[str, np.ndarray]:
        """See `Optimizer`."""
        return {
            f"{index}.{name}": value.cpu().numpy()
            for index, moments in enumerate(self._state)
            for name, value in moments._asdict().items()
        }

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """See `Optimizer`."""
        state = self._zeros() if arrays else []
        slots = {f"{index}.{name}": slot for index, entry in enumerate(state) for name, slot in entry._asdict().items()}
        check_shapes(arrays, {name: tuple(slot.shape) for name, slot in slots.items()})
        for name, slot in slots.items():
            slot.copy_(torch.from_numpy(arrays[name]))
        self._state = state


MOMENTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.SGD: (),
    torch.optim.RMSprop: ("step", "square_avg"),
}


class TorchOptimizer:
    """An optimiser of `torch.optim`.

    Args:
        optimizer: over flat parameters.
        recordable: see `Optimizer`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, *, recordable: bool) -> None:
        self._optimizer = optimizer
        self.recordable = recordable
        self.param_groups: Groups = optimizer.param_groups

    def step(self, lr: float | Tensor) -> None:
        """See `Optimizer`."""
        for group in self.param_groups:
            group["lr"] = multiplied(lr, group["multiplier"])
        self._optimizer.step()

    def arrays(self) -> dict[str, np.ndarray]:
        """See `Optimizer`."""
        state: dict[int, dict[str, Any]] = self._optimizer.state_dict()["state"]
        return {
            f"{index}.{name}": torch.as_tensor(value).cpu().numpy()
            for index, entry in state.items()
            for name, value in entry.items()
            if value is not None
        }

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """See `Optimizer`."""
        if arrays:
            check_shapes(arrays, self._shapes())
        state: dict[int, dict[str, Any]] = {}
        for path, array in arrays.items():
            index, _, name = path.partition(".")
            state.setdefault(int(index), {})[name] = torch.from_numpy(array.copy())
        self._optimizer.load_state_dict({"state": state, "param_groups": self._optimizer.state_dict()["param_groups"]})
        self.param_groups = self._optimizer.param_groups

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Of every array that the optimiser holds after an update."""
        shapes: dict[str, tuple[int, ...]] = {}
        parameters = [(group, parameter) for group in self.param_groups for parameter in group["params"]]
        for index, (group, parameter) in enumerate(parameters):
            names = [*MOMENTS[type(self._optimizer)], *(["momentum_buffer"] if group["momentum"] else [])]
            shapes |= {f"{index}.{name}": () if name == "step" else tuple(parameter.shape) for name in names}
        return shapes


class MuonAndAdamW:
    """Muon for the hidden matrices, AdamW for embeddings, heads and vectors.

    Both follow the same schedule; AdamW's peak is `optim.adam_lr`. Where all hidden matrices are frozen, AdamW is left.

    Args:
        flat: the parameters.
        options: of both.

    Raises:
        UsageError: the network has no hidden matrices.
    """

    recordable = True

    def __init__(self, flat: FlatParameters, options: OptimOptions) -> None:
        if not flat.hidden and not flat.frozen_hidden:
            raise UsageError(
                "optim.name = muon moves the matrices of hidden layers, and this network has none. Take adam or adamw."
            )
        settings = {"lr": options.lr, "momentum": options.muon_momentum, "weight_decay": options.weight_decay}
        self._muons = []
        for span in (span for span in flat.spans if span.shapes):
            part = slice(span.start, span.stop)
            self._muons.append(
                Muon(flat.data[part], flat.grad[part], span.shapes, {**settings, "multiplier": span.multiplier})
            )
        self._adam = FusedAdam(flat.groups(options.weight_decay, start=flat.hidden), options, decoupled=True)
        self._ratio = 1.0 if options.adam_lr is None else options.adam_lr / options.lr
        self.param_groups: Groups = [g for muon in self._muons for g in muon.param_groups] + self._adam.param_groups

    def step(self, lr: float | Tensor) -> None:
        """See `Optimizer`."""
        for muon in self._muons:
            muon.step(multiplied(lr, muon.param_groups[0]["multiplier"]))
        self._adam.step(lr * self._ratio)

    def arrays(self) -> dict[str, np.ndarray]:
        """See `Optimizer`; Muon's momentum, of all hidden matrices, is named `muon.momentum`."""
        momenta = [muon.momentum for muon in self._muons if muon.momentum is not None]
        own = {MOMENTUM: torch.cat(momenta).cpu().numpy()} if momenta else {}
        return {**own, **self._adam.arrays()}

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """See `Optimizer`."""
        momentum = {name: array for name, array in arrays.items() if name == MOMENTUM}
        parameters = [muon.param_groups[0]["params"][0] for muon in self._muons]
        sizes = [len(parameter) for parameter in parameters]
        check_shapes(momentum, {MOMENTUM: (sum(sizes),)} if arrays and sizes else {})
        self._adam.load({name: array for name, array in arrays.items() if name != MOMENTUM})
        parts = np.split(momentum[MOMENTUM], np.cumsum(sizes)[:-1]) if momentum else [None] * len(sizes)
        for muon, parameter, part in zip(self._muons, parameters, parts, strict=True):
            muon.momentum = None if part is None else parameter.new_tensor(part)


def _sgd(flat: FlatParameters, o: OptimOptions) -> Optimizer:
    groups = flat.groups(o.weight_decay)
    return TorchOptimizer(torch.optim.SGD(groups, lr=o.lr, momentum=o.beta1, fused=True), recordable=True)


def _rmsprop(flat: FlatParameters, o: OptimOptions) -> Optimizer:
    groups = flat.groups(o.weight_decay)
    optimizer = torch.optim.RMSprop(groups, lr=o.lr, alpha=o.beta2, eps=o.eps, momentum=o.beta1)
    return TorchOptimizer(optimizer, recordable=False)  # its kernels take the rate as a plain number


OPTIMIZERS: dict[str, Callable[[FlatParameters, OptimOptions], Optimizer]] = {
    "adam": lambda flat, options: FusedAdam(flat.groups(options.weight_decay), options, decoupled=False),
    "adamw": lambda flat, options: FusedAdam(flat.groups(options.weight_decay), options, decoupled=True),
    "sgd": _sgd,
    "rmsprop": _rmsprop,
    "muon": MuonAndAdamW,
}


def multiplied(lr: float | Tensor, factor: float) -> float | Tensor:
    """A parameter group's learning rate."""
    return lr if factor == 1.0 else lr * factor


def check_shapes(arrays: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]]) -> None:
    """To be called before anything is changed: what does not fit would fail, or begin anew, at the next step.

    Raises:
        ValueError: names or shapes are not as expected.
    """
    shapes = {path: array.shape for path, array in arrays.items()}
    if shapes != expected:
        odd = sorted(path for path in shapes.keys() | expected.keys() if shapes.get(path) != expected.get(path))[0]
        raise ValueError(f"optimizer.{odd} is {shapes.get(odd, 'missing')}, not {expected.get(odd, 'expected')}")
