"""Networks against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlseq.nets.config import NetOptions
from rlseq.nets.encoder import ObservationEncoder
from rlseq.nets.network import NetInput, QNetwork, num_parameters, seeded
from rlseq.nets.policy import TorchPolicy
from rlseq.spec import ActionSpec, EnvSpec, Leaf, PolicySpec, StepInput

BOX = Leaf(name="obs", shape=(3,))


def test_the_encoder_codes_every_kind_as_numpy_would() -> None:
    leaves = (
        Leaf(name="obs.d", kind="discrete", dtype="int64", sizes=(4,), starts=(-1,)),
        Leaf(name="obs.i", shape=(2, 2), dtype="uint8", scale=1 / 255),
        Leaf(name="obs.m", kind="multi_discrete", shape=(2,), dtype="int64", sizes=(2, 3), starts=(0, 5)),
        Leaf(name="obs.b", kind="multi_binary", shape=(2,), dtype="int8"),
        Leaf(name="obs.f", shape=()),
    )
    x = (
        torch.tensor([-1, 2]),
        torch.tensor([[[0, 255], [51, 102]], [[255, 0], [0, 0]]], dtype=torch.uint8),
        torch.tensor([[1, 5], [0, 7]]),
        torch.tensor([[1, 0], [0, 1]], dtype=torch.int8),
        torch.tensor([0.5, -2.0]),
    )
    encoder = ObservationEncoder(leaves)
    expected = [
        [1, 0, 0, 0, 0, 1, 0.2, 0.4, 0, 1, 1, 0, 0, 1, 0, 0.5],
        [0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, -2],
    ]
    assert encoder.num_features == 16
    np.testing.assert_allclose(encoder(x).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(("activation", "function"), [("relu", lambda z: np.maximum(z, 0)), ("tanh", np.tanh)])
def test_the_network_is_its_matrix_products(activation: str, function: object) -> None:
    net = QNetwork((BOX,), 4, NetOptions(hidden=(5, 6), activation=activation))  # type: ignore[arg-type]
    w = {name: value.numpy() for name, value in net.state_dict().items()}
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    h = x
    for layer in ("core.layers.0", "core.layers.2"):
        h = function(h @ w[f"{layer}.weight"].T + w[f"{layer}.bias"])  # type: ignore[operator]
    q, state = net(NetInput((torch.from_numpy(x),)))
    np.testing.assert_allclose(q.detach().numpy(), h @ w["head.weight"].T + w["head.bias"], atol=1e-6)
    assert state == ()
    assert num_parameters(net) == 3 * 5 + 5 + 5 * 6 + 6 + 6 * 4 + 4


def test_no_hidden_layer_is_a_linear_network() -> None:
    net = QNetwork((BOX,), 2, NetOptions(hidden=()))
    assert num_parameters(net) == 3 * 2 + 2


def test_seeded_weights_depend_on_their_seed_alone() -> None:
    def build() -> QNetwork:
        return QNetwork((BOX,), 2, NetOptions(hidden=(4,)))

    torch.manual_seed(1)
    before = torch.get_rng_state()
    a = seeded(7, build).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    b, c = seeded(7, build).state_dict(), seeded(8, build).state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["head.weight"], c["head.weight"])


def test_the_policy_acts_greedily_in_the_environments_numbering_and_restores_the_mode() -> None:
    net = QNetwork((BOX,), 3, NetOptions(hidden=()))
    with torch.no_grad():
        net.head.weight.copy_(torch.eye(3))
        net.head.bias.zero_()
    spec = PolicySpec(env=EnvSpec(id="any"), observation=(BOX,), action=ActionSpec(n=3, start=10))
    policy = TorchPolicy(net.train(), spec)
    obs = np.float32([[1, 2, 3], [9, 1, 1], [-5, -1, -3]])
    step = StepInput((obs,), np.zeros(3, np.float32), np.zeros(3, np.bool_))
    actions, state = policy.act(step, policy.initial_state(3))
    assert actions.tolist() == [12, 10, 11]
    assert state == ()
    assert net.training


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "silu", "elu"])
def test_every_activation_is_the_one_it_is_called(activation: str) -> None:
    net = QNetwork((BOX,), 2, NetOptions(hidden=(4,), activation=activation))  # type: ignore[arg-type]
    x = torch.linspace(-3, 3, 15).reshape(5, 3)
    w = net.state_dict()
    h = getattr(torch.nn.functional, activation)(x @ w["core.layers.0.weight"].T + w["core.layers.0.bias"])
    torch.testing.assert_close(net(NetInput((x,)))[0].detach(), h @ w["head.weight"].T + w["head.bias"])


def test_values_are_float32_even_in_mixed_precision() -> None:
    net = QNetwork((BOX,), 2, NetOptions(hidden=(4,)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(NetInput((torch.ones(2, 3),)))[0].dtype == torch.float32


def test_names_of_weights_stay_what_they_are_in_every_release() -> None:
    """Checkpoints are read by these names."""
    assert list(QNetwork((BOX,), 2, NetOptions(hidden=(4, 5))).state_dict()) == [
        *(f"core.layers.{k}.{part}" for k in (0, 2) for part in ("weight", "bias")),
        "head.weight",
        "head.bias",
    ]


def test_seeded_restores_the_generator_when_building_fails() -> None:
    before = torch.get_rng_state()

    def fail() -> QNetwork:
        torch.rand(3)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        seeded(7, fail)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_a_row_depends_on_no_other_row(batch: int) -> None:
    net = seeded(3, lambda: QNetwork((BOX,), 3, NetOptions(hidden=(16,))))
    spec = PolicySpec(env=EnvSpec(id="any"), observation=(BOX,), action=ActionSpec(n=3))
    policy = TorchPolicy(net, spec)  # type: ignore[arg-type]
    obs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    whole, _ = policy.q_values((obs,), np.zeros(64, np.bool_), ())
    part, _ = policy.q_values((obs[:batch],), np.zeros(batch, np.bool_), ())
    torch.testing.assert_close(part, whole[:batch], rtol=1e-5, atol=1e-6)
    assert not part.requires_grad


def test_ties_go_to_the_lowest_action() -> None:
    net = QNetwork((BOX,), 3, NetOptions(hidden=()))
    with torch.no_grad():
        net.head.weight.zero_()
        net.head.bias.copy_(torch.tensor([-2.0, -1.0, -1.0]))
    spec = PolicySpec(env=EnvSpec(id="any"), observation=(BOX,), action=ActionSpec(n=3, start=-4))
    step = StepInput((np.zeros((2, 3), np.float32),), np.zeros(2, np.float32), np.zeros(2, np.bool_))
    actions, _ = TorchPolicy(net, spec).act(step, ())
    assert (actions.tolist(), actions.dtype) == ([-3, -3], np.int64)
