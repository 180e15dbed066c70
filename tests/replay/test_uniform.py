"""The replay against a naive twin, a list of dicts."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from rlseq import memory
from rlseq.errors import UsageError
from rlseq.memory import available_memory
from rlseq.replay.uniform import UniformReplay, replay_bytes
from rlseq.spec import Leaf

LEAVES = (Leaf(name="obs.a", shape=(2,)), Leaf(name="obs.b", kind="discrete", dtype="int64", sizes=(9,), starts=(0,)))


def random_transitions(rng: np.random.Generator, num: int) -> dict[str, Any]:
    return {
        "obs": (rng.normal(size=(num, 2)).astype(np.float32), rng.integers(0, 9, num)),
        "action": rng.integers(0, 4, num),
        "reward": rng.normal(size=num).astype(np.float32),
        "discount": rng.choice(np.float32([0, 0.9]), num),
        "next_obs": (rng.normal(size=(num, 2)).astype(np.float32), rng.integers(0, 9, num)),
    }


def rows(transitions: dict[str, Any]) -> list[tuple[Any, ...]]:
    flat = [*transitions["obs"], transitions["action"], transitions["reward"], transitions["discount"]]
    flat += [*transitions["next_obs"]]
    return [tuple(np.asarray(part[i]).tobytes() for part in flat) for i in range(len(flat[1]))]


def contents(replay: UniformReplay) -> list[tuple[Any, ...]]:
    """The stored transitions, oldest first."""
    a = replay.arrays
    stored = rows(
        {
            "obs": (a["obs.0"], a["obs.1"]),
            "action": a["action"],
            "reward": a["reward"],
            "discount": a["discount"],
            "next_obs": (a["next_obs.0"], a["next_obs.1"]),
        }
    )
    if replay.size < replay.capacity:
        return stored[: replay.size]
    return stored[replay.position :] + stored[: replay.position]


@pytest.mark.parametrize("capacity", [1, 5, 16])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_holds_what_a_list_of_the_newest_would(capacity: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    replay, twin = UniformReplay(capacity, LEAVES), deque[Any](maxlen=capacity)
    for _ in range(80):
        transitions = random_transitions(rng, int(rng.choice([1, 2, 3, capacity, capacity + 3])))
        replay.add(**transitions)
        twin.extend(rows(transitions))
        assert contents(replay) == list(twin)
        assert replay.size == len(twin)


def test_samples_are_stored_transitions_kept_together() -> None:
    rng = np.random.default_rng(0)
    replay, twin = UniformReplay(7, LEAVES), deque[Any](maxlen=7)
    for _ in range(9):
        transitions = random_transitions(rng, 2)
        replay.add(**transitions)
        twin.extend(rows(transitions))
    batch = replay.sample(rng, 200)
    assert set(rows(batch._asdict())) == set(twin)


def test_every_transition_is_equally_likely() -> None:
    rng = np.random.default_rng(0)
    replay = UniformReplay(20, LEAVES)
    replay.add(**random_transitions(rng, 13))
    index = replay.sample(rng, 26_000).index
    counts = np.bincount(index, minlength=20)
    assert counts[13:].sum() == 0
    chi_square = ((counts[:13] - 2000) ** 2 / 2000).sum()
    assert chi_square < 32.9  # 12 degrees of freedom, 0.1 %


def test_what_was_added_is_a_copy() -> None:
    rng = np.random.default_rng(0)
    replay, transitions = UniformReplay(4, LEAVES), random_transitions(rng, 2)
    replay.add(**transitions)
    before = contents(replay)
    for array in (*transitions["obs"], *transitions["next_obs"], transitions["reward"]):
        array += 1
    assert contents(replay) == before


def test_bytes_are_those_of_the_arrays() -> None:
    replay = UniformReplay(1000, LEAVES)
    assert (
        replay_bytes(1000, LEAVES) == sum(array.nbytes for array in replay.arrays.values()) == 1000 * (16 + 32 - 8 + 8)
    )


def test_too_little_memory_is_refused_with_what_it_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 3 * 2**30)
    with pytest.raises(
        UsageError, match=r"100000000 transitions takes 4.47 GiB, and 3.00 GiB.*replay.capacity smaller"
    ):
        UniformReplay(100_000_000, LEAVES)
    UniformReplay(1000, LEAVES)


def test_this_machine_says_how_much_memory_it_has() -> None:
    available = available_memory()
    assert available is None or 10**7 < available < 10**15


def test_state_and_slots_bring_it_back() -> None:
    rng = np.random.default_rng(0)
    for num in (3, 11):
        replay = UniformReplay(8, LEAVES)
        replay.add(**random_transitions(rng, num))
        arrays, counters = replay.state()
        other = UniformReplay(8, LEAVES)
        for name, array in arrays.items():
            other.slot(name, array.shape, array.dtype)[...] = array
        other.restore(counters)
        assert contents(other) == contents(replay)
        a, b = (r.sample(np.random.default_rng(1), 50) for r in (replay, other))
        np.testing.assert_array_equal(a.reward, b.reward)


def test_arrays_of_another_replay_do_not_fit() -> None:
    replay = UniformReplay(8, LEAVES)
    for name, shape, dtype in (
        ("obs.7", (4, 2), np.dtype(np.float32)),
        ("obs.0", (4, 3), np.dtype(np.float32)),
        ("obs.0", (4, 2), np.dtype(np.float64)),
        ("obs.0", (9, 2), np.dtype(np.float32)),
    ):
        with pytest.raises(KeyError):
            replay.slot(name, shape, dtype)


def test_rows_and_map_reach_every_array() -> None:
    rng = np.random.default_rng(0)
    replay = UniformReplay(8, LEAVES)
    replay.add(**random_transitions(rng, 8))
    batch = replay.sample(rng, 6)
    part = batch.rows(slice(2, 5))
    assert [len(x) for x in (*part.obs, part.action, part.reward, part.discount, *part.next_obs, part.index)] == [3] * 8
    np.testing.assert_array_equal(part.obs[0], batch.obs[0][2:5])
    assert part.weight is None
    assert part.map(lambda array: array.dtype).action == np.int64
