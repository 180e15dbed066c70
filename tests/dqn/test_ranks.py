"""Two processes learn as one does from the same transitions: in float64 the same gradients, the same weights.

Shapes: B transitions of a batch, N transitions of several batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from rlseq.config import Layer, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.dqn.learner import DqnLearner
from rlseq.engine.device import Precision
from rlseq.engine.distributed import World, joined
from rlseq.engine.update import UpdateInfo, UpdateStep
from rlseq.nets.config import NetOptions
from rlseq.nets.network import QNetwork, seeded
from rlseq.replay.batch import TransitionBatch
from rlseq.spec import Leaf
from tests.ranks import apart, on_ranks

UPDATES, BURST = 100, 5
BATCH = 15  # of two ranks one has eight rows, the other seven
CLIP = 0.05
TIGHT = 1e-9  # the requirement is 1e-6
LEAF = Leaf(name="obs", shape=(3,))
VARIANTS: dict[str, dict[str, Any]] = {
    "closed form": {},
    "autograd": {"engine": {"gradients": "autograd"}},
    "in 3 parts": {"optim": {"accumulate": 3}},
    "frozen": {"optim": {"freeze": ["core.layers.0.*"], "lr_multipliers": {"head.*": 0.5}}},
    "soft target, mse": {"dqn": {"target_update": "soft", "tau": 0.1, "loss": "mse"}},
}


class Fed:
    """Stands in for a replay: batches that do not depend on who asks, of which each rank gets its rows."""

    def __init__(self, world: World) -> None:
        self._rng, self._rows = np.random.default_rng(4), world.rows(BATCH)

    def sample(self, rng: np.random.Generator, num: int) -> TransitionBatch[np.ndarray]:
        own = range(BATCH)[self._rows]
        batches = [self._batch() for _ in range(num // len(own))]
        assert num % len(own) == 0
        columns = zip(*batches, strict=True)
        obs_N, action_N, reward_N, discount_N, next_N = (np.concatenate([c[self._rows] for c in x]) for x in columns)
        return TransitionBatch((obs_N,), action_N, reward_N, discount_N, (next_N,))

    def _batch(self) -> list[np.ndarray]:
        rng = self._rng
        obs_B, next_B = rng.normal(size=(2, BATCH, 3))
        return [obs_B, rng.integers(0, 2, BATCH), rng.normal(size=BATCH), rng.choice([0.0, 0.9], BATCH), next_B]


class Watch:
    """An update step that is looked at after every update."""

    def __init__(self, step: UpdateStep, world: World) -> None:
        self._step, self._world = step, world
        self.gradients: list[np.ndarray] = []
        self.agreed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)

    def __call__(self, parts: Any, gradients: Any) -> UpdateInfo:
        info, flat = self._step(parts, gradients), self._step.flat
        self.gradients.append(flat.grad.numpy().copy())
        digests = self._world.gather(hashlib.sha256(flat.data.numpy().tobytes()).hexdigest())
        self.agreed += len(set(digests)) == 1
        return info


def learnt(world: World, variant: str) -> dict[str, Any]:
    """What became of a learner after `UPDATES` updates in bursts."""
    changes = VARIANTS[variant]
    optim = {"lr": 0.01, "clip_norm": CLIP, **changes.get("optim", {})}
    tree = {**changes, "replay": {"batch_size": BATCH}, "optim": optim}
    options = resolve(DqnTraining, Layer("test", tree))
    net = seeded(0, lambda: QNetwork((LEAF,), 2, NetOptions(hidden=(6, 5))))
    learner = DqnLearner(net, options, total_updates=UPDATES, precision=Precision(None, False), world=world)  # type: ignore[arg-type]
    flat, fed = learner.update_step.flat, Fed(world)
    learner.update_step = watch = Watch(learner.update_step, world)  # type: ignore[assignment]
    norms: list[float] = []
    for k in range(UPDATES // BURST):
        norms += learner.burst(fed, np.random.default_rng(0), BURST)[:, 1].tolist()  # type: ignore[arg-type]
        if k % 3 == 2:
            learner.sync_target()
    return {
        "closed_form": learner.closed_form,
        "gradients": np.stack(watch.gradients),
        "norms": norms,
        "weights": flat.weights.numpy().copy(),
        "target": learner._target_flat.weights.numpy().copy(),
        "agreed": watch.agreed,
    }


def learn_all() -> dict[str, Any]:
    """On each rank: every variant."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    with joined() as world:
        found = {variant: learnt(world, variant) for variant in VARIANTS}
    return {f"{variant}.{name}": value for variant, one in found.items() for name, value in one.items()}


@pytest.fixture(scope="module")
def one() -> Iterator[dict[str, Any]]:
    """One process, this one."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    try:
        yield learn_all()
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    """Two processes; what each has found."""
    return on_ranks(2, learn_all, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_give_the_gradients_and_weights_of_one(
    variant: str, one: dict[str, Any], two: list[dict[str, Any]]
) -> None:
    """T15: fed the same transitions, eight rows here and seven there, and a norm that is cut."""
    assert one[f"{variant}.closed_form"] == (variant in ("closed form", "soft target, mse"))
    assert np.count_nonzero(np.array(one[f"{variant}.norms"]) > CLIP) > 0.9 * UPDATES, "clipping must be active"
    for found in two:
        for k in range(UPDATES):
            assert apart(found[f"{variant}.gradients"][k], one[f"{variant}.gradients"][k]) < TIGHT, k
        for name in ("weights", "target"):
            assert apart(found[f"{variant}.{name}"], one[f"{variant}.{name}"]) < TIGHT, name
        np.testing.assert_allclose(found[f"{variant}.norms"], one[f"{variant}.norms"], rtol=TIGHT)


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_ranks_hold_the_same_parameters_after_every_update(variant: str, two: list[dict[str, Any]]) -> None:
    assert [int(found[f"{variant}.agreed"]) for found in two] == [UPDATES, UPDATES]
    for name in ("weights", "target"):
        np.testing.assert_array_equal(two[0][f"{variant}.{name}"], two[1][f"{variant}.{name}"], strict=True)
