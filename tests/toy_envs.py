"""Tiny environments whose right answers are known; importing this module registers them, as a user's own module would.

| id | what it is for |
|---|---|
| `toy/Constant-v0` | reward 1 every step, cut after 10 steps by the time limit (`max_episode_steps` changes it) |
| `toy/Identity-v0` | reward 1 for repeating the observation; a Discrete observation, or `kind="box"` one-hot; 8 steps |
| `toy/Counting-v0` | as many steps as the seed decides, reward 1 each, so short is bad; has a native vector version |
| `toy/Started-v0` | identity with actions `Discrete(3, start=5)` |
| `toy/Dict-v0`, `toy/Tuple-v0` | every supported kind of observation, nested |
| `toy/ReusedBuffer-v0` | returns the same observation array every time |
| `toy/Nan-v0` | observation NaN from step `at` on |
| `toy/Hidden-v0` | its observation depends on episodes before, which its seed does not set; a fresh one is exact |
| `toy/Raises-v0` | `step` number `at` (of an episode) raises, or `reset` with `in_reset=True` |
| `toy/Image-v0` | small uint8 images, renders `rgb_array` frames of an odd size, 30 a second |
| `toy/Blind-v0` | renders nothing |
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

Reset = tuple[Any, dict[str, Any]]
Stepped = tuple[Any, float, bool, bool, dict[str, Any]]


class Constant(gym.Env):
    """Reward 1 a step for ever; only a time limit ends it."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Stepped:
        return np.ones(1, np.float32), 1.0, False, False, {}


class Identity(gym.Env):
    """Reward 1 for the action that equals the observation (plus `start`), else 0.

    Args:
        n: number of values.
        length: steps of an episode.
        kind: observation as a `discrete` number or as a one-hot `box`.
        start: smallest action.
    """

    def __init__(self, n: int = 4, length: int = 8, kind: str = "discrete", start: int = 0) -> None:
        self.n, self.length, self.kind = n, length, kind
        self.action_space = spaces.Discrete(n, start=start)
        self.observation_space = spaces.Discrete(n) if kind == "discrete" else spaces.Box(0.0, 1.0, (n,), np.float32)
        self.value = self.steps = 0

    def _observe(self) -> Any:
        self.value = int(self.np_random.integers(self.n))
        return self.value if self.kind == "discrete" else np.eye(self.n, dtype=np.float32)[self.value]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Stepped:
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is not in {self.action_space}")
        reward = float(int(action) - int(self.action_space.start) == self.value)
        self.steps += 1
        return self._observe(), reward, self.steps >= self.length, False, {}


class Counting(gym.Env):
    """Ends after 1 to `longest` steps, decided by the seed. The reward is 1 a step: short episodes score low.

    The observation is (steps done, number of the episode's first random draw), so that every episode is recognisable.
    """

    observation_space = spaces.Box(0.0, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 50}

    def __init__(self, longest: int = 20, render_mode: str | None = None) -> None:
        self.longest, self.render_mode = longest, render_mode
        self.length = self.steps = 0

    def _observe(self) -> np.ndarray:
        return np.array([self.steps, self.length], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.length, self.steps = int(self.np_random.integers(1, self.longest + 1)), 0
        return self._observe(), {}

    def step(self, action: Any) -> Stepped:
        assert self.steps < self.length, "stepped after its end"
        self.steps += 1
        return self._observe(), 1.0, self.steps >= self.length, False, {}

    def render(self) -> Any:
        return np.full((16, 24, 3), self.steps, np.uint8) if self.render_mode == "rgb_array" else None


class VectorCounting(VectorEnv):
    """`Counting` as a native vector environment that resets on the step after an end, as CartPole's does.

    `ignored_reward` is paid on reset steps: it must never be counted.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        longest: int = 20,
        max_episode_steps: int = 1000,
        ignored_reward: float = 100.0,
        autoreset: str = "next_step",
        render_mode: str | None = None,
    ) -> None:
        self.num_envs, self.longest, self.limit, self.ignored = num_envs, longest, max_episode_steps, ignored_reward
        mode = {
            "next_step": AutoresetMode.NEXT_STEP,
            "same_step": AutoresetMode.SAME_STEP,
            "disabled": AutoresetMode.DISABLED,
        }
        self.metadata = {"autoreset_mode": mode[autoreset]}
        self.same_step = autoreset == "same_step"
        self.single_observation_space, self.single_action_space = Counting.observation_space, Counting.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.steps, self.length = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self.over = np.zeros(num_envs, np.bool_)
        self.lengths_played: list[list[int]] = [[] for _ in range(num_envs)]

    def _observe(self) -> np.ndarray:
        return np.stack([self.steps, self.length], axis=1).astype(np.float32)

    def _begin(self, rows: np.ndarray) -> None:
        for row in np.flatnonzero(rows):
            self.length[row], self.steps[row] = self.np_random.integers(1, self.longest + 1), 0

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.over[:] = False
        self._begin(np.ones(self.num_envs, np.bool_))
        return self._observe(), {}

    def step(self, actions: Any) -> Any:
        assert self.action_space.contains(actions), f"{actions!r} is not in {self.action_space}"
        resetting = self.over.copy()
        self.steps += 1
        self._begin(resetting)
        reward = np.where(resetting, self.ignored, 1.0)
        terminated = ~resetting & (self.steps >= self.length)
        truncated = ~resetting & ~terminated & (self.steps >= self.limit)
        self.over = terminated | truncated
        for row in np.flatnonzero(self.over):
            self.lengths_played[row].append(int(self.steps[row]))
        if self.same_step:
            self._begin(self.over)
            self.over = np.zeros(self.num_envs, np.bool_)
        return self._observe(), reward, terminated, truncated, {}


class Nested(gym.Env):
    """Every supported kind of observation in a Dict (with a Dict and a Tuple inside) or in a Tuple; 6 steps.

    Reward 1 for action 1 when `speed[0]` is positive, or action 0 when it is not.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, outer: str = "dict") -> None:
        parts: dict[str, spaces.Space] = {
            "speed": spaces.Box(-1.0, 1.0, (3,), np.float64),
            "room": spaces.Discrete(3, start=1),
            "switches": spaces.MultiBinary(4),
            "dials": spaces.MultiDiscrete([2, 3]),
            "deep": spaces.Dict(
                {"pixel": spaces.Box(0, 255, (2, 2), np.uint8), "pair": spaces.Tuple([spaces.Discrete(2)])}
            ),
        }
        self.observation_space = spaces.Dict(parts) if outer == "dict" else spaces.Tuple(list(parts.values()))
        self.answer = self.steps = 0

    def _observe(self) -> Any:
        observation = self.observation_space.sample()
        speed = observation["speed"] if isinstance(observation, dict) else observation[0]
        self.answer = int(speed[0] > 0)
        return observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Stepped:
        reward = float(int(action) == self.answer)
        self.steps += 1
        return self._observe(), reward, self.steps >= 6, False, {}


