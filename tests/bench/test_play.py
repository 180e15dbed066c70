"""Playing against a peer with our weights, a bare loop, and the native environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rlseq.bench.measure import Timing
from rlseq.bench.peers import Layer, Player
from rlseq.bench.play import AGENT, BARE, bare_loop, bench_play, check_same_steps, read_layers, seen_observations
from rlseq.errors import RlseqError
from rlseq.locate import locate
from rlseq.pipeline import load, play
from rlseq.playing import open_player
from tests import graphs
from tests.bench.fakes import fake_peer, forward

FILE = locate(AGENT).policy_file()


def ignore(line: str) -> None:
    """Progress that nobody reads."""


def test_the_weights_are_those_of_the_policy() -> None:
    layers = read_layers(FILE)
    assert [layer.weight.shape for layer in layers] == [(256, 4), (256, 256), (2, 256)]
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_allclose(forward(layers, obs), load(AGENT).q_values((obs,)), rtol=1e-4, atol=1e-4)


def test_a_network_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = graphs.save_linear(tmp_path / "policy.onnx", graphs.spec_of("CartPole-v1"), np.zeros((4, 2)))
    with pytest.raises(RlseqError, match=r"policy\.onnx is no plain ReLU network"):
        read_layers(path)


def test_the_bare_loop_plays_the_episodes_of_our_rollout(tmp_path: Path) -> None:
    weights = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])  # falls, when depends on the seed
    path = graphs.save_linear(tmp_path / "policy.onnx", graphs.spec_of("CartPole-v1"), weights)
    ours = play(path, episodes=5, seed=4)
    assert ours["min_return"] < ours["max_return"] < 500
    assert bare_loop(path, "CartPole-v1", 5, 4).steps == ours["mean_length"] * 5


def test_other_episodes_are_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    check_same_steps([Timing(1.0, 30)], [Timing(2.0, 30)])
    with pytest.raises(RlseqError, match=r"not the same episodes: \[30\] steps a repeat in our rollout, \[31\] in"):
        check_same_steps([Timing(1.0, 30)], [Timing(2.0, 31)])
    monkeypatch.setattr("rlseq.bench.play.bare_loop", lambda *_: Timing(1.0, 499))
    with pytest.raises(RlseqError, match=r"\[500\] steps a repeat in our rollout, \[499\] in a bare loop"):
        bench_play(ignore, repeats=1, peer=None, episodes=1)


def test_observations_are_real_and_in_order() -> None:
    policy, make = open_player(locate(AGENT), (), None, None, None)
    obs = seen_observations(policy, make, 700)
    assert (obs.shape, obs.dtype) == ((700, 4), np.float32)
    assert len(np.unique(obs, axis=0)) == 700  # not one array, overwritten
    assert np.abs(np.diff(obs[:400, 0])).max() < 0.1  # the cart moves on
    again = seen_observations(policy, make, 10)
    np.testing.assert_array_equal(obs[:10], again)


def test_three_measurements() -> None:
    told: list[str] = []
    result = bench_play(told.append, repeats=2, peer=fake_peer(), episodes=1)
    assert result["options"] == {"agent": AGENT, "hidden": "256-256", "episodes": 1, "native_envs": 64}
    single, overhead, native = (result["measurements"][name] for name in ("single", "overhead", "native"))
    assert single["peer"]["name"] == native["peer"]["name"] == "pytest"
    assert single["ratio"] == pytest.approx(single["ours"]["steps_per_second"] / 200.0, rel=0.5)
    assert single["ours"] == overhead["ours"]
    assert overhead["peer"]["name"] == BARE
    assert overhead["overhead"] == pytest.approx(1 / overhead["ratio"] - 1)
    assert overhead["peer"]["steps"] == overhead["ours"]["steps"] == [500, 500]
    assert native["ours"]["steps"] == [32_000, 32_000]
    assert "the same actions on 1000 observations, on both sides" in told
    order = [line.partition(", ")[2].partition(":")[0] for line in told if line.startswith("repeat")]
    assert order == ["rlseq", "pytest", BARE, "native"] * 2


def test_ours_alone() -> None:
    result = bench_play(ignore, repeats=1, peer=None, episodes=1)
    single, overhead, native = (result["measurements"][name] for name in ("single", "overhead", "native"))
    assert single["ratio"] is None and native["ratio"] is None
    assert overhead["ratio"] > 0.0


def test_a_peer_that_acts_otherwise_is_no_comparison() -> None:
    def stubborn(env_id: str, layers: Sequence[Layer]) -> Player:
        return Player(
            lambda obs: np.where(np.arange(len(obs)) < 3, 2, forward(layers, obs).argmax(1)), lambda *_: 1 / 0
        )

    with pytest.raises(RlseqError, match="pytest with our weights acts otherwise on 3 of 1000 observations"):
        bench_play(ignore, repeats=1, peer=fake_peer(player=stubborn), episodes=1)


@pytest.mark.slow
def test_the_real_peer_acts_and_plays_as_we_do() -> None:
    pytest.importorskip("stable_baselines3")
    from rlseq.bench.peers import PEERS

    result = bench_play(ignore, repeats=1, peer=PEERS["sb3"], episodes=2)
    assert result["measurements"]["single"]["peer"]["steps"] == [1_000]
