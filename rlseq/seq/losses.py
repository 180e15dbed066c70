"""Losses of sequence models: what one prediction costs, token by token.

Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rlseq.errors import UsageError, did_you_mean

ElementLoss = Callable[[Tensor, Tensor], Tensor]
"""`(logits_BTV float32, targets_BT int64) -> loss_BT`."""

TRIAL_VOCABULARY = 5


def cross_entropy(logits_BTV: Tensor, targets_BT: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy in nats, `[B, T]`.

    Args:
        logits_BTV: unnormalised log-probabilities.
        targets_BT: the right tokens.
        label_smoothing: share of the target spread over all V tokens, the right one included (arXiv 1512.00567).
    """
    flat = F.cross_entropy(
        logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="none", label_smoothing=label_smoothing
    )
    return flat.view(targets_BT.shape)


LOSSES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {"cross_entropy": cross_entropy}


def elementwise(name: str, label_smoothing: float, *, vocabulary: int = TRIAL_VOCABULARY) -> ElementLoss:
    """A loss by name.

    Args:
        name: of `LOSSES`, or `package.module:function`: your own, taking `(logits_BTV, targets_BT)` and giving the loss
            of each token, `[B, T]`. It is imported here, so only ever pass a name that the user typed. The current
            folder is searched too.
        label_smoothing: see `cross_entropy`; a function of your own gets none.
        vocabulary: V of the trial call that shows whether a function of your own can be used.

    Raises:
        UsageError: there is no such loss, or it does not do what a loss must.
    """
    if ":" not in name:
        if name not in LOSSES:
            known = ", ".join(LOSSES)
            raise UsageError(
                f"seq.loss = {name!r} is not known: it must be {known}, or package.module:function of your own."
                + did_you_mean(name, LOSSES)
            )
        loss = LOSSES[name]
        return lambda logits_BTV, targets_BT: loss(logits_BTV, targets_BT, label_smoothing)
    if label_smoothing:
        raise UsageError(
            f"seq.label_smoothing = {label_smoothing:g} is for cross_entropy; the loss {name} would not get it: "
            "set seq.label_smoothing=0"
        )
    function = _imported(name)
    _check_function(name, function, max(2, vocabulary))
    return function


def masked_mean(loss_BT: Tensor, mask_BT: Tensor | None) -> Tensor:
    """The mean loss of the tokens that count; 0, without a gradient, where none does.

    Args:
        loss_BT: loss of each token.
        mask_BT: true where it counts; None: everywhere. What is masked may be anything, NaN too.
    """
    if mask_BT is None:
        return loss_BT.mean()
    return torch.where(mask_BT, loss_BT, 0.0).sum() / mask_BT.sum().clamp(min=1)


def _imported(name: str) -> ElementLoss:
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
    function = getattr(module, attribute)
    if not callable(function):
        raise UsageError(f"the loss {name} is of type {type(function).__name__}: it must be a function.")
    return function


def _check_function(name: str, function: Callable[..., Any], vocabulary: int) -> None:
    """Call a loss once on made-up numbers.

    Raises:
        UsageError: it cannot be called with logits and targets, or what it gives is no loss of each token.
    """
    wanted = "a loss takes (logits [B, T, V], targets [B, T]) and gives the loss of each token, [B, T]"
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise UsageError(f"the loss {name}{inspect.signature(function)}: {error}; {wanted}.") from None
    except ValueError:  # a function of C without a signature; the call will tell
        pass
    rng = torch.Generator().manual_seed(0)
    leaf_BTV = torch.randn(2, 3, vocabulary, generator=rng).requires_grad_()
    targets_BT = torch.randint(0, vocabulary, (2, 3), generator=rng)
    with torch.random.fork_rng(devices=[]):
        try:
            loss = function(
                leaf_BTV * 1, targets_BT
            )  # times one: a function may work in place, as on a network's output
        except Exception as error:
            raise UsageError(
                f"the loss {name} raised {type(error).__name__}: {error} (in a trial call with logits "
                f"{list(leaf_BTV.shape)} and targets [2, 3]); {wanted}."
            ) from error
    if not isinstance(loss, Tensor) or not loss.is_floating_point():
        kind = f"a tensor of {loss.dtype}" if isinstance(loss, Tensor) else type(loss).__name__
        raise UsageError(f"the loss {name} gave {kind}; {wanted}.")
    if loss.shape != targets_BT.shape:
        hint = " (do not take the mean yourself: padding must not count)" if loss.ndim == 0 else ""
        raise UsageError(f"the loss {name} gave shape {list(loss.shape)} for targets [2, 3]{hint}; {wanted}.")
    gradient = torch.autograd.grad(loss.sum(), leaf_BTV, allow_unused=True)[0] if loss.requires_grad else None
    if gradient is None or not gradient.any():
        raise UsageError(f"the loss {name} has no gradient by the logits, so nothing can be learnt from it.")
    if not (loss.isfinite().all() and gradient.isfinite().all()):
        raise UsageError(f"the loss {name}, or its gradient, is not finite for ordinary logits.")
