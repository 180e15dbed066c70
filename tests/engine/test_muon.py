"""Muon: torch's numbers bit for bit, the paper's in float32, which parameters it moves, its state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlseq.engine import muon
from rlseq.engine.device import cpu_settings
from rlseq.engine.flat import FlatParameters
from rlseq.engine.muon import orthogonal, product_dtype
from rlseq.engine.update import Part
from rlseq.errors import UsageError
from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.sequence import SequenceNetwork
from rlseq.sequence import Signature
from tests.engine.test_update import PLAIN, SCALED, Batch, batches, loss_of, network, options, step_of

WIDTH = 32


class Deep(nn.Module):
    """Hidden matrices that are square, tall and wide, two each; among them vectors and a cube; two other matrices.

    The embedding stands behind the core, so that its parameters do not lie in the order in which they are declared. All
    sizes are multiples of 16: AdamW's kernel rounds the rest of a vector differently, flat or not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.core = nn.ModuleDict(
            {
                "a": nn.Linear(WIDTH, WIDTH),
                "up": nn.Linear(WIDTH, 3 * WIDTH, bias=False),
                "down": nn.Linear(3 * WIDTH, WIDTH, bias=False),
                "b": nn.Linear(WIDTH, WIDTH, bias=False),
                "norm": nn.LayerNorm(WIDTH),
                "up2": nn.Linear(WIDTH, 3 * WIDTH, bias=False),
                "down2": nn.Linear(3 * WIDTH, WIDTH, bias=False),
            }
        )
        self.core.register_parameter("cube", nn.Parameter(torch.ones(2, 4, 4)))
        self.embedding = nn.Linear(3, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        h = h + self.core["b"](torch.tanh(self.core["a"](h)))
        h = h + self.core["down"](torch.relu(self.core["up"](self.core["norm"](h))))
        h = h + self.core["down2"](torch.relu(self.core["up2"](h)))
        return self.head(h * cast(Tensor, self.core.cube).flatten())


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with cpu_settings(1):
        yield


def deep() -> Deep:
    torch.manual_seed(0)
    return Deep()


def torchs(net: nn.Module, chosen: Any) -> Callable[[Batch, float], None]:
    """An update by torch's own optimisers over ordinary parameters, at the given learning rate of Muon."""
    hidden = [p for name, p in net.named_parameters() if name.startswith("core.") and p.ndim == 2]
    others = [p for p in net.parameters() if not any(p is q for q in hidden)]
    ours = torch.optim.Muon(
        hidden, momentum=chosen.muon_momentum, weight_decay=chosen.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    groups: list[dict[str, Any]] = [
        {"params": [p for p in others if p.ndim >= 2], "weight_decay": chosen.weight_decay},
        {"params": [p for p in others if p.ndim < 2], "weight_decay": 0.0},
    ]
    rest = torch.optim.AdamW(groups, betas=(chosen.beta1, chosen.beta2), eps=chosen.eps, fused=True)
    ratio = 1.0 if chosen.adam_lr is None else chosen.adam_lr / chosen.lr

    def step(batch: Batch, lr: float) -> None:
        for optimizer, rate in ((ours, lr), (rest, lr * ratio)):
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = rate
        loss_of(net)(batch).mean.backward()
        ours.step()
        rest.step()

    return step


CHOICES: list[dict[str, Any]] = [
    {"lr": 0.02},
    {"lr": 0.02, "weight_decay": 0.3, "adam_lr": 0.003, "muon_momentum": 0.8, "beta1": 0.7, "beta2": 0.9},
    {"lr": 0.02, "schedule": "one_cycle", "weight_decay": 0.01},
]


@pytest.mark.parametrize("values", CHOICES, ids=["plain", "all", "schedule"])
def test_in_bfloat16_it_equals_torchs_bit_for_bit(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "product_dtype", lambda device: torch.bfloat16)
    chosen = options(name="muon", **values)
    ours, theirs = deep(), deep()
    _, step = step_of(ours, chosen, total=20)
    reference = torchs(theirs, chosen)
    before = copy.deepcopy(theirs.state_dict())
    for batch in batches(20):
        info = step(Part(batch, 1.0))
        reference(batch, info.lr)
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert not torch.equal(a, before[name]), name


def test_matrices_in_one_parameter_are_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each were a parameter of its own."""
    monkeypatch.setattr(muon, "product_dtype", lambda device: torch.float32)
    apart, whole, fused = deep(), deep(), deep()
    for net, stacked in ((apart, {}), (fused, {"core.up.weight": 3})):
        net.stacked = stacked  # type: ignore[assignment]
    updates = [step_of(net, options(name="muon", lr=0.02))[0] for net in (apart, whole, fused)]
    assert (
        updates[2].flat.hidden_shapes.count((WIDTH, WIDTH)) == updates[0].flat.hidden_shapes.count((WIDTH, WIDTH)) + 3
    )
    before = fused.core["up"].weight.detach().double().numpy().copy()
    gradient = torch.randn(updates[0].flat.grad.shape, generator=torch.Generator().manual_seed(2))
    for update in updates:
        update.flat.grad.copy_(gradient)
        update.optimizer.step(0.1)
    assert torch.equal(updates[0].flat.data, updates[1].flat.data)
    grad = cast(Tensor, fused.core["up"].weight.grad).double().numpy()
    thirds = [naive(part) * 0.1 * 0.2 * WIDTH**0.5 for part in np.split(grad, 3)]
    np.testing.assert_allclose(fused.core["up"].weight.detach().numpy(), before - np.concatenate(thirds), atol=1e-5)
    assert torch.equal(fused.core["down"].weight, whole.core["down"].weight)
    assert not torch.equal(fused.core["up"].weight, whole.core["up"].weight)


def test_queries_keys_and_values_of_a_transformer_are_taken_apart() -> None:
    net = SequenceNetwork(Signature(vocabulary=7), SequenceNetOptions(layers=2, heads=2, width=8), 4)
    shapes = FlatParameters(net).hidden_shapes
    assert shapes == [(8, 8)] * 4 + [(32, 8), (8, 32)] + [(8, 8)] * 4 + [(32, 8), (8, 32)]


def naive(matrix: np.ndarray) -> np.ndarray:
    """Five steps of Jordan et al. 2024 in float64."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / np.linalg.norm(x)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


@pytest.mark.parametrize("shape", [(8, 8), (20, 8), (8, 20), (1, 5)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_stacked_matrices_come_out_as_one_by_one_and_near_orthogonal(
    shape: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    stack = np.random.default_rng(0).normal(size=(3, *shape)) * np.array([1e-3, 1.0, 1e3])[:, None, None]
    found = orthogonal(torch.from_numpy(stack).float(), dtype)
    assert found.dtype == dtype
    found = found.double().numpy()
    np.testing.assert_allclose(found, np.stack([naive(matrix) for matrix in stack]), atol=tolerance)
    before, after = (np.linalg.svd(matrices, compute_uv=False) for matrices in (stack, found))
    large = before / before.max(axis=1, keepdims=True) > 0.1
    assert 0.6 < after[large].min() <= after.max() < 1.25


def test_a_step_in_float32_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of the paper in numpy, float64: Nesterov's momentum, decoupled decay, size of an update of Adam."""
    monkeypatch.setattr(muon, "product_dtype", lambda device: torch.float32)
    net = deep()
    _, step = step_of(net, options(name="muon", lr=0.1, muon_momentum=0.9, weight_decay=0.5))
    parameter = net.core["up"].weight
    w, m = parameter.detach().double().numpy().copy(), np.zeros((3 * WIDTH, WIDTH))
    for batch in batches(2):
        step(Part(batch, 1.0))
        assert parameter.grad is not None
        g = parameter.grad.double().numpy()
        m = 0.9 * m + 0.1 * g
        w = w * (1 - 0.1 * 0.5) - 0.1 * 0.2 * np.sqrt(3 * WIDTH) * naive(0.1 * g + 0.9 * m)
        np.testing.assert_allclose(parameter.detach().numpy(), w, atol=1e-5)


@pytest.mark.parametrize(("has", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_products_are_in_bfloat16_where_the_cpu_multiplies_it(
    has: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AVX512-BF16 or AMX, see `engine.device.cpu_has_bf16`."""
    monkeypatch.setattr(muon, "cpu_has_bf16", lambda: has)
    assert product_dtype(torch.device("cpu")) == dtype
    seen = set()
    original = orthogonal
    monkeypatch.setattr(muon, "orthogonal", lambda stack, used: (seen.add(used), original(stack, used))[1])
    _, step = step_of(deep(), options(name="muon"))
    step(Part(batches(1)[0], 1.0))
    assert seen == {dtype}


def test_hidden_matrices_go_to_muon_and_all_else_to_adamw_at_its_own_rate() -> None:
    update, step = step_of(
        deep(), options(name="muon", lr=0.1, adam_lr=0.02, weight_decay=0.3, schedule="linear", final_factor=0.5)
    )
    for k, batch in enumerate(batches(3)):
        info = step(Part(batch, 1.0))
        assert info.lr == pytest.approx(0.1 * (1 - 0.5 * k / 100))
        hidden, matrices, vectors = update.optimizer.param_groups
        assert [g["lr"] for g in (hidden, matrices, vectors)] == pytest.approx([info.lr, info.lr / 5, info.lr / 5])
    square = WIDTH * WIDTH
    assert [g["params"][0].numel() for g in (hidden, matrices, vectors)] == [
        2 * square + 4 * 3 * square,
        3 * WIDTH + 2 * WIDTH + 32,
        3 * WIDTH,
    ]
    assert [g["weight_decay"] for g in (hidden, matrices, vectors)] == [0.3, 0.3, 0.0]
    assert {g["lr"] for g in step_of(deep(), options(name="muon", lr=0.1))[0].optimizer.param_groups} == {0.1}


def test_a_network_without_hidden_matrices_is_refused() -> None:
    with pytest.raises(UsageError, match=r"optim.name = muon .* has none.*adamw"):
        step_of(network(), options(name="muon"))


def test_a_gradient_of_zero_moves_nothing() -> None:
    net = deep()
    update, step = step_of(net, options(name="muon", lr=0.1))
    before = update.flat.data.clone()
    net.embedding.weight.data.zero_(), net.head.weight.data.zero_()
    step(Part((torch.zeros(2, 3), net(torch.zeros(2, 3)).detach()), 1.0))
    assert torch.equal(update.flat.data[: update.flat.hidden], before[: update.flat.hidden])
    assert bool(torch.isfinite(update.flat.data).all())


@pytest.mark.parametrize("precision", [PLAIN, SCALED], ids=["plain", "scaled"])
@pytest.mark.parametrize("done", [0, 1, 5])
def test_a_resume_goes_on_bit_for_bit(precision: Any, done: int) -> None:
    chosen = options(name="muon", lr=0.05, weight_decay=0.1, schedule="wsd", clip_norm=0.5, ema=0.9)
    a, b = deep(), deep()
    update_a, step_a = step_of(a, chosen, precision, total=12)
    for batch in batches(done):
        step_a(Part(batch, 1.0))
    arrays, numbers = update_a.state()
    assert set(arrays) == {"raw"} | ({"muon.momentum"} if done else set()) | {
        f"{group}.{name}" for group in (0, 1) for name in ("exp_avg", "exp_avg_sq", "step") if done
    }
    arrays, numbers = {key: array.copy() for key, array in arrays.items()}, copy.deepcopy(numbers)
    kept = copy.deepcopy(arrays)
    update_b, step_b = step_of(b, chosen, precision, total=12)
    with update_a.averaged():
        b.load_state_dict(a.state_dict())
    update_b.load(arrays, numbers)
    for batch in batches(6, size=7):
        assert torch.equal(step_a(Part(batch, 1.0)).grad_norm, step_b(Part(batch, 1.0)).grad_norm)
    assert torch.equal(update_a.flat.data, update_b.flat.data)
    for key, array in arrays.items():  # loading copied them
        np.testing.assert_array_equal(array, kept[key])


def test_a_loss_scale_changes_nothing() -> None:
    """T3: the scaler sees every parameter."""
    plain, scaled = deep(), deep()
    _, step_a = step_of(plain, options(name="muon", lr=0.01, clip_norm=0.05))
    update_b, step_b = step_of(scaled, options(name="muon", lr=0.01, clip_norm=0.05), SCALED)
    update_b.scaler.load_state_dict({**update_b.scaler.state_dict(), "scale": 2.0**10})
    for batch in batches(4):
        a, b = step_a(Part(batch, 1.0)), step_b(Part(batch, 1.0))
        torch.testing.assert_close(a.grad_norm, b.grad_norm, rtol=1e-6, atol=0)
    for p, q in zip(plain.parameters(), scaled.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)  # scales are powers of two


def test_a_skipped_update_leaves_the_momentum() -> None:
    """T4."""
    update, step = step_of(deep(), options(name="muon"), SCALED)
    good = batches(1)[0]
    step(Part(good, 1.0))
    before = copy.deepcopy(update.state()[0])
    assert step(Part((good[0] * torch.inf, good[1]), 1.0)).skipped
    for key, array in update.state()[0].items():
        np.testing.assert_array_equal(array, before[key])


@pytest.mark.parametrize("change", ["momentum is short", "no momentum", "adam's is short", "adam's alone"])
def test_a_state_that_does_not_fit_is_refused_before_anything_changes(change: str) -> None:
    update, step = step_of(deep(), options(name="muon", weight_decay=0.1))
    step(Part(batches(1)[0], 1.0))
    arrays = {key: array.copy() + 1 for key, array in update.optimizer.arrays().items()}
    if change == "momentum is short":
        arrays["muon.momentum"] = arrays["muon.momentum"][1:]
    elif change == "no momentum":
        del arrays["muon.momentum"]
    elif change == "adam's is short":
        arrays["1.exp_avg"] = arrays["1.exp_avg"][1:]
    else:
        arrays = {"0.exp_avg": arrays["0.exp_avg"]}
    before = copy.deepcopy(update.optimizer.arrays())
    with pytest.raises(ValueError, match=r"optimizer\.(muon\.momentum|1\.exp_avg) is"):
        update.optimizer.load(arrays)
    for key, array in update.optimizer.arrays().items():
        np.testing.assert_array_equal(array, before[key])
