"""A loss of the user's own, by `package.module:function`: imported, and tried once on made-up numbers."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlseq.errors import UsageError, did_you_mean
from rlseq.sequence import Signature


class Form(NamedTuple):
    """What a loss takes and gives.

    Attributes:
        takes: its first argument, `forecasts` or `logits`.
        outputs, targets: letters of the shapes.
        each: what an element of the loss is of.
    """

    takes: str
    outputs: str
    targets: str
    each: str

    @property
    def wanted(self) -> str:
        """As a sentence."""
        return (
            f"a loss takes ({self.takes} [{self.outputs}], targets [{self.targets}]) and gives the loss of each "
            f"{self.each}, [{self.targets}]"
        )


FORMS = {
    "tokens": Form("logits", "B, T, V", "B, T", "token"),
    "translate": Form("logits", "B, T, V", "B, T", "token"),
    "classify": Form("logits", "B, K", "B", "row"),
    "forecast": Form("forecasts", "B, P, H", "B, P, H", "value"),
}


def own_loss(name: str, signature: Signature) -> Callable[[Tensor, Tensor], Tensor]:
    """The function that a name means.

    Args:
        name: `package.module:function`. It is imported here, so only ever pass a name that the user typed. The current
            folder is searched too.
        signature: of the model, whose outputs and targets the function takes, to give the loss of each target: logits
            `[B, T, V]` and tokens `[B, T]`, logits `[B, K]` and classes `[B]`, or forecasts and targets `[B, P, H]` in
            standard deviations of the target.

    Raises:
        UsageError: there is no such function, or it does not do what a loss must.
    """
    function = _imported(name)
    _check_function(name, function, signature)
    return function


def _example(signature: Signature) -> tuple[Tensor, Tensor]:
    """Made-up outputs and targets."""
    rng = torch.Generator().manual_seed(0)
    if signature.kind == "forecast":
        shape = (2, 3, signature.horizon)
        return torch.randn(shape, generator=rng), torch.randn(shape, generator=rng)
    rows, choices = (2,) if signature.kind == "classify" else (2, 3), max(2, signature.num_outputs)
    outputs = torch.randn(*rows, choices, generator=rng)
    return outputs, torch.randint(0, choices, rows, generator=rng)


def _imported(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    module_name, _, attribute = name.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(f"seq.loss = {name!r}: write package.module:function, for example my_losses:focal")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise UsageError(f"the loss {name}: it needs {error.name}, which is not installed.") from error
        raise UsageError(
            f"the loss {name}: there is no module {module_name} in {os.getcwd()} or among the installed packages."
        ) from None
    except (Exception, SystemExit) as error:
        raise UsageError(f"the loss {name}: importing {module_name} raised {type(error).__name__}: {error}") from error
    if not hasattr(module, attribute):
        raise UsageError(
            f"the loss {name}: {module_name} has nothing called {attribute}." + did_you_mean(attribute, dir(module))
        )
    function: Callable[[Tensor, Tensor], Tensor] = getattr(module, attribute)
    if not callable(function):
        raise UsageError(f"the loss {name} is of type {type(function).__name__}: it must be a function.")
    return function


def _check_function(name: str, function: Callable[..., Any], signature: Signature) -> None:
    """Call a loss once on made-up numbers.

    Raises:
        UsageError: it cannot be called with outputs and targets, or what it gives is no loss of each target.
    """
    form = FORMS[signature.kind]
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise UsageError(f"the loss {name}{inspect.signature(function)}: {error}; {form.wanted}.") from None
    except ValueError:  # a function of C without a signature; the call will tell
        pass
    leaf, targets = _example(signature)
    leaf.requires_grad_()
    with torch.random.fork_rng(devices=[]):
        try:
            loss = function(leaf * 1, targets)  # times one: a function may work in place, as on a network's output
        except Exception as error:
            raise UsageError(
                f"the loss {name} raised {type(error).__name__}: {error} (in a trial call with {form.takes} "
                f"{list(leaf.shape)} and targets {list(targets.shape)}); {form.wanted}."
            ) from error
    if not isinstance(loss, Tensor) or not loss.is_floating_point():
        kind = f"a tensor of {loss.dtype}" if isinstance(loss, Tensor) else type(loss).__name__
        raise UsageError(f"the loss {name} gave {kind}; {form.wanted}.")
    if loss.shape != targets.shape:
        hint = " (do not take the mean yourself: padding must not count)" if loss.ndim == 0 else ""
        raise UsageError(
            f"the loss {name} gave shape {list(loss.shape)} for targets {list(targets.shape)}{hint}; {form.wanted}."
        )
    gradient = torch.autograd.grad(loss.sum(), leaf, allow_unused=True)[0] if loss.requires_grad else None
    if gradient is None or not gradient.any():
        raise UsageError(f"the loss {name} has no gradient by the {form.takes}, so nothing can be learnt from it.")
    if not (loss.isfinite().all() and gradient.isfinite().all()):
        raise UsageError(f"the loss {name}, or its gradient, is not finite for ordinary {form.takes}.")
