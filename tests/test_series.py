"""One recipe over seeds: kept, continued, refused. The trainings are stand-ins, but for the last tests."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlseq import pipeline, runs, series, zoo
from rlseq.checkpoints import numbered
from rlseq.errors import Interrupted, RlseqError, UsageError
from rlseq.series import Series, train_series
from tests.made_runs import made_run
from tests.training import assert_same_run

RECIPE = 'algorithm = "dqn"\n[env]\nid = "CartPole-v1"\n'
SERIES = Series("dqn", "mine", range(3), {}, "card-mine")
Given = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shipped agent `mine`, and no runs."""
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))
    agent = tmp_path / "agents" / "mine"
    agent.mkdir(parents=True)
    (agent / "recipe.toml").write_text(RECIPE)
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "agents")
    return tmp_path


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """The arguments of every training; none trains."""
    calls: Given = []
    monkeypatch.setattr(pipeline, "train", lambda algorithm, callbacks, **more: calls.append(more))
    return calls


def run_series(what: Series = SERIES, jobs: int = 1) -> tuple[list[runs.Run], list[str]]:
    """Train, and what was said."""
    said: list[str] = []
    return train_series(
        what, jobs=jobs, watch=lambda: contextlib.nullcontext(lambda event: None), note=said.append
    ), said


def test_every_seed_is_trained_once_in_order(given: Given) -> None:
    found, said = run_series(SERIES._replace(values={"eval": {"final_episodes": 7}}))
    assert [run.name for run in found] == ["card-mine-s0", "card-mine-s1", "card-mine-s2"]
    assert given == [
        {"recipe": "mine", "values": {"eval": {"final_episodes": 7}}, "seed": seed, "name": f"card-mine-s{seed}"}
        for seed in range(3)
    ]
    assert said == [f"\nSeed {seed} (training {seed + 1} of 3)" for seed in range(3)]


def test_finished_runs_are_kept_and_interrupted_ones_resumed(given: Given) -> None:
    made_run("card-mine-s0", [1.0], score=1.0)
    unfinished = made_run("card-mine-s1", [1.0], seed=1)
    said = run_series()[1]
    assert given == [
        {"resume": unfinished.path},
        {"recipe": "mine", "values": {}, "seed": 2, "name": "card-mine-s2"},
    ]
    assert said[0].endswith("card-mine-s0 is finished, and is kept.")
    assert said[1:] == ["\nSeed 1 (training 1 of 2)", "\nSeed 2 (training 2 of 2)"]


def test_a_run_of_other_options_is_refused_before_anything_is_trained(given: Given, place: Path) -> None:
    made_run("card-mine-s2", [1.0], seed=2, score=1.0, options={"optim": {"lr": 0.1}})
    with pytest.raises(UsageError, match=r"card-mine-s2 .*optim.lr = 0.1, now it is 0.0005\. Move it away.*RLSEQ_RUNS"):
        run_series()
    (place / "agents" / "mine" / "recipe.toml").write_text(RECIPE + "[optim]\nlr = 0.1\n")
    run_series()
    assert len(given) == 2
    with pytest.raises(UsageError, match=r"eval.final_episodes = 100, now it is 7"):
        run_series(SERIES._replace(values={"eval": {"final_episodes": 7}}))


@pytest.mark.parametrize(
    ("key", "value"), [("commit", "0123456789"), ("rlseq", "0.0.1"), ("packages", {"numpy": "1.0"}), ("cpu", "Z80")]
)
def test_a_run_of_other_code_or_on_another_machine_is_refused(given: Given, key: str, value: Any) -> None:
    run = made_run("card-mine-s0", [1.0], score=1.0)
    run.write("env.json", {**run.env(), key: value})
    with pytest.raises(UsageError, match=rf"card-mine-s0 .* was trained with {key} .*, now it is "):
        run_series()
    assert given == []


def test_what_is_no_run_and_what_cannot_go_on_is_in_the_way(given: Given, place: Path) -> None:
    (place / "runs" / "card-mine-s0").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"card-mine-s0 is in the way: it is no run .*Remove it"):
        run_series()
    (place / "runs" / "card-mine-s0").rmdir()
    run = made_run("card-mine-s0", [1.0])
    (run.path / "checkpoints" / "100").rename(place / "elsewhere")
    with pytest.raises(UsageError, match=r"card-mine-s0 .*stopped before its first checkpoint. Remove it"):
        run_series()
    assert given == []


