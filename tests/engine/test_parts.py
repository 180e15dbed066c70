"""A batch of token sequences in parts of unequal token counts: the update is that of the whole batch, in float64.

Shapes: B sequences, T tokens, D wide, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlseq.engine.device import Precision
from rlseq.engine.update import Autograd, Loss, Part, UpdateInfo, UpdateStep
from tests.engine.test_update import CPU, PLAIN, SCALED, options

VOCABULARY, WIDTH, ROWS, LENGTH = 11, 8, 9, 7
LENGTHS = [7, 1, 2, 7, 3, 1, 5, 0, 4]  # tokens that count, of each row: 30 in all


class Tokens(NamedTuple):
    """Inputs, targets and what counts, `[B, T]` each."""

    inputs: Tensor
    targets: Tensor
    mask: Tensor


class Model(nn.Module):
    """Embedding, two hidden matrices with a mean over the past between them, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.core = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH, bias=False))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(tokens_BT)
        past_T1 = torch.arange(1, tokens_BT.shape[1] + 1, dtype=x_BTD.dtype).unsqueeze(1)
        return self.head(self.core(x_BTD.cumsum(1) / past_T1))


def model() -> Model:
    torch.manual_seed(0)
    return Model().double()


def sequences() -> Tokens:
    generator = torch.Generator().manual_seed(1)
    inputs, targets = (torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator) for _ in range(2))
    return Tokens(inputs, targets, torch.arange(LENGTH) < torch.tensor(LENGTHS).unsqueeze(1))


def cut(whole: Tokens, ends: Sequence[int]) -> list[Part[Tokens]]:
    """Parts of rows, each with its share of the tokens; one in which none counts is left out."""
    parts, start = [], 0
    for end in ends:
        part = Tokens(*(leaf[start:end] for leaf in whole))
        parts.append(Part(part, int(part.mask.sum()) / int(whole.mask.sum())))
        start = end
    return [part for part in parts if part.share]


class Learner:
    """An update step over a model of its own, and the mean loss of the tokens that count."""

    def __init__(self, precision: Precision = PLAIN, **values: Any) -> None:
        self.net = model()
        self.update = UpdateStep(self.net, options(**values), total_updates=4, precision=precision)

    def loss(self, batch: Tokens) -> Loss:
        logits_BTV = self.net(batch.inputs)
        loss_N = F.cross_entropy(logits_BTV[batch.mask], batch.targets[batch.mask], reduction="none")
        hits = (logits_BTV.argmax(-1) == batch.targets)[batch.mask].double().mean()
        return Loss(loss_N.mean(), {"hits": hits})

    def __call__(self, parts: Sequence[Part[Tokens]]) -> UpdateInfo:
        return self.update(parts, Autograd(self.loss, Precision(None, False), CPU))


def apart(a: Tensor, b: Tensor) -> float:
    """Relative distance."""
    return float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b))


CUTS = [[3, 4, 6, 9], [1, 9], [7, 8, 9], list(range(1, 10)), [4, 8, 9]]
SETTINGS: list[dict[str, Any]] = [
    {"name": "sgd", "lr": 0.1},
    {"name": "adamw", "lr": 0.01, "weight_decay": 0.1, "clip_norm": 0.05},
    {"name": "adam", "lr": 0.01, "clip_value": 0.001, "ema": 0.5},
]


@pytest.mark.parametrize("ends", CUTS, ids=str)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: str(s["name"]))
def test_parts_of_unequal_token_counts_give_the_update_of_the_whole(ends: list[int], settings: dict[str, Any]) -> None:
    """T1: gradient, norm, loss, metrics and, over some updates, the weights."""
    whole, parts = Learner(**settings), Learner(**settings)
    tokens = sequences()
    for _ in range(3):
        a, b = whole([Part(tokens, 1.0)]), parts(cut(tokens, ends))
        assert apart(parts.update.flat.grad, whole.update.flat.grad) < 1e-6
        for x, y in ((a.loss, b.loss), (a.grad_norm, b.grad_norm), (a.metrics["hits"], b.metrics["hits"])):
            assert float(x) == pytest.approx(float(y), rel=1e-6)
    assert parts.update.flat.data.dtype == torch.float64
    assert apart(parts.update.flat.data, whole.update.flat.data) < 1e-6


