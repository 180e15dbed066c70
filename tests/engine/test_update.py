"""The update step against plain torch, number by number."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlseq.config import Layer, resolve
from rlseq.engine.config import OptimOptions
from rlseq.engine.device import Precision
from rlseq.engine.schedule import lr_factor
from rlseq.engine.update import Autograd, Loss, Part, UpdateStep

PLAIN, SCALED = Precision(None, False), Precision(torch.float16, True)
CPU = torch.device("cpu")
Batch = tuple[Tensor, Tensor]


def options(**values: Any) -> OptimOptions:
    return resolve(OptimOptions, Layer("test", {"clip_norm": None, **values}))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def batches(count: int, size: int = 12) -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(size, 3, generator=generator), torch.randn(size, 2, generator=generator)) for _ in range(count)
    ]


def loss_of(net: nn.Module) -> Callable[[Batch], Loss]:
    def loss(batch: Batch) -> Loss:
        difference = (net(batch[0]) - batch[1]).float()
        return Loss(difference.square().mean(), {"error": difference.detach().abs().mean()})

    return loss


def step_of(net: nn.Module, chosen: OptimOptions, precision: Precision = PLAIN, total: int = 100) -> Any:
    update = UpdateStep(net, chosen, total_updates=total, precision=precision)
    gradients = Autograd(loss_of(net), Precision(None, False), CPU)  # float32 forward: only the scaler is under test
    return update, lambda *parts: update(list(parts), gradients)


def new_gradients(net: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> Loss:
    """Those of one batch, in the ordinary way; the optimiser's step is yet to come."""
    optimizer.zero_grad()
    loss = loss_of(net)(batch)
    loss.mean.backward()
    return loss


