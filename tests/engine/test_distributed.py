"""What the processes of a training tell each other, and what becomes of it when one of them fails."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlseq.config import Layer, resolve
from rlseq.engine.config import EngineOptions
from rlseq.engine.device import choose_device, cpu_settings
from rlseq.engine.distributed import ALONE, World, joined
from rlseq.errors import Elsewhere, PeerLost, RlseqError, UsageError
from rlseq.ranks import Place
from tests.ranks import on_ranks


def options(**changes: Any) -> EngineOptions:
    return resolve(EngineOptions, Layer("test", changes))


@pytest.mark.parametrize(("count", "size"), [(8, 2), (7, 3), (5, 5), (3, 8), (0, 2)])
def test_rows_are_shared_without_gap_or_overlap(count: int, size: int) -> None:
    slices = [World(Place(rank, size, rank, size)).rows(count) for rank in range(size)]
    rows = [row for part in slices for row in range(count)[part]]
    assert rows == list(range(count))
    sizes = [part.stop - part.start for part in slices]
    assert max(sizes) - min(sizes) <= 1


def test_alone_nothing_is_exchanged() -> None:
    tensor = torch.ones(3)
    ALONE.add_shares(tensor, 0.5)
    assert tensor.tolist() == [1, 1, 1]
    assert ALONE.sum([1.5]) == [1.5] and ALONE.largest([2]) == [2]
    value = {"a": object()}
    assert ALONE.gather(value) == [value] and ALONE.from_first(value) is value
    assert ALONE.gather_arrays({"a": np.ones(2)}) == [] and ALONE.describe() == {}
    ALONE.check_same("it", torch.ones(2))
    with pytest.raises(ZeroDivisionError):
        ALONE.together(lambda: 1 // 0)


def exchanges() -> dict[str, Any]:
    """What every rank sees; 2**70 stands for the state of a random generator."""
    with joined() as world:
        assert (world.rank, world.size, world.alone) == (int(os.environ["RANK"]), 3, False)
        world.connect(options(wait_seconds=30), torch.device("cpu"))
        rank = world.rank
        tensor = torch.full((5,), float(rank + 1), dtype=torch.float64)
        world.add_shares(tensor, 0.25)
        arrays = {
            "a": np.arange(3 + rank, dtype=np.int16),
            "none": np.zeros((0, 4), np.float32),
            "number": np.array(rank + 0.5),
            "view": np.arange(12.0).reshape(3, 4).T[::2],
        }
        received = world.gather_arrays(arrays)
        weights = torch.linspace(-1, 1, 1000)
        world.check_same("what is the same", weights)
        weights[17] = torch.nextafter(weights[17], torch.tensor(2.0 if rank == 1 else -2.0))  # one bit
        with pytest.raises(RlseqError, match="no longer agree about the weights"):
            world.check_same("the weights", weights)
        return {
            "shares": tensor.numpy(),
            "sum": world.sum([rank, 0.1]),
            "largest": world.largest([rank, -rank]),
            "gathered": world.gather({"rank": rank, "big": 2**70 + rank, "text": "é" * rank}),
            "first": world.from_first([rank, "x"] if world.first else None),
            "received": [{name: array.tolist() for name, array in other.items()} for other in received],
            "dtypes": [str(other["a"].dtype) for other in received],
        }


def as_json() -> dict[str, Any]:
    return {"seen": json.dumps(exchanges(), default=lambda array: array.tolist())}


def test_what_ranks_exchange(tmp_path: Path) -> None:
    seen = [json.loads(str(result["seen"])) for result in on_ranks(3, as_json, tmp_path)]
    for rank, one in enumerate(seen):
        assert one["shares"] == [1.5] * 5  # (1 + 2 + 3) / 4
        assert one["sum"] == [3, pytest.approx(0.3)] and one["largest"] == [2, 0]
        assert one["gathered"] == [{"rank": k, "big": 2**70 + k, "text": "é" * k} for k in range(3)]
        assert one["first"] == [0, "x"]
        if rank:
            assert one["received"] == []
    assert [other["a"] for other in seen[0]["received"]] == [[0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert seen[0]["dtypes"] == ["int16", "int16"]
    for k, other in enumerate(seen[0]["received"], 1):
        assert other["none"] == [] and other["number"] == k + 0.5
        assert other["view"] == [[0, 4, 8], [2, 6, 10]]


def held() -> dict[str, Any]:
    """What is left of a shared network once the group is gone."""
    with joined() as world:
        world.connect(options(), torch.device("cpu"))
        shared = world.parallel(torch.nn.Linear(2, 1))
        shared(torch.ones(1, 2) * (world.rank + 1)).sum().backward()
        grad = shared.module.weight.grad
    return {"grad": grad.numpy(), "held": [value is not None for value in (shared.reducer, shared.process_group)]}


def test_a_shared_network_averages_gradients_and_lets_go_of_its_group(tmp_path: Path) -> None:
    for seen in on_ranks(2, held, tmp_path):
        assert seen["grad"].tolist() == [[1.5, 1.5]]
        assert seen["held"].tolist() == [False, False]  # Python would abort at its end, now and then


def failures() -> dict[str, Any]:
    """What a failure of rank 1, of both, and a bug come to at each rank."""
    seen: dict[str, Any] = {}
    with joined() as world:

        def attempt(name: str, *, in_first: Exception | None, in_second: Exception | None) -> None:
            def action() -> str:
                error = in_first if world.first else in_second
                if error is not None:
                    raise error
                return "done"

            try:
                seen[name] = world.together(action)
            except Exception as error:
                seen[name] = f"{type(error).__name__}({getattr(error, 'exit_code', '-')}): {error}"

        attempt("nothing", in_first=None, in_second=None)
        attempt("second", in_first=None, in_second=UsageError("x = 3 is wrong"))
        attempt("first", in_first=RlseqError("no disk"), in_second=None)
        attempt("both", in_first=UsageError("a"), in_second=UsageError("a"))
        attempt("bug", in_first=None, in_second=KeyError("k"))
    return seen


def test_a_failure_of_one_is_everyones(tmp_path: Path) -> None:
    first, second = ({k: str(v) for k, v in seen.items()} for seen in on_ranks(2, failures, tmp_path))
    assert first["nothing"] == second["nothing"] == "done"
    assert first["second"] == "UsageError(2): process 1: x = 3 is wrong"
    assert second["second"] == "Elsewhere(2): process 1: x = 3 is wrong"
    assert (first["first"], second["first"]) == ("RlseqError(1): no disk", "Elsewhere(1): no disk")
    assert (first["both"], second["both"]) == ("UsageError(2): a", "Elsewhere(2): a")
    assert first["bug"] == "RlseqError(1): process 1: 'k'" and second["bug"].startswith("KeyError")


def leaver(*, silent: bool) -> dict[str, Any]:
    """Rank 1 goes away, or sleeps; what rank 0 sees, and after how long."""
    try:
        with joined() as world:
            world.connect(options(wait_seconds=2), torch.device("cpu"))
            world.sum([1.0])
            if not world.first:
                if not silent:
                    return {"message": "left", "seconds": 0.0}
                time.sleep(6)
                return {"message": "slept", "seconds": 0.0}
            started = time.monotonic()
            world.sum([1.0])
    except PeerLost as error:
        assert isinstance(error, Elsewhere)
        return {"message": str(error), "seconds": time.monotonic() - started}
    raise AssertionError("nobody noticed")


@pytest.mark.parametrize("silent", [False, True])
def test_nobody_waits_for_a_rank_that_is_gone(silent: bool, tmp_path: Path) -> None:
    first, _ = on_ranks(2, leaver, tmp_path, silent=silent)
    assert "another process of this training has ended or no longer answers" in str(first["message"])
    assert first["seconds"] < 5


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        done = subprocess.run(
            [sys.executable, "-m", "rlseq", "train", "dqn", "CartPole-v1"],
            env={**os.environ, **env},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"127.0.0.1:{port}" in done.stderr and "in use" in done.stderr and "--nproc" in done.stderr


def test_nccl_needs_cuda() -> None:
    for world in (ALONE, World(Place(0, 2, 0, 2))):
        with pytest.raises(
            UsageError, match=r"engine\.backend = nccl needs CUDA devices, and this training runs on cpu"
        ):
            world.connect(options(backend="nccl"), torch.device("cpu"))


def test_a_process_without_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert choose_device(options(), 1) == torch.device("cuda", 1) and chosen == [1]
    with pytest.raises(UsageError, match=r"process 2 of this machine has no GPU of its own, torch sees 2.*--nproc 2"):
        choose_device(options(), 2)


def test_processes_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    before = torch.get_num_threads()
    for number, processes, threads in ((0, 1, 5), (0, 2, 2), (0, 8, 1), (3, 2, 3)):
        with cpu_settings(number, processes):
            assert torch.get_num_threads() == threads
    monkeypatch.setenv("RLSEQ_JOBS", "2")  # and two trainings of a card likewise
    for number, processes, threads in ((0, 1, 2), (0, 2, 1), (0, 8, 1), (3, 1, 3)):
        with cpu_settings(number, processes):
            assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == before