class ReusedBuffer(gym.Env):
    """Writes every observation (the number of steps done) into one array and returns that; 7 steps."""

    observation_space = spaces.Box(0.0, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.buffer = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.buffer[:] = 0.0
        return self.buffer, {}

    def step(self, action: Any) -> Stepped:
        self.buffer += 1.0
        return self.buffer, float(self.buffer[0]), bool(self.buffer[0] >= 7), False, {}


class Nan(gym.Env):
    """Its observation holds NaN from step `at` on (0: from the reset); 10 steps."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, at: int = 3) -> None:
        self.at, self.steps = at, 0

    def _observe(self) -> np.ndarray:
        return np.array([0.5, np.nan if self.steps >= self.at else 0.5], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Stepped:
        self.steps += 1
        return self._observe(), 1.0, self.steps >= 10, False, {}


class Hidden(gym.Env):
    """Counts its episodes and shows the count: in a used environment a seed gives other observations; 5 steps."""

    observation_space = spaces.Box(0.0, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.episodes = self.steps = 0

    def _observe(self) -> np.ndarray:
        return np.array([self.steps, self.episodes], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.episodes += 1
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Stepped:
        self.steps += 1
        return self._observe(), float(self.episodes), self.steps >= 5, False, {}


class Raises(gym.Env):
    """Raises in its step number `at`, or in reset."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, at: int = 3, in_reset: bool = False) -> None:
        self.at, self.in_reset, self.steps = at, in_reset, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        if self.in_reset:
            raise RuntimeError("the door is stuck")
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Stepped:
        self.steps += 1
        if self.steps >= self.at:
            raise RuntimeError("the wheel came off")
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Image(gym.Env):
    """Images `[8, 8]` of uint8 with one bright row; reward 1 for action `row % 2`; 6 steps. Frames are 15 x 21."""

    observation_space = spaces.Box(0, 255, (8, 8), np.uint8)
    action_space = spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.row = self.steps = 0

    def _observe(self) -> np.ndarray:
        self.row = int(self.np_random.integers(8))
        image = np.zeros((8, 8), np.uint8)
        image[self.row] = 255
        return image

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Stepped:
        reward = float(int(action) == self.row % 2)
        self.steps += 1
        return self._observe(), reward, self.steps >= 6, False, {}

    def render(self) -> Any:
        if self.render_mode != "rgb_array":
            return None
        frame = np.zeros((15, 21, 3), np.uint8)
        frame[2 * self.row : 2 * self.row + 1, :, 0] = 255
        frame[:, : self.steps * 3, 2] = 200
        return frame


ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "toy/Constant-v0": {"entry_point": Constant, "max_episode_steps": 10},
    "toy/Identity-v0": {"entry_point": Identity},
    "toy/Started-v0": {"entry_point": Identity, "kwargs": {"n": 3, "start": 5}},
    "toy/Counting-v0": {"entry_point": Counting, "max_episode_steps": 1000, "vector_entry_point": VectorCounting},
    "toy/Dict-v0": {"entry_point": Nested},
    "toy/Tuple-v0": {"entry_point": Nested, "kwargs": {"outer": "tuple"}},
    "toy/ReusedBuffer-v0": {"entry_point": ReusedBuffer},
    "toy/Nan-v0": {"entry_point": Nan},
    "toy/Hidden-v0": {"entry_point": Hidden},
    "toy/Raises-v0": {"entry_point": Raises},
    "toy/Image-v0": {"entry_point": Image},
    "toy/Blind-v0": {"entry_point": Constant, "max_episode_steps": 10},
}

for _id, _entry in ENVIRONMENTS.items():
    if _id not in gym.registry:  # the module may be imported under two names
        gym.register(_id, **_entry)