def test_a_signal_ends_the_series_and_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise Interrupted("stopped at step 5 of 10", 15)

    monkeypatch.setattr(pipeline, "train", stopped)
    with pytest.raises(Interrupted, match=r"stopped at step 5 of 10\n.*same command goes on") as caught:
        run_series()
    assert caught.value.exit_code == 143


SMALL = """
[run]
steps = 400
log_every = 50
checkpoint_every = 200
[net]
hidden = [8]
[eval]
every = 200
episodes = 2
final_episodes = 2
[dqn]
learning_starts = 50
"""


@pytest.fixture
def child(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the processes see the test's agents, and do something first."""

    def make(first: str = "") -> None:
        code = (
            f"import sys, pathlib; from rlseq import zoo; zoo.agents_folder = lambda: pathlib.Path({str(place)!r}) / "
            f"'agents'\n{first}\nfrom rlseq.cli.main import main; main()"
        )
        monkeypatch.setattr(series, "CHILD", (sys.executable, "-c", code))

    (place / "agents" / "mine" / "recipe.toml").write_text(RECIPE + SMALL)
    make()
    return make


def test_side_by_side_is_the_same_as_one_after_the_other(
    child: Callable[[str], None], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = SERIES._replace(seeds=range(2), values={"eval": {"final_episodes": 3}})
    found, said = run_series(what, jobs=2)
    assert [run.status() for run in found] == ["finished", "finished"]
    summary = found[1].summary()
    assert summary is not None and (summary["episodes"], summary["steps"]) == (3, 400)
    assert sorted(said[-2:]) == ["Seed 0 is finished.", "Seed 1 is finished."]
    monkeypatch.setenv("RLSEQ_RUNS", str(place / "others"))
    again, _ = run_series(what)
    for a, b in zip(found, again, strict=True):
        assert_same_run(a.path, b.path)
    assert run_series(what)[1] == [f"Seed {k}: {again[k].path} is finished, and is kept." for k in range(2)]


def test_trainings_side_by_side_share_the_cores(child: Callable[[str], None], place: Path) -> None:
    child(
        f"from rlseq.ranks import jobs_here; pathlib.Path({str(place)!r}, "
        "sys.argv[sys.argv.index('--seed') + 1]).write_text(str(jobs_here())); sys.exit()"
    )
    run_series(jobs=2)  # what a job's threads come to: tests/engine/test_distributed.py
    assert [(place / str(seed)).read_text() for seed in range(3)] == ["2", "2", "2"]
    run_series(SERIES._replace(seeds=range(1)), jobs=2)
    assert (place / "0").read_text() == "1"


def test_a_failure_in_one_process_ends_the_series_with_its_message(child: Callable[[str], None]) -> None:
    child("if '--seed' in sys.argv and sys.argv[sys.argv.index('--seed') + 1] == '1': sys.exit('the disk is full')")
    with pytest.raises(RlseqError, match=r"training of seed 1 failed:\nthe disk is full"):
        run_series(SERIES._replace(seeds=range(1, 2)), jobs=2)


def test_a_signal_stops_the_processes_and_they_save(child: Callable[[str], None], place: Path) -> None:
    (place / "agents" / "mine" / "recipe.toml").write_text(
        RECIPE
        + SMALL.replace("steps = 400", "steps = 40_000").replace("checkpoint_every = 200", "checkpoint_every = 40_000")
    )
    what = SERIES._replace(seeds=range(2))

    def interrupt() -> None:
        while not all(numbered(place / "runs" / what.name(k) / "best") for k in range(2)):  # evaluated, so under way
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted, match="same command goes on") as caught:
        run_series(what, jobs=2)
    thread.join()
    assert caught.value.exit_code == 130
    for k in range(2):
        run = runs.Run(place / "runs" / what.name(k))
        assert run.status() == "interrupted"
        assert 200 <= int(run.checkpoint("last").name) < 40_000  # saved where it stood: none was due before the end
        run.lock().close()  # nobody is training it any more
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = set(children())
    yield
    assert set(children()) <= before


def children() -> list[str]:
    """Process ids of this process's children; others' tests may have some."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split() if sys.platform == "linux" else []
