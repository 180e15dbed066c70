"""What a training looks like while it runs: a bar on a terminal, a plain line now and then in a pipe or a log."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rlseq.cli.output import Output, duration, number, say
from rlseq.events import Callback, Event
from rlseq.purposes import TEXT, purpose_of
from rlseq.scores import METRICS
from rlseq.scores import number as figure

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 3.0
RATE_SECONDS = 10.0
POLICY = "dqn"


class Sight:
    """The newest numbers of a training.

    Args:
        clock: seconds, for the speed and the remaining time.

    Attributes:
        step: steps done.
        total: of the whole training.
        rate: steps per second over the last ten seconds, evaluations included; None at first.
        values: the newest point of each curve.
        judged: by which of `rlseq.scores.METRICS`; a sequence training tells its task at the start.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()  # (time, step), the oldest first
        self.step = self.total = 0
        self.rate: float | None = None
        self.values: dict[str, float] = {}
        self.judged = POLICY

    def see(self, event: Event) -> None:
        """Take in an event."""
        self.step, self.total = event.step, event.total_steps
        self.values.update({k: v for k, v in event.data.items() if isinstance(v, (int, float)) and "/" in k})
        if event.kind == "start":
            task = str(event.data.get("task", "")).partition(":")[0]
            self.judged = task if task in METRICS else POLICY
            return
        self._seen.append((self._clock(), event.step))
        (now, step) = self._seen[-1]
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_SECONDS:
            self._seen.popleft()
        then, before = self._seen[0]
        if now > then and step > before:
            self.rate = (step - before) / (now - then)

    @property
    def left(self) -> str:
        """Time to the last step at this speed."""
        return duration((self.total - self.step) / self.rate) if self.rate else "-:--:--"

    def numbers(self) -> str:
        """`return 182  evaluation 301 ± 20  epsilon 0.52  5312 steps/s`, as far as known; of a sequence model `loss 2.1
        evaluation loss 2.04  21350 tokens/s`."""
        parts = []
        values = self.values
        if "train/return" in values:
            parts.append(f"return {number(values['train/return'])}")
        elif "train/tokens_per_second" in values:
            parts.append(f"loss {number(values.get('train/loss'))}")
        if METRICS[self.judged][0].curve in values:
            parts.append(f"evaluation {evaluated(values, self.judged)}")
        if "train/epsilon" in values:
            parts.append(f"epsilon {values['train/epsilon']:.2f}")
        if "train/tokens_per_second" in values:
            what = "tokens" if self.judged == TEXT else "predictions"
            parts.append(f"{values['train/tokens_per_second']:.0f} {what}/s")
        elif self.rate:
            parts.append(f"{self.rate:.0f} steps/s")
        return "  ".join(parts)


def evaluated(values: Mapping[str, Any], judged: str) -> str:
    """An evaluation's mean and spread, or the score of a task by its name: `exact match 0.998`.

    Args:
        values: points by their curves' names.
        judged: as in `rlseq.scores.METRICS`.
    """
    metric = METRICS[judged][0]
    if judged == POLICY:
        return f"{number(values.get(metric.curve))} ± {number(values.get('eval/return_std'))}"
    return f"{metric.words} {figure(values[metric.curve], metric.digits)}"


def finishing(event: Event, sight: Sight) -> str:
    """How far the final score and the export are."""
    if "exporting" in event.data:
        return "all scored; exporting, and comparing the file with the network"
    return f"scored {event.data['scored']:,} {purpose_of({'task': sight.judged}).targets}"


class View(Protocol):
    """Shows a training."""

    def show(self, event: Event, sight: Sight) -> None:
        """Show what an event changed."""

    def above(self, text: str, colour: str | None = None, label: str = "") -> None:
        """Print a line that stays."""


class Lines:
    """Plain lines on stderr, every few seconds and at each evaluation."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def show(self, event: Event, sight: Sight) -> None:
        """A line if it is time for one."""
        if event.kind == "evaluation":
            best = ", the best so far" if event.data.get("best") else ""
            say(f"step {event.step}/{event.total_steps}  evaluation {evaluated(event.data, sight.judged)}{best}")
        elif event.kind == "finishing" and ("exporting" in event.data or self._clock() - self._last >= LINE_SECONDS):
            self._last = self._clock()
            say(finishing(event, sight))
        elif event.kind in ("tick", "progress") and self._clock() - self._last >= LINE_SECONDS:
            self._last = self._clock()
            percent = 100 * event.step // max(1, event.total_steps)
            say(f"step {event.step}/{event.total_steps} ({percent}%)  {sight.numbers()}  {sight.left} left")

    def above(self, text: str, colour: str | None = None, label: str = "") -> None:
        """A line."""
        say(text, colour, label)


class Bar:
    """A bar and a line of numbers that stay at the bottom of the terminal.

    It is drawn when an event comes, not by a thread of its own: ten times a second that thread would take the
    interpreter from a training that is all small steps.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def show(self, event: Event, sight: Sight) -> None:
        """Draw anew."""
        if event.kind == "finishing":
            self._progress.update(self._task, numbers=finishing(event, sight))
            self._progress.refresh()
        elif event.kind in ("tick", "progress", "evaluation", "end"):
            self._progress.update(
                self._task, completed=sight.step, total=sight.total, numbers=sight.numbers(), left=sight.left
            )
            self._progress.refresh()

    def above(self, text: str, colour: str | None = None, label: str = "") -> None:
        """A line above the bar."""
        from rich.text import Text

        line = Text.assemble((f"{label}: ", f"bold {colour}"), text) if label else Text(text, style=colour or "")
        self._progress.console.print(line, soft_wrap=True)


class Nothing:
    """For --quiet: warnings only."""

    def show(self, event: Event, sight: Sight) -> None:
        """Nothing."""

    def above(self, text: str, colour: str | None = None, label: str = "") -> None:
        """A line if it is a warning."""
        if label:
            say(text, colour, label)


@contextlib.contextmanager
def progress(out: Output) -> Iterator[Callback]:
    """A callback that shows a training, for as long as the context lasts."""
    if out.quiet:
        yield watcher(Nothing())
    elif not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        yield watcher(Lines())
    else:
        with _bar() as bar:
            yield watcher(Bar(bar))


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    class TwoLines(Progress):
        def get_renderables(self) -> Iterator[Any]:
            if self.tasks and self.tasks[0].total is not None:
                yield self.make_tasks_table(self.tasks)
                yield self.tasks[0].fields.get("numbers", "")

    return TwoLines(
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=36, complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.percentage:3.0f}%  {task.fields[left]} left"),
        console=Console(stderr=True, markup=False, highlight=False, emoji=False),
        auto_refresh=False,
        transient=True,
    )


def watcher(view: View, clock: Callable[[], float] = time.monotonic) -> Callback:
    """The callback of a view. When whoever read stderr has gone, training goes on unseen."""
    sight = Sight(clock)
    gone = False

    def watch(event: Event) -> None:
        nonlocal gone
        if gone:
            return
        try:
            _tell(view, event, sight)
        except BrokenPipeError:
            gone = True

    return watch


def _tell(view: View, event: Event, sight: Sight) -> None:
    sight.see(event)
    if event.kind == "start":
        width = max(map(len, event.data), default=0)
        for label, text in event.data.items():
            view.above(f"{label:<{width}}  {text}")
    elif event.kind == "warning":
        view.above(str(event.data["message"]), "yellow", "Warning")
    view.show(event, sight)
    if event.kind == "end":
        view.above(f"Ended: {event.data['reason']}. Scoring the best checkpoint and exporting it ...")