REFERENCES: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "adam": lambda net: torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-8),
    "adamw": lambda net: torch.optim.AdamW(net.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0),
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9),
    "rmsprop": lambda net: torch.optim.RMSprop(net.parameters(), lr=0.01, alpha=0.999, eps=1e-8, momentum=0.9),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_optimisers_on_flat_parameters_equal_torch_on_ordinary_ones(name: str) -> None:
    flat, plain = network(), network()
    _, step = step_of(flat, options(name=name, lr=0.01))
    reference = REFERENCES[name](plain)
    for batch in batches(20):
        info = step(Part(batch, 1.0))
        loss = new_gradients(plain, reference, batch)
        reference.step()
        torch.testing.assert_close(info.loss, loss.mean.detach())
    for a, b in zip(flat.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_weight_decay_is_on_matrices_only() -> None:
    flat, plain = network(), network()
    _, step = step_of(flat, options(name="adamw", lr=0.01, weight_decay=0.1))
    reference = torch.optim.AdamW(
        [
            {"params": [p for p in plain.parameters() if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in plain.parameters() if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=0.01,
    )
    for batch in batches(10):
        step(Part(batch, 1.0))
        new_gradients(plain, reference, batch)
        reference.step()
    for a, b in zip(flat.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("clip", [{"clip_norm": 0.05}, {"clip_value": 0.01}], ids=["norm", "value"])
def test_clipping_equals_torchs(clip: dict[str, float]) -> None:
    flat, plain = network(), network()
    _, step = step_of(flat, options(name="sgd", lr=0.5, beta1=0.0, **clip))
    reference = torch.optim.SGD(plain.parameters(), lr=0.5)
    for batch in batches(5):
        info = step(Part(batch, 1.0))
        new_gradients(plain, reference, batch)
        if "clip_norm" in clip:
            norm = nn.utils.clip_grad_norm_(plain.parameters(), clip["clip_norm"])
        else:
            norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in plain.parameters()]))  # type: ignore[union-attr]
            nn.utils.clip_grad_value_(plain.parameters(), clip["clip_value"])
        torch.testing.assert_close(info.grad_norm, norm)  # the logged norm is that before clipping
        reference.step()
    for a, b in zip(flat.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_unequal_parts_give_the_update_of_the_whole_batch() -> None:
    whole, parts = network(), network()
    _, step_whole = step_of(whole, options(name="sgd", lr=0.1))
    _, step_parts = step_of(parts, options(name="sgd", lr=0.1))
    for x, y in batches(10, size=10):
        a = step_whole(Part((x, y), 1.0))
        cuts = [slice(0, 3), slice(3, 4), slice(4, 10)]
        b = step_parts(*(Part((x[cut], y[cut]), (cut.stop - cut.start) / 10) for cut in cuts))
        torch.testing.assert_close(a.loss, b.loss, rtol=1e-6, atol=0)
        torch.testing.assert_close(a.grad_norm, b.grad_norm, rtol=1e-6, atol=0)
        torch.testing.assert_close(a.metrics["error"], b.metrics["error"], rtol=1e-6, atol=0)
    for p, q in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)


def test_gradients_are_unscaled_before_clipping_and_the_logged_norm_knows_no_scale() -> None:
    """T3: with any scale, norm and weights are those without a scaler."""
    batch = batches(1)[0]
    results = []
    for scale in (None, 2.0**4, 2.0**12):
        net = network()
        update, step = step_of(net, options(name="sgd", lr=0.1, clip_norm=0.05), PLAIN if scale is None else SCALED)
        if scale is not None:
            update.scaler.load_state_dict({**update.scaler.state_dict(), "scale": scale})
        info = step(Part(batch, 1.0))
        results.append((info.grad_norm, update.flat.data.clone()))
    for norm, weights in results[1:]:
        torch.testing.assert_close(norm, results[0][0])
        torch.testing.assert_close(weights, results[0][1])
    assert results[0][0] > 0.05  # there was something to clip


def test_a_skipped_fp16_update_changes_nothing_but_its_count_and_the_scale() -> None:
    """T4."""
    net = network()
    update, step = step_of(net, options(name="adam", lr=0.1, schedule="linear"), SCALED, total=10)
    good = batches(1)[0]
    step(Part(good, 1.0))
    before, lr, scale = update.flat.data.clone(), update.lr, update.scaler.get_scale()
    moments = copy.deepcopy(update.state()[0])
    info = step(Part((good[0] * torch.inf, good[1]), 1.0))
    assert info.skipped
    assert torch.equal(update.flat.data, before)
    assert (update.updates, update.skipped, update.lr) == (1, 1, lr)
    assert update.scaler.get_scale() == scale / 2
    for name, array in update.state()[0].items():
        np.testing.assert_array_equal(array, moments[name])
    assert not step(Part(good, 1.0)).skipped
    assert update.updates == 2


def test_state_goes_on_bit_for_bit_with_a_scaler_in_any_optimiser() -> None:
    for name in REFERENCES:
        for precision in (PLAIN, SCALED):
            a, b = network(), network()
            chosen = options(name=name, lr=0.01, schedule="cosine", warmup_updates=3, weight_decay=0.01)
            update_a, step_a = step_of(a, chosen, precision)
            for batch in batches(5):
                step_a(Part(batch, 1.0))
            update_b, step_b = step_of(b, chosen, precision)
            b.load_state_dict(a.state_dict())
            arrays, numbers = update_a.state()
            update_b.load({key: array.copy() for key, array in arrays.items()}, copy.deepcopy(numbers))
            for batch in batches(5, size=7):
                assert step_a(Part(batch, 1.0)).lr == step_b(Part(batch, 1.0)).lr
            assert torch.equal(update_a.flat.data, update_b.flat.data), name


def test_flat_parameters_leave_the_module_as_it_was() -> None:
    net = network()
    names, before, x = list(net.state_dict()), copy.deepcopy(net.state_dict()), torch.randn(4, 3)
    expected = net(x)
    update = UpdateStep(net, options(), total_updates=1, precision=PLAIN)
    assert torch.equal(net(x), expected)
    assert list(net.state_dict()) == names
    assert all(torch.equal(net.state_dict()[name], before[name]) for name in names)
    assert update.flat.matrices == 3 * 8 + 8 * 2
    F.mse_loss(net(x), torch.zeros(4, 2)).backward()
    total = sum(float(p.grad.square().sum()) for p in net.parameters())  # type: ignore[union-attr]
    assert float(update.flat.grad.square().sum()) == pytest.approx(total)
    net.load_state_dict({name: torch.zeros_like(value) for name, value in before.items()})
    assert float(update.flat.data.abs().sum()) == 0  # loading goes into the same memory


@pytest.mark.parametrize(
    ("values", "at"),
    [
        ({"schedule": "constant"}, {0: 1.0, 50: 1.0, 200: 1.0}),
        ({"schedule": "linear", "final_factor": 0.1}, {0: 1.0, 50: 0.55, 100: 0.1, 500: 0.1}),
        ({"schedule": "cosine", "final_factor": 0.2}, {0: 1.0, 50: 0.6, 100: 0.2, 500: 0.2}),
        ({"schedule": "exponential", "final_factor": 0.01}, {0: 1.0, 50: 0.1, 100: 0.01}),
        ({"schedule": "step", "step_updates": 30, "step_factor": 0.5}, {0: 1.0, 29: 1.0, 30: 0.5, 60: 0.25, 99: 0.125}),
        ({"schedule": "constant", "warmup_updates": 4}, {0: 0.2, 1: 0.4, 3: 0.8, 4: 1.0, 9: 1.0}),
        ({"schedule": "linear", "final_factor": 0.5, "warmup_updates": 20}, {20: 1.0, 60: 0.75, 100: 0.5}),
        ({"schedule": "step", "step_updates": 10, "step_factor": 0.5, "warmup_updates": 5}, {5: 1.0, 14: 1.0, 15: 0.5}),
    ],
)
def test_schedules_at_chosen_updates(values: dict[str, Any], at: dict[int, float]) -> None:
    for update, factor in at.items():
        assert lr_factor(options(**values), update, 100) == pytest.approx(factor), update


def test_the_schedule_advances_once_per_update() -> None:
    net = network()
    _, step = step_of(net, options(lr=1.0, schedule="linear", final_factor=0.5), total=4)
    x, y = batches(1)[0]
    rates = [step(Part((x[:6], y[:6]), 0.5), Part((x[6:], y[6:]), 0.5)).lr for _ in range(6)]
    assert rates == pytest.approx([1.0, 0.875, 0.75, 0.625, 0.5, 0.5])


@pytest.mark.parametrize("sizes", [[12], [11, 1], [1, 1, 10], [1] * 12, [5, 7]])
@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.05}, {"clip_value": 0.01}], ids=["none", "norm", "value"])
def test_accumulated_gradients_are_those_of_the_whole_within_a_millionth(
    sizes: list[int], clip: dict[str, float]
) -> None:
    whole, parts = network(), network()
    update_whole, step_whole = step_of(whole, options(name="sgd", lr=0.1, beta1=0.0, **clip))
    update_parts, step_parts = step_of(parts, options(name="sgd", lr=0.1, beta1=0.0, **clip))
    x, y = batches(1)[0]
    ends = np.cumsum([0, *sizes])
    step_whole(Part((x, y), 1.0))
    step_parts(*(Part((x[a:b], y[a:b]), float(b - a) / 12) for a, b in itertools.pairwise(ends)))
    difference = torch.linalg.vector_norm(update_whole.flat.grad - update_parts.flat.grad)
    assert float(difference / torch.linalg.vector_norm(update_whole.flat.grad)) < 1e-6
    torch.testing.assert_close(update_whole.flat.data, update_parts.flat.data, rtol=1e-6, atol=1e-7)
    assert update_parts.updates == 1


