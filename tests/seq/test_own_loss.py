"""Losses of the user's own: what they are called with, and what is refused as a loss."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from rlseq.errors import UsageError
from rlseq.seq.config import SeqOptions
from rlseq.seq.losses import elementwise
from rlseq.seq.own_loss import own_loss
from rlseq.sequence import Signature
from tests.seq.test_losses import CLASSES, LOGITS_BTV, TARGETS_BT, VALUES

TOKENS = Signature(vocabulary=5)

OWN = """
import torch
import torch.nn.functional as F

def good(logits, targets):
    log_p = logits.log_softmax(-1)
    return -log_p.gather(-1, targets[..., None])[..., 0]

def noisy(logits, targets):
    return good(F.dropout(logits, 0.5), targets)

def in_place(logits, targets):
    return good(logits.mul_(2), targets)

def with_default(logits, targets, power=2.0):
    return good(logits, targets) ** power

class Weighted:
    def __call__(self, logits, targets):
        weight = torch.arange(11.0)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), weight, reduction="none").view(targets.shape)

weighted = Weighted()
not_a_function = 3

def one(logits): return logits
def three(logits, targets, mask): return good(logits, targets)
def keywords(*, logits, targets): return good(logits, targets)
def mean(logits, targets): return good(logits, targets).mean()
def flat(logits, targets): return good(logits, targets).flatten()
def per_logit(logits, targets): return logits
def a_list(logits, targets): return good(logits, targets).tolist()
def numbers(logits, targets): return (logits.argmax(-1) != targets).long()
def errors(logits, targets): return (logits.argmax(-1) != targets).float()
def detached(logits, targets): return good(logits.detach(), targets)
def other_leaf(logits, targets): return torch.ones(2, 3, requires_grad=True) * 1
def constant(logits, targets): return logits.sum(-1) * 0
def not_finite(logits, targets): return good(logits, targets) / 0
def no_gradient_value(logits, targets): return (logits - logits.detach()).abs().sqrt().sum(-1)
def per_class(logits, targets): return F.cross_entropy(logits, targets, reduction="none")
def absolute(forecasts, targets): return (forecasts - targets).abs()
def raises(logits, targets): return F.cross_entropy(logits, targets, reduction="none")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module `own_losses` that only this test knows."""
    (tmp_path / "own_losses.py").write_text(OWN)
    (tmp_path / "broken_losses.py").write_text("import sys\nsys.exit('stopped')\n")
    (tmp_path / "needy_losses.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("own_losses", "broken_losses", "needy_losses"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("function", ["good", "in_place"])
def test_a_function_of_one_s_own(here: Path, function: str) -> None:
    loss = own_loss(f"own_losses:{function}", TOKENS)
    factor = 2 if function == "in_place" else 1
    wanted = elementwise("cross_entropy", SeqOptions(), TOKENS)(LOGITS_BTV * factor, TARGETS_BT)
    torch.testing.assert_close(loss(LOGITS_BTV.clone(), TARGETS_BT), wanted)


def test_of_classes_and_of_values(here: Path) -> None:
    classes = elementwise("own_losses:per_class", SeqOptions(), CLASSES)
    wanted = elementwise("cross_entropy", SeqOptions(), CLASSES)(LOGITS_BTV[0], TARGETS_BT[0])
    torch.testing.assert_close(classes(LOGITS_BTV[0], TARGETS_BT[0]), wanted)
    values = elementwise("own_losses:absolute", SeqOptions(), VALUES)  # in the target's scale, which is 2
    assert values(torch.tensor([[[8.0, 2.0]]]), torch.tensor([[[7.0, 6.0]]])).tolist() == [[(0.5 + 2.0) / 2]]


def test_a_class_s_instance_and_a_parameter_with_a_default_will_do(here: Path) -> None:
    own_loss("own_losses:with_default", TOKENS)
    own_loss("own_losses:weighted", Signature(vocabulary=11))
    with pytest.raises(UsageError, match="own_losses:weighted raised RuntimeError"):
        own_loss("own_losses:weighted", Signature(vocabulary=7))


def test_the_trial_leaves_the_random_stream(here: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    own_loss("own_losses:noisy", TOKENS)
    assert torch.equal(torch.get_rng_state(), before)


TAKES = r"a loss takes \(logits \[B, T, V\], targets \[B, T\]\) and gives the loss of each token"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":", r"seq.loss = ':': write package.module:function"),
        ("own_losses:", r"write package.module:function"),
        ("own_losses:a.b", r"write package.module:function"),
        ("own losses:good", r"write package.module:function"),
        (".own_losses:good", r"write package.module:function"),
        ("no_such:good", r"there is no module no_such in /"),
        ("own_losses.sub:good", r"there is no module own_losses.sub in /"),
        ("needy_losses:good", r"it needs nowhere_to_be_found, which is not installed"),
        ("broken_losses:good", r"importing broken_losses raised SystemExit: stopped"),
        ("own_losses:god", r"own_losses has nothing called god. Did you mean good"),
        ("own_losses:not_a_function", r"is of type int: it must be a function"),
        ("own_losses:one", r"own_losses:one\(logits\): too many positional arguments; " + TAKES),
        ("own_losses:three", r"own_losses:three\(logits, targets, mask\): missing a required argument: 'mask'"),
        ("own_losses:keywords", r"own_losses:keywords\(\*, logits, targets\): too many positional arguments"),
        ("own_losses:mean", r"gave shape \[\] for targets \[2, 3\] \(do not take the mean yourself.*" + TAKES),
        ("own_losses:flat", r"gave shape \[6\] for targets \[2, 3\]; " + TAKES),
        ("own_losses:per_logit", r"gave shape \[2, 3, 5\] for targets \[2, 3\]"),
        ("own_losses:a_list", r"gave list; " + TAKES),
        ("own_losses:numbers", r"gave a tensor of torch.int64"),
        ("own_losses:errors", r"has no gradient by the logits, so nothing can be learnt from it"),
        ("own_losses:detached", r"has no gradient by the logits"),
        ("own_losses:other_leaf", r"has no gradient by the logits"),
        ("own_losses:constant", r"has no gradient by the logits"),
        ("own_losses:not_finite", r"own_losses:not_finite, or its gradient, is not finite"),
        ("own_losses:no_gradient_value", r"is not finite"),
        (
            "own_losses:raises",
            r"raised \w+: .*in a trial call with logits \[2, 3, 5\] and targets \[2, 3\]\); " + TAKES,
        ),
        ("torch.nn:CrossEntropyLoss", r"torch.nn:CrossEntropyLoss (gave|raised)"),
    ],
)
def test_what_is_no_loss_is_refused(here: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        elementwise(name, SeqOptions(), TOKENS)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "signature", "message"),
    [
        (
            "own_losses:good",
            VALUES,
            r"in a trial call with forecasts \[2, 3, 2\] and targets \[2, 3, 2\]\); a loss takes "
            r"\(forecasts \[B, P, H\], targets \[B, P, H\]\) and gives the loss of each value",
        ),
        ("own_losses:mean", CLASSES, r"gave shape \[\] for targets \[2\].*gives the loss of each row, \[B\]"),
        ("own_losses:absolute", CLASSES, r"a loss takes \(logits \[B, K\], targets \[B\]\)"),
    ],
)
def test_what_is_no_loss_of_classes_or_values_is_refused(
    here: Path, name: str, signature: Signature, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        elementwise(name, SeqOptions(), signature)
