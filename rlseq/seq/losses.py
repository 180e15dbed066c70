"""Losses of sequence models: what one prediction costs, of a token, a class or a value.

Shapes: B sequences, T tokens, V vocabulary or classes, P places that a forecast is made from, H values ahead of each,
Q quantiles. `...` is `B, T` of tokens, `B` of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rlseq.errors import UsageError, did_you_mean
from rlseq.seq.config import SeqOptions
from rlseq.seq.own_loss import own_loss
from rlseq.sequence import Signature

ElementLoss = Callable[[Tensor, Tensor], Tensor]
"""`(logits [B, T, V], targets [B, T] int64) -> [B, T]`, `(logits [B, V], targets [B]) -> [B]`, or
`(forecasts [B, P, H] or [B, P, H, Q], targets [B, P, H]) -> [B, P]`; all but targets in float32."""


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy in nats, `[...]`.

    Args:
        logits: `[..., V]`, unnormalised log-probabilities.
        targets: `[...]`, the right ones.
        label_smoothing: share of the target spread over all V, the right one included (arXiv 1512.00567).
    """
    flat = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none", label_smoothing=label_smoothing)
    return flat.view(targets.shape)


def focal(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """Focal loss, `[...]`: cross-entropy times `(1 - p) ** gamma`, p being the probability of the right one, so that
    what is well predicted counts less (Lin et al. 2017, arXiv 1708.02002; without the paper's weights of classes).

    Args:
        logits: `[..., V]`.
        targets: `[...]`.
        gamma: 0 gives the cross-entropy.
    """
    log_p = -cross_entropy(logits, targets)
    # Where p is 1 the power's slope may be infinite, and the product's limit is 0.
    missing = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
    return -(missing**gamma) * log_p


def quantile(forecasts: Tensor, targets: Tensor, quantiles: Tensor) -> Tensor:
    """Pinball loss (Koenker & Bassett 1978, doi:10.2307/1913643), mean over the quantiles, `[B, P, H]`: least where the
    share q of what may come lies below the forecast for q.

    Args:
        forecasts: `[B, P, H, Q]`.
        targets: `[B, P, H]`.
        quantiles: `[Q]`.
    """
    above = targets.unsqueeze(-1) - forecasts
    return torch.maximum(quantiles * above, (quantiles - 1) * above).mean(-1)


def _quantile(options: SeqOptions, signature: Signature) -> ElementLoss:
    assert signature.quantiles, "the task of a quantile loss answers with quantiles"
    return lambda forecasts, targets: quantile(forecasts, targets, forecasts.new_tensor(signature.quantiles))


class Entry(NamedTuple):
    """A loss of the table.

    Attributes:
        make: the loss with its options; of values, in units of their scale, `[B, P, H]`.
        of_values: whether it is for values; else it is for tokens and classes.
    """

    make: Callable[[SeqOptions, Signature], ElementLoss]
    of_values: bool = False


LOSSES: dict[str, Entry] = {
    "cross_entropy": Entry(lambda o, _: lambda logits, targets: cross_entropy(logits, targets, o.label_smoothing)),
    "focal": Entry(lambda o, _: lambda logits, targets: focal(logits, targets, o.focal_gamma)),
    "mse": Entry(lambda o, _: lambda made, targets: F.mse_loss(made, targets, reduction="none"), of_values=True),
    "huber": Entry(
        lambda o, _: lambda made, targets: F.huber_loss(made, targets, reduction="none", delta=o.huber_delta),
        of_values=True,
    ),
    "quantile": Entry(_quantile, of_values=True),
}

# Options of one loss alone.
OPTIONS = {
    "label_smoothing": "cross_entropy",
    "focal_gamma": "focal",
    "huber_delta": "huber",
    "quantiles": "quantile",
}


def suitable(signature: Signature) -> list[str]:
    """The names of the losses that suit what a model answers; the first is the usual one."""
    return [name for name, entry in LOSSES.items() if entry.of_values == (signature.kind == "forecast")]


def elementwise(name: str, options: SeqOptions, signature: Signature) -> ElementLoss:
    """A loss by name, for what a model of this signature answers. Values are measured in standard deviations of the
    target, and their losses are means over the values ahead.

    Args:
        name: of `LOSSES`; `auto`: the usual one; or `package.module:function`, see `own_loss.own_loss`: it is imported
            here, so only ever pass a name that the user typed.
        options: of the losses; a function of your own gets none.
        signature: of the model.

    Raises:
        UsageError: there is no such loss, it does not suit, or it does not do what a loss must.
    """
    known = suitable(signature)
    name = known[0] if name == "auto" else name
    if name not in LOSSES and ":" not in name:
        raise UsageError(
            f"seq.loss = {name!r} is not known: it must be {', '.join(known)}, or package.module:function of your own."
            + did_you_mean(name, known)
        )
    if name in LOSSES and name not in known:
        answers = {"classify": "classes", "forecast": "values"}.get(signature.kind, "tokens")
        raise UsageError(
            f"seq.loss = {name} does not suit a task whose answers are {answers}: it must be {', '.join(known)}, or "
            "package.module:function of your own."
        )
    _check_own_options(name, options, known)
    loss = LOSSES[name].make(options, signature) if name in LOSSES else own_loss(name, signature)
    return _scaled(loss, signature.scale[signature.target]) if signature.kind == "forecast" else loss


def _check_own_options(name: str, options: SeqOptions, suitable: Sequence[str]) -> None:
    """Raises:
    UsageError: an option of another loss is given.
    """
    for option, owner in OPTIONS.items():
        value, usual = getattr(options, option), getattr(SeqOptions(), option)
        if value != usual and name != owner:
            shown = list(value) if isinstance(value, tuple) else f"{value:g}"
            other = f", or give --loss {owner}" if owner in suitable else ""
            raise UsageError(
                f"seq.{option} = {shown} is for {owner}; the loss {name} would not get it: leave it out{other}"
            )


def _scaled(loss: ElementLoss, scale: float) -> ElementLoss:
    return lambda forecasts, targets: loss(forecasts / scale, targets / scale).mean(-1)


def masked_mean(loss: Tensor, mask: Tensor | None) -> Tensor:
    """The mean loss of what counts; 0, without a gradient, where nothing does.

    Args:
        loss: of each element.
        mask: of the same shape, true where it counts; None: everywhere. What is masked may be anything, NaN too.
    """
    if mask is None:
        return loss.mean()
    return torch.where(mask, loss, 0.0).sum() / mask.sum().clamp(min=1)
