"""Frozen parameters and learning rates of one's own, in every optimiser: against torch, number by number."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import torch
from torch import nn

from rlseq.engine import muon
from rlseq.engine.flat import FlatParameters
from rlseq.engine.selection import select
from rlseq.engine.update import Part
from rlseq.errors import UsageError
from tests.engine.test_muon import deep
from tests.engine.test_optimizer import TORCH
from tests.engine.test_update import PLAIN, SCALED, batches, network, new_gradients, options, step_of

NAMES = ["adam", "adamw", "sgd", "rmsprop"]
FREEZE, RATES = ["core.up.*"], {"core.a.*": 0.25, "head.*": 3.0}


def named(net: nn.Module) -> list[str]:
    return [name for name, _ in net.named_parameters()]


def test_the_layout_by_hand() -> None:
    """Matrices, vectors; within them by multiplier in the order of the names; the frozen ones last."""
    net = network()  # 0.weight [8, 3], 0.bias [8], 2.weight [2, 8], 2.bias [2]
    values = {name: parameter.detach().clone().flatten() for name, parameter in net.named_parameters()}
    flat = FlatParameters(net, select(named(net), options(freeze=["0.weight"], lr_multipliers={"2.bias": 0.5})))
    order = ["2.weight", "0.bias", "2.bias", "0.weight"]
    assert torch.equal(flat.weights, torch.cat([values[name] for name in order]))
    assert [(s.start, s.stop, s.matrix, s.multiplier) for s in flat.spans] == [
        (0, 16, True, 1.0),
        (16, 24, False, 1.0),
        (24, 26, False, 0.5),
    ]
    assert (len(flat.data), len(flat.grad), flat.matrices) == (26, 26, 16)
    assert flat.data.data_ptr() == flat.weights.data_ptr()
    assert (net[0].weight.grad, net[0].weight.requires_grad) == (None, False)
    for decay, starts in ((0.0, [0, 24]), (0.1, [0, 16, 24])):
        groups = flat.groups(decay)
        parameters = [cast(list[nn.Parameter], group["params"])[0] for group in groups]
        assert [p.storage_offset() for p in parameters] == starts
        assert sum(len(p) for p in parameters) == 26
        assert [g["multiplier"] for g in groups] == [1.0] * (len(starts) - 1) + [0.5]


def test_hidden_matrices_of_one_rate_lie_together() -> None:
    net = deep()
    flat = FlatParameters(net, select(named(net), options(freeze=FREEZE, lr_multipliers=RATES)))
    hidden = [span for span in flat.spans if span.shapes]
    assert [span.multiplier for span in hidden] == list(dict.fromkeys(span.multiplier for span in hidden))
    assert flat.hidden == sum(rows * columns for rows, columns in flat.hidden_shapes) == hidden[-1].stop
    assert len({(s.matrix, bool(s.shapes), s.multiplier) for s in flat.spans}) == len(flat.spans)
    assert flat.frozen_hidden and len(flat.weights) > len(flat.data)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_every_optimiser_equals_torchs_with_groups_bit_for_bit(name: str, decay: float) -> None:
    ours, plain = network(), network()
    chosen = options(name=name, lr=0.01, weight_decay=decay, freeze=["0.weight"], lr_multipliers={"2.*": 0.5})
    update, step = step_of(ours, chosen)
    first, last = cast(nn.Linear, plain[0]), cast(nn.Linear, plain[2])
    first.weight.requires_grad_(False)
    groups: list[dict[str, Any]] = [
        {"params": [last.weight], "weight_decay": decay, "lr": 0.005},
        {"params": [first.bias], "weight_decay": 0.0, "lr": 0.01},
        {"params": [last.bias], "weight_decay": 0.0, "lr": 0.005},
    ]
    reference = TORCH[name](groups, chosen)
    before = first.weight.clone()
    for batch in batches(12):
        info = step(Part(batch, 1.0))
        new_gradients(plain, reference, batch)
        trained = [p.grad.flatten() for p in plain.parameters() if p.grad is not None]
        torch.testing.assert_close(info.grad_norm, torch.cat(trained).norm())  # of what is trained, and nothing else
        reference.step()
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(cast(nn.Linear, ours[0]).weight, before)
    moments = sum(array.size for key, array in update.optimizer.arrays().items() if not key.endswith("step"))
    assert moments == {"sgd": 26}.get(name, 2 * 26)


@pytest.mark.parametrize("precision", [PLAIN, SCALED], ids=["plain", "scaled"])
@pytest.mark.parametrize("name", [*NAMES, "muon"])
def test_frozen_weights_stay_bit_for_bit_and_a_resume_goes_on_exactly(name: str, precision: Any) -> None:
    """With decay, momentum, clipping and an average of the weights."""
    rates = {"core.a.*": 0.25, "head.*": 3.0}
    chosen = options(
        name=name, lr=0.05, weight_decay=0.3, ema=0.9, clip_norm=0.5, freeze=["core.up.*"], lr_multipliers=rates
    )
    a, b = deep(), deep()
    frozen = {key: value.clone() for key, value in a.state_dict().items() if key.startswith("core.up.")}
    assert frozen
    update_a, step_a = step_of(a, chosen, precision, total=12)
    for batch in batches(5):
        step_a(Part(batch, 1.0))
    arrays, numbers = update_a.state()
    arrays, numbers = {key: array.copy() for key, array in arrays.items()}, copy.deepcopy(numbers)
    assert arrays["raw"].size == len(update_a.flat.data) < sum(p.numel() for p in a.parameters())
    update_b, step_b = step_of(b, chosen, precision, total=12)
    with update_a.averaged():
        for key, value in frozen.items():
            assert torch.equal(a.state_dict()[key], value)
        b.load_state_dict(a.state_dict())
    update_b.load(arrays, numbers)
    for batch in batches(6, size=7):
        assert torch.equal(step_a(Part(batch, 1.0)).grad_norm, step_b(Part(batch, 1.0)).grad_norm)
    assert torch.equal(update_a.flat.weights, update_b.flat.weights)
    with update_a.averaged(), update_b.averaged():
        assert torch.equal(update_a.flat.weights, update_b.flat.weights)
    for key, value in a.state_dict().items():
        assert torch.equal(value, frozen[key]) if key in frozen else not torch.equal(value, deep().state_dict()[key])


def test_muon_moves_a_matrix_by_the_multiple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "product_dtype", lambda device: torch.float32)
    whole, part = deep(), deep()
    before = {name: p.detach().clone() for name, p in whole.named_parameters()}
    (batch,) = batches(1)
    for net, rates in ((whole, {}), (part, {"core.up.weight": 0.5, "head.*": 0.1})):
        _, step = step_of(net, options(name="muon", lr=0.1, lr_multipliers=rates))
        step(Part(batch, 1.0))
    factors = {"core.up.weight": 0.5, "head.weight": 0.1}
    for (name, a), b in zip(whole.named_parameters(), part.parameters(), strict=True):
        torch.testing.assert_close(b - before[name], (a - before[name]) * factors.get(name, 1.0), rtol=1e-4, atol=1e-6)


def test_where_muons_matrices_are_all_frozen_adamw_trains_the_rest() -> None:
    net, plain = deep(), deep()
    update, step = step_of(net, options(name="muon", lr=0.1, adam_lr=0.02, freeze=["core.*"]))
    assert not update.flat.hidden
    for key, parameter in plain.named_parameters():
        parameter.requires_grad_(not key.startswith("core."))
    trained = [p for p in plain.parameters() if p.requires_grad]
    reference = torch.optim.AdamW(trained, lr=0.02, weight_decay=0.0)
    for batch in batches(3):
        step(Part(batch, 1.0))
        new_gradients(plain, reference, batch)
        reference.step()
    for a, b in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    arrays, numbers = update.state()
    assert "muon.momentum" not in arrays
    step_of(deep(), options(name="muon", freeze=["core.*"]))[0].load(arrays, numbers)
    with pytest.raises(UsageError, match="has none"):
        step_of(network(), options(name="muon", freeze=["0.weight"]))
