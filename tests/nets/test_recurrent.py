"""The recurrent cores against their equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import NetInput
from rlseq.nets.sequence import SequenceNetwork
from rlseq.sequence import Signature


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_a_step_is_the_cells_equations(core: Any) -> None:
    net = SequenceNetwork(Signature(vocabulary=7), SequenceNetOptions(core=core, layers=2, width=6), context=4)
    w = {name: value.double().numpy() for name, value in net.state_dict().items()}
    h, c = np.random.default_rng(0).normal(size=(2, 2, 1, 6))
    x = w["embedding.weight"][3]
    expected = []
    for layer in range(2):
        given = w[f"core.rnn.weight_ih_l{layer}"] @ x + w[f"core.rnn.bias_ih_l{layer}"]
        kept = w[f"core.rnn.weight_hh_l{layer}"] @ h[layer, 0] + w[f"core.rnn.bias_hh_l{layer}"]
        if core == "lstm":
            i, f, g, o = np.split(given + kept, 4)
            cell = sigmoid(f) * c[layer, 0] + sigmoid(i) * np.tanh(g)
            x = sigmoid(o) * np.tanh(cell)
            expected.append((x, cell))
        else:
            (r, z, n), (hr, hz, hn) = np.split(given, 3), np.split(kept, 3)
            z, n = sigmoid(z + hz), np.tanh(n + sigmoid(r + hr) * hn)
            x = (1 - z) * n + z * h[layer, 0]
            expected.append((x,))
    state = tuple(torch.from_numpy(part).float() for part in ((h, c) if core == "lstm" else (h,)))
    logits_BTV, after = net(NetInput((torch.tensor([[3]]),)), state)
    for k, leaf in enumerate(after):
        np.testing.assert_allclose(
            leaf[:, 0].detach().numpy(), np.stack([layer[k] for layer in expected]), rtol=1e-5, atol=1e-6
        )
    normed = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    np.testing.assert_allclose(logits_BTV[0, 0].detach().numpy(), w["head.weight"] @ normed, rtol=1e-4, atol=1e-5)


def test_an_lstm_begins_with_open_forget_gates() -> None:
    net = SequenceNetwork(Signature(vocabulary=7), SequenceNetOptions(core="lstm", width=64), context=4)
    for name, value in net.state_dict().items():
        if "bias_ih" in name:
            means = value.unflatten(0, (4, 64)).mean(1).numpy()
            np.testing.assert_allclose(means, [0, 1, 0, 0], atol=0.1)


def test_the_window_has_no_bound() -> None:
    assert SequenceNetwork(Signature(vocabulary=7), SequenceNetOptions(core="gru", width=8), context=4).window is None
