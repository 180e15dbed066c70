"""The edges of every training loop: curves, evaluation, early stopping, checkpoints, signals.

A trainer's loop stays on one screen because all it says is `session.advance(n)`; between two edges that is one
comparison.

Where several processes train together, each has a session; they come to the same edges at the same steps. Process 0
alone writes and tells, and what one of them alone knows (a signal, a callback's wish to stop) is agreed upon at an
edge, about four times a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rlseq.config import RunOptions
from rlseq.engine.checkpoint import Checkpoints
from rlseq.engine.distributed import ALONE, World
from rlseq.engine.metrics import EventLog, NoLog
from rlseq.engine.numbers import Best, SessionNumbers
from rlseq.engine.signals import StopSignals
from rlseq.engine.trainee import EvaluationPlan, Trainee
from rlseq.errors import Interrupted
from rlseq.events import Callback, Event, Kind
from rlseq.runs import Run

TICK_SECONDS = 0.25


def due(before: int, now: int, every: int) -> int:
    """How many multiples of `every` lie in `(before, now]`: exact also when steps come several at a time."""
    return now // every - before // every


class Session:
    """One training from start or resume to its end.

    Args:
        algorithm: as in `rlseq train ALGORITHM`.
        run: its folder.
        options: length, logging and checkpoint intervals.
        evaluation: interval and early stopping.
        callbacks: told of everything, in process 0.
        world: the processes that train together.

    Attributes:
        step: steps done: of the environments, or updates where nothing is played.
        stopped: why training ended before its last step, or None.
    """

    def __init__(
        self,
        algorithm: str,
        run: Run,
        options: RunOptions,
        evaluation: EvaluationPlan,
        callbacks: Sequence[Callback] = (),
        world: World = ALONE,
    ) -> None:
        self.world = world
        self.algorithm = algorithm
        self.run = run
        self.options = options
        self.evaluation = evaluation
        self.callbacks = callbacks if world.first else ()
        self.checkpoints = Checkpoints(run, options.keep)
        self.signals = StopSignals()
        self.step = 0
        self.stopped: str | None = None
        self.best: Best | None = None
        self.evaluations_without_improvement = 0
        self._saved_at = self._evaluated_at = -1
        self._tick_step = 0
        self._seconds_before = self._pause = 0.0
        self._trainee: Trainee
        self._log: EventLog | NoLog | None = None
        self._pending = False  # an evaluation was due, and a signal cut it off
        self._asked = False  # a callback of process 0 wants to stop, and the others do not know
        self._signum: int | None = None  # a signal of which all processes know

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._log is not None:
            self._log.close()

    @property
    def log(self) -> EventLog | NoLog:
        """The event file; open from `begin` on. Only process 0 has one."""
        assert self._log is not None
        return self._log

    def begin(self, trainee: Trainee, numbers: SessionNumbers | None = None) -> None:
        """Start anew, or from the numbers of a checkpoint that the trainee has been loaded from."""
        self._trainee = trainee
        if numbers is not None:
            self.step, self.best = numbers.step, numbers.best
            self.evaluations_without_improvement = numbers.evaluations_without_improvement
            self._seconds_before = numbers.seconds
            self._saved_at, self._evaluated_at = self.step, numbers.evaluated_at
            if numbers.total_steps == self.options.steps:
                self.stopped = numbers.stopped  # it was killed between its early end and its export
        self._open(numbers)
        self._started = self._window_started = time.perf_counter()
        self._window_step = self._tick_step = self._started_step = self.step
        if numbers is None:
            self.save()
        elif numbers.evaluation_pending:
            self.evaluate()
            self._save_anew()
        self._plan()

    def _open(self, numbers: SessionNumbers | None) -> None:
        """Tidy up the run's folder and open its event file."""
        if not self.world.first:
            self._log = NoLog()
            return
        self.checkpoints.prepare(self.step if numbers is not None else None)
        self._log = EventLog(self.run.path, 0 if numbers is None else numbers.events_bytes)
        if self._log.lost:
            self.tell("warning", {"message": f"{self._log.path} is gone: its curves begin anew at step {self.step}."})

    @property
    def running(self) -> bool:
        """Whether there is another step to take."""
        return self.step < self.options.steps and self.stopped is None

    @property
    def seconds(self) -> float:
        """Wall time of training so far, over all resumes."""
        return self._seconds_before + time.perf_counter() - self._started

    def advance(self, num_steps: int) -> None:
        """Count steps that were taken and learnt from; do what is due."""
        before = self.step
        self.step += num_steps
        if self.step >= self._next_edge or (self.world.alone and self.signals.received is not None):
            self._edges(before)

    def _plan(self) -> None:
        """Find the next step at which anything is due."""
        intervals = (self.options.log_every, self.evaluation.every, self.options.checkpoint_every)
        self._next_edge = min(
            self.options.steps, self._tick_step, *((self.step // every + 1) * every for every in intervals)
        )

    def _edges(self, before: int) -> None:
        if due(before, self.step, self.options.log_every):
            self._log_curves()
        if due(before, self.step, self.evaluation.every) or not self.running:
            self.evaluate()
        if due(before, self.step, self.options.checkpoint_every) or not self.running:
            self.save()
        rate = (self.step - self._started_step) / max(1e-9, time.perf_counter() - self._started)
        ticks = self.step >= self._tick_step
        self._agree(self.step + max(1, int(rate * TICK_SECONDS)) if ticks else self._tick_step)
        if ticks:
            self.tell("tick", {self._trainee.step_rate: rate})
        if self._signum is not None:
            self._interrupt(self._signum)
        self._plan()

    def _agree(self, next_tick: int) -> None:
        """What all processes must know and one alone knows: a signal, a callback's wish, when to look again."""
        signum, asked, tick = self.world.largest(
            [self.signals.received or 0, self._asked, next_tick if self.world.first else 0]
        )
        self._signum, self._tick_step = int(signum) or None, int(tick)
        if asked and self.stopped is None:
            self.stopped = "a callback asked to stop"
            self._saved_at = -1  # the checkpoint of this step must know, also if it was just written

    def _log_curves(self) -> None:
        now = time.perf_counter()
        seconds = max(1e-9, now - self._window_started - self._pause)
        points, counts = self._trainee.curves()
        points[self._trainee.step_rate] = (self.step - self._window_step) / seconds
        points |= {name: count / seconds for name, count in counts.items()}
        self._window_started, self._window_step, self._pause = now, self.step, 0.0
        self.log.scalars(points, self.step)
        self.tell("progress", points)

    def evaluate(self) -> None:
        """Evaluate, keep the best weights, and see whether training may stop early."""
        started = time.perf_counter()
        result = self._trainee.evaluate(lambda: self.signals.received is not None)
        self._pending = result is None
        if result is None:
            return
        self._evaluated_at = self.step
        better = self.best is None or result.beats(self.best.score)
        self.evaluations_without_improvement = 0 if better else self.evaluations_without_improvement + 1
        # A tie goes to the later weights: where the score has a ceiling, they have been at it for longer.
        if better or self.best is None or result.score == self.best.score:
            self.best = Best(self.step, result.score)
            if self.world.first:
                numbers = {"score": result.score, "curves": dict(result.curves)}
                self.checkpoints.save_best(self.step, self._trainee.model(), numbers)
        self.log.scalars(result.curves, self.step)
        self.log.texts(result.texts, self.step)
        self.log.pictures(result.pictures, self.step)
        options = self.evaluation
        if options.target is not None and (result.beats(options.target) or result.score == options.target):
            self.stopped = f"evaluation reached the target {options.target:g}"
        elif options.patience is not None and self.evaluations_without_improvement >= options.patience:
            self.stopped = f"{options.patience} evaluations without improvement"
        self._pause += time.perf_counter() - started
        self.tell("evaluation", {**result.curves, **result.texts, "best": self.best.step == self.step})

    def save(self) -> None:
        """Write a checkpoint of this step, unless there is one."""
        if self._saved_at == self.step:
            return
        started = time.perf_counter()
        snapshot = self._trainee.snapshot()
        self._saved_at = self.step
        if not self.world.first:
            return
        numbers = {**snapshot.numbers, "session": msgspec.to_builtins(self._numbers())}
        path = self.checkpoints.save(self.step, snapshot._replace(numbers=numbers))
        self._pause += time.perf_counter() - started
        self.tell("checkpoint", {"path": str(path)})

    def _save_anew(self) -> None:
        """Replace this step's checkpoint: something was decided after it."""
        self._saved_at = -1
        self.save()

    def _numbers(self) -> SessionNumbers:
        return SessionNumbers(
            step=self.step,
            best=self.best,
            evaluations_without_improvement=self.evaluations_without_improvement,
            evaluated_at=self._evaluated_at,
            evaluation_pending=self._pending,
            stopped=self.stopped,
            total_steps=self.options.steps,
            seconds=self.seconds,
            events_bytes=self.log.sync(),
        )

    def finish(self) -> None:
        """End a training; its last step was evaluated and saved, unless a callback cut in later."""
        if self._evaluated_at != self.step:
            self.evaluate()
            self._saved_at = -1
        self.save()
        self._agree(self._tick_step)
        if self._signum is not None:
            self._interrupt(self._signum)
        self.stopped = self.stopped or "all steps done"
        self.tell("end", {"reason": self.stopped})

    def _interrupt(self, signum: int) -> None:
        self.save()
        self.world.sum([0.0])  # nobody leaves before process 0 has saved: whoever watches would stop it
        raise Interrupted(
            f"stopped at step {self.step} of {self.options.steps}; everything is saved. Go on with:\n"
            f"  rlseq train {self.algorithm} --resume {self.run.path}",
            signum,
        )

    def tell(self, kind: Kind, data: Mapping[str, Any]) -> None:
        """Tell the callbacks of an event."""
        if self.callbacks:
            event = Event(kind, self.step, self.options.steps, data, self._stop)
            for callback in self.callbacks:
                callback(event)

    def _stop(self) -> None:
        self._asked = True
        if self.world.alone:
            self._agree(self._tick_step)
