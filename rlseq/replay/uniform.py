"""Uniform replay memory (Lin 1992): a ring of transitions in preallocated arrays of the environment's own dtypes.

The true successor observation is stored with each transition, and the discount with which it bootstraps: gamma, 0 after
a termination, not after a truncation. So a sample needs no knowledge of episodes. Returns over n steps (Sutton 1988; in
DQN: Hessel et al. 2018, arXiv 1710.02298) are put together when a sample is drawn, from the rows that follow: what is
stored does not depend on n, and no step waits anywhere to be completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlseq.memory import check_memory
from rlseq.replay.batch import TransitionBatch
from rlseq.spec import Leaf


class Draw(NamedTuple):
    """B drawn transitions without their observations.

    Attributes:
        first: `[B]` int64, rows of `obs`.
        last: `[B]` int64, rows of `next_obs`.
        action, reward, discount: as in `TransitionBatch`.
    """

    first: np.ndarray
    last: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    discount: np.ndarray


class UniformReplay:
    """A ring of `capacity` transitions.

    Args:
        capacity: number of transitions kept.
        leaves: of the observation.
        n_step: n, the number of rewards that a sampled transition sums.
        num_envs: N, how many environments take turns in the ring: a row's successor lies N rows further.

    Attributes:
        arrays: everything that is kept, by its name in a checkpoint, `[capacity, ...]`.
        written: rows written so far, overwritten ones included: by it a copy elsewhere knows what it lacks.

    Raises:
        UsageError: the machine has less memory than it needs.
    """

    def __init__(self, capacity: int, leaves: Sequence[Leaf], n_step: int = 1, num_envs: int = 1) -> None:
        check_memory(
            replay_bytes(capacity, leaves, n_step),
            f"a replay of {capacity} transitions",
            "make replay.capacity smaller",
        )
        self.capacity = capacity
        self.n_step = n_step
        self.num_envs = num_envs
        self.size = 0
        self.position = 0
        self.written = 0
        self.arrays: dict[str, np.ndarray] = {
            name: np.zeros((capacity, *shape), dtype) for name, dtype, shape in _layout(leaves, n_step)
        }
        self._obs = tuple(self.arrays[f"obs.{k}"] for k in range(len(leaves)))
        self._next_obs = tuple(self.arrays[f"next_obs.{k}"] for k in range(len(leaves)))

    def add(
        self,
        obs: tuple[np.ndarray, ...],
        action: np.ndarray,
        reward: np.ndarray,
        discount: np.ndarray,
        next_obs: tuple[np.ndarray, ...],
        ended: np.ndarray | None = None,
    ) -> None:
        """Copy N transitions in, overwriting the oldest when full.

        Args:
            obs, next_obs: leaves `[N, ...]`.
            action: `[N]` indices from 0.
            reward: `[N]`.
            discount: `[N]`, 0 after a termination.
            ended: `[N]` bool, whether the episode ended, by termination or truncation; needed for n > 1 alone.
        """
        num, start = len(action), self.position
        if num > self.capacity:  # only the newest fit; they are what N single additions would have left
            skip = num - self.capacity
            obs, next_obs = tuple(a[skip:] for a in obs), tuple(a[skip:] for a in next_obs)
            action, reward, discount, num = action[skip:], reward[skip:], discount[skip:], self.capacity
            ended = None if ended is None else ended[skip:]
            start = (start + skip) % self.capacity
        end = start + num
        where: slice | np.ndarray = slice(start, end) if end <= self.capacity else np.arange(start, end) % self.capacity
        for target, source in zip(self._obs, obs, strict=True):
            target[where] = source
        for target, source in zip(self._next_obs, next_obs, strict=True):
            target[where] = source
        self.arrays["action"][where] = action
        self.arrays["reward"][where] = reward
        self.arrays["discount"][where] = discount
        if self.n_step > 1:
            self.arrays["ended"][where] = ended
        self.position = end % self.capacity
        self.size = min(self.size + num, self.capacity)
        self.written += num

    def sample(self, rng: np.random.Generator, num: int) -> TransitionBatch[np.ndarray]:
        """`num` transitions drawn uniformly, with replacement; gathered into new arrays."""
        drawn = self.draw(rng, num)
        return TransitionBatch(
            obs=tuple(array.take(drawn.first, axis=0) for array in self._obs),
            action=drawn.action,
            reward=drawn.reward,
            discount=drawn.discount,
            next_obs=tuple(array.take(drawn.last, axis=0) for array in self._next_obs),
            index=drawn.first,
        )

    def draw(self, rng: np.random.Generator, num: int) -> Draw:
        """Which transitions `sample` would give."""
        index = rng.integers(0, self.size, num)
        arrays = self.arrays
        reward, discount, last = arrays["reward"].take(index), arrays["discount"].take(index), index
        if self.n_step > 1:
            reward, discount, last = self._look_ahead(index, reward, discount)
        return Draw(index, last, arrays["action"].take(index), reward, discount)

    def _look_ahead(
        self, index: np.ndarray, reward: np.ndarray, discount: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sum of up to n rewards, what is left of the discount, and the row of the last of these steps.

        An episode's end and the newest row cut the sum short: fewer steps, and the discount says how many.
        """
        arrays, last = self.arrays, index
        newer = (self.position - 1 - index) % self.capacity // self.num_envs  # rows of the same environment after it
        going = ~arrays["ended"].take(index)
        for k in range(1, self.n_step):
            going &= newer >= k
            after = (last + self.num_envs) % self.capacity
            reward = np.where(going, reward + discount * arrays["reward"].take(after), reward)
            discount = np.where(going, discount * arrays["discount"].take(after), discount)
            last = np.where(going, after, last)
            going &= ~arrays["ended"].take(after)
        return reward, discount, last

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """The filled part of each array (views, no copies), and the counters."""
        return {name: array[: self.size] for name, array in self.arrays.items()}, {
            "size": self.size,
            "position": self.position,
        }

    def add_part(self, counters: Mapping[str, int], stored: Mapping[str, np.ndarray], part: int, parts: int) -> None:
        """Take in one of `parts` stretches of time of another memory's transitions.

        A stretch's last transition of each environment counts as an episode's end, cut off: nothing that follows in
        this memory belongs to it.

        Args:
            counters, stored: of that memory, from its `state`; rows of N environments in turn.
            part: which stretch, from 0, oldest first.
        """
        size, position = int(counters["size"]), int(counters["position"])
        oldest = position if position < size else 0  # only a full memory's position lies before its end
        order = (np.arange(size) + oldest) % max(1, size)
        num = self.num_envs
        first, last = (size // num * k // parts * num for k in (part, part + 1))
        order = order[first:last]
        if not len(order):
            return
        leaves = range(len(self._obs))
        ended = stored["ended"][order] if "ended" in stored else np.zeros(len(order), np.bool_)
        ended[-num:] = True
        self.add(
            tuple(stored[f"obs.{k}"][order] for k in leaves),
            stored["action"][order],
            stored["reward"][order],
            stored["discount"][order],
            tuple(stored[f"next_obs.{k}"][order] for k in leaves),
            ended,
        )

    def slot(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Where a stored array belongs, for reading it straight into place.

        Raises:
            KeyError: the array does not fit this replay.
        """
        array = self.arrays[name]
        if array.dtype != dtype or array.shape[1:] != shape[1:] or shape[0] > self.capacity:
            raise KeyError(name)
        return array[: shape[0]]

    def restore(self, counters: dict[str, int], stored: Mapping[str, np.ndarray]) -> None:
        """Set the counters after the arrays `stored` were read into their slots.

        Raises:
            ValueError: counters and arrays do not belong together or to this replay.
        """
        size, position = int(counters["size"]), int(counters["position"])
        if not 0 <= size <= self.capacity or not 0 <= position < self.capacity:
            raise ValueError(f"size {size} and position {position} in a replay of {self.capacity}")
        if stored.keys() != self.arrays.keys() or any(len(array) != counters["size"] for array in stored.values()):
            raise ValueError(f"size {counters['size']} and arrays { ({k: len(a) for k, a in stored.items()}) }")
        self.size, self.position = size, position
        self.written += self.capacity  # every row may have changed


def _layout(leaves: Sequence[Leaf], n_step: int) -> list[tuple[str, str, tuple[int, ...]]]:
    layout = [(f"{part}.{k}", leaf.dtype, leaf.shape) for part in ("obs", "next_obs") for k, leaf in enumerate(leaves)]
    ended: list[tuple[str, str, tuple[int, ...]]] = [("ended", "bool", ())] if n_step > 1 else []
    return [*layout, ("action", "int64", ()), ("reward", "float32", ()), ("discount", "float32", ()), *ended]


def replay_bytes(capacity: int, leaves: Sequence[Leaf], n_step: int = 1) -> int:
    """Bytes that a replay of `capacity` transitions takes."""
    return capacity * sum(
        np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)) for _, dtype, shape in _layout(leaves, n_step)
    )
