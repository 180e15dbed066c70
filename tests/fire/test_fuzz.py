"""Damaged files of every kind, fed to every command: a clear refusal or a result, and nothing worse.

Each case has a number that decides everything about it. RLSEQ_FUZZ=5000 runs the cases 0 to 4999,
RLSEQ_FUZZ=4321:4322 runs one of them again.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import onnx
import pytest

from rlseq.spec import SPEC_KEY
from tests.fire.cases import RUN, Case, numbers, run_cases
from tests.fire.forks import HERE, NAME, Server, begin, borrowed
from tests.fire.mutate import (
    PLANTED,
    Rng,
    mutate_arrays,
    mutate_bytes,
    mutate_header,
    mutate_json,
    mutate_manifest,
    random_toml,
)
from tests.fire.mutate_onnx import mutate_description, mutate_graph

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="every case is a fork")

SEED = 22
RECIPE = """format_version = 1
algorithm = "dqn"
[run]
steps = 100
checkpoint_every = 50
[env]
id = "CartPole-v1"
num_envs = 2
kwargs = { sutton_barto_reward = true }
[net]
hidden = [16, 16]
activation = "tanh"
[optim]
lr = 1e-3
schedule = "cosine"
clip_norm = "none"
[dqn]
gamma = 0.9
double = false
"""


@pytest.fixture(scope="module")
def material(pool: SimpleQueue[Server], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, a recipe, and a module that must not be imported."""
    place = tmp_path_factory.mktemp("material")
    with borrowed(pool) as server:
        ended = server(*begin("CartPole-v1", {"run": {"steps": 120}}), cwd=place, env=HERE)
    assert ended.code == 0, ended
    (place / "recipe.toml").write_text(RECIPE)
    shutil.copy(place / NAME / "policy.onnx", place / "policy.onnx")
    (place / f"{PLANTED}.py").write_text(f"open({str(place / 'imported')!r}, 'w')")
    return place


def of_a_checkpoint(rng: Rng, place: Path) -> Case:
    run = place / RUN
    last = rng.random() < 0.6
    checkpoint = run / "checkpoints" / "120" if last else next((run / "best").iterdir())
    file = str(rng.choice(["model", "trainer", "replay"] if last else ["model"])) + ".safetensors"
    kind = int(rng.integers(4))
    if kind == 0:
        said = mutate_bytes(rng, checkpoint / str(rng.choice([file, "checkpoint.json"])))
    elif kind == 1:
        said = mutate_manifest(rng, checkpoint)
    else:
        said = (mutate_header if kind == 2 else mutate_arrays)(rng, checkpoint, file)
    resume = ("train", "dqn", "--resume", RUN, "--steps", "160", "--quiet")
    evaluate = ("eval", RUN, "--episodes", "2", "--envs", "2", *(("--checkpoint", "last") if last else ()))
    commands = [resume, resume, evaluate, ("info", RUN)] if last else [evaluate, evaluate, resume, ("info", RUN)]
    return Case(f"{'last' if last else 'best'} {said}", RUN, commands[int(rng.integers(4))])


def of_a_run(rng: Rng, place: Path) -> Case:
    path = place / RUN / str(rng.choice(["config.json", "config.json", "env.json", "lineage.json", "summary.json"]))
    said = (mutate_json if rng.random() < 0.8 else mutate_bytes)(rng, path)
    commands = [
        ("train", "dqn", "--resume", RUN, "--steps", "160", "--quiet"),
        ("eval", RUN, "--episodes", "2", "--envs", "2"),
        ("info", RUN),
        ("info", RUN, "--json"),
        ("list", "runs"),
        ("train", "dqn", "CartPole-v1", "--from", RUN, "--set", "net.hidden=8", "--recipe", "none", "--quiet"),
    ]
    return Case(said, RUN, commands[int(rng.integers(len(commands)))], loop="none")


def of_a_recipe(rng: Rng, place: Path) -> Case:
    path = place / "recipe.toml"
    if rng.random() < 0.8:
        path.write_bytes(random_toml(rng, RECIPE).encode(errors="replace"))
        said = "tokens"
    else:
        said = mutate_bytes(rng, path)
    words = ("train", "dqn", *(("CartPole-v1",) if rng.random() < 0.5 else ()), "--recipe", "recipe.toml", "--quiet")
    return Case(f"recipe: {said}", "recipe.toml", words, loop="none")


def of_a_policy(rng: Rng, place: Path) -> Case:
    path = place / "policy.onnx"
    mutate = (mutate_bytes, mutate_description, mutate_description, mutate_graph)[int(rng.integers(4))]
    said = mutate(rng, path)
    foreign = ("--env", "CartPole-v1") if rng.random() < 0.2 else ()
    commands = [
        ("play", "policy.onnx", "--episodes", "2", *foreign),
        ("eval", "policy.onnx", "--episodes", "2", *foreign),
        ("info", "policy.onnx"),
    ]
    return Case(said, "policy.onnx", commands[int(rng.integers(3))])


def of_a_stranger(rng: Rng, place: Path) -> Case:
    """An environment whose name would have a module imported, in every file that names one."""
    changes: dict[str, Any] = {"id": f"{PLANTED}:Env-v0"} if rng.random() < 0.7 else {"id": "X", "imports": [PLANTED]}
    kind = int(rng.integers(3))
    if kind == 0:
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in changes.items())
        (place / "recipe.toml").write_text(f'algorithm = "dqn"\n[env]\n{lines}\n')
        return Case(f"recipe: {changes}", PLANTED, ("train", "dqn", "--recipe", "recipe.toml"), loop="none")
    if kind == 1:
        model = onnx.load(place / "policy.onnx")
        entry = next(entry for entry in model.metadata_props if entry.key == SPEC_KEY)
        spec = json.loads(entry.value)
        spec["env"] |= changes
        entry.value = json.dumps(spec)
        (place / "policy.onnx").write_bytes(model.SerializeToString())
        return Case(f"policy: {changes}", PLANTED, (str(rng.choice(["play", "eval"])), "policy.onnx"))
    path = place / RUN / "config.json"
    config = json.loads(path.read_text())
    config["options"]["env"] |= changes
    path.write_text(json.dumps(config))
    commands = [("train", "dqn", "--resume", RUN, "--steps", "160"), ("eval", RUN), ("export", RUN)]
    return Case(f"config.json: {changes}", PLANTED, commands[int(rng.integers(3))], loop="none")


KINDS = (of_a_checkpoint, of_a_run, of_a_recipe, of_a_policy, of_a_stranger)


def test_no_damaged_file_does_worse_than_be_refused(pool: SimpleQueue[Server], material: Path, tmp_path: Path) -> None:
    run_cases(pool, material, tmp_path, KINDS, SEED, numbers(200))
