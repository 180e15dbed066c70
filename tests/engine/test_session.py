"""What happens at the edges of a training loop, and when."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq import checkpoints, runs
from rlseq.config import Layer, RunOptions, resolve
from rlseq.engine.checkpoint import Snapshot
from rlseq.engine.numbers import Best, session_numbers
from rlseq.engine.session import Session, due
from rlseq.engine.signals import StopSignals
from rlseq.engine.trainee import Curves, Evaluation
from rlseq.envs.config import EvalOptions
from rlseq.errors import Interrupted
from rlseq.events import Event


class Fake:
    """A trainee whose evaluations score what the test says."""

    def __init__(self, scores: Iterator[float]) -> None:
        self.scores = scores
        self.evaluated = 0
        self.cut_off = False

    step_rate = "time/env_steps_per_second"

    def curves(self) -> Curves:
        return Curves({"train/loss": 1.0}, {"time/updates_per_second": 3.0})

    def evaluate(self, should_stop: Callable[[], bool]) -> Evaluation | None:
        if self.cut_off and should_stop():
            return None
        self.evaluated += 1
        score = next(self.scores)
        return Evaluation(score, {"eval/return_mean": score})

    def model(self) -> dict[str, np.ndarray]:
        return {"w": np.full(3, self.evaluated, np.float32)}

    def snapshot(self) -> Snapshot:
        return Snapshot(self.model(), {"t": np.zeros(2)}, {"r": np.arange(4)}, {"counter": self.evaluated})


def run_through(
    tmp_path: Path,
    scores: list[float],
    *,
    num: int = 1,
    run: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | None = None,
    callbacks: Any = (),
) -> tuple[Session, Fake, list[Event]]:
    seen: list[Event] = []
    options = {"steps": 100, "log_every": 10, "checkpoint_every": 30, **(run or {})}
    session = Session(
        "dqn",
        runs.Run(tmp_path),
        resolve(RunOptions, Layer("test", options)),
        resolve(EvalOptions, Layer("test", {"every": 20, **(evaluation or {})})),
        [seen.append, *callbacks],
    )
    fake = Fake(iter(scores))
    with session:
        session.begin(fake)
        while session.running:
            session.advance(num)
        session.finish()
    return session, fake, [event for event in seen if event.kind != "tick"]


def steps(events: list[Event], kind: str) -> list[int]:
    return [event.step for event in events if event.kind == kind]


def test_due_counts_the_multiples_passed() -> None:
    assert [due(a, b, 10) for a, b in ((0, 9), (9, 10), (10, 11), (8, 31), (0, 0), (29, 30))] == [0, 1, 0, 3, 0, 1]


def test_everything_happens_at_its_step(tmp_path: Path) -> None:
    session, _, events = run_through(tmp_path, [1, 2, 3, 4, 5])
    assert steps(events, "progress") == list(range(10, 101, 10))
    assert steps(events, "evaluation") == [20, 40, 60, 80, 100]
    assert steps(events, "checkpoint") == [0, 30, 60, 90, 100]
    assert (session.stopped, session.best) == ("all steps done", Best(100, 5))


def test_steps_that_come_several_at_a_time(tmp_path: Path) -> None:
    """With 7 environments an interval is due at the first step on or after its multiple."""
    _, _, events = run_through(tmp_path, [1] * 9, num=7)
    assert steps(events, "progress") == [14, 21, 35, 42, 56, 63, 70, 84, 91, 105]
    assert steps(events, "evaluation") == [21, 42, 63, 84, 105]
    assert steps(events, "checkpoint") == [0, 35, 63, 91, 105]


def test_the_last_step_is_evaluated_and_saved_whatever_the_intervals(tmp_path: Path) -> None:
    _, fake, events = run_through(
        tmp_path, [1] * 9, run={"steps": 47, "checkpoint_every": 1000}, evaluation={"every": 1000}
    )
    assert steps(events, "evaluation") == [47]
    assert steps(events, "checkpoint") == [0, 47]
    assert fake.evaluated == 1
    numbers = checkpoints.read_manifest(runs.Run(tmp_path).checkpoint("last"))["numbers"]["session"]
    assert numbers["best"] == {"step": 47, "score": 1}


def test_a_target_ends_training(tmp_path: Path) -> None:
    session, _, events = run_through(tmp_path, [1, 9, 10, 11], evaluation={"target": 10.0})
    assert session.step == 60
    assert session.stopped == "evaluation reached the target 10"
    assert steps(events, "checkpoint")[-1] == 60
    assert (
        checkpoints.read_manifest(runs.Run(tmp_path).checkpoint("last"))["numbers"]["session"]["stopped"]
        == session.stopped
    )


def test_patience_counts_ties_as_no_improvement_but_the_later_weights_are_kept(tmp_path: Path) -> None:
    session, _, events = run_through(tmp_path, [5, 3, 5, 4, 9], evaluation={"patience": 3})
    assert session.step == 80
    assert session.best == Best(60, 5)
    assert [event.data["best"] for event in events if event.kind == "evaluation"] == [True, False, True, False]
    best = runs.Run(tmp_path).best()
    assert best is not None
    assert best.name == "60"
    assert checkpoints.read_arrays(best, checkpoints.read_manifest(best), "model")["w"].tolist() == [3, 3, 3]


def test_a_callback_may_end_training_and_its_weights_are_evaluated(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if event.kind == "progress" and event.step == 50:
            event.stop()

    session, _, events = run_through(tmp_path, [1] * 9, callbacks=[stop])
    assert (session.step, session.stopped) == (50, "a callback asked to stop")
    assert steps(events, "evaluation") == [20, 40, 50]
    assert steps(events, "checkpoint") == [0, 30, 50]


def test_checkpoints_that_are_kept(tmp_path: Path) -> None:
    run_through(tmp_path, [1] * 99, run={"checkpoint_every": 10, "keep": 2})
    run = runs.Run(tmp_path)
    assert [p.name for p in run.checkpoints()] == ["0", "90", "100"]
    assert [p.name for p in run.checkpoints() if (p / "replay.safetensors").exists()] == ["100"]
    assert [p.name for p in checkpoints.numbered(tmp_path / "best")] == ["100"]


def test_the_best_of_the_last_checkpoint_outlives_a_newer_best_until_the_next_one(tmp_path: Path) -> None:
    """A run killed after step 50 resumes from 30, where step 20 was the best: it must still be there."""

    class Killed(Exception):
        pass

    def kill(event: Event) -> None:
        if event.kind == "progress" and event.step == 50:
            raise Killed

    with pytest.raises(Killed):
        run_through(tmp_path, [1, 2, 3], callbacks=[kill])
    assert [p.name for p in checkpoints.numbered(tmp_path / "best")] == ["20", "40"]
    session = Session("dqn", runs.Run(tmp_path), RunOptions(steps=100), EvalOptions())
    with session:
        last = runs.Run(tmp_path).checkpoint("last")
        session.begin(Fake(iter([])), session_numbers(checkpoints.read_manifest(last), str(last)))
        assert [p.name for p in checkpoints.numbered(tmp_path / "best")] == ["20"]
        assert (session.step, session.best) == (30, Best(20, 1))


def test_a_signal_saves_at_once_and_says_how_to_resume(tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if event.kind == "progress" and event.step == 40:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    session = Session("dqn", runs.Run(tmp_path), RunOptions(steps=100, log_every=10), EvalOptions(), [interrupt])
    with pytest.raises(Interrupted, match=f"--resume {tmp_path}") as caught, session, session.signals:
        session.begin(Fake(iter([])))
        while session.running:
            session.advance(1)
    assert caught.value.exit_code == 143
    assert runs.Run(tmp_path).checkpoint("last").name in ("40", "41")
    assert signal.getsignal(signal.SIGTERM) == before


def test_only_the_first_signal_is_held_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_a_signal_during_an_evaluation_leaves_it_to_the_resume(tmp_path: Path) -> None:
    """The evaluation is given up, the checkpoint says so, and the resumed run makes it before anything else."""

    def interrupt(event: Event) -> None:
        if event.kind == "progress" and event.step == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    options, evaluation = RunOptions(steps=60, log_every=10), EvalOptions(every=20)
    fake = Fake(iter([5.0, 7.0, 6.0]))
    fake.cut_off = True
    session = Session("dqn", runs.Run(tmp_path), options, evaluation, [interrupt])
    with pytest.raises(Interrupted), session, session.signals:
        session.begin(fake)
        while session.running:
            session.advance(1)
    last = runs.Run(tmp_path).checkpoint("last")
    numbers = session_numbers(checkpoints.read_manifest(last), str(last))
    assert (last.name, numbers.evaluation_pending, numbers.evaluated_at, numbers.best) == ("20", True, -1, None)
    resumed = Session("dqn", runs.Run(tmp_path), options, evaluation)
    with resumed, resumed.signals:
        resumed.begin(fake, numbers)
        again = session_numbers(checkpoints.read_manifest(last), str(last))
        assert (again.evaluation_pending, again.evaluated_at, again.best) == (False, 20, Best(20, 5.0))
        while resumed.running:
            resumed.advance(1)
        resumed.finish()
    assert resumed.best == Best(40, 7.0)
    assert fake.evaluated == 3


@pytest.mark.parametrize("step", [30, 60])
def test_a_callback_that_stops_on_a_checkpoint_is_known_to_it(tmp_path: Path, step: int) -> None:
    def stop(event: Event) -> None:
        if event.kind == "checkpoint" and event.step == step:
            event.stop()

    session, _, _ = run_through(tmp_path, [1.0, 2.0, 3.0, 4.0, 5.0], callbacks=[stop])
    assert session.step == step
    last = runs.Run(tmp_path).checkpoint("last")
    numbers = session_numbers(checkpoints.read_manifest(last), str(last))
    assert (numbers.stopped, numbers.evaluated_at) == ("a callback asked to stop", step)
    assert numbers.best == session.best


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no SIGHUP here")
def test_a_closed_terminal_is_a_signal_too_unless_it_is_ignored() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.received == signal.SIGHUP
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.received is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
