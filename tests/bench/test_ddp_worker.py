"""What a process of the benchmark does, alone and as one of two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq.bench.ddp_equal import CASES, CLIPPED, GPT, relative
from rlseq.bench.ddp_worker import Fed, exact_dqn, exact_seq, time_seq
from rlseq.engine.distributed import ALONE, World, joined
from rlseq.ranks import Place
from tests.ranks import on_ranks

UPDATES = 12


def work(data: str, path: str) -> dict[str, Any]:
    """All requests, once."""
    shape = list(GPT._replace(updates=UPDATES))
    values = {"optim": {**CLIPPED, "accumulate": 2}}
    with joined() as world:
        timed = time_seq(world, data, [1, 2, 8, 5, 16, 3], {}, 0)
        seq = exact_seq(world, data, shape, values, f"{path}-seq.npz")
        dqn = exact_dqn(world, CASES["dqn, closed form"].values, UPDATES, f"{path}-dqn.npz")
    assert timed["seconds"] > 0.0
    return {
        "tokens": timed["tokens"],
        "updates": timed["updates"],
        "closed": dqn["closed_form"],
        **{name: [seq[name], dqn[name]] for name in ("processes", "same", "dtype")},
    }


def test_two_processes_do_what_one_does(book: Path, one_thread: None, tmp_path: Path) -> None:
    one = work(str(book), str(tmp_path / "one"))
    two = on_ranks(2, work, tmp_path, data=str(book), path=str(tmp_path / "two"))
    assert (one["tokens"], one["updates"], one["processes"], one["closed"]) == (240, 3, [1, 1], True)
    for found in two:
        assert (int(found["tokens"]), int(found["updates"]), found["processes"].tolist()) == (240, 3, [2, 2])
        assert found["same"].all() and found["closed"]
        assert found["dtype"].tolist() == one["dtype"] == ["torch.float64", "torch.float64"]
    for name in ("seq", "dqn"):
        a, b = (dict(np.load(tmp_path / f"{side}-{name}.npz")) for side in ("one", "two"))
        for key in ("gradient", "weights"):
            assert relative(b[key], a[key]) < 1e-12, (name, key)
            assert not np.array_equal(a[key], np.zeros_like(a[key]))


@pytest.mark.parametrize("num_batches", [1, 3])
def test_rows_of_all_processes_are_the_whole_batches(num_batches: int) -> None:
    whole = Fed(7, ALONE).sample(np.random.default_rng(0), 7 * num_batches)
    shares = [World(Place(rank, 2, rank, 2)) for rank in (0, 1)]
    halves = [Fed(7, world) for world in shares]
    sizes = [len(range(7)[world.rows(7)]) for world in shares]
    assert sorted(sizes) == [3, 4]
    parts = [fed.sample(np.random.default_rng(9), size * num_batches) for fed, size in zip(halves, sizes, strict=True)]
    for k in range(num_batches):
        rows = [part.reward[k * size : (k + 1) * size] for part, size in zip(parts, sizes, strict=True)]
        np.testing.assert_array_equal(np.concatenate(rows), whole.reward[7 * k : 7 * (k + 1)])
