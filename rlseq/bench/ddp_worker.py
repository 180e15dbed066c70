"""What a process of `rlseq bench ddp` does: it reads a request, trains, answers, until its input ends.

Started by `rlseq.bench.ddp_processes`, under torchrun or alone. All processes of a group do the same; the first reads
the requests and answers. Whatever else writes to the standard output writes to the standard error instead.

Shapes: B sequences or transitions, P parameters.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from rlseq.bench.loop import time_loop
from rlseq.bench.seq_model import UnevenTask, float64
from rlseq.bench.seq_training import Shape, job_for, with_run

if TYPE_CHECKING:
    from torch import Tensor

    from rlseq.engine.distributed import World
    from rlseq.replay.batch import TransitionBatch

OBSERVATION, ACTIONS, HIDDEN = 5, 3, (24, 16)
TRANSITIONS = 512
SYNC_UPDATES = 10  # between two copies of the online network to the target network


def time_seq(world: World, data: str, shape: list[int], values: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train a gpt and time the loop, as `rlseq.bench.seq_training.train_ours` does, together with the others.

    Args:
        world: all processes.
        data: the text.
        shape: a `Shape`, of the whole batch.
        values: further options, as nested dicts.
        seed: of the training.

    Returns:
        `seconds` of the slowest process; `tokens` and `updates` of all together.
    """
    from rlseq.engine.device import cpu_settings

    job = with_run(job_for(Path(data), Shape(*shape), values), seed=seed)
    o = job.options
    with cpu_settings(o.engine.threads, world.local_size):
        trainer = job.trainer(world)
        seconds, updates = time_loop(job.algorithm, o, trainer, world)
    (slowest,) = world.largest([seconds])
    return {"seconds": slowest, "tokens": updates * o.seq.batch_size * o.seq.context, "updates": trainer.updates}


def exact_seq(world: World, data: str, shape: list[int], values: dict[str, Any], path: str) -> dict[str, Any]:
    """Train a gpt in float64 on sequences of unequal lengths; the gradient and the weights go to a file.

    Args:
        world, data, shape, values: as in `time_seq`.
        path: of an .npz file, which the first process writes.

    Returns:
        `processes`: how many trained; `same`: whether all have the same weights, bit for bit; `dtype`: of the weights.
    """
    from rlseq.engine.device import cpu_settings

    job = job_for(Path(data), Shape(*shape), values)
    with float64(), cpu_settings(1):
        trainer = job._replace(task=UnevenTask(job.task)).trainer(world)
        time_loop(job.algorithm, job.options, trainer, world)
    return _keep(world, path, trainer.update_step.flat.grad, trainer.update_step.flat.data)


def exact_dqn(world: World, values: dict[str, Any], updates: int, path: str) -> dict[str, Any]:
    """Train a Q-network in float64 on given transitions; else as `exact_seq`.

    Args:
        world: all processes.
        values: options, as nested dicts.
        updates: how many.
        path: as in `exact_seq`.
    """
    import torch

    from rlseq.config import Layer, resolve
    from rlseq.dqn.config import DqnTraining
    from rlseq.dqn.learner import DqnLearner
    from rlseq.engine.device import Precision, cpu_settings
    from rlseq.nets.network import QNetwork, seeded
    from rlseq.replay.uniform import UniformReplay
    from rlseq.spec import Leaf

    options = resolve(DqnTraining, Layer("the benchmark", values))
    leaf = Leaf(name="obs", shape=(OBSERVATION,))  # what is declared float32 goes into the network as it is
    net_options = msgspec.structs.replace(options.net, hidden=HIDDEN)
    with float64(), cpu_settings(1):
        net = cast(QNetwork, seeded(0, lambda: QNetwork((leaf,), ACTIONS, net_options)))
        precision = Precision(None, False)
        learner = DqnLearner(net, options, total_updates=updates, precision=precision, world=world)
        fed = cast(UniformReplay, Fed(options.replay.batch_size, world))
        for done in range(0, updates, SYNC_UPDATES):
            learner.burst(fed, np.random.default_rng(0), min(SYNC_UPDATES, updates - done))
            learner.sync_target()
    assert learner.update_step.flat.data.dtype == torch.float64
    return {
        **_keep(world, path, learner.update_step.flat.grad, learner.update_step.flat.data),
        "closed_form": learner.closed_form,
    }


class Fed:
    """Stands in for a replay: gives the same batches to any number of processes, each of which gets its rows.

    Args:
        batch_size: of the whole batch, over all processes.
        world: all processes.
    """

    def __init__(self, batch_size: int, world: World) -> None:
        rng = np.random.default_rng(1)
        self._batch_size, self._rows = batch_size, world.rows(batch_size)
        self._obs, self._next_obs = rng.normal(size=(2, TRANSITIONS, OBSERVATION))
        self._action = rng.integers(0, ACTIONS, TRANSITIONS)
        self._reward = rng.normal(size=TRANSITIONS)
        self._discount = rng.choice([0.0, 0.9], TRANSITIONS)
        self._order = rng  # whose draws are the batches

    def sample(self, rng: np.random.Generator, num: int) -> TransitionBatch[np.ndarray]:
        """This process' rows of the next batches, `num` in all; the caller's random stream is not used."""
        from rlseq.replay.batch import TransitionBatch

        own = self._rows.stop - self._rows.start
        index_KB = self._order.integers(0, TRANSITIONS, (num // own, self._batch_size))
        i = index_KB[:, self._rows].reshape(-1)
        return TransitionBatch(
            obs=(self._obs[i],),
            action=self._action[i],
            reward=self._reward[i],
            discount=self._discount[i],
            next_obs=(self._next_obs[i],),
        )


def _keep(world: World, path: str, grad_P: Tensor, data_P: Tensor) -> dict[str, Any]:
    arrays = {"gradient": grad_P.numpy(), "weights": data_P.numpy()}
    digests = world.gather({name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()})
    if world.first:
        np.savez(path, allow_pickle=False, **arrays)
    same = all(digest == digests[0] for digest in digests)
    return {"processes": len(digests), "same": same, "dtype": str(data_P.dtype)}


REQUESTS: dict[str, Callable[..., dict[str, Any]]] = {
    "time_seq": time_seq,
    "exact_seq": exact_seq,
    "exact_dqn": exact_dqn,
}


def main() -> None:
    """Answer until the input ends."""
    from rlseq.engine.distributed import joined

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with joined() as world:
        while line := world.from_first(sys.stdin.readline() if world.first else None):
            request = json.loads(line)
            answer = REQUESTS[request.pop("do")](world, **request)
            if world.first:
                print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
