"""The copy on the device against the memory that it follows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlseq.replay.device import DeviceReplay, fits, upload
from rlseq.replay.uniform import UniformReplay
from tests.replay.test_uniform import LEAVES, random_transitions

CPU = torch.device("cpu")


def assert_same_samples(copy: DeviceReplay, memory: UniformReplay, seed: int, num: int = 40) -> None:
    theirs, ours = memory.sample(np.random.default_rng(seed), num), copy.sample(np.random.default_rng(seed), num)
    ours_flat = [*ours.obs, ours.action, ours.reward, ours.discount, *ours.next_obs, ours.index]
    theirs_flat = [*theirs.obs, theirs.action, theirs.reward, theirs.discount, *theirs.next_obs, theirs.index]
    for a, b in zip(ours_flat, theirs_flat, strict=True):
        np.testing.assert_array_equal(a.cpu().numpy(), b, strict=True)


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.integers(1, 12),
    n_step=st.sampled_from([1, 3]),
    rounds=st.lists(st.lists(st.integers(1, 15), max_size=3), min_size=1, max_size=8),
)
def test_it_gives_the_memorys_batches_whatever_was_added_in_between(
    capacity: int, n_step: int, rounds: list[list[int]]
) -> None:
    rng = np.random.default_rng(0)
    memory = UniformReplay(capacity, LEAVES, n_step)
    memory.add(**random_transitions(rng, 1), ended=np.zeros(1, np.bool_))
    copy = DeviceReplay(memory, CPU)
    for seed, additions in enumerate(rounds):
        for num in additions:
            memory.add(**random_transitions(rng, num), ended=rng.random(num) < 0.3)
        assert_same_samples(copy, memory, seed)


def test_it_follows_a_restored_memory() -> None:
    rng = np.random.default_rng(0)
    memory, other = UniformReplay(8, LEAVES), UniformReplay(8, LEAVES)
    copy = DeviceReplay(memory, CPU)
    for replay, num in ((memory, 5), (other, 11)):
        replay.add(**random_transitions(rng, num))
    assert_same_samples(copy, memory, 1)
    arrays, counters = other.state()
    for name, array in arrays.items():
        memory.slot(name, array.shape, array.dtype)[...] = array
    memory.restore(counters, arrays)
    assert_same_samples(copy, other, 2)


def test_only_new_rows_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    memory = UniformReplay(100, LEAVES)
    copy = DeviceReplay(memory, CPU)
    memory.add(**random_transitions(rng, 90))
    copy.sample(rng, 4)
    memory.add(**random_transitions(rng, 15))
    sent: list[int] = []
    monkeypatch.setattr(
        "rlseq.replay.device.upload", lambda array, device: sent.append(len(array)) or upload(array, device)
    )
    copy.sample(rng, 4)
    assert sent == [5] * 4 + [10] * 4 + [4] * 4  # two leaves before and after the step; row numbers and three more
    sent.clear()
    copy.sample(rng, 4)
    assert sent == [4] * 4


def test_it_is_a_copy_even_on_a_cpu() -> None:
    memory = UniformReplay(4, LEAVES)
    memory.add(**random_transitions(np.random.default_rng(0), 4))
    copy = DeviceReplay(memory, CPU)
    before = copy.sample(np.random.default_rng(1), 9).obs[0].clone()
    memory.arrays["obs.0"][:] = 0
    torch.testing.assert_close(copy.sample(np.random.default_rng(1), 9).obs[0], before, rtol=0, atol=0)


def test_it_fits_into_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, cuda = UniformReplay(100, LEAVES), torch.device("cuda", 0)
    needed = 100 * 2 * (8 + 8)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * needed, 10**9))
    assert fits(memory, cuda)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * needed - 1, 10**9))
    assert not fits(memory, cuda)
    assert not fits(memory, CPU)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_it_gives_the_memorys_batches() -> None:
    rng, device = np.random.default_rng(0), torch.device("cuda", torch.cuda.current_device())
    memory = UniformReplay(50, LEAVES, 3)
    assert fits(memory, device)
    copy = DeviceReplay(memory, device)
    for seed in range(40):
        memory.add(**random_transitions(rng, 7), ended=rng.random(7) < 0.3)
        assert_same_samples(copy, memory, seed)
        assert copy.sample(rng, 2).obs[0].device == device
