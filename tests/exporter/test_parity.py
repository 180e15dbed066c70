"""Parity must hold for the right graph and fail for a wrong one, with nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np
import onnx
import pytest
import torch

from rlseq.engine.weights import state_arrays
from rlseq.envs.make import maker, spaces_of
from rlseq.errors import ParityError, RlseqError
from rlseq.exporter import export
from rlseq.exporter.export import export_policy
from rlseq.exporter.parity import check_parity, gap
from rlseq.files import sha256_arrays
from rlseq.nets.config import NetOptions
from rlseq.nets.network import QNetwork, seeded
from rlseq.nets.policy import TorchPolicy
from rlseq.player.onnx_policy import load_onnx
from rlseq.spec import EnvSpec, PolicySpec

ENV = EnvSpec(id="CartPole-v1")
MAKE = maker(ENV)


@pytest.fixture(scope="module")
def policy() -> tuple[QNetwork, PolicySpec]:
    leaves, action = spaces_of(MAKE, ENV.id)
    net = seeded(3, lambda: QNetwork(leaves, action.n, NetOptions(hidden=(16,)))).eval()
    return net, PolicySpec(env=ENV, observation=leaves, action=action)  # type: ignore[return-value]


def test_a_faithful_export_reports_what_was_compared(policy: tuple[QNetwork, PolicySpec], tmp_path: Path) -> None:
    net, spec = policy
    report = export_policy(net, spec, tmp_path / "policy.onnx", MAKE)
    assert report["observations"] >= 1000
    assert report["batch_sizes"] == [1, 7, 64]
    assert 0 <= report["max_error"] < 1e-5
    assert report["episodes_with_equal_return"] == report["episodes"] >= 20
    assert report["mean_return_network"] == report["mean_return_onnx"] > 1
    assert [path.name for path in tmp_path.iterdir()] == ["policy.onnx"]
    inside = load_onnx(tmp_path / "policy.onnx").spec
    assert inside.parity == report
    assert inside.weights_sha256 == sha256_arrays(state_arrays(net))


def tampered(change: Callable[[onnx.ModelProto], None]) -> Any:
    """`build_graph` with its result changed."""
    original = export.build_graph

    def build(net: QNetwork, spec: PolicySpec, opset: int) -> onnx.ModelProto:
        model = original(net, spec, opset)
        change(model)
        return model

    return build


def set_initializer(model: onnx.ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(onnx.numpy_helper.from_array(change(onnx.numpy_helper.to_array(tensor)), name))
            return
    raise KeyError(name)


def test_wrong_values_fail_and_leave_what_was_there(
    policy: tuple[QNetwork, PolicySpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(b"what was here before")
    change = tampered(lambda model: set_initializer(model, "net.head.bias", lambda b: b + np.float32(0.01)))
    monkeypatch.setattr(export, "build_graph", change)
    with pytest.raises(ParityError, match=r"differ by up to 0.01"):
        export_policy(*policy, path, MAKE)
    assert path.read_bytes() == b"what was here before"
    assert [p.name for p in tmp_path.iterdir()] == ["policy.onnx"]


def test_a_graph_that_chooses_another_action_fails(
    policy: tuple[QNetwork, PolicySpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The action output is wrong while the values are right: only whole episodes can show it."""

    def worst(model: onnx.ModelProto) -> None:
        (node,) = [node for node in model.graph.node if node.op_type == "ArgMax"]
        node.op_type = "ArgMin"

    monkeypatch.setattr(export, "build_graph", tampered(worst))
    with pytest.raises(ParityError, match="parted at step"):
        export_policy(*policy, tmp_path / "policy.onnx", MAKE)
    assert not list(tmp_path.iterdir())


