"""What is different on a GPU: recorded updates, statistics that wait, acting one burst behind, observations beside it.

A CPU stands in for it, with a recorder that is as strict as CUDA graphs; the last tests need the real thing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlseq import checkpoints, runs
from rlseq.dqn import train as train_module
from rlseq.dqn.state import ACTING
from rlseq.dqn.train import DqnTrainer
from rlseq.engine.device import Precision
from rlseq.engine.recording import WARM_UP, recorder_for
from rlseq.errors import NonFiniteLoss
from rlseq.replay.device import DeviceReplay
from tests.dqn.test_learner import learner, replay
from tests.engine.twin import Twin
from tests.training import SMALL, Steps, assert_same_run, small, trainer, weights

BURST = SMALL["dqn"]["updates_per_train"]


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Twin:
    """The CPU is treated as a GPU."""
    recorder = Twin()
    monkeypatch.setattr(train_module, "works_apart", lambda device: True)
    monkeypatch.setattr(train_module, "fits", lambda replay, device: True)
    monkeypatch.setattr(train_module, "recorder_for", lambda device, *, wanted: recorder if wanted else None)
    return recorder


@pytest.fixture(autouse=True)
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("update", ["hard", "soft"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_recorded_updates_are_the_same(double: bool, update: str, accumulate: int) -> None:
    changes: dict[str, Any] = {"double": double, "target_update": update, "tau": 0.25}
    optim = {"accumulate": accumulate, "schedule": "linear", "clip_norm": 0.5}
    recorder = Twin()
    plain = learner(gradients="autograd", optim=optim, **changes)
    recorded = learner(optim=optim, recorder=recorder, **changes)
    assert not recorded.closed_form
    streams = [np.random.default_rng(5) for _ in range(2)]
    for k in range(4):
        rows = [x.burst(replay(), rng, 3) for x, rng in zip((plain, recorded), streams, strict=True)]
        np.testing.assert_allclose(rows[1], rows[0], rtol=1e-5, atol=1e-7)
        if k == 2:
            plain.sync_target()
            recorded.sync_target()
    for a, b in ((plain.update_step.flat, recorded.update_step.flat), (plain._target_flat, recorded._target_flat)):
        torch.testing.assert_close(a.data, b.data, rtol=1e-5, atol=1e-6)
    assert (recorder.records, recorder.replays) == (3, 3 * (12 - WARM_UP))  # targets, gradients, optimiser


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_recorded_updates_in_mixed_precision_are_the_same(dtype: torch.dtype) -> None:
    precision = Precision(dtype, dtype == torch.float16)
    plain, recorded = learner(precision), learner(precision, recorder=Twin())
    rows = [x.burst(replay(), np.random.default_rng(5), 9) for x in (plain, recorded)]
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(plain.update_step.flat.data, recorded.update_step.flat.data, rtol=1e-3, atol=1e-5)


def test_a_skipped_recorded_update_changes_nothing() -> None:
    """T4."""
    ours, memory = learner(Precision(torch.float16, True), recorder=Twin(), target_update="soft", loss="mse"), replay()
    ours.burst(memory, np.random.default_rng(0), 5)
    before, updates = ours.update_step.flat.data.clone(), ours.update_step.updates
    memory.arrays["reward"].fill(1e10)
    rows = ours.burst(memory, np.random.default_rng(0), 3)
    assert (rows.shape, ours.update_step.skipped, ours.update_step.updates) == ((0, 3), 3, updates)
    assert torch.equal(ours.update_step.flat.data, before)


def test_statistics_wait_and_lose_nothing() -> None:
    at_once, waiting = learner(), learner(unread=5)
    streams = [np.random.default_rng(1) for _ in range(2)]
    expected = np.concatenate([at_once.burst(replay(), streams[0], 2) for _ in range(5)])
    rows = [waiting.burst(replay(), streams[1], 2) for _ in range(5)]
    assert [len(part) for part in rows] == [0, 0, 0, 6, 0]  # read before the first burst that finds more than five
    np.testing.assert_array_equal(np.concatenate([*rows, waiting.read()]), expected)
    assert waiting.read().shape == (0, 3)


def test_a_long_burst_is_read_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlseq.dqn.learner.CHUNK_ROWS", 16)  # two updates
    monkeypatch.setattr("rlseq.dqn.learner.LONGEST_WAIT", 6)
    at_once, waiting = learner(), learner(unread=100)
    expected = at_once.burst(replay(), np.random.default_rng(1), 10)
    rows = waiting.burst(replay(), np.random.default_rng(1), 10)
    assert (len(rows), len(waiting._unread)) == (6, 4)
    np.testing.assert_array_equal(np.concatenate([rows, waiting.read()]), expected)


def test_a_nan_that_waited_is_named_with_its_own_update() -> None:
    ours, memory = learner(unread=100), replay()
    ours.burst(memory, np.random.default_rng(0), 7)
    memory.arrays["reward"].fill(np.nan)
    ours.burst(memory, np.random.default_rng(0), 3)
    with pytest.raises(NonFiniteLoss, match="update 8 gave loss nan"):
        ours.read()


def test_it_acts_with_the_weights_before_the_last_burst(twin: Twin) -> None:
    ours = trainer()
    flat, obs = ours.learner.update_step.flat.data, (np.ones((1, 4), np.float32),)
    weights_after, seen = [flat.clone()], []

    def look(step: int) -> None:
        if not torch.equal(flat, weights_after[-1]):
            weights_after.append(flat.clone())
            assert ours.mirror is not None
            seen.append(torch.from_numpy(ours.mirror.state()).clone())
            assert ours.actor._values(obs).device.type == "cpu"

    ours.loop(Steps(80, look))  # type: ignore[arg-type]
    assert len(seen) == (80 - 48) // 4
    for acted, before in zip(seen, weights_after[:-1], strict=True):
        assert torch.equal(acted, before)
    assert isinstance(ours.memory, DeviceReplay)
    ours.close()


def test_recording_and_waiting_do_not_change_a_training(twin: Twin) -> None:
    """Against the same, lag included, one operation after the other."""
    change = {"optim": {"schedule": "linear"}}
    recorded, plain = trainer(change), trainer(change, {"engine": {"graphs": False, "gradients": "autograd"}})
    for ours in (recorded, plain):
        ours.loop(Steps(200))  # type: ignore[arg-type]
        ours.read()
        ours.close()
    torch.testing.assert_close(
        recorded.learner.update_step.flat.data, plain.learner.update_step.flat.data, rtol=1e-4, atol=1e-6
    )
    assert recorded.means.count("train/loss") == plain.means.count("train/loss") == recorded.updates
    for name in ("loss", "grad_norm", "q_mean"):
        a, b = (ours.means.state()[f"train/{name}"][0] for ours in (recorded, plain))
        assert a == pytest.approx(b, rel=1e-3)


def test_a_resumed_run_is_the_uninterrupted_one(twin: Twin) -> None:
    """The checkpoint knows the weights that it acted with."""
    edges = {"run": {"log_every": 70, "checkpoint_every": 100}}  # statistics wait at a checkpoint
    whole = small(edges, name="whole")
    part = small(edges, {"run": {"steps": 300, "horizon": 600, **edges["run"]}}, name="part")
    small({"run": {"steps": 600}}, resume=part.run)
    assert_same_run(whole.run, part.run)
    last = runs.Run(whole.run).checkpoint("last")
    acting = weights(last)[f"trainer/{ACTING}"]
    assert acting.shape == (4 * 16 + 16 + 16 * 2 + 2,)
    ours = trainer()
    ours.load(last, checkpoints.read_manifest(last))
    assert ours.mirror is not None
    np.testing.assert_array_equal(ours.mirror.state(), acting)
    assert not np.array_equal(acting, ours.learner.update_step.flat.data.numpy())
    ours.close()


@pytest.mark.parametrize("first", ["gpu", "cpu"])
def test_a_training_moves_between_gpu_and_cpu(twin: Twin, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def on(device: str) -> None:
        monkeypatch.setattr(train_module, "works_apart", lambda _: device == "gpu")
        monkeypatch.setattr(train_module, "fits", lambda *_: device == "gpu")

    on(first)
    run = small({"run": {"steps": 300, "horizon": 600}}, name="moved").run
    on("cpu" if first == "gpu" else "gpu")
    assert small({"run": {"steps": 600}}, resume=run).summary["updates"] == 2 * ((600 - 48) // 4)
    manifest = checkpoints.read_manifest(runs.Run(run).checkpoint("last"))
    arrays = checkpoints.read_arrays(runs.Run(run).checkpoint("last"), manifest, "trainer")
    assert (ACTING in arrays) == (first == "cpu")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "autograd, the update in CUDA graphs"),
        ({"optim": {"name": "rmsprop"}}, "autograd, in CUDA graphs; rmsprop one kernel after the other"),
    ],
)
def test_it_says_how(twin: Twin, changes: dict[str, Any], text: str) -> None:
    ours = trainer(changes)
    said = ours.describe()
    assert said["gradients"] == text
    assert said["replay"].endswith("when full, observations on the GPU too")
    ours.close()


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def _trained(device: str) -> DqnTrainer:
    ours = trainer({"engine": {"device": device}})
    ours.loop(Steps(240))  # type: ignore[arg-type]
    ours.read()
    ours.close()
    return ours


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("graphs", [True, False])
def test_a_gpu_learns_what_a_cpu_does(graphs: bool) -> None:
    """From the same transitions."""
    on_cpu = learner(gradients="autograd").burst(replay(), np.random.default_rng(5), 20)
    device = torch.device("cuda", torch.cuda.current_device())
    ours = learner(device=device, recorder=recorder_for(device, wanted=graphs))
    on_gpu = ours.burst(replay(), np.random.default_rng(5), 20)
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@needs_cuda
def test_a_whole_training_on_a_gpu_is_the_same_twice() -> None:
    a, b = (_trained("cuda") for _ in range(2))
    assert isinstance(a.memory, DeviceReplay) and a.mirror is not None
    assert a.updates == b.updates > 0
    torch.testing.assert_close(a.learner.update_step.flat.data, b.learner.update_step.flat.data, rtol=1e-4, atol=1e-6)