def test_a_gradient_below_the_limit_is_left_alone() -> None:
    for clip in ({"clip_norm": 1e6}, {"clip_value": 1e6}):
        a, b = network(), network()
        update_a, step_a = step_of(a, options(name="sgd", lr=0.1))
        update_b, step_b = step_of(b, options(name="sgd", lr=0.1, **clip))
        for batch in batches(3):
            step_a(Part(batch, 1.0)), step_b(Part(batch, 1.0))
        assert torch.equal(update_a.flat.data, update_b.flat.data)


def test_gradients_do_not_pile_up_from_update_to_update() -> None:
    net = network()
    update, step = step_of(net, options(name="sgd", lr=1e-12, beta1=0.0))
    batch = batches(1)[0]
    norms = [float(step(Part(batch, 1.0)).grad_norm) for _ in range(3)]
    assert norms == pytest.approx([norms[0]] * 3)
    assert float(torch.linalg.vector_norm(update.flat.grad)) == pytest.approx(norms[0])


@pytest.mark.parametrize("scale", [1.0, 2.0**6, 2.0**15])
@pytest.mark.parametrize("clip", [{"clip_norm": 0.05}, {"clip_value": 0.01}], ids=["norm", "value"])
def test_accumulation_clipping_and_scaling_together(scale: float, clip: dict[str, float]) -> None:
    """T3 with parts: every part is scaled alike, the sum is unscaled once, then clipped."""
    plain, scaled = network(), network()
    update_a, step_a = step_of(plain, options(name="sgd", lr=0.1, **clip))
    update_b, step_b = step_of(scaled, options(name="sgd", lr=0.1, **clip), SCALED)
    update_b.scaler.load_state_dict({**update_b.scaler.state_dict(), "scale": scale})
    for x, y in batches(4):
        parts = [Part((x[:5], y[:5]), 5 / 12), Part((x[5:], y[5:]), 7 / 12)]
        a, b = step_a(*parts), step_b(*parts)
        torch.testing.assert_close(a.grad_norm, b.grad_norm, rtol=1e-6, atol=0)
        torch.testing.assert_close(a.loss, b.loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(update_a.flat.data, update_b.flat.data, rtol=1e-6, atol=1e-7)


def test_a_part_that_overflows_skips_the_whole_update() -> None:
    """T4, and the schedule goes on from where it stood."""
    net = network()
    update, step = step_of(net, options(name="adam", lr=1.0, schedule="linear", final_factor=0.5), SCALED, total=4)
    x, y = batches(1)[0]
    before = update.flat.data.clone()
    bad = Part((x[:6] * torch.inf, y[:6]), 0.5)
    rates = []
    for k in range(8):
        info = step(Part((x[6:], y[6:]), 0.5), bad if k % 2 == 0 else Part((x[:6], y[:6]), 0.5))
        rates.append(info.lr)
        assert info.skipped == (k % 2 == 0)
        if k == 0:
            assert torch.equal(update.flat.data, before)
    assert (update.updates, update.skipped) == (4, 4)
    assert rates == pytest.approx([1.0, 1.0, 0.875, 0.875, 0.75, 0.75, 0.625, 0.625])


def test_the_count_of_skipped_updates_and_the_scale_survive_a_resume() -> None:
    """T5: the scale's growth counter too, so that it doubles at the same update."""
    a, b = network(), network()
    update_a, step_a = step_of(a, options(name="sgd", lr=0.01), SCALED)
    update_a.scaler.set_growth_interval(5)
    good = batches(1)[0]
    for k in range(5):
        step_a(Part((good[0] * torch.inf, good[1]) if k == 1 else good, 1.0))
    update_b, step_b = step_of(b, options(name="sgd", lr=0.01), SCALED)
    arrays, numbers = update_a.state()
    b.load_state_dict(a.state_dict())
    update_b.load({key: array.copy() for key, array in arrays.items()}, copy.deepcopy(numbers))
    assert (update_b.updates, update_b.skipped) == (4, 1)
    for _ in range(6):
        step_a(Part(good, 1.0)), step_b(Part(good, 1.0))
        assert update_a.scaler.get_scale() == update_b.scaler.get_scale()
    assert update_a.scaler.get_scale() == 65536.0  # halved once, doubled once


def test_without_a_scaler_nothing_is_skipped_silently() -> None:
    update, step = step_of(network(), options(name="sgd", lr=0.1))
    x, y = batches(1)[0]
    info = step(Part((x * torch.inf, y), 1.0))
    assert not info.skipped
    assert not torch.isfinite(info.grad_norm)  # whoever trains sees it
    assert (update.updates, update.skipped) == (1, 0)
