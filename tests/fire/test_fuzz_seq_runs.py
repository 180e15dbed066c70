"""Damaged runs, recipes and files of sequence models, fed to every command; see `test_fuzz`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.fire.cases import RUN, Case, numbers, run_cases
from tests.fire.forks import HERE, NAME, Server, begin_seq, borrowed
from tests.fire.mutate import (
    PLANTED,
    TOKENS,
    Rng,
    mutate_arrays,
    mutate_bytes,
    mutate_header,
    mutate_json,
    mutate_manifest,
    random_toml,
)
from tests.fire.mutate_onnx import mutate_description, mutate_graph
from tests.training import write_text

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="every case is a fork")

SEED = 25
RESUME = ("train", "seq", "--resume", RUN, "--steps", "26", "--quiet")
GENERATE = ("--tokens", "20", "--temperature", "0")
RECIPE = """format_version = 1
algorithm = "seq"
[run]
steps = 20
checkpoint_every = 10
[seq]
task = "text"
unit = "char"
context = 12
batch_size = 4
loss = "cross_entropy"
[net]
core = "gpt"
layers = 1
width = 16
window = 8
[optim]
lr = 1e-3
schedule = "wsd"
accumulate = 2
ema = 0.9
clip_norm = "none"
[eval]
metric = "loss"
max_tokens = 100
"""
OWN = {f'"{PLANTED}:loss"', '"seq"', "[seq]", "task", "accumulate", '"lstm"', "context", "size", '"tiny"', "ema"}


@pytest.fixture(scope="module")
def material(pool: SimpleQueue[Server], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, its file, a text, a recipe, and a module that must not be imported."""
    place = tmp_path_factory.mktemp("material")
    text = write_text(place / "text.txt")
    with borrowed(pool) as server:
        ended = server(*begin_seq(text, {"optim": {"accumulate": 2, "ema": 0.9}}), cwd=place, env=HERE)
    assert ended.code == 0, ended
    (place / "recipe.toml").write_text(RECIPE)
    shutil.copy(place / NAME / "model.onnx", place / "model.onnx")
    (place / f"{PLANTED}.py").write_text(f"open({str(place / 'imported')!r}, 'w')")
    return place


def of_a_checkpoint(rng: Rng, place: Path) -> Case:
    run = place / RUN
    last = rng.random() < 0.6
    checkpoint = run / "checkpoints" / "24" if last else next((run / "best").iterdir())
    file = str(rng.choice(["model", "trainer"] if last else ["model"])) + ".safetensors"
    kind = int(rng.integers(4))
    if kind == 0:
        said = mutate_bytes(rng, checkpoint / str(rng.choice([file, "checkpoint.json"])))
    elif kind == 1:
        said = mutate_manifest(rng, checkpoint)
    else:
        said = (mutate_header if kind == 2 else mutate_arrays)(rng, checkpoint, file)
    which = "last" if last else "best"
    evaluate = ("eval", RUN, "--checkpoint", which)
    generate = ("generate", RUN, "--checkpoint", which, *GENERATE)
    commands = [RESUME, RESUME if last else evaluate, evaluate, generate, ("info", RUN)]
    return Case(f"{which} {said}", RUN, commands[int(rng.integers(len(commands)))])


def of_a_run(rng: Rng, place: Path) -> Case:
    path = place / RUN / str(rng.choice(["config.json", "config.json", "env.json", "lineage.json", "summary.json"]))
    said = (mutate_json if rng.random() < 0.8 else mutate_bytes)(rng, path)
    commands = [
        RESUME,
        ("eval", RUN),
        ("generate", RUN, *GENERATE),
        ("info", RUN),
        ("list", "runs"),
        ("export", RUN, "--out", "other.onnx"),
    ]
    return Case(said, RUN, commands[int(rng.integers(len(commands)))], loop="none")


def of_a_recipe(rng: Rng, place: Path) -> Case:
    path = place / "recipe.toml"
    if rng.random() < 0.8:
        path.write_bytes(random_toml(rng, RECIPE, (*TOKENS, *sorted(OWN))).encode(errors="replace"))
        said = f"tokens\n{path.read_text(errors='replace')[:2_000]}"
    else:
        said = mutate_bytes(rng, path)
    words = ("train", "seq", "--data", "text.txt", "--recipe", "recipe.toml", "--quiet")
    return Case(f"recipe: {said}", "recipe.toml", words, loop="none")


def of_a_file(rng: Rng, place: Path) -> Case:
    path = place / "model.onnx"
    said = (mutate_bytes, mutate_description, mutate_description, mutate_graph)[int(rng.integers(4))](rng, path)
    commands = [
        ("generate", "model.onnx", *GENERATE),
        ("eval", "model.onnx", "--data", "text.txt"),
        ("info", "model.onnx"),
        ("play", "model.onnx"),
    ]
    return Case(said, "model.onnx", commands[int(rng.integers(len(commands)))])


def of_a_stranger(rng: Rng, place: Path) -> Case:
    """A loss whose name would have a module imported, in every file that names one."""
    loss = f"{PLANTED}:loss"
    if rng.random() < 0.5:
        path = place / "recipe.toml"
        path.write_text(RECIPE.replace('"cross_entropy"', f'"{loss}"'))
        words = ("train", "seq", "--data", "text.txt", "--recipe", "recipe.toml")
        return Case("recipe: loss", PLANTED, words, loop="none")
    path = place / RUN / "config.json"
    path.write_text(path.read_text().replace('"loss": "auto"', f'"loss": "{loss}"'))
    assert PLANTED in path.read_text()
    commands = [RESUME, ("eval", RUN), ("export", RUN, "--out", "o.onnx"), ("generate", RUN, "--checkpoint", "best")]
    return Case("config.json: loss", PLANTED, commands[int(rng.integers(4))], loop="none")


KINDS = (of_a_checkpoint, of_a_run, of_a_recipe, of_a_file, of_a_stranger)


def test_no_damaged_sequence_run_does_worse_than_be_refused(
    pool: SimpleQueue[Server], material: Path, tmp_path: Path
) -> None:
    run_cases(pool, material, tmp_path, KINDS, SEED, numbers(100))