def test_the_gradient_is_that_of_the_sum_over_all_tokens_by_plain_autograd() -> None:
    """And not that of the mean of the parts' means, which is far off."""
    ours, plain, tokens = Learner(name="sgd"), model(), sequences()
    ends = CUTS[0]
    ours(cut(tokens, ends))
    losses = F.cross_entropy(plain(tokens.inputs).flatten(0, 1), tokens.targets.flatten(), reduction="none")
    (losses * tokens.mask.flatten()).sum().div(sum(LENGTHS)).backward()
    expected = [p.grad for p in plain.parameters()]
    for p, grad in zip(ours.net.parameters(), expected, strict=True):
        assert p.grad is not None and grad is not None
        assert apart(p.grad, grad) < 1e-12
    wrong = Learner(name="sgd")
    wrong([Part(part.batch, 1 / len(ends)) for part in cut(tokens, ends)])
    assert apart(wrong.update.flat.grad, ours.update.flat.grad) > 0.1


def test_an_incomplete_last_part_counts_by_its_real_size_and_the_schedule_goes_on_once() -> None:
    """T2: nine rows in fours: four, four, and one."""
    settings = {"name": "sgd", "lr": 1.0, "schedule": "linear", "final_factor": 0.5}
    whole, parts = Learner(**settings), Learner(**settings)
    tokens = sequences()
    cuts = cut(tokens, [4, 8, 9])
    assert [part.share for part in cuts] == pytest.approx([17 / 30, 9 / 30, 4 / 30])
    rates = []
    for _ in range(5):
        whole([Part(tokens, 1.0)])
        rates.append(parts(cuts).lr)
    assert rates == [1.0, 0.875, 0.75, 0.625, 0.5]
    assert (parts.update.updates, whole.update.updates) == (5, 5)
    assert apart(parts.update.flat.data, whole.update.flat.data) < 1e-6


@pytest.mark.parametrize("scale", [2.0, 2.0**16])
def test_the_logged_norm_knows_neither_scale_nor_clipping(scale: float) -> None:
    """T3: unscaled first, then clipped; powers of two change no digit."""
    settings = {"name": "sgd", "lr": 0.1, "clip_norm": 0.01}
    plain, scaled = Learner(**settings), Learner(SCALED, **settings)
    scaled.update.scaler.load_state_dict({**scaled.update.scaler.state_dict(), "scale": scale})
    parts = cut(sequences(), CUTS[0])
    a, b = plain(parts), scaled(parts)
    assert torch.equal(a.grad_norm, b.grad_norm)
    assert float(a.grad_norm) > 0.1
    assert torch.equal(plain.update.flat.data, scaled.update.flat.data)
    assert float(torch.linalg.vector_norm(scaled.update.flat.grad)) == pytest.approx(0.01, rel=1e-4)


def test_an_overflow_of_one_part_skips_the_update_and_its_schedule_and_its_average() -> None:
    """T4."""
    learner = Learner(SCALED, name="adam", lr=0.1, schedule="linear", ema=0.5)
    parts = cut(sequences(), CUTS[0])
    learner(parts)
    update = learner.update
    weights, lr = update.flat.data.clone(), update.lr
    with update.averaged():
        average = update.flat.data.clone()
    learner.net.head.weight.register_hook(lambda grad: torch.full_like(grad, torch.inf))
    info = learner(parts)
    assert info.skipped
    assert bool(torch.isfinite(info.loss))
    assert (update.updates, update.skipped, update.lr) == (1, 1, lr)
    assert torch.equal(update.flat.data, weights)
    with update.averaged():
        assert torch.equal(update.flat.data, average)
