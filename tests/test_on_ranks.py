"""Tests that need several processes fail loudly and in time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tests.ranks import on_ranks


def add(number: int) -> dict[str, object]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([float(number + dist.get_rank())], dtype=torch.float64)
    dist.all_reduce(total)
    found = {"total": total.numpy(), "rank": dist.get_rank(), "local": int(os.environ["LOCAL_RANK"])}
    dist.destroy_process_group()
    return found


def misfortune(how: str, place: str) -> dict[str, object]:
    Path(place, os.environ["RANK"]).write_text(str(os.getpid()))
    if os.environ["RANK"] == "1" and how == "raises":
        raise ValueError("rank 1 is unwell")
    if os.environ["RANK"] == "1" and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return {}


def test_every_rank_gives_its_result(tmp_path: Path) -> None:
    results = on_ranks(2, add, tmp_path, number=10)
    assert [(float(r["total"][0]), int(r["rank"]), int(r["local"])) for r in results] == [(21.0, 0, 0), (21.0, 1, 1)]
    assert results[0]["total"].dtype == np.float64


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", r"rank 1 ended with 1\.(.|\n)*--- rank 1(.|\n)*ValueError: rank 1 is unwell"),
        ("killed", r"rank 1 ended with -9\."),
        ("hangs", r"the ranks took more than 2 s"),
    ],
)
def test_a_rank_that_fails_or_hangs_ends_all(how: str, message: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(AssertionError, match=message):
        on_ranks(2, misfortune, tmp_path, longest=2.0 if how == "hangs" else 30.0, how=how, place=str(tmp_path))
    assert time.monotonic() - started < 30.0
    pids = [int((tmp_path / rank).read_text()) for rank in "01" if (tmp_path / rank).exists()]
    assert pids, "nobody had begun"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
