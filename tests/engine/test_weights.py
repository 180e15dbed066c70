"""Weights as arrays, by names without prefix."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from rlseq.engine.flat import FlatParameters
from rlseq.engine.weights import load_arrays, state_arrays
from rlseq.errors import CorruptFile


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def test_there_and_back_buffers_included_in_place() -> None:
    a, b = network(), network()
    a(torch.randn(8, 2))  # moves the running statistics
    flat = FlatParameters(b)
    arrays = {name: array.copy() for name, array in state_arrays(a).items()}
    assert {"0.weight", "1.running_mean", "1.num_batches_tracked"} <= arrays.keys()
    assert not any(name.startswith(("_orig_mod.", "module.")) for name in arrays)
    load_arrays(b, arrays, "f")
    for name, value in a.state_dict().items():
        assert torch.equal(b.state_dict()[name], value), name
    torch.testing.assert_close(flat.data[:6].reshape(3, 2), a[0].weight, rtol=0, atol=0)  # still the flat buffer
    kept = copy.deepcopy(arrays)
    with torch.no_grad():
        b[0].weight.add_(1)
    for name, array in kept.items():
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"0.weight": np.zeros((4, 2), np.float32)}, r"^f holds .*0\.weight is \(4, 2\), this network has \(3, 2\)"),
        ({"0.weight": None}, r"0\.weight is missing, this network has \(3, 2\)"),
        ({"9.weight": np.zeros(1, np.float32)}, r"9\.weight is \(1,\), this network has no such weight.*net\.\*"),
        ({"2.bias": np.zeros((), np.float32)}, r"2\.bias is \(\), this network has \(1,\)"),
    ],
)
def test_weights_of_another_network_are_refused_and_nothing_is_loaded(
    change: dict[str, np.ndarray | None], message: str
) -> None:
    net = network()
    before = copy.deepcopy(net.state_dict())
    changed: dict[str, np.ndarray | None] = {**{k: a + 1 for k, a in state_arrays(net).items()}, **change}
    with pytest.raises(CorruptFile, match=message):
        load_arrays(net, {name: array for name, array in changed.items() if array is not None}, "f")
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
