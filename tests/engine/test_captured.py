"""Recorded gradients and updates against the same ones computed one operation after the other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from rlseq.engine.captured import CapturedGradients
from rlseq.engine.recording import WARM_UP, CudaGraphs, recorder_for
from rlseq.engine.update import Autograd, Part, Summed, UpdateStep
from tests.engine.test_muon import Deep
from tests.engine.test_update import CPU, PLAIN, batches, loss_of, network, options
from tests.engine.twin import Twin


@pytest.mark.parametrize("sizes", [(12,), (5, 7)], ids=["whole", "parts"])
def test_recorded_gradients_are_those_of_autograd(sizes: tuple[int, ...]) -> None:
    nets = [network() for _ in range(2)]
    updates = [UpdateStep(net, options(name="sgd", lr=0.1), total_updates=9, precision=PLAIN) for net in nets]
    plain = Autograd(loss_of(nets[0]), PLAIN, CPU)
    twin = Twin()
    recorded = CapturedGradients(Autograd(loss_of(nets[1]), PLAIN, CPU), twin)
    kept = []
    for x, y in batches(WARM_UP + 4):
        parts = [Part(b, n / 12) for b, n in zip(zip(x.split(sizes), y.split(sizes), strict=True), sizes, strict=True)]
        info = updates[0](parts, plain)
        same = updates[1](parts, recorded)
        torch.testing.assert_close(updates[1].flat.data, updates[0].flat.data, rtol=0, atol=0)
        kept.append((info, same))
    for info, same in kept:  # later updates have not overwritten them
        torch.testing.assert_close(same.loss, info.loss, rtol=0, atol=0)
        torch.testing.assert_close(same.metrics["error"], info.metrics["error"], rtol=0, atol=0)
    assert (twin.records, twin.replays) == (1, 4)


def test_other_processes_gradients_come_between_the_graphs() -> None:
    nets = [network() for _ in range(2)]
    chosen = options(name="adam", lr=0.01, clip_norm=0.1)
    theirs = torch.randn(14, 3 * 8 + 8 + 8 * 2 + 2, generator=torch.Generator().manual_seed(3))
    infos = []
    for net, twin in zip(nets, (None, Twin()), strict=True):
        update = UpdateStep(net, chosen, total_updates=9, precision=PLAIN, recorder=twin)
        plain = Autograd(loss_of(net), PLAIN, CPU)
        rows = iter(theirs)
        summed = Summed(
            plain if twin is None else CapturedGradients(plain, twin),
            lambda grad, share, rows=rows: grad.mul_(share).add_(next(rows), alpha=1 - share),  # type: ignore[misc]
            0.25,
        )
        infos.append([update([Part(batch, 1.0)], summed) for batch in batches(14)])
    for info, same in zip(*infos, strict=True):
        torch.testing.assert_close(same.grad_norm, info.grad_norm, rtol=1e-5, atol=1e-6)
        assert info.grad_norm > 3  # theirs, mostly
    for a, b in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_parts_unlike_the_first_are_computed_without_a_graph() -> None:
    nets = [network() for _ in range(2)]
    updates = [UpdateStep(net, options(name="sgd", lr=0.1), total_updates=9, precision=PLAIN) for net in nets]
    twin = Twin()
    sources = [
        Autograd(loss_of(nets[0]), PLAIN, CPU),
        CapturedGradients(Autograd(loss_of(nets[1]), PLAIN, CPU), twin),
    ]
    for number, (x, y) in enumerate(batches(WARM_UP + 6)):
        cut = [(12,), (6, 6), (9, 3), (7,)][number % 4 if number > WARM_UP + 1 else 0]
        pieces = zip(x[: sum(cut)].split(cut), y[: sum(cut)].split(cut), strict=True)
        parts = [Part(piece, len(piece[0]) / sum(cut)) for piece in pieces]
        info, same = (update(parts, source) for update, source in zip(updates, sources, strict=True))
        torch.testing.assert_close(same.loss, info.loss, rtol=0, atol=0)
    torch.testing.assert_close(updates[1].flat.data, updates[0].flat.data, rtol=0, atol=0)
    assert (twin.warm_ups, twin.records, twin.replays) == (WARM_UP, 1, 3)


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@needs_cuda
def test_a_cuda_graph_updates_as_single_kernels_do() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    nets = [copy.deepcopy(network()).to(device) for _ in range(2)]
    updates = [UpdateStep(net, options(name="adam", lr=0.01), total_updates=9, precision=PLAIN) for net in nets]
    plain = Autograd(loss_of(nets[0]), PLAIN, device)
    recorder = recorder_for(device)
    assert isinstance(recorder, CudaGraphs)
    recorded = CapturedGradients(Autograd(loss_of(nets[1]), PLAIN, device), recorder)
    for x, y in batches(30):
        part = Part((x.to(device), y.to(device)), 1.0)
        info, same = updates[0]([part], plain), updates[1]([part], recorded)
        torch.testing.assert_close(same.loss, info.loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(updates[1].flat.data, updates[0].flat.data, rtol=1e-4, atol=1e-6)


OPTIMISERS: dict[str, dict[str, Any]] = {
    "adam": {"clip_norm": 0.05},
    "adamw": {"weight_decay": 0.1, "clip_value": 0.01},
    "sgd": {"weight_decay": 0.1, "ema": 0.9},
    "muon": {"weight_decay": 0.1, "adam_lr": 0.02, "ema": 0.9, "clip_norm": 0.5},
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_recorded_update_follows_clipping_schedule_and_average(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # In bfloat16 a last digit may decide to which side Muon rounds.
    monkeypatch.setattr("rlseq.engine.muon.product_dtype", lambda device: torch.float32)
    torch.manual_seed(0)
    net = Deep() if name == "muon" else network()
    nets = [net, copy.deepcopy(net)]
    chosen = options(name=name, lr=0.01, schedule="linear", warmup_updates=4, **OPTIMISERS[name])
    twin = Twin()
    updates = [
        UpdateStep(net, chosen, total_updates=12, precision=PLAIN, recorder=recorder)
        for net, recorder in zip(nets, (None, twin), strict=True)
    ]
    assert [update.recorded for update in updates] == [False, True]
    sources = [Autograd(loss_of(net), PLAIN, CPU) for net in nets]
    for batch in batches(12):
        infos = [u([Part(batch, 1.0)], source) for u, source in zip(updates, sources, strict=True)]
        assert infos[0].lr == infos[1].lr
        torch.testing.assert_close(updates[1].flat.data, updates[0].flat.data, rtol=1e-5, atol=1e-6)
    assert (twin.warm_ups, twin.records, twin.replays) == (WARM_UP, 1, 12 - WARM_UP)
    assert [update.updates for update in updates] == [12, 12]
    with updates[0].averaged(), updates[1].averaged():
        torch.testing.assert_close(updates[1].flat.data, updates[0].flat.data, rtol=1e-5, atol=1e-6)


def test_a_loaded_update_is_recorded_anew_and_goes_on_exactly() -> None:
    """Its moments lie elsewhere after loading."""
    net, chosen = network(), options(name="adam", lr=0.01)
    update = UpdateStep(net, chosen, total_updates=20, precision=PLAIN, recorder=Twin())
    source = Autograd(loss_of(net), PLAIN, CPU)
    first, then = batches(20)[:8], batches(20)[8:]
    for batch in first:
        update([Part(batch, 1.0)], source)
    weights = update.flat.data.clone()
    arrays, numbers = update.state()
    arrays = {name: array.copy() for name, array in arrays.items()}
    for batch in then:
        update([Part(batch, 1.0)], source)
    expected = update.flat.data.clone()
    update.flat.data.copy_(weights)
    update.load(arrays, numbers)
    for batch in then:
        update([Part(batch, 1.0)], source)
    torch.testing.assert_close(update.flat.data, expected, rtol=1e-6, atol=1e-7)


def test_rmsprop_is_never_recorded() -> None:
    twin = Twin()
    net = network()
    update = UpdateStep(net, options(name="rmsprop"), total_updates=9, precision=PLAIN, recorder=twin)
    assert not update.recorded
    for batch in batches(6):
        update([Part(batch, 1.0)], Autograd(loss_of(net), PLAIN, CPU))
    assert (twin.warm_ups, twin.records) == (0, 0)
