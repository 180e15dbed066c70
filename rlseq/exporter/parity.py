"""Proof that an exported graph acts as the network it came from: on recorded observations, and in whole episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlseq.envs.make import MakeEnv
from rlseq.errors import ParityError
from rlseq.nets.policy import TorchPolicy
from rlseq.player.onnx_policy import OnnxPolicy
from rlseq.player.rollout import rollout
from rlseq.spec import Policy, StepInput

MIN_OBSERVATIONS = 1_000
BATCHES = (1, 7, 64)
EPISODES = 20
MAX_EPISODES = 640  # of very short episodes, until there are enough observations
TOLERANCE = 1e-4  # of the largest value; float32 sums in another order differ by 1e-6


class Trace(NamedTuple):
    """Whole episodes, one environment each: leaves `[T, E, ...]`, actions and activity `[T, E]`, returns `[E]`."""

    obs: tuple[np.ndarray, ...]
    actions: np.ndarray
    active: np.ndarray
    returns: np.ndarray

    def observations(self) -> tuple[np.ndarray, ...]:
        """The observations acted on, as leaves `[N, ...]`."""
        return tuple(leaf[self.active] for leaf in self.obs)


def record(policy: Policy[Any], make: MakeEnv, *, episodes: int, seed: int, fresh: bool) -> Trace:
    """Play episodes side by side and keep everything."""
    steps: list[tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]] = []

    def keep(index: int, step: StepInput[np.ndarray], actions: np.ndarray, active: np.ndarray) -> None:
        steps.append((tuple(leaf.copy() for leaf in step.obs), actions.copy(), active.copy()))

    played = rollout(policy, make, episodes=episodes, seed=seed, num_envs=episodes, fresh=fresh, on_step=keep)
    obs = tuple(np.stack(leaf) for leaf in zip(*(step[0] for step in steps), strict=True))
    return Trace(obs, np.stack([step[1] for step in steps]), np.stack([step[2] for step in steps]), played.returns)


def check_parity(
    network: TorchPolicy, exported: OnnxPolicy, make: MakeEnv, *, seed: int, fresh: bool = False
) -> dict[str, Any]:
    """Compare network and exported graph.

    Args:
        network: the original.
        exported: the graph.
        make: makes the environment.
        seed: of the episodes.
        fresh: a new environment per episode.

    Returns:
        The report that goes into the file.

    Raises:
        ParityError: values differ by more than rounding, an action differs where the values are clearly apart, or an
            episode ends otherwise for a reason that is no tie.
    """
    assert not network.spec.state, "recurrent policies need their states carried along"
    episodes = EPISODES
    trace = record(network, make, episodes=episodes, seed=seed, fresh=fresh)
    while trace.active.sum() < MIN_OBSERVATIONS and episodes < MAX_EPISODES:
        episodes *= 2
        trace = record(network, make, episodes=episodes, seed=seed, fresh=fresh)
    observations = trace.observations()
    if len(observations[0]) < MIN_OBSERVATIONS:  # episodes of one or two steps: the same observations again
        observations = tuple(np.concatenate([o] * -(-MIN_OBSERVATIONS // len(o))) for o in observations)
    error, ties = compare_values(network, exported, observations)
    other = record(exported, make, episodes=episodes, seed=seed, fresh=fresh)
    equal = compare_episodes(network, trace, other, error)
    return {
        "observations": len(observations[0]),
        "batch_sizes": list(BATCHES),
        "max_error": error,
        "actions_differing_in_ties": ties,
        "episodes": episodes,
        "seed": seed,
        "episodes_with_equal_return": equal,
        "mean_return_network": float(trace.returns.mean()),
        "mean_return_onnx": float(other.returns.mean()),
    }


def compare_values(network: TorchPolicy, exported: OnnxPolicy, observations: Sequence[np.ndarray]) -> tuple[float, int]:
    """Largest difference of values over all batch sizes, and how many actions differ (all of them in ties).

    Raises:
        ParityError: see `check_parity`.
    """
    pairs = []
    for batch in BATCHES:
        for start in range(0, len(observations[0]), batch):
            part = tuple(np.ascontiguousarray(leaf[start : start + batch]) for leaf in observations)
            pairs.append((values(network, part), exported.q_values(part)))
    expected, got = (np.concatenate(side) for side in zip(*pairs, strict=True))
    if not np.isfinite(expected).all():
        raise ParityError("the network's values are NaN or infinite: its weights have diverged.")
    error = float(np.abs(expected - got).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(expected).max()))
    if not error <= allowed:
        raise ParityError(
            f"the exported graph's values differ by up to {error:.3g} from the network's; allowed is {allowed:.3g}."
        )
    differing = expected.argmax(axis=1) != got.argmax(axis=1)
    wrong = differing & (gap(expected) > 2 * error)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ParityError(
            f"the exported graph chose another action for {int(wrong.sum())} of {len(expected)} observations; the "
            f"first has the values {expected[row].tolist()} (network) and {got[row].tolist()} (graph)."
        )
    return error, int(differing.sum())


def compare_episodes(network: TorchPolicy, trace: Trace, other: Trace, error: float) -> int:
    """How many episodes have the same return; every other one must have parted at a tie, or by the environment's doing.

    Raises:
        ParityError: an episode parted where the values were clearly apart.
    """
    for episode in np.flatnonzero(trace.returns != other.returns):
        step = first_difference(trace, other, int(episode))
        if step is None or not same_observation(trace, other, step, int(episode)):
            continue  # the environment parted before any action did: it is not a function of its seed
        at = tuple(leaf[step, episode][None] for leaf in trace.obs)
        apart = float(gap(values(network, at))[0])
        if apart > 2 * error:
            raise ParityError(
                f"episode {episode} has return {trace.returns[episode]:g} with the network and "
                f"{other.returns[episode]:g} with the exported graph; they parted at step {step}, "
                f"where the two best values are {apart:.3g} apart."
            )
    return int((trace.returns == other.returns).sum())


def first_difference(trace: Trace, other: Trace, episode: int) -> int | None:
    """The first step at which an episode's observations or actions differ; None if they never do."""
    for step in range(min(len(trace.actions), len(other.actions))):
        if not (trace.active[step, episode] and other.active[step, episode]):
            return None
        same = trace.actions[step, episode] == other.actions[step, episode]
        if not same or not same_observation(trace, other, step, episode):
            return step
    return None


def same_observation(trace: Trace, other: Trace, step: int, episode: int) -> bool:
    """Whether both saw the same at a step."""
    return all(np.array_equal(a[step, episode], b[step, episode]) for a, b in zip(trace.obs, other.obs, strict=True))


def values(network: TorchPolicy, obs: tuple[np.ndarray, ...]) -> np.ndarray:
    """The network's action values `[B, A]`."""
    first = np.zeros(len(obs[0]), np.bool_)
    return network.q_values(obs, first, network.initial_state(len(obs[0])))[0].cpu().numpy()


def gap(values_BA: np.ndarray) -> np.ndarray:
    """Distance `[B]` of the two best values; infinite where there is one action."""
    if values_BA.shape[1] < 2:
        return np.full(len(values_BA), np.inf)
    best = np.sort(values_BA, axis=1)
    return best[:, -1] - best[:, -2]
