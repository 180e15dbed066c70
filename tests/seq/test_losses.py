"""Losses by hand, against torch where it has them, and which suit what."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from rlseq.config import Layer, resolve
from rlseq.errors import UsageError
from rlseq.seq.config import SeqOptions
from rlseq.seq.losses import LOSSES, elementwise, focal, masked_mean, suitable
from rlseq.sequence import Signature

LOGITS_BTV = torch.tensor([[[0.0, math.log(3)], [0.0, 0.0]], [[math.log(7), 0.0], [0.0, 0.0]]])
TARGETS_BT = torch.tensor([[1, 0], [1, 1]])
TOKENS = Signature(vocabulary=2, start=0, end=1)
CLASSES = Signature(kind="classify", features=("a",), shift=(0.0,), scale=(1.0,), classes=("x", "y"))
VALUES = Signature(
    kind="forecast", features=("a", "b"), shift=(5.0, 7.0), scale=(10.0, 2.0), target=1, horizon=2, quantiles=()
)
QUANTILES = Signature(kind="forecast", features=("b",), shift=(7.0,), scale=(2.0,), horizon=2, quantiles=(0.1, 0.5))


def options(**values: Any) -> SeqOptions:
    return resolve(SeqOptions, Layer("test", values))


def loss(name: str, outputs: Tensor, targets: Tensor, signature: Signature = TOKENS, **values: Any) -> Tensor:
    return elementwise(name, options(**values), signature)(outputs, targets)


def test_cross_entropy_by_hand() -> None:
    wanted = torch.tensor([[math.log(4 / 3), math.log(2)], [math.log(8), math.log(2)]])
    torch.testing.assert_close(loss("cross_entropy", LOGITS_BTV, TARGETS_BT), wanted)
    classes = loss("cross_entropy", LOGITS_BTV[:, 0], TARGETS_BT[:, 0], CLASSES)
    torch.testing.assert_close(classes, wanted[:, 0])


def test_label_smoothing_by_hand() -> None:
    # 0.9 on the right one of two tokens, 0.1 on the other
    wanted = [
        [0.9 * math.log(4 / 3) + 0.1 * math.log(4), math.log(2)],
        [0.9 * math.log(8) + 0.1 * math.log(8 / 7), math.log(2)],
    ]
    found = loss("cross_entropy", LOGITS_BTV, TARGETS_BT, label_smoothing=0.2)
    torch.testing.assert_close(found, torch.tensor(wanted))


def test_focal_by_hand() -> None:
    """The right ones have probabilities 3/4, 1/2, 1/8 and 1/2."""
    wanted = [
        [(1 / 4) ** 2 * math.log(4 / 3), (1 / 2) ** 2 * math.log(2)],
        [(7 / 8) ** 2 * math.log(8), (1 / 2) ** 2 * math.log(2)],
    ]
    torch.testing.assert_close(loss("focal", LOGITS_BTV, TARGETS_BT), torch.tensor(wanted))
    found = loss("focal", LOGITS_BTV[:, 0], TARGETS_BT[:, 0], CLASSES, focal_gamma=0.5)
    wanted_B = [(1 / 4) ** 0.5 * math.log(4 / 3), (7 / 8) ** 0.5 * math.log(8)]
    torch.testing.assert_close(found, torch.tensor(wanted_B))
    plain = loss("cross_entropy", LOGITS_BTV, TARGETS_BT)
    torch.testing.assert_close(loss("focal", LOGITS_BTV, TARGETS_BT, focal_gamma=0), plain)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 2.0])
def test_focal_of_what_is_certain_has_a_finite_gradient(gamma: float) -> None:
    logits = torch.tensor([[200.0, 0.0], [0.0, 200.0], [20.0, 0.0], [0.0, 0.1]], requires_grad=True)
    made = focal(logits, torch.tensor([0, 0, 0, 0]), gamma)
    made.sum().backward()
    assert made.isfinite().all() and logits.grad is not None and logits.grad.isfinite().all()
    assert made[1].item() == pytest.approx(200.0) and made[0].item() == 0.0
    exact = logits.detach().double().requires_grad_()
    focal(exact, torch.tensor([0, 0, 0, 0]), gamma).sum().backward()
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=1e-4, atol=1e-7)
    assert torch.autograd.gradcheck(
        lambda x: focal(x, torch.tensor([0, 1]), gamma), exact.detach()[2:].requires_grad_()
    )


def test_values_are_measured_in_the_scale_of_their_target_by_hand() -> None:
    """Errors of 1 and -4 are half and two standard deviations of the second column, whose scale is 2."""
    forecasts, targets = torch.tensor([[[8.0, 2.0]]]), torch.tensor([[[7.0, 6.0]]])
    assert loss("mse", forecasts, targets, VALUES).tolist() == [[(0.25 + 4.0) / 2]]
    # Half the square up to delta, then linear
    assert loss("huber", forecasts, targets, VALUES).tolist() == [[(0.125 + 1.0 * (2 - 0.5)) / 2]]
    assert loss("huber", forecasts, targets, VALUES, huber_delta=0.25).tolist() == [
        [(0.25 * (0.5 - 0.125) + 0.25 * (2 - 0.125)) / 2]
    ]


def test_quantiles_by_hand() -> None:
    """Targets 1 above and 2 below the forecasts, in units of their scale: q times, and 1 - q times as much."""
    forecasts = torch.tensor([[[[7.0, 7.0], [10.0, 8.0]]]])  # [B, P, H, Q]
    targets = torch.tensor([[[9.0, 6.0]]])
    first = (0.1 * 1 + 0.5 * 1) / 2
    second = (0.9 * 2 + 0.5 * 1) / 2
    found = loss("quantile", forecasts, targets, QUANTILES)
    torch.testing.assert_close(found, torch.tensor([[(first + second) / 2]]))


def test_the_quantile_loss_is_least_at_the_quantiles() -> None:
    sample = torch.randn(4001, generator=torch.Generator().manual_seed(0)) * 2
    grid = torch.linspace(-4, 4, 161)
    forecasts, targets = grid[:, None, None, None].expand(-1, len(sample), 1, 1), sample[None, :, None]
    for q in (0.1, 0.5):
        one = Signature(**{**_fields(QUANTILES), "quantiles": (q,), "horizon": 1})
        costs = loss("quantile", forecasts, targets.expand(len(grid), -1, 1), one).mean(1)
        assert grid[costs.argmin()].item() == pytest.approx(sample.quantile(q).item(), abs=0.06)


def _fields(signature: Signature) -> dict[str, Any]:
    return {name: getattr(signature, name) for name in signature.__struct_fields__}


def test_losses_that_torch_has_are_torchs() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, targets = torch.randn(3, 4, 6, generator=generator), torch.randint(0, 6, (3, 4), generator=generator)
    whole = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1)
    torch.testing.assert_close(loss("cross_entropy", logits, targets, label_smoothing=0.1).mean(), whole)
    made, true = torch.randn(3, 4, 2, generator=generator), torch.randn(3, 4, 2, generator=generator)
    torch.testing.assert_close(loss("mse", made, true, VALUES).mean() * 4, F.mse_loss(made, true))
    huber = F.huber_loss(made / 2, true / 2, delta=0.3)
    torch.testing.assert_close(loss("huber", made, true, VALUES, huber_delta=0.3).mean(), huber)
    middle = Signature(**{**_fields(QUANTILES), "quantiles": (0.5,)})
    half = loss("quantile", made.unsqueeze(-1), true, middle).mean()
    torch.testing.assert_close(half * 4, F.l1_loss(made, true))


@pytest.mark.parametrize(
    ("signature", "shape", "targets"),
    [
        (TOKENS, (3, 4, 6), torch.zeros(3, 4, dtype=torch.long)),
        (CLASSES, (3, 6), torch.zeros(3, dtype=torch.long)),
        (VALUES, (3, 4, 2), torch.zeros(3, 4, 2)),
        (QUANTILES, (3, 4, 2, 2), torch.zeros(3, 4, 2)),
    ],
    ids=["tokens", "classes", "values", "quantiles"],
)
def test_every_loss_is_of_each_element_and_has_a_gradient(
    signature: Signature, shape: tuple[int, ...], targets: Tensor
) -> None:
    outputs = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for name in suitable(signature):
        if (name == "quantile") != bool(signature.quantiles) and signature.kind == "forecast":
            continue
        each = loss(name, outputs, targets, signature)
        assert each.shape == shape[: 1 if signature is CLASSES else 2]
        place = (1,) if each.ndim == 1 else (1, 2)
        (gradient,) = torch.autograd.grad(each[place], outputs)
        assert gradient[place].any() and gradient.count_nonzero() == gradient[place].count_nonzero()


def test_the_mean_is_of_the_tokens_that_count() -> None:
    loss_BT = torch.tensor([[1.0, 2.0, math.nan], [4.0, math.inf, 8.0]], requires_grad=True)
    mask_BT = torch.tensor([[True, True, False], [True, False, False]])
    mean = masked_mean(loss_BT, mask_BT)
    assert mean.item() == pytest.approx(7 / 3)
    mean.backward()
    torch.testing.assert_close(loss_BT.grad, mask_BT / 3)
    assert masked_mean(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), None).item() == 3.0


def test_where_nothing_counts_the_mean_is_nought_without_gradient() -> None:
    logits_BTV = torch.randn(1, 2, 3, requires_grad=True)
    loss_BT = elementwise("cross_entropy", SeqOptions(), TOKENS)(logits_BTV, torch.zeros(1, 2, dtype=torch.long))
    mean = masked_mean(loss_BT, torch.zeros(1, 2, dtype=torch.bool))
    mean.backward()
    assert mean.item() == 0.0
    assert logits_BTV.grad is not None and not logits_BTV.grad.any()


def test_what_suits_what() -> None:
    assert suitable(TOKENS) == suitable(CLASSES) == ["cross_entropy", "focal"]
    assert suitable(VALUES) == ["mse", "huber", "quantile"]
    assert {*suitable(TOKENS), *suitable(VALUES)} == set(LOSSES)
    assert torch.equal(loss("auto", LOGITS_BTV, TARGETS_BT), loss("cross_entropy", LOGITS_BTV, TARGETS_BT))
    assert loss("auto", torch.ones(1, 1, 2), torch.zeros(1, 1, 2), VALUES).tolist() == [[0.25]]


@pytest.mark.parametrize(
    ("name", "signature", "message"),
    [
        (
            "mse",
            TOKENS,
            r"seq.loss = mse does not suit a task whose answers are tokens: it must be cross_entropy, focal,",
        ),
        ("quantile", CLASSES, r"answers are classes: it must be cross_entropy, focal, or package.module:function"),
        (
            "focal",
            VALUES,
            r"seq.loss = focal does not suit a task whose answers are values: it must be mse, huber, quant",
        ),
        ("huba", VALUES, r"seq.loss = 'huba' is not known: it must be mse, huber, quantile.*Did you mean huber"),
        ("crossentropy", TOKENS, r"seq.loss = 'crossentropy' is not known: .*Did you mean cross_entropy\?"),
        ("", TOKENS, r"seq.loss = '' is not known: it must be cross_entropy, focal, or package.module:function"),
    ],
)
def test_what_does_not_suit_is_refused(name: str, signature: Signature, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        elementwise(name, options(), signature)


@pytest.mark.parametrize(("name", "signature"), [("focal", TOKENS), ("mse", VALUES), ("own_losses:good", TOKENS)])
def test_smoothing_is_of_cross_entropy_alone(name: str, signature: Signature) -> None:
    with pytest.raises(UsageError, match=rf"seq.label_smoothing = 0.1 is for cross_entropy; the loss {name} would not"):
        elementwise(name, options(label_smoothing=0.1), signature)


@pytest.mark.parametrize(
    ("signature", "values", "fix"),
    [
        (TOKENS, {"focal_gamma": 1.0}, "leave it out, or give --loss focal"),
        (VALUES, {"huber_delta": 3.0}, "leave it out, or give --loss huber"),
        (VALUES, {"label_smoothing": 0.1}, "leave it out"),
        (VALUES, {"focal_gamma": 1.0}, "leave it out"),
        (CLASSES, {"quantiles": (0.1, 0.5)}, "leave it out"),
    ],
)
def test_no_loss_is_advised_that_the_task_refuses(signature: Signature, values: dict[str, Any], fix: str) -> None:
    with pytest.raises(UsageError, match=f"would not get it: {fix}$"):
        elementwise("auto", options(**values), signature)


@pytest.mark.parametrize(
    ("name", "signature", "given", "words"),
    [
        ("mse", VALUES, {"huber_delta": 3.0}, r"seq.huber_delta = 3 is for huber; the loss mse"),
        ("mse", VALUES, {"quantiles": (0.1, 0.5)}, r"seq.quantiles = \[0.1, 0.5\] is for quantile; the loss mse"),
        ("auto", TOKENS, {"focal_gamma": 1.0}, r"seq.focal_gamma = 1 is for focal; the loss cross_entropy"),
    ],
)
def test_an_option_of_another_loss_is_refused(
    name: str, signature: Signature, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        elementwise(name, options(**given), signature)
