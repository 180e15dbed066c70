"""`rlseq bench play`: playing a trained policy, against a peer with the same weights and against a bare loop.

Three measurements: `single`, one environment against the peer's one; `overhead`, the same against the plainest loop of
environment and ONNX Runtime that can be written; `native`, 64 environments of gymnasium's own vector version against
the peer's one. All sides run in turn, one thread each, with an agent that balances for whole episodes: a random one
would measure resets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlseq.bench.measure import Side, Tell, Timing, alternate, measurement
from rlseq.bench.peers import Layer, Peer, Player
from rlseq.errors import RlseqError, require

if TYPE_CHECKING:
    from rlseq.envs.make import MakeEnv
    from rlseq.player.onnx_policy import OnnxPolicy

AGENT = "cartpole-dqn"
NATIVE_ENVS = 64
OBSERVATIONS = 1_000  # on which the peer must choose the same actions
BARE = "a bare loop"


def bench_play(tell: Tell, *, repeats: int, peer: Peer | None, episodes: int = 20) -> dict[str, Any]:
    """Measure playing.

    Args:
        tell: takes lines of progress.
        repeats: how often each side plays; repeat k has seed k on all.
        peer: the other side, or None.
        episodes: of a repeat; of each environment with many.

    Returns:
        `measurements`: single, overhead (with `overhead`: our time a step by the bare loop's, less 1), native.

    Raises:
        RlseqError: the peer chooses other actions, or the bare loop plays other episodes.
    """
    from rlseq.locate import locate
    from rlseq.playing import open_player

    path = locate(AGENT).policy_file()
    policy, make = open_player(locate(AGENT), (), None, None, None)
    hidden = "unknown"
    sides: dict[str, Side] = {"rlseq": lambda seed: _single(policy, make, episodes, seed)}
    if peer is not None:
        layers = read_layers(path)
        hidden = "-".join(str(len(layer.bias)) for layer in layers[:-1])
        player = _peer_player(peer, policy, make, layers, tell)
        sides[peer.name] = lambda seed: _one_thread(player, episodes, seed)
    sides[BARE] = lambda seed: bare_loop(path, policy.spec.env.id, episodes, seed)
    sides["native"] = lambda seed: _native(policy, episodes, seed)
    tell("warm-up: one repeat of each")
    for side in sides.values():
        side(0)
    timings = alternate(sides, repeats, tell)
    check_same_steps(timings["rlseq"], timings[BARE])
    ours, native, bare = timings["rlseq"], timings["native"], timings[BARE]
    theirs = timings[peer.name] if peer is not None else None
    other = {"name": peer.name, "version": peer.version()} if peer is not None else None
    who = f"{AGENT} plays {policy.spec.env.id}"
    overhead = measurement(f"{who}, one environment, against {BARE}", ours, bare, {"name": BARE})
    measurements = {
        "single": measurement(f"{who}, one environment", ours, theirs, other),
        "overhead": {**overhead, "overhead": 1 / overhead["ratio"] - 1},
        "native": measurement(f"{who}, {NATIVE_ENVS} native environments", native, theirs, other),
    }
    options = {"agent": AGENT, "hidden": hidden, "episodes": episodes, "native_envs": NATIVE_ENVS}
    return {"measurements": measurements, "options": options}


def _single(policy: OnnxPolicy, make: MakeEnv, episodes: int, seed: int) -> Timing:
    from rlseq.player.rollout import rollout

    played = rollout(policy, make, episodes=episodes, seed=seed)
    return Timing(played.seconds, played.steps)


def _native(policy: OnnxPolicy, episodes: int, seed: int) -> Timing:
    from rlseq.player.native import rollout_native

    episodes *= NATIVE_ENVS
    played = rollout_native(policy, policy.spec, episodes=episodes, seed=seed, num_envs=NATIVE_ENVS)
    return Timing(played.seconds, played.steps)


def _one_thread(player: Player, episodes: int, seed: int) -> Timing:
    """With one thread of torch, which is its fastest for a network this small."""
    from rlseq.engine.device import cpu_settings

    with cpu_settings(1):
        return player.play(episodes, seed)


def bare_loop(path: Path, env_id: str, episodes: int, seed: int) -> Timing:
    """The episodes of our rollout, played by nothing but gymnasium and ONNX Runtime.

    Args:
        path: a file with the input `obs` and the output `q_values`, for actions from 0.
        env_id: the environment.
        episodes: how many; episode i has the same seed as in a rollout.
        seed: of the episodes.
    """
    import gymnasium

    from rlseq.envs.seeding import evaluation_seed
    from rlseq.player.graph import open_graph
    from rlseq.player.onnx_file import read_onnx_file

    env = gymnasium.make(env_id, disable_env_checker=True)
    run = open_graph(read_onnx_file(path)).session.run
    steps = 0
    started = time.perf_counter()
    for episode in range(episodes):
        obs, _ = env.reset(seed=evaluation_seed(seed, episode))
        over = False
        while not over:
            values = run(["q_values"], {"obs": obs[None]})[0]
            obs, _, terminated, truncated, _ = env.step(int(values.argmax()))
            over = terminated or truncated
            steps += 1
    seconds = time.perf_counter() - started
    env.close()
    return Timing(seconds, steps)


def read_layers(path: Path) -> list[Layer]:
    """The layers of a ReLU network from its graph.

    Raises:
        MissingExtra: the package onnx is not installed.
        RlseqError: the graph holds anything else.
    """
    require("onnx", "reading a policy's weights")
    import onnx
    from onnx.numpy_helper import to_array

    graph = onnx.load_model_from_string(path.read_bytes()).graph
    arrays = {tensor.name: to_array(tensor) for tensor in graph.initializer}
    kinds = [node.op_type for node in graph.node]
    layers = [
        Layer(arrays[node.input[1]], arrays[node.input[2]])
        for node in graph.node
        if node.op_type == "Gemm" and {a.name: a.i for a in node.attribute}.get("transB") == 1
    ]
    if kinds != [*(["Gemm", "Relu"] * len(layers))[:-1], "ArgMax"]:
        raise RlseqError(f"{path} is no plain ReLU network ({', '.join(kinds)}): no peer can take its weights.")
    return layers


def _peer_player(peer: Peer, policy: OnnxPolicy, make: MakeEnv, layers: Sequence[Layer], tell: Tell) -> Player:
    """The peer with our weights, once it is sure that it acts as we do."""
    player = peer.player(policy.spec.env.id, layers)
    obs = seen_observations(policy, make, OBSERVATIONS)
    check_same_actions(policy, player.actions, obs, peer.name)
    tell(f"the same actions on {len(obs)} observations, on both sides")
    return player


def seen_observations(policy: OnnxPolicy, make: MakeEnv, count: int) -> np.ndarray:
    """The first `count` observations `[count, ...]` of the policy's episodes, one after the other."""
    from rlseq.player.rollout import rollout

    seen: list[np.ndarray] = []
    seed = 0
    while len(seen) < count:
        rollout(policy, make, episodes=1, seed=seed, on_step=lambda step, inputs, *_: seen.append(inputs.obs[0].copy()))
        seed += 1
    return np.concatenate(seen[:count])


def check_same_actions(
    policy: OnnxPolicy, actions: Callable[[np.ndarray], np.ndarray], obs: np.ndarray, peer: str
) -> None:
    """The peer must choose our action for every observation.

    Raises:
        RlseqError: with how many differ.
    """
    ours = policy.q_values((obs,)).argmax(1)
    different = int((ours != actions(obs)).sum())
    if different:
        raise RlseqError(f"{peer} with our weights acts otherwise on {different} of {len(obs)} observations.")


def check_same_steps(ours: Sequence[Timing], bare: Sequence[Timing]) -> None:
    """The bare loop must have played our episodes.

    Raises:
        RlseqError: with the numbers of both.
    """
    a, b = [timing.steps for timing in ours], [timing.steps for timing in bare]
    if a != b:
        raise RlseqError(f"not the same episodes: {a} steps a repeat in our rollout, {b} in {BARE}.")
