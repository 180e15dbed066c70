"""The replay against a naive twin, a list of dicts."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlseq import memory
from rlseq.errors import UsageError
from rlseq.memory import available_memory
from rlseq.replay.batch import split_rows
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
        other.restore(counters, arrays)
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


def test_splitting_and_mapping_reach_every_array() -> None:
    rng = np.random.default_rng(0)
    replay = UniformReplay(8, LEAVES)
    replay.add(**random_transitions(rng, 8))
    batch = replay.sample(rng, 6)
    for sizes in (3, [2, 3, 1]):
        parts = split_rows(batch.map(torch.from_numpy), sizes)
        given = [3, 3] if sizes == 3 else [2, 3, 1]
        for part, size in zip(parts, given, strict=True):
            fields = (*part.obs, part.action, part.reward, part.discount, *part.next_obs, part.index)
            assert [len(x) for x in fields] == [size] * 8
            assert part.weight is None
        for k in range(len(batch.obs)):
            np.testing.assert_array_equal(torch.cat([part.obs[k] for part in parts]), batch.obs[k])
        np.testing.assert_array_equal(torch.cat([part.reward for part in parts]), batch.reward)
    assert batch.map(lambda array: array.dtype).action == np.int64


@settings(deadline=None, max_examples=150, database=None)
@given(capacity=st.integers(1, 9), sizes=st.lists(st.integers(0, 25), max_size=12), seed=st.integers(0, 2**32 - 1))
def test_any_additions_leave_what_single_ones_would(capacity: int, sizes: list[int], seed: int) -> None:
    """Blocks of any size, larger than the whole memory too, across its end, against a list; then saved and restored."""
    rng = np.random.default_rng(seed)
    replay, single, twin = UniformReplay(capacity, LEAVES), UniformReplay(capacity, LEAVES), deque[Any](maxlen=capacity)
    for num in sizes:
        transitions = random_transitions(rng, num)
        replay.add(**transitions)
        twin.extend(rows(transitions))
        for i in range(num):
            part = {
                key: tuple(array[i : i + 1] for array in value) if isinstance(value, tuple) else value[i : i + 1]
                for key, value in transitions.items()
            }
            single.add(**part)
        assert contents(replay) == list(twin)
        assert (replay.size, replay.position) == (single.size, single.position)
        for name, array in replay.arrays.items():
            np.testing.assert_array_equal(array, single.arrays[name])
    arrays, counters = replay.state()
    assert all(len(array) == len(twin) for array in arrays.values())
    other = UniformReplay(capacity, LEAVES)
    for name, array in arrays.items():
        other.slot(name, array.shape, array.dtype)[...] = array
    other.restore(counters, arrays)
    transitions = random_transitions(rng, 3)
    for memory_ in (replay, other):
        memory_.add(**transitions)
    assert contents(replay) == contents(other)


@pytest.mark.parametrize("size", [1, 8])
def test_every_transition_is_equally_likely_whatever_the_fill(size: int) -> None:
    rng = np.random.default_rng(3)
    replay = UniformReplay(8, LEAVES)
    replay.add(**random_transitions(rng, 8 + size if size == 8 else size))
    index = replay.sample(rng, 16_000).index
    counts = np.bincount(index, minlength=8)
    assert counts[size:].sum() == 0
    assert ((counts[:size] - 16_000 / size) ** 2 * size / 16_000).sum() < 24.3  # 7 degrees of freedom, 0.1 %


def test_samples_are_copies_in_the_dtypes_of_the_memory() -> None:
    rng = np.random.default_rng(0)
    replay = UniformReplay(8, (Leaf(name="obs", shape=(2, 2), dtype="uint8", scale=1 / 255),))
    image = (rng.integers(0, 256, (8, 2, 2)).astype(np.uint8),)
    replay.add(image, np.arange(8), np.arange(8, dtype=np.float32), np.ones(8, np.float32), image)
    batch = replay.sample(rng, 5)
    dtypes = [array.dtype for array in (batch.obs[0], batch.action, batch.reward, batch.discount, batch.next_obs[0])]
    assert dtypes == [np.uint8, np.int64, np.float32, np.float32, np.uint8]
    kept = batch.obs[0].copy()
    replay.arrays["obs.0"].fill(0)
    np.testing.assert_array_equal(batch.obs[0], kept)
    assert [array.shape for array in (batch.obs[0], batch.action)] == [(5, 2, 2), (5,)]


def test_a_sample_depends_on_the_stream_alone() -> None:
    replay = UniformReplay(8, LEAVES)
    replay.add(**random_transitions(np.random.default_rng(0), 8))
    a, b = (replay.sample(np.random.default_rng(4), 30).index for _ in range(2))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, np.random.default_rng(4).integers(0, 8, 30))


@pytest.mark.parametrize("counters", [(9, 0), (-1, 0), (3, 8), (3, -1)])
def test_counters_of_no_such_replay_are_refused(counters: tuple[int, int]) -> None:
    replay = UniformReplay(8, LEAVES)
    with pytest.raises(ValueError, match="replay of 8"):
        replay.restore({"size": counters[0], "position": counters[1]}, {})
    with pytest.raises(ValueError, match="size 2 and arrays"):
        replay.restore({"size": 2, "position": 2}, {name: array[:1] for name, array in replay.arrays.items()})
    assert (replay.size, replay.position) == (0, 0)


@pytest.mark.parametrize(("free", "fits"), [(0, False), (-1, True), (None, True)])
def test_memory_is_refused_at_the_last_byte_and_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, free: int | None, fits: bool
) -> None:
    needed = replay_bytes(1000, LEAVES)
    monkeypatch.setattr(memory, "available_memory", lambda: None if free is None else needed - 1 - free)
    if fits:
        assert UniformReplay(1000, LEAVES).capacity == 1000
        return
    monkeypatch.setattr(np, "zeros", lambda *_, **__: pytest.fail("allocated"))
    with pytest.raises(UsageError, match=r"a replay of 1000 transitions.*make replay\.capacity smaller"):
        UniformReplay(1000, LEAVES)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_full_replay_takes_what_was_printed() -> None:
    """Within 5 %: measured as the growth of a process's resident memory while a replay is filled."""
    script = """
import os, sys
import numpy as np
from rlseq.replay.uniform import UniformReplay, replay_bytes
from rlseq.spec import Leaf

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

leaves, rows, blocks = (Leaf(name="obs", shape=(24,)), Leaf(name="map", shape=(8, 8), dtype="uint8")), 1000, 300
obs = tuple(np.ones((rows, *leaf.shape), leaf.dtype) for leaf in leaves)
flat = [np.ones(rows, kind) for kind in ("int64", "float32", "float32")]
before = resident()
replay = UniformReplay(rows * blocks, leaves)
for _ in range(blocks):
    replay.add(obs, *flat, obs)
print(replay_bytes(rows * blocks, leaves), resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    printed, taken = map(int, done.stdout.split())
    assert printed == 300_000 * (2 * (24 * 4 + 64) + 16)
    assert taken == pytest.approx(printed, rel=0.05)


def test_three_step_returns_by_hand() -> None:
    replay = UniformReplay(8, (Leaf(name="obs", shape=(1,)),), n_step=3)
    rewards, discounts, ended = [1, 2, 4, 8, 16], [0.5, 0.5, 0.5, 0, 0.5], [False, False, False, True, False]
    for k in range(5):
        obs, following = np.float32([[k]]), np.float32([[k + 1]])
        replay.add(
            (obs,),
            np.array([k]),
            np.float32([rewards[k]]),
            np.float32([discounts[k]]),
            (following,),
            np.array([ended[k]]),
        )
    batch = replay.sample(np.random.default_rng(0), 200)
    found = {
        int(k): (float(reward), float(discount), float(after))
        for k, reward, discount, after in zip(
            batch.index, batch.reward, batch.discount, batch.next_obs[0][:, 0], strict=True
        )
    }
    assert found == {
        0: (1 + 0.5 * 2 + 0.25 * 4, 0.125, 3),
        1: (2 + 0.5 * 4 + 0.25 * 8, 0, 4),
        2: (4 + 0.5 * 8, 0, 4),
        3: (8, 0, 4),
        4: (16, 0.5, 5),  # the newest has one step so far, and bootstraps after it
    }


@pytest.mark.parametrize(("num_envs", "capacity"), [(1, 7), (2, 9), (3, 30), (3, 31), (3, 200)])
@pytest.mark.parametrize("n_step", [1, 2, 4])
def test_n_step_returns_are_those_of_each_environments_own_history(num_envs: int, capacity: int, n_step: int) -> None:
    rng = np.random.default_rng(num_envs * capacity + n_step)
    replay = UniformReplay(capacity, LEAVES, n_step, num_envs)
    history: list[list[tuple[float, float, bool, bytes]]] = [[] for _ in range(num_envs)]
    born: list[tuple[int, int]] = []  # environment and its step, in the order of adding
    for step in range(50):
        moved = random_transitions(rng, num_envs)
        ended = (moved["discount"] == 0) | (rng.random(num_envs) < 0.2)  # terminated, or truncated
        replay.add(**moved, ended=ended)
        for i in range(num_envs):
            row = (moved["reward"][i], moved["discount"][i], bool(ended[i]), moved["next_obs"][0][i].tobytes())
            history[i].append(row)
            born.append((i, step))
    batch = replay.sample(rng, 500)
    oldest = len(born) - replay.size
    for k, index in enumerate(batch.index):
        age = (replay.position - 1 - int(index)) % capacity
        env, step = born[len(born) - 1 - age]
        assert len(born) - 1 - age >= oldest
        reward, discount = np.float32(0), np.float32(1)
        for one_reward, one_discount, ended_here, after in history[env][step : step + n_step]:
            reward, discount, last = reward + discount * one_reward, discount * one_discount, after
            if ended_here:
                break
        np.testing.assert_allclose(batch.reward[k], reward, rtol=1e-6)
        np.testing.assert_allclose(batch.discount[k], discount, rtol=1e-6)
        assert batch.next_obs[0][k].tobytes() == last
        assert batch.action[k] == replay.arrays["action"][index]


def test_several_steps_take_one_byte_more_a_transition() -> None:
    assert replay_bytes(1000, LEAVES, n_step=2) == replay_bytes(1000, LEAVES) + 1000
    replay = UniformReplay(1000, LEAVES, n_step=2)
    assert sum(array.nbytes for array in replay.arrays.values()) == replay_bytes(1000, LEAVES, n_step=2)


def history(capacity: int, num_envs: int, num_steps: int) -> UniformReplay:
    """A memory whose rewards say which environment's which step they are of: 1000 e + t; every fifth step is a last."""
    replay = UniformReplay(capacity, LEAVES[:1], 3, num_envs)
    for t in range(num_steps):
        value = 1000.0 * np.arange(num_envs) + t
        obs = (np.repeat(value[:, None], 2, 1).astype(np.float32),)
        ended = np.full(num_envs, t % 5 == 4)
        replay.add(obs, np.zeros(num_envs, np.int64), value, np.full(num_envs, 0.5), (obs[0] + 1,), ended)
    return replay