def test_nan_values_fail(policy: tuple[QNetwork, PolicySpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = tampered(lambda model: set_initializer(model, "net.head.bias", lambda b: b * np.float32(np.nan)))
    monkeypatch.setattr(export, "build_graph", change)
    with pytest.raises(RlseqError, match=r"nan|NaN"):
        export_policy(*policy, tmp_path / "policy.onnx", MAKE)
    assert not list(tmp_path.iterdir())


def test_near_ties_may_differ_and_are_counted(policy: tuple[QNetwork, PolicySpec], tmp_path: Path) -> None:
    """Two equal actions: the exported graph's action may be either, and the report counts it instead of failing."""
    net, spec = policy
    import copy

    tied = copy.deepcopy(net)
    with torch.no_grad():
        tied.head.weight[1] = tied.head.weight[0]
        tied.head.bias[1] = tied.head.bias[0]
    report = export_policy(tied, spec, tmp_path / "policy.onnx", MAKE)
    assert report["actions_differing_in_ties"] <= report["observations"]


def test_short_episodes_still_give_a_thousand_observations(tmp_path: Path) -> None:
    spec_env = EnvSpec(id="CartPole-v1", max_episode_steps=2)
    make = maker(spec_env)
    leaves, action = spaces_of(make, spec_env.id)
    net = seeded(0, lambda: QNetwork(leaves, action.n, NetOptions(hidden=(8,)))).eval()
    spec = PolicySpec(env=spec_env, observation=leaves, action=action)
    report = export_policy(net, spec, tmp_path / "policy.onnx", make)  # type: ignore[arg-type]
    assert report["observations"] >= 1000
    policy_file = load_onnx(tmp_path / "policy.onnx")
    again = check_parity(TorchPolicy(net, spec), policy_file, make, seed=5)  # type: ignore[arg-type]
    assert again["episodes"] > 20


def test_gap_is_the_distance_of_the_two_best() -> None:
    np.testing.assert_allclose(gap(np.array([[1.0, 5.0, 4.5], [-2.0, -2.0, -7.0]])), [0.5, 0.0])
    assert gap(np.array([[3.0]])) == [np.inf]


def test_reexport_leaves_nothing_stale(policy: tuple[QNetwork, PolicySpec], tmp_path: Path) -> None:
    net, spec = policy
    path = tmp_path / "policy.onnx"
    export_policy(net, spec, path, MAKE)
    first = path.read_bytes()
    export_policy(net, msgspec.structs.replace(spec, scores={"mean_return": 1.0}), path, MAKE)
    assert [p.name for p in tmp_path.iterdir()] == ["policy.onnx"]
    assert load_onnx(path).spec.scores == {"mean_return": 1.0}
    export_policy(net, spec, path, MAKE)
    assert path.read_bytes() == first  # the same network gives the same file, byte for byte


class Noisy(gym.Wrapper):
    """Rewards, or observations from the third step on, that no seed decides."""

    def __init__(self, env: gym.Env, what: str) -> None:
        super().__init__(env)
        self.what, self.steps, self.rng = what, 0, np.random.default_rng()

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        self.steps += 1
        noise = self.rng.normal()
        if self.what == "reward":
            return observation, float(reward) + noise, *rest
        return observation + np.float32(noise * (self.steps > 2)), reward, *rest


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_an_environment_that_no_seed_decides_is_no_fault_of_the_graph(
    policy: tuple[QNetwork, PolicySpec], tmp_path: Path, what: str
) -> None:
    report = export_policy(*policy, tmp_path / "policy.onnx", lambda: Noisy(MAKE(), what))
    assert report["episodes_with_equal_return"] < report["episodes"]
    assert (tmp_path / "policy.onnx").exists()


def test_what_a_killed_export_left_is_swept(policy: tuple[QNetwork, PolicySpec], tmp_path: Path) -> None:
    (tmp_path / ".policy.999999999.candidate.onnx").write_bytes(b"half")
    export_policy(*policy, tmp_path / "policy.onnx", MAKE)
    assert [p.name for p in tmp_path.iterdir()] == ["policy.onnx"]


def test_a_diverged_network_is_called_that(policy: tuple[QNetwork, PolicySpec], tmp_path: Path) -> None:
    import copy

    net = copy.deepcopy(policy[0])
    with torch.no_grad():
        net.head.bias.fill_(torch.inf)
    with pytest.raises(RlseqError, match=r"infinite|NaN"):
        export_policy(net, policy[1], tmp_path / "policy.onnx", MAKE)
    assert not list(tmp_path.iterdir())
