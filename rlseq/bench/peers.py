"""Who rlseq is measured against, each set up as its own users do; imported only when asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlseq.bench.measure import Timing
from rlseq.dqn.config import DqnTraining
from rlseq.errors import UsageError, did_you_mean, require

NONE = "none"


class Layer(NamedTuple):
    """A fully connected layer: weight `[out, in]` and bias `[out]`, float32."""

    weight: np.ndarray
    bias: np.ndarray


class Player(NamedTuple):
    """A peer's greedy policy.

    Attributes:
        actions: observations `[N, ...]` -> actions `[N]`.
        play: (episodes, seed) -> timing of playing them in one environment.
    """

    actions: Callable[[np.ndarray], np.ndarray]
    play: Callable[[int, int], Timing]


class Peer(NamedTuple):
    """Another library.

    Attributes:
        name: its package.
        module: what is imported.
        train_dqn: does the training that the options describe.
        player: (environment id, layers of a ReLU network) -> its policy with these weights.
    """

    name: str
    module: str
    train_dqn: Callable[[DqnTraining], Timing]
    player: Callable[[str, Sequence[Layer]], Player]

    def version(self) -> str:
        """The installed version."""
        import importlib.metadata

        return importlib.metadata.version(self.name)


def find_peer(name: str) -> Peer | None:
    """The peer of this name, None for `none`; it is imported here, so that a missing one is told before any work.

    Raises:
        UsageError: there is none of this name.
        MissingExtra: it is not installed.
    """
    if name == NONE:
        return None
    if name not in PEERS:
        raise UsageError(f"--peer {name}:{did_you_mean(name, [*PEERS, NONE])} It is one of {', '.join(PEERS)}, none.")
    peer = PEERS[name]
    require(peer.module, f"a comparison with {peer.name}")
    return peer


def _sb3_train(options: DqnTraining) -> Timing:
    """stable-baselines3's DQN with the numbers of our options: one environment in its Monitor, nothing logged."""
    from stable_baselines3 import DQN

    o = options.dqn
    model = DQN(
        "MlpPolicy",
        options.env.id,
        learning_rate=options.optim.lr,
        buffer_size=options.replay.capacity,
        learning_starts=o.learning_starts,
        batch_size=options.replay.batch_size,
        gamma=o.gamma,
        train_freq=o.train_every_steps,
        gradient_steps=o.updates_per_train,
        target_update_interval=o.target_sync_steps,
        exploration_fraction=o.exploration_fraction,
        exploration_initial_eps=o.epsilon_start,
        exploration_final_eps=o.epsilon_end,
        max_grad_norm=options.optim.clip_norm if options.optim.clip_norm is not None else float("inf"),
        policy_kwargs={"net_arch": list(options.net.hidden)},
        seed=options.run.seed,
        device="cpu",
        verbose=0,
    )
    started = time.perf_counter()
    model.learn(total_timesteps=options.run.horizon or options.run.steps)  # it goes on to the end of its last rollout
    seconds = time.perf_counter() - started
    _close(model)
    return Timing(seconds, int(model.num_timesteps), int(model._n_updates))


def _sb3_player(env_id: str, layers: Sequence[Layer]) -> Player:
    """A DQN model with these weights, played by `evaluate_policy` in an environment in its Monitor."""
    import gymnasium
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    hidden = [len(layer.bias) for layer in layers[:-1]]
    model = DQN("MlpPolicy", env_id, buffer_size=1, policy_kwargs={"net_arch": hidden}, device="cpu")
    _close(model)
    linears = [part for part in model.q_net.q_net if isinstance(part, torch.nn.Linear)]
    with torch.no_grad():
        for linear, layer in zip(linears, layers, strict=True):
            linear.weight.copy_(torch.from_numpy(layer.weight.copy()))
            linear.bias.copy_(torch.from_numpy(layer.bias.copy()))

    def actions(obs: np.ndarray) -> np.ndarray:
        return np.asarray(model.predict(obs, deterministic=True)[0])

    def play(episodes: int, seed: int) -> Timing:
        env: Any = Monitor(gymnasium.make(env_id))
        env.reset(seed=seed)
        started = time.perf_counter()
        evaluate_policy(model, env, n_eval_episodes=episodes, deterministic=True)
        seconds = time.perf_counter() - started
        lengths = env.get_episode_lengths()
        env.close()
        return Timing(seconds, int(sum(lengths)))

    return Player(actions, play)


def _close(model: Any) -> None:
    env = model.get_env()
    if env is not None:
        env.close()


PEERS = {"sb3": Peer("stable-baselines3", "stable_baselines3", _sb3_train, _sb3_player)}