@pytest.mark.parametrize(("capacity", "num_steps"), [(40, 12), (40, 31), (41, 31)])
@pytest.mark.parametrize(("stored", "now"), [(1, 3), (3, 2), (2, 2), (4, 1)])
def test_memories_dealt_out_anew_hold_every_transition_once(
    capacity: int, num_steps: int, stored: int, now: int
) -> None:
    """Of several processes' memories, to another number of them; and returns over three steps stay within a stretch."""
    old = [history(capacity, 2, num_steps) for _ in range(stored)]
    new = [UniformReplay(stored * capacity // now + 1, LEAVES[:1], 3, 2) for _ in range(now)]
    for rank, replay in enumerate(new):
        for source in old:
            arrays, counters = source.state()
            replay.add_part(counters, arrays, rank, now)
    held = np.sort(np.concatenate([replay.arrays["reward"][: replay.size] for replay in new]))
    whole = np.concatenate([np.sort(source.arrays["reward"][: source.size]) for source in old])
    newest = np.sort(whole) if capacity % 2 == 0 or num_steps * 2 <= capacity else None
    if newest is not None:
        assert held.tolist() == newest.tolist()
    else:  # an odd capacity holds half a step, which has no partner
        assert len(held) == stored * (capacity // 2 * 2)
    for replay in new:
        batch = replay.sample(np.random.default_rng(0), 2000)
        first = batch.obs[0][:, 0]
        steps = np.round(-np.log2(batch.discount)).astype(int)
        assert {1, 2} <= set(steps) <= {1, 2, 3}
        assert (batch.next_obs[0][:, 0] == first + steps).all()  # the same environment's, k steps later
        expected = [sum(0.5**i * (start + i) for i in range(k)) for start, k in zip(first, steps, strict=True)]
        np.testing.assert_allclose(batch.reward, expected, rtol=1e-6)


def test_nothing_comes_of_an_empty_memory() -> None:
    replay = UniformReplay(5, LEAVES[:1], 3)
    arrays, counters = UniformReplay(5, LEAVES[:1], 3).state()
    replay.add_part(counters, arrays, 0, 1)
    assert replay.size == 0
