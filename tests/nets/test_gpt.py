"""The Transformer core against plain formulas, and what checkpointing saves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.fused import normed_and_turned, squared_relu, turned
from rlseq.nets.gpt import Rotary, attend, products, visible
from rlseq.nets.network import NetInput, seeded
from rlseq.nets.sequence import SequenceNetwork
from rlseq.sequence import Signature

V = 13


def made(context: int = 6, **options: Any) -> SequenceNetwork:
    chosen = SequenceNetOptions(**{"layers": 2, "heads": 2, "width": 8, **options})
    net = seeded(0, lambda: SequenceNetwork(Signature(vocabulary=V), chosen, context))
    assert isinstance(net, SequenceNetwork)
    return net


def random(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32))


def naive_turn(x: np.ndarray, position: int) -> np.ndarray:
    """Rotary positions of one head's vector as 2 x 2 rotations."""
    out = x.copy()
    for k in range(0, len(x), 2):
        angle = position * 10_000.0 ** (-k / len(x))
        c, s = math.cos(angle), math.sin(angle)
        out[k : k + 2] = np.array([[c, -s], [s, c]]) @ x[k : k + 2]
    return out


def naive_logits(net: SequenceNetwork, tokens: list[int], window: int, qk_norm: bool, activation: str) -> np.ndarray:
    """The network token by token, head by head, in float64."""
    w = {name: value.double().numpy() for name, value in net.state_dict().items()}

    def norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * gain

    def head_norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean() + 1e-6) if qk_norm else x

    def feed(x: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        h = up @ x
        if activation == "swiglu":
            value, gate = np.split(h, 2)
            h = value * gate / (1 + np.exp(-gate))
        elif activation == "gelu":
            h = np.array([0.5 * z * (1 + math.erf(z / math.sqrt(2))) for z in h])
        else:
            h = np.maximum(h, 0) ** (2 if activation == "relu2" else 1)
        return down @ h

    stream = [w["embedding.weight"][token] for token in tokens]
    for block in ("core.blocks.0", "core.blocks.1"):
        heads = []
        for t, x in enumerate(stream):
            qkv = (w[f"{block}.attention.qkv.weight"] @ norm(x, w[f"{block}.attention_norm.weight"])).reshape(3, 2, 4)
            q, k = ([naive_turn(head_norm(head), t) for head in part] for part in qkv[:2])
            heads.append((q, k, qkv[2]))
        read = []
        for t in range(len(stream)):
            y = []
            for h in range(2):
                near = range(max(0, t - window + 1), t + 1)
                scores = np.array([heads[t][0][h] @ heads[s][1][h] / 2 for s in near])
                share = np.exp(scores - scores.max())
                y.append(sum(p * heads[s][2][h] for p, s in zip(share / share.sum(), near, strict=True)))
            read.append(stream[t] + w[f"{block}.attention.out.weight"] @ np.concatenate(y))
        stream = [
            x + feed(norm(x, w[f"{block}.mlp_norm.weight"]), w[f"{block}.mlp.up.weight"], w[f"{block}.mlp.down.weight"])
            for x in read
        ]
    return np.stack([w["head.weight"] @ norm(x, w["norm.weight"]) for x in stream])


@pytest.mark.parametrize(
    ("window", "qk_norm", "activation"),
    [(6, True, "relu2"), (3, True, "gelu"), (6, False, "swiglu"), (2, False, "relu")],
)
def test_the_network_is_its_formulas(window: int, qk_norm: bool, activation: Any) -> None:
    net = made(window=window, qk_norm=qk_norm, activation=activation)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(10.0 if parameter.ndim == 2 else 1.5)
    given = [3, 1, 4, 1, 5, 9, 2, 6, 5]  # longer than the context
    logits = net(NetInput((torch.tensor([given]),)))[0][0].detach().numpy()
    np.testing.assert_allclose(logits, naive_logits(net, given, window, qk_norm, activation), rtol=1e-4, atol=1e-4)


def test_the_mask_shows_the_window_up_to_the_token_itself() -> None:
    bias_TS = visible(torch.tensor([2, 3]), torch.arange(5), window=2)
    assert (bias_TS == 0).tolist() == [[False, True, True, False, False], [False, False, True, True, False]]
    assert torch.isfinite(bias_TS.half()).all()


@pytest.mark.parametrize("window", [None, 3])
def test_attention_as_products_is_attention(window: int | None) -> None:
    q, k, v = (x.requires_grad_() for x in (random(2, 3, 7, 4), random(2, 3, 7, 4) + 1, random(2, 3, 7, 4) - 1))
    place = torch.arange(7)
    bias = None if window is None else visible(place, place, window)
    results = []
    for function in (attend, products):
        y = function(q, k, v, bias)
        results.append((y, *torch.autograd.grad(y.square().sum(), (q, k, v))))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_bfloat16_on_a_cpu_does_not_take_the_slow_backward() -> None:
    q = random(1, 2, 5, 4).bfloat16().requires_grad_()
    assert "Flash" not in _history(attend(q, q, q, None))
    assert "Flash" in _history(attend(q.float(), q.float(), q.float(), None))


def _history(y: Tensor) -> str:
    names, todo = "", [y.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None:
            names += type(node).__name__
            todo += [below for below, _ in node.next_functions]
    return names


def test_rotary_positions_are_relative() -> None:
    rotary = Rotary(6)
    q, k = random(1, 1, 2, 6), random(1, 1, 2, 6) + 1
    scores = [
        (turned(q, *rotary(torch.tensor([at]))) * turned(k, *rotary(torch.tensor([at - 3])))).sum(-1)
        for at in (3, 10, 1000)
    ]
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scores[0], scores[2], rtol=1e-3, atol=1e-3)


def plainly(function: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The form that compilers and exporters are given."""

    def run(*args: Any) -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(torch.compiler, "is_compiling", lambda: True)
            return function(*args)

    return run


def test_closed_form_gradients_are_those_of_the_plain_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Rotary(6)(torch.arange(5))
    for function, args in ((turned, turn), (normed_and_turned, turn), (squared_relu, ())):
        x = random(2, 5, 3, 6).requires_grad_()
        weight = random(2, 5, 3, 6) + 0.3
        results = []
        for form in (function, plainly(function, monkeypatch)):
            y = form(x * 1.0, *args)
            results.append((y, torch.autograd.grad((y * weight).sum(), x)[0]))
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_vector_of_zeros_is_normed_to_zeros_with_a_finite_gradient() -> None:
    x = torch.zeros(1, 1, 1, 4, requires_grad=True)
    y = normed_and_turned(x, *Rotary(4)(torch.arange(1)))
    y.sum().backward()
    assert torch.equal(y, torch.zeros(1, 1, 1, 4))
    assert x.grad is not None and torch.isfinite(x.grad).all()


def _saved(net: SequenceNetwork, given: NetInput) -> tuple[int, Tensor]:
    weights = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits_BTV = net(given)[0]
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), given.x[0].flatten())
    return sum(storage.nbytes() for storage in storages.values()), loss


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_checkpointing_keeps_at_most_half_and_gives_identical_gradients(dropout: float) -> None:
    given = NetInput((torch.from_numpy(np.random.default_rng(0).integers(V, size=(12, 64))),))
    results = []
    for checkpointed in (False, True):
        net = made(64, layers=12, heads=4, width=128, dropout=dropout, checkpoint_activations=checkpointed).train()
        torch.manual_seed(5)
        count, loss = _saved(net, given)
        loss.backward()
        results.append((count, loss, [parameter.grad for parameter in net.parameters()]))
    (plain, loss, grads), (spared, same_loss, same_grads) = results
    assert spared <= plain / 2
    assert spared < plain / 8
    assert torch.equal(loss, same_loss)
    for a, b in zip(grads, same_grads, strict=True):
        assert a is not None and b is not None and torch.equal(a, b)


def test_initial_weights_are_small_and_what_is_added_to_the_stream_smaller() -> None:
    net = made(layers=8, heads=4, width=128)
    spread = {name: float(value.std()) for name, value in net.state_dict().items() if value.ndim == 2}
    for name, std in spread.items():
        expected = 0.02 / 4 if name.endswith(("out.weight", "down.weight")) else 0.02
        assert std == pytest.approx(expected, rel=0.1), name
    assert not [name for name, _ in net.named_parameters() if name.endswith("bias")]


def test_heads_can_be_removed() -> None:
    net = made(window=4)
    tokens_BT = torch.arange(9).reshape(1, 9)
    with torch.no_grad():
        for block in net.core.blocks:
            attention = block.attention
            attention.out.weight[:, 4:] = 0.0  # the second head is not heard
        expected = net(NetInput((tokens_BT,)))[0]
        for block in net.core.blocks:
            attention = block.attention
            attention.qkv.weight.data = attention.qkv.weight.unflatten(0, (3, 2, 4))[:, :1].flatten(0, 2).clone()
            attention.out.weight.data = attention.out.weight[:, :4].clone()
            attention.num_heads = 1
        torch.testing.assert_close(net(NetInput((tokens_BT,)))[0], expected)
        _, state = net(NetInput((tokens_BT,)), net.initial_state(1))
    assert state[0].shape == (1, 1, 3, 4)
    assert net.state_leaves[0].shape == ("batch", 1, "past", 4)
