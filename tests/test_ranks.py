"""A process' place, read from the environment."""

from __future__ import annotations

import pytest

from rlseq.errors import UsageError
from rlseq.ranks import JOBS, Place, jobs_here, place_here, rank_here

WHOLE = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "h",
    "MASTER_PORT": "9",
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*WHOLE, JOBS):
        monkeypatch.delenv(name, raising=False)


def put(monkeypatch: pytest.MonkeyPatch, **changes: str | None) -> None:
    for name, value in {**WHOLE, **changes}.items():
        if value is not None:
            monkeypatch.setenv(name, value)


def test_without_variables_there_is_no_place() -> None:
    assert place_here() is None and rank_here() == 0


def test_what_torchrun_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch)
    assert place_here() == Place(rank=3, size=4, local_rank=1, local_size=2) and rank_here() == 3


def test_how_many_trainings_share_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jobs_here() == 1
    monkeypatch.setenv(JOBS, "3")
    assert jobs_here() == 3
    for wrong in ("0", "x", "-1"):
        monkeypatch.setenv(JOBS, wrong)
        with pytest.raises(UsageError, match=rf"RLSEQ_JOBS = '?{wrong}'?.* [Uu]nset it"):
            jobs_here()


def test_set_by_hand_all_are_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, LOCAL_RANK=None, LOCAL_WORLD_SIZE=None)
    assert place_here() == Place(3, 4, 3, 4)


def test_one_process_needs_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR=None, MASTER_PORT=None)
    assert place_here() == Place()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "4"}, "RANK = 4, WORLD_SIZE = 4"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK = 2, LOCAL_WORLD_SIZE = 2"),
        ({"RANK": "x"}, "RANK = 'x' is no number"),
        ({"RANK": "-1"}, "RANK = '-1' is no number"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE = '' is no number"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT = 'http' is no number"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT = 99999: ports go from 1 to 65535"),
        ({"RANK": None}, "WORLD_SIZE = 4 is set, RANK is not"),
        ({"WORLD_SIZE": None}, "RANK = 3 is set, WORLD_SIZE is not"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR is not"),
        ({"MASTER_PORT": None}, "MASTER_PORT is not"),
    ],
)
def test_what_makes_no_sense_is_refused(
    changes: dict[str, str | None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, **changes)
    with pytest.raises(UsageError) as refused:
        place_here()
    assert message in str(refused.value) and "torchrun" in str(refused.value)
