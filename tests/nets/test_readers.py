"""Measured values as input, answers in their units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import NetInput, seeded
from rlseq.nets.readers import ValuesReader
from rlseq.nets.sequence import SequenceNetwork
from rlseq.sequence import Signature
from tests.sequences import enlarged

SHIFT, SCALE = (10.0, -3.0, 0.5), (4.0, 0.5, 2.0)
FEATURES: dict[str, Any] = {"features": ("a", "b", "c"), "shift": SHIFT, "scale": SCALE}
CLASSIFY = Signature(kind="classify", classes=("x", "y"), **FEATURES)
FORECAST = Signature(kind="forecast", target=1, horizon=3, quantiles=(0.1, 0.5), **FEATURES)
every_core = pytest.mark.parametrize("core", ["gpt", "lstm", "gru"])
every_signature = pytest.mark.parametrize("signature", [CLASSIFY, FORECAST], ids=["classify", "forecast"])


def made(core: Any, signature: Signature, scale: float = 2.0) -> SequenceNetwork:
    heads = 2 if core == "gpt" else None
    options = SequenceNetOptions(core=core, layers=2, width=16, heads=heads, bidirectional=None)
    net = seeded(0, lambda: SequenceNetwork(signature, options, 8)).eval()
    assert isinstance(net, SequenceNetwork)
    return enlarged(net, scale)


def values(batch: int, time: int, seed: int = 0) -> Tensor:
    """Raw values of the features' means and spreads."""
    z = np.random.default_rng(seed).normal(size=(batch, time, 3))
    return torch.from_numpy(z * np.array(SCALE) + np.array(SHIFT)).float()


def test_values_are_scaled_inside_and_padding_is_read_as_the_mean() -> None:
    reader = ValuesReader(FORECAST, 4)
    raw, given = values(2, 3), torch.tensor([[True, True, True], [True, False, False]])
    z = (raw.numpy() - np.array(SHIFT)) / np.array(SCALE) * given.numpy()[..., None]
    expected = z @ reader.linear.weight.detach().numpy().T + reader.linear.bias.detach().numpy()
    np.testing.assert_allclose(reader(raw, given).detach().numpy(), expected, atol=1e-5)
    raw[1, 1:] = torch.nan
    np.testing.assert_allclose(reader(raw, given).detach().numpy(), expected, atol=1e-5)


def test_the_scaling_is_kept_with_the_weights() -> None:
    state = made("gru", FORECAST).state_dict()
    assert state["reader.shift"].tolist() == list(SHIFT)
    assert state["reader.scale"].tolist() == list(SCALE)


def test_values_keep_their_digits_under_autocast() -> None:
    reader, raw = ValuesReader(FORECAST, 4), values(2, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = reader(raw)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, reader(raw), rtol=1e-6, atol=1e-6)


@every_core
def test_a_forecast_begins_at_the_last_value_in_the_targets_unit(core: str) -> None:
    net, raw = made(core, FORECAST), values(2, 5)
    outputs = net(NetInput((raw,)))[0].detach()
    assert outputs.shape == (2, 5, 6)
    hidden: list[Tensor] = []
    net.norm.register_forward_hook(lambda module, given, x: hidden.append(x))
    assert torch.equal(net(NetInput((raw,)))[0], outputs)
    assert net.head is not None
    expected = raw[..., 1:2] + SCALE[1] * net.head(hidden[0])
    torch.testing.assert_close(outputs, expected.detach())
    with torch.no_grad():
        net.head.weight.zero_()
    assert torch.equal(net(NetInput((raw,)))[0], raw[..., 1:2].expand(-1, -1, 6))


@every_core
def test_other_units_give_the_same_forecast_in_other_units(core: str) -> None:
    other = {"shift": tuple(32 + 1.8 * x for x in SHIFT), "scale": tuple(1.8 * x for x in SCALE)}
    in_celsius, raw = made(core, FORECAST), values(2, 5)
    in_fahrenheit = made(core, Signature(**{**{n: getattr(FORECAST, n) for n in FORECAST.__struct_fields__}, **other}))
    found = in_fahrenheit(NetInput((32 + 1.8 * raw,)))[0]
    torch.testing.assert_close(found, 32 + 1.8 * in_celsius(NetInput((raw,)))[0], rtol=1e-4, atol=1e-4)


@every_core
@every_signature
@pytest.mark.parametrize("sizes", [[1] * 20, [7, 1, 12]], ids=str)
@torch.no_grad()
def test_whole_series_chunks_and_single_places_give_the_same(core: str, signature: Signature, sizes: list[int]) -> None:
    net, raw = made(core, signature), values(3, 20)
    state, parts = net.initial_state(3), []
    for chunk in raw.split(sizes, 1):
        answers, state = net(NetInput((chunk,)), state)
        parts.append(answers)
    whole = net(NetInput((raw,)))[0]
    assert whole.shape == (3, 20, signature.num_outputs)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-4)


@every_core
@every_signature
@torch.no_grad()
def test_no_answer_depends_on_a_later_value(core: str, signature: Signature) -> None:
    net, raw = made(core, signature), values(2, 6)
    before = net(NetInput((raw,)))[0]
    raw[0, 4] += 1.0
    after = net(NetInput((raw,)))[0]
    assert torch.equal(before[0, :4], after[0, :4])
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0, 4], after[0, 4])
