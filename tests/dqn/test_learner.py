"""What an update of DQN does."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from rlseq.config import Layer, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.dqn.gradients import TdBatch
from rlseq.dqn.learner import DqnLearner
from rlseq.engine.device import Precision
from rlseq.engine.update import Part
from rlseq.errors import NonFiniteLoss
from rlseq.nets.config import NetOptions
from rlseq.nets.network import NetInput, QNetwork, seeded
from rlseq.replay.uniform import UniformReplay
from rlseq.spec import Leaf
from tests.engine.twin import Twin

LEAF = Leaf(name="obs", shape=(3,))
PLAIN = Precision(None, False)


def replay(size: int = 40, seed: int = 0) -> UniformReplay:
    rng = np.random.default_rng(seed)
    memory = UniformReplay(size, (LEAF,))
    obs, next_obs = rng.normal(size=(2, size, 3)).astype(np.float32)
    discount = rng.choice(np.float32([0, 0.9]), size)
    memory.add((obs,), rng.integers(0, 2, size), rng.normal(size=size).astype(np.float32), discount, (next_obs,))
    return memory


def learner(
    precision: Precision = PLAIN,
    gradients: str = "auto",
    recorder: Any = None,
    unread: int = 0,
    device: torch.device | str = "cpu",
    **changes: Any,
) -> DqnLearner:
    optim = {"lr": 0.01, "clip_norm": None, **changes.pop("optim", {})}
    tree = {"replay": {"batch_size": 8}, "optim": optim, "engine": {"gradients": gradients}}
    options = resolve(DqnTraining, Layer("test", {**tree, "dqn": changes}))
    net: Any = seeded(0, lambda: QNetwork((LEAF,), 2, NetOptions(hidden=(6,)))).to(device)
    return DqnLearner(net, options, total_updates=100, precision=precision, recorder=recorder, unread=unread)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("loss", ["huber", "mse"])
@pytest.mark.parametrize("chunk", [1024, 16])  # less than a chunk, and two whole ones
@pytest.mark.parametrize("update", ["hard", "soft"])
def test_a_burst_equals_a_naive_loop(
    double: bool, loss: str, chunk: int, update: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordinary parameters, one batch at a time, targets written out: the same losses and weights."""
    monkeypatch.setattr("rlseq.dqn.learner.CHUNK_ROWS", chunk)
    ours, memory = learner(double=double, loss=loss, target_update=update, tau=0.25), replay()
    net, target = copy.deepcopy(ours.net), copy.deepcopy(ours.target)
    for p in net.parameters():
        p.grad = None
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    rows = ours.burst(memory, np.random.default_rng(5), 4)
    index = np.random.default_rng(5).integers(0, 40, 4 * 8)
    for k in range(4):
        i = index[k * 8 : (k + 1) * 8]
        a = {name: torch.from_numpy(array[i]) for name, array in memory.arrays.items()}
        with torch.no_grad():
            choice = (net if double else target)(NetInput((a["next_obs.0"],)))[0].argmax(dim=1)
            value = target(NetInput((a["next_obs.0"],)))[0][torch.arange(8), choice]
            y = a["reward"] + a["discount"] * value
        q = net(NetInput((a["obs.0"],)))[0][torch.arange(8), a["action"]]
        error = F.smooth_l1_loss(q, y) if loss == "huber" else F.mse_loss(q, y)
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        if update == "soft":
            with torch.no_grad():
                for mixed, online in zip(target.parameters(), net.parameters(), strict=True):
                    mixed.lerp_(online, 0.25)
        assert rows[k, 0] == pytest.approx(error.item(), rel=1e-5)
        assert rows[k, 2] == pytest.approx(q.mean().item(), rel=1e-4)
    for p, r in zip(ours.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(p, r, rtol=1e-4, atol=1e-6)


def test_accumulated_parts_give_the_same_update() -> None:
    whole, parts = learner(optim={"name": "sgd"}), learner(optim={"name": "sgd", "accumulate": 3})
    a, b = (x.burst(replay(), np.random.default_rng(0), 5) for x in (whole, parts))
    np.testing.assert_allclose(a, b, rtol=1e-5)
    torch.testing.assert_close(whole.update_step.flat.data, parts.update_step.flat.data, rtol=1e-5, atol=1e-6)


def test_hard_and_soft_targets() -> None:
    hard = learner()
    before = copy.deepcopy(hard.target.state_dict())
    hard.burst(replay(), np.random.default_rng(0), 2)
    assert all(torch.equal(hard.target.state_dict()[name], before[name]) for name in before)
    hard.sync_target()
    assert all(torch.equal(hard.target.state_dict()[n], value) for n, value in hard.net.state_dict().items())
    soft = learner(target_update="soft", tau=0.25)
    start = copy.deepcopy(soft.target.state_dict())
    soft.burst(replay(), np.random.default_rng(0), 1)
    for name, value in soft.net.state_dict().items():
        torch.testing.assert_close(soft.target.state_dict()[name], start[name] + 0.25 * (value - start[name]))


def test_the_target_is_a_still_evaluated_copy_and_its_buffers_follow() -> None:
    """R14."""

    class WithBuffer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = QNetwork((LEAF,), 2, NetOptions(hidden=(4,)))
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, inputs: NetInput, state: Any = ()) -> Any:
            return self.q(inputs, state)

    options = resolve(DqnTraining, Layer("test", {"replay": {"batch_size": 8}}))
    ours = DqnLearner(WithBuffer(), options, total_updates=1, precision=PLAIN)  # type: ignore[arg-type]
    assert not ours.target.training
    assert not any(p.requires_grad for p in ours.target.parameters())
    held = {p.data_ptr() for group in ours.update_step.optimizer.param_groups for p in group["params"]}
    assert held == {ours.update_step.flat.data.data_ptr()}
    ours.net.seen.fill_(3.0)  # type: ignore[union-attr,operator]
    assert float(ours.target.seen) == 0  # type: ignore[arg-type]
    ours.sync_target()
    assert float(ours.target.seen) == 3  # type: ignore[arg-type]


