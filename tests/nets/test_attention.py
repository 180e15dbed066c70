"""Attention over rows of unequal length: in torch, in its gradients and in ONNX Runtime."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from rlseq.exporter.graph import traced
from rlseq.nets.attention import (
    Seen,
    Sinusoids,
    attend,
    cross_attention,
    initialise,
    seen_places,
    self_attention,
    source_keys,
)

GIVEN = torch.tensor([[True, True, True, True], [True, True, False, False], [False, False, False, False]])


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).float()


def by_hand(q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """One query over the keys that it may see; zeros if those are none."""
    if not allowed.any():
        return np.zeros_like(v[0])
    weights = np.exp(k[allowed] @ q / math.sqrt(len(q)))
    return (weights / weights.sum()) @ v[allowed]


@pytest.mark.parametrize("causal", [False, True])
def test_a_query_sees_what_it_may_and_nothing_else(causal: bool) -> None:
    q, k, v = drawn(3, 2, 4, 6), drawn(3, 2, 4, 6, seed=1), drawn(3, 2, 4, 6, seed=2)
    found = attend(q, k, v, None if causal else seen_places(GIVEN)).numpy()
    for b, h, t in np.ndindex(3, 2, 4):
        allowed = np.arange(4) <= t if causal else GIVEN[b].numpy()
        expected = by_hand(q[b, h, t].numpy(), k[b, h].numpy(), v[b, h].numpy(), allowed)
        np.testing.assert_allclose(found[b, h, t], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_row_that_sees_nothing_gives_zeros_and_no_gradient_in_any_precision(dtype: torch.dtype) -> None:
    q, k, v = (drawn(3, 2, 4, 6, seed=n).to(dtype).requires_grad_() for n in range(3))
    y_BHTK = attend(q, k, v, seen_places(GIVEN))
    y_BHTK.sum().backward()
    assert torch.equal(y_BHTK[2], torch.zeros_like(y_BHTK[2]))
    for x in (q, k, v):
        assert x.grad is not None
        assert torch.isfinite(x.grad).all()
        assert x.grad[2].abs().max() == 0
    assert v.grad is not None
    assert v.grad[1, :, :2].abs().min() > 0
    assert v.grad[1, :, 2:].abs().max() == 0


def test_products_in_bfloat16_are_torchs_attention() -> None:
    q, k, v = (drawn(3, 2, 4, 6, seed=n) for n in range(3))
    low = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), seen_places(GIVEN))
    torch.testing.assert_close(low.float(), attend(q, k, v, seen_places(GIVEN)), atol=0.03, rtol=0)
    low = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), None)
    torch.testing.assert_close(low.float(), attend(q, k, v, None), atol=0.03, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_drops_weights_and_keeps_their_mean(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = torch.zeros(1, 1, 200, 2), torch.zeros(1, 1, 10, 2), torch.ones(1, 1, 10, 2)
    everything = Seen(torch.ones(200, 10, dtype=torch.bool))
    y = attend(q.to(dtype), k.to(dtype), v.to(dtype), everything, dropout=0.5).float()[0, 0, :, 0]
    np.testing.assert_allclose(y.numpy() * 5, (y * 5).round().numpy(), atol=0.05)  # 0, 1 ... 10 of ten weights, doubled
    assert y.unique().numel() > 4
    assert y.mean() == pytest.approx(1.0, abs=0.1)


def scale_queries_and_keys(net: nn.Module) -> None:
    """In every attention queries three times and keys a fifth as large, values as they were."""
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.MultiheadAttention):
                for parameter in (module.in_proj_weight, module.in_proj_bias):
                    q, k, _ = parameter.chunk(3)
                    q.mul_(3.0), k.mul_(0.2)


@torch.no_grad()
def test_normalised_queries_and_keys_are_their_formula() -> None:
    attention, x, memory = nn.MultiheadAttention(12, 2), drawn(1, 4, 12), drawn(1, 5, 12, seed=1)
    initialise(attention)
    attention.in_proj_bias.copy_(drawn(36, seed=2))

    def heads(numbers: np.ndarray, part: int) -> np.ndarray:
        """`[2, places, 6]` of queries (0), keys (1) or values (2)."""
        rows = slice(12 * part, 12 * part + 12)
        weight, bias = attention.in_proj_weight[rows].numpy(), attention.in_proj_bias[rows].numpy()
        split = (numbers @ weight.T + bias).reshape(-1, 2, 6).swapaxes(0, 1)
        return split if part == 2 else split / np.sqrt((split**2).mean(-1, keepdims=True) + 1e-6)

    def expected(keys: np.ndarray, causal: bool) -> np.ndarray:
        q, k, v = heads(x[0].numpy(), 0), heads(keys, 1), heads(keys, 2)
        rows = [
            np.hstack([by_hand(q[h, t], k[h], v[h], np.arange(len(keys)) <= (t if causal else 99)) for h in (0, 1)])
            for t in range(4)
        ]
        return np.array(rows) @ attention.out_proj.weight.numpy().T + attention.out_proj.bias.numpy()

    found, _, _ = self_attention(attention, x, None, qk_norm=True)
    np.testing.assert_allclose(found[0].numpy(), expected(x[0].numpy(), causal=True), atol=1e-5)
    source = source_keys(attention, memory, qk_norm=True)
    found = cross_attention(attention, x, source, seen_places(torch.ones(1, 5, dtype=torch.bool)), qk_norm=True)
    np.testing.assert_allclose(found[0].numpy(), expected(memory[0].numpy(), causal=False), atol=1e-5)


class Attended(nn.Module):
    def forward(self, *arrays: Tensor) -> tuple[Tensor]:
        x_BHSK, given_BS = arrays
        return (attend(x_BHSK, x_BHSK, x_BHSK, seen_places(given_BS)),)


@pytest.mark.parametrize("opset", [18, 20])
def test_onnx_runtime_gives_zeros_too_and_takes_no_places_at_all(opset: int) -> None:
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time")
    examples = [torch.zeros(2, 2, 5, 6), torch.ones(2, 5, dtype=torch.bool)]
    axes = [{0: batch, 2: time}, {0: batch, 1: time}]
    model = traced(Attended(), examples, axes, ["x", "given"], ["y"], opset)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x_BHSK = drawn(3, 2, 4, 6)
    (found,) = session.run(None, {"x": x_BHSK.numpy(), "given": GIVEN.numpy()})
    np.testing.assert_allclose(found, attend(x_BHSK, x_BHSK, x_BHSK, seen_places(GIVEN)).numpy(), atol=1e-6)
    assert (found[2] == 0).all()
    (found,) = session.run(None, {"x": x_BHSK[:, :, :0].numpy(), "given": GIVEN[:, :0].numpy()})
    assert found.shape == (3, 2, 0, 6)


def test_sinusoids_are_those_of_the_paper() -> None:
    found = Sinusoids(8)(torch.arange(3, 7)).numpy()
    for row, place in enumerate(range(3, 7)):
        for n in range(4):
            angle = place / 10_000 ** (2 * n / 8)
            assert found[row, [n, 4 + n]] == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-6)


@torch.no_grad()
def test_by_mimetic_weights_each_place_begins_with_its_own_likes() -> None:
    attention, x = nn.MultiheadAttention(32, 1), drawn(1, 9, 32)
    initialise(attention, mimetic=True)
    q, k, v = attention.in_proj_weight.chunk(3)
    assert torch.equal(q, k)
    assert not torch.equal(k, v)
    assert float(q.std() / v.std()) == pytest.approx(2.0, rel=0.1)
    attention.in_proj_weight[64:] = torch.eye(32)
    attention.out_proj.weight.copy_(torch.eye(32))
    y, _, _ = self_attention(attention, x, seen_places(torch.ones(1, 9, dtype=torch.bool)))
    nearest = torch.cdist(y[0], x[0]).argmin(1)
    assert torch.equal(nearest, torch.arange(9))


def test_no_two_layers_begin_alike() -> None:
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, norm_first=True), 3, enable_nested_tensor=False
    )
    assert torch.equal(encoder.layers[0].linear1.weight, encoder.layers[1].linear1.weight)  # what torch does
    initialise(encoder)
    for name, parameter in encoder.layers[0].named_parameters():
        others = [dict(layer.named_parameters())[name] for layer in encoder.layers[1:]]
        assert all(torch.equal(parameter, other) == (parameter.ndim == 1) for other in others), name
    assert float(encoder.layers[2].self_attn.in_proj_weight.detach().std()) == pytest.approx((2 / 32) ** 0.5, rel=0.2)
