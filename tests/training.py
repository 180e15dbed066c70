"""Short trainings for tests: the whole pipeline on small networks, in a folder of the test's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from rlseq import checkpoints, runs
from rlseq.config import Layer, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.dqn.train import DqnTrainer
from rlseq.engine.metrics import EVENT_FILE
from rlseq.envs.make import maker, spaces_of
from rlseq.pipeline import TrainingResult, train
from rlseq.spec import EnvSpec, PolicySpec

SMALL: dict[str, Any] = {
    "run": {"steps": 600, "log_every": 50, "checkpoint_every": 200},
    "net": {"hidden": [16]},
    "replay": {"capacity": 300, "batch_size": 16},
    "eval": {"every": 150, "episodes": 2, "num_envs": 2, "final_episodes": 2},
    "dqn": {"learning_starts": 50, "train_every_steps": 4, "updates_per_train": 2, "target_sync_steps": 30},
}


SMALL_SEQ: dict[str, Any] = {
    "run": {"steps": 24, "log_every": 3, "checkpoint_every": 6},
    "net": {"layers": 1, "width": 16},
    "seq": {"context": 12, "batch_size": 6},
    "optim": {"lr": 0.01},
    "engine": {"threads": 1},
    "eval": {"every": 8, "sample_tokens": 8, "max_tokens": 200},
}


def merged(*trees: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Option trees laid over one another."""
    result: dict[str, Any] = {}
    for tree in trees:
        for group, values in tree.items():
            result[group] = {**result.get(group, {}), **values}
    return result


def small(*changes: Mapping[str, Mapping[str, Any]], env: Any = None, **arguments: Any) -> TrainingResult:
    """Train a small network for a few hundred steps, without a recipe."""
    if "resume" in arguments:
        return train(env=env, values=merged(*changes), **arguments)
    return train(env=env or "CartPole-v1", values=merged(SMALL, *changes), recipe="none", **arguments)


def write_text(path: Path, words: int = 700, seed: int = 0) -> Path:
    """A text of short words, which a small network learns something of."""
    rng = np.random.default_rng(seed)
    path.write_text(" ".join(rng.choice(["abba", "cad", "dacca", "ebb", "bead\n"], words)))
    return path


def small_seq(data: Path | None, *changes: Mapping[str, Mapping[str, Any]], **arguments: Any) -> TrainingResult:
    """Train a small sequence model for a few updates."""
    if "resume" in arguments:
        return train("seq", values=merged(*changes), **({"data": str(data)} if data else {}), **arguments)
    return train("seq", data=str(data), values=merged(SMALL_SEQ, *changes), **arguments)


def trainer(*changes: Mapping[str, Mapping[str, Any]], env_id: str = "CartPole-v1", make: Any = None) -> DqnTrainer:
    """A trainer alone, without a run."""
    options = resolve(DqnTraining, Layer("test", merged(SMALL, {"env": {"id": env_id}}, *changes)))
    spec_env = EnvSpec(id=env_id, kwargs=options.env.kwargs, max_episode_steps=options.env.max_episode_steps)
    make = make or maker(spec_env)
    leaves, action = spaces_of(make, env_id)
    return DqnTrainer(options, PolicySpec(env=spec_env, observation=leaves, action=action), make)


class Steps:
    """Stands in for a session: counts steps, and may look after each one."""

    def __init__(self, steps: int, look: Any = None) -> None:
        self.step, self.steps, self.look = 0, steps, look

    @property
    def running(self) -> bool:
        return self.step < self.steps

    def advance(self, num_steps: int) -> None:
        self.step += num_steps
        if self.look is not None:
            self.look(self.step)


def curves(run: Path) -> list[tuple[int, str, Any]]:
    """Every point in a run's event file, as it stands there: `(step, tag, value)`, without speeds."""
    points = []
    for event in EventFileLoader(str(run / EVENT_FILE)).Load():
        for value in event.summary.value:
            if not value.tag.startswith(("time/", "_hparams_")) and not value.tag.endswith("_per_second"):
                number = value.tensor.float_val
                points.append(
                    (event.step, value.tag, float(np.float32(number[0])) if number else value.tensor.string_val[0])
                )
    return points


def weights(checkpoint: Path) -> dict[str, np.ndarray]:
    """Every array of a checkpoint, with its file."""
    manifest = checkpoints.read_manifest(checkpoint)
    return {
        f"{name}/{key}": array
        for name in ("model", "trainer", "replay")
        if f"{name}.safetensors" in manifest["files"] and (checkpoint / f"{name}.safetensors").exists()
        for key, array in checkpoints.read_arrays(checkpoint, manifest, name).items()
    }


def assert_same_run(a: Path, b: Path) -> None:
    """Weights, target, optimiser, replay, random streams, episodes and curves are equal bit for bit."""
    last_a, last_b = (runs.Run(path).checkpoint("last") for path in (a, b))
    assert last_a.name == last_b.name
    arrays_a, arrays_b = weights(last_a), weights(last_b)
    assert arrays_a.keys() == arrays_b.keys()
    for name, array in arrays_a.items():
        np.testing.assert_array_equal(array, arrays_b[name], err_msg=name, strict=True)
    numbers_a, numbers_b = (dict(checkpoints.read_manifest(path)["numbers"]) for path in (last_a, last_b))
    for numbers in (numbers_a, numbers_b):
        numbers["session"] = {k: v for k, v in numbers["session"].items() if k not in ("seconds", "events_bytes")}
    assert numbers_a == numbers_b
    assert curves(a) == curves(b)


def steps_logged(run: Path) -> Iterator[tuple[str, list[int]]]:
    """Each curve with the steps it has points at."""
    by_tag: dict[str, list[int]] = {}
    for step, tag, _ in curves(run):
        by_tag.setdefault(tag, []).append(step)
    yield from by_tag.items()


def command(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the command line as a process of its own."""
    import os

    return subprocess.Popen(
        [sys.executable, "-m", "rlseq", *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def settings(
    tree: Sequence[Mapping[str, Mapping[str, Any]]] = (), small: Mapping[str, Mapping[str, Any]] = SMALL
) -> list[str]:
    """`SMALL`, changed, as `--set` arguments."""
    options = merged(small, *tree)
    return [
        part for group, values in options.items() for k, v in values.items() for part in ("--set", f"{group}.{k}={v}")
    ]