def test_a_skipped_fp16_update_moves_no_target_and_leaves_no_row() -> None:
    """T4."""
    ours, memory = learner(Precision(torch.float16, True), target_update="soft", tau=0.5, loss="mse"), replay()
    memory.arrays["reward"].fill(1e10)  # its gradient overflows fp16
    before = ours._target_flat.data.clone()
    rows = ours.burst(memory, np.random.default_rng(0), 3)
    assert rows.shape == (0, 3)
    assert ours.update_step.skipped == 3
    assert ours.update_step.updates == 0
    assert torch.equal(ours._target_flat.data, before)


def test_a_nan_is_named_with_its_update() -> None:
    ours, memory = learner(), replay()
    ours.burst(memory, np.random.default_rng(0), 7)
    memory.arrays["reward"].fill(np.nan)
    with pytest.raises(NonFiniteLoss, match="update 8 gave loss nan"):
        ours.burst(memory, np.random.default_rng(0), 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision_stays_near_float32(dtype: torch.dtype) -> None:
    full, mixed = learner(), learner(Precision(dtype, dtype == torch.float16))
    a, b = (x.burst(replay(), np.random.default_rng(0), 10) for x in (full, mixed))
    np.testing.assert_allclose(a[:, 0], b[:, 0], rtol=0.1)
    assert mixed.update_step.flat.data.dtype == torch.float32
    assert not np.array_equal(a, b)


def test_state_goes_on_bit_for_bit() -> None:
    a, b = learner(target_update="soft"), learner(target_update="soft")
    a.burst(replay(), np.random.default_rng(0), 5)
    arrays, numbers = a.state()
    arrays, model = ({k: v.copy() for k, v in x.items()} for x in (arrays, a.model()))
    b.load_model(model, "test")
    b.load_state(arrays, numbers, "test")
    rows = [x.burst(replay(), np.random.default_rng(1), 5) for x in (a, b)]
    np.testing.assert_array_equal(*rows)
    assert torch.equal(a._target_flat.data, b._target_flat.data)


@pytest.mark.parametrize("precision", [PLAIN, Precision(torch.bfloat16, False), Precision(torch.float16, True)])
def test_a_nan_ends_the_training_in_every_precision(precision: Precision) -> None:
    ours, memory = learner(precision), replay()
    memory.arrays["reward"].fill(np.nan)
    with pytest.raises(NonFiniteLoss, match="update 1 gave loss nan"):
        ours.burst(memory, np.random.default_rng(0), 3)


def test_an_overflow_at_any_loss_scale_ends_the_training() -> None:
    ours, memory = learner(Precision(torch.float16, True), loss="mse"), replay()
    memory.arrays["reward"].fill(1e15)
    with pytest.raises(NonFiniteLoss, match="at scale"):
        ours.burst(memory, np.random.default_rng(0), 60)
    assert ours.update_step.updates == 0


def test_weights_that_overflowed_are_not_given_to_any_file() -> None:
    ours = learner()
    ours.update_step.flat.data[3] = torch.inf
    with pytest.raises(NonFiniteLoss, match="weights"):
        ours.model()


@pytest.mark.parametrize("changes", [{"double": True}, {"double": False}, {"target_update": "soft"}, {"loss": "mse"}])
def test_closed_form_and_autograd_agree_bit_for_bit_after_1000_updates(changes: dict[str, Any]) -> None:
    """And one goes on where the other stopped: weights, moments, target and curves."""
    optim = {"clip_norm": 1.0, "schedule": "linear"}
    runs = {kind: learner(gradients=kind, optim=optim, **changes) for kind in ("auto", "autograd")}
    crossed = learner(gradients="autograd", optim=optim, **changes)
    assert runs["auto"].closed_form and not runs["autograd"].closed_form
    rng = {name: np.random.default_rng(3) for name in (*runs, "crossed")}
    rows: dict[str, list[np.ndarray]] = {"auto": [], "autograd": []}
    for burst in range(4):
        for name, ours in runs.items():
            rows[name].append(ours.burst(replay(), rng[name], 250))
            ours.sync_target()
        if burst == 1:
            arrays, numbers = runs["auto"].state()
            crossed.load_model({k: v.copy() for k, v in runs["auto"].model().items()}, "test")
            crossed.load_state({k: v.copy() for k, v in arrays.items()}, numbers, "test")
            rng["crossed"].bit_generator.state = rng["auto"].bit_generator.state
    for _ in range(2):
        crossed.burst(replay(), rng["crossed"], 250)
        crossed.sync_target()
    np.testing.assert_array_equal(np.concatenate(rows["auto"]), np.concatenate(rows["autograd"]))
    assert runs["auto"].update_step.updates == 1000
    for other in (runs["autograd"], crossed):
        assert torch.equal(runs["auto"].update_step.flat.data, other.update_step.flat.data)
        assert torch.equal(runs["auto"]._target_flat.data, other._target_flat.data)
        for name, array in runs["auto"].update_step.optimizer.arrays().items():
            np.testing.assert_array_equal(array, other.update_step.optimizer.arrays()[name])


def test_importance_weights_reach_the_closed_form() -> None:
    ours, twin = (learner(gradients=kind) for kind in ("auto", "autograd"))
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        obs, target = torch.randn(8, 3, generator=generator), torch.randn(8, generator=generator) * 3
        batch = TdBatch((obs,), torch.tensor([0, 1] * 4), target, torch.rand(8, generator=generator))
        a, b = (x.update_step([Part(batch, 1.0)], x._gradients) for x in (ours, twin))
        assert torch.equal(a.loss, b.loss)
    assert torch.equal(ours.update_step.flat.data, twin.update_step.flat.data)


@pytest.mark.parametrize("change", [{"optim": {"accumulate": 2}}, {"gradients": "autograd"}])
def test_where_the_closed_form_does_not_apply(change: dict[str, Any]) -> None:
    assert learner().closed_form
    assert not learner(**change).closed_form
    assert not learner(Precision(torch.bfloat16, False)).closed_form


def test_long_bursts_are_gathered_in_chunks() -> None:
    """A chunk is a bound of memory, not of the mathematics: 300 updates of 8 rows are three of them."""
    seen: list[int] = []

    class Spy(UniformReplay):
        def sample(self, rng: np.random.Generator, num: int) -> Any:
            seen.append(num)
            return super().sample(rng, num)

    memory = Spy(40, (LEAF,))
    memory.arrays, memory._obs, memory._next_obs = (getattr(replay(), n) for n in ("arrays", "_obs", "_next_obs"))
    memory.size = 40
    assert learner().burst(memory, np.random.default_rng(0), 300).shape == (300, 3)
    assert seen == [1024, 1024, 352]


FROZEN: dict[str, Any] = {"freeze": ["core.layers.0.weight"], "lr_multipliers": {"head.*": 0.25}, "weight_decay": 0.1}


@pytest.mark.parametrize("update", ["hard", "soft"])
@pytest.mark.parametrize("twin", [False, True], ids=["plain", "recorded"])
def test_frozen_layers_stay_in_both_networks_and_the_rest_learns(update: str, twin: bool) -> None:
    """Against plain torch, layer by layer; what is frozen gets no gradient, so the closed form is not used."""
    optim = {**FROZEN, "name": "adamw"}
    ours = learner(optim=optim, target_update=update, tau=0.25, recorder=Twin() if twin else None)
    assert not ours.closed_form and ours.update_step.describe() == {
        "frozen": "core.layers.0.weight: 18 of 38 parameters",
        "rates": "head.* x 0.25",
    }
    net, target = copy.deepcopy(ours.net), copy.deepcopy(ours.target)
    before = ours.net.core.layers[0].weight.clone()
    groups: list[dict[str, Any]] = [
        {"params": [net.head.weight], "weight_decay": 0.1, "lr": 0.0025},
        {"params": [net.core.layers[0].bias], "weight_decay": 0.0, "lr": 0.01},
        {"params": [net.head.bias], "weight_decay": 0.0, "lr": 0.0025},
    ]
    adam = torch.optim.AdamW(groups)
    rng, twin_rng, memory = np.random.default_rng(5), np.random.default_rng(5), replay()
    for k in range(6):
        ours.burst(memory, rng, 1)
        batch = memory.sample(twin_rng, 8).map(torch.as_tensor)
        with torch.no_grad():
            best_B1 = net(NetInput(batch.next_obs))[0].argmax(1, keepdim=True)
            value_B = target(NetInput(batch.next_obs))[0].gather(1, best_B1).squeeze(1)
        q_B = net(NetInput(batch.obs))[0].gather(1, batch.action.unsqueeze(1)).squeeze(1)
        adam.zero_grad()
        F.huber_loss(q_B, batch.reward + batch.discount * value_B).backward()
        adam.step()
        if update == "soft":
            for t, p in zip(target.parameters(), net.parameters(), strict=True):
                t.data.lerp_(p.data, 0.25)
        elif k == 3:
            ours.sync_target()
            target.load_state_dict(net.state_dict())
    for a, b in ((ours.net, net), (ours.target, target)):
        for x, y in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)
    assert torch.equal(ours.net.core.layers[0].weight, before)
    assert torch.equal(ours.target.core.layers[0].weight, before)


def test_frozen_state_goes_on_bit_for_bit() -> None:
    a, b = learner(optim=FROZEN), learner(optim=FROZEN)
    streams = [np.random.default_rng(5) for _ in range(2)]
    a.burst(replay(), streams[0], 5)
    arrays, numbers = a.state()
    b.load_model({name: array.copy() for name, array in a.model().items()}, "test")
    b.load_state({name: array.copy() for name, array in arrays.items()}, numbers, "test")
    streams[1].bit_generator.state = streams[0].bit_generator.state
    for ours, rng in zip((a, b), streams, strict=True):
        ours.burst(replay(), rng, 5)
        ours.sync_target()
    assert torch.equal(a.update_step.flat.weights, b.update_step.flat.weights)
    assert torch.equal(a._target_flat.weights, b._target_flat.weights)
    a.update_step.flat.weights[-1] = torch.nan  # also what is frozen is never written as no number
    with pytest.raises(NonFiniteLoss, match="weights"):
        a.model()
