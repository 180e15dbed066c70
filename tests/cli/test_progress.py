"""What a training shows while it runs."""

from __future__ import annotations

import io
from typing import Any

import pytest

from rlseq.cli import progress as module
from rlseq.cli.output import Output
from rlseq.cli.progress import Bar, Lines, Sight, progress, watcher
from rlseq.events import Event, Kind


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def event(kind: Kind, step: int, **data: Any) -> Event:
    """An event of a training of 1000 steps."""
    return Event(kind, step, 1000, {name.replace("__", "/"): value for name, value in data.items()}, lambda: None)


def test_speed_and_time_left() -> None:
    clock = Clock()
    sight = Sight(clock)
    sight.see(event("start", 0, environment="X"))
    assert (sight.rate, sight.left) == (None, "-:--:--")
    sight.see(event("checkpoint", 0, path="p"))
    assert sight.rate is None
    clock.now += 2
    sight.see(event("tick", 100, time__env_steps_per_second=1.0))
    assert (sight.rate, sight.left) == (50.0, "0:00:18")
    for _ in range(20):  # then ten times slower: the speed of the last ten seconds counts
        clock.now += 2
        sight.see(event("tick", sight.step + 10))
    assert sight.rate == 5.0
    assert sight.left == "0:02:20"


def test_a_resumed_training_counts_its_own_steps() -> None:
    clock = Clock()
    sight = Sight(clock)
    sight.see(event("start", 0))
    sight.see(event("tick", 500))
    clock.now += 5
    sight.see(event("tick", 600))
    assert (sight.rate, sight.left) == (20.0, "0:00:20")


def test_the_newest_numbers() -> None:
    clock = Clock()
    sight = Sight(clock)
    assert sight.numbers() == ""
    sight.see(event("progress", 0, train__epsilon=1.0, train__loss=0.5))
    assert sight.numbers() == "epsilon 1.00"
    clock.now += 1
    sight.see(event("progress", 100, train__epsilon=0.875, train__return=23.5))
    sight.see(event("evaluation", 100, eval__return_mean=301.24, eval__return_std=20.0, best=True))
    assert sight.numbers() == "return 23.5  evaluation 301.2 ± 20  epsilon 0.88  100 steps/s"


def test_a_sequence_training_tells_the_score_of_its_task() -> None:
    clock = Clock()
    sight = Sight(clock)
    sight.see(event("start", 0, task="addition: add two numbers"))
    sight.see(event("progress", 10, train__loss=2.25, train__tokens_per_second=250.4))
    assert sight.numbers() == "loss 2.25  250 predictions/s"
    sight.see(event("evaluation", 10, eval__token_accuracy=0.5, eval__exact_match=0.99871, eval__loss=0.1))
    assert sight.numbers() == "loss 2.25  evaluation exact match 0.9987  250 predictions/s"
    text = Sight(clock)
    text.see(event("start", 0, task="text: a text"))
    text.see(event("progress", 10, train__loss=2.25, train__tokens_per_second=250.4, eval__loss=1.47219))
    assert text.numbers() == "loss 2.25  evaluation loss 1.4722  250 tokens/s"


def test_plain_lines_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    watch = watcher(Lines())
    watch(event("start", 0, task="lorenz: a series"))
    watch(event("evaluation", 310, eval__rmse=7.0, eval__mase=0.12345, best=True))
    assert capsys.readouterr().err.splitlines()[1] == "step 310/1000  evaluation MASE 0.1235, the best so far"


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watch = watcher(Lines(clock), clock)
    watch(event("start", 0, environment="CartPole-v1", **{"replay memory": "[4] MiB"}))
    watch(event("checkpoint", 0, path="p"))
    clock.now += 1
    watch(event("tick", 100))
    clock.now += 1
    watch(event("progress", 200, train__epsilon=0.5, train__return=20.0))
    clock.now += 1
    watch(event("tick", 300))
    watch(event("tick", 310))
    watch(event("evaluation", 310, eval__return_mean=301.25, eval__return_std=20.0, best=True))
    watch(event("evaluation", 320, eval__return_mean=1.0, eval__return_std=0.0, best=False))
    watch(event("warning", 320, message="it is slow"))
    watch(event("end", 1000, reason="all steps done"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "environment    CartPole-v1",
        "replay memory  [4] MiB",
        "step 300/1000 (30%)  return 20  epsilon 0.50  100 steps/s  0:00:07 left",
        "step 310/1000  evaluation 301.2 ± 20, the best so far",
        "step 320/1000  evaluation 1 ± 0",
        "Warning: it is slow",
        "Ended: all steps done. Scoring the best checkpoint and exporting it ...",
    ]


def test_after_the_end_it_is_told_how_far_the_final_score_is(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watch = watcher(Lines(clock), clock)
    watch(event("start", 0, task="copy: repeat the question"))
    for scored in (1000, 2000, 3000, 4000):
        clock.now += 2
        watch(event("finishing", 1000, scored=scored))
    watch(event("finishing", 1000, exporting="model.onnx"))
    assert capsys.readouterr().err.splitlines()[1:] == [
        "scored 2,000 tokens of answers",
        "scored 4,000 tokens of answers",
        "all scored; exporting, and comparing the file with the network",
    ]


def test_quiet_shows_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(Output(quiet=True)) as watch:
        for kind in ("start", "tick", "progress", "evaluation", "checkpoint", "end"):
            watch(event(kind, 5, reason="r", eval__return_mean=1.0))  # type: ignore[arg-type]
        watch(event("warning", 5, message="it is slow"))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "Warning: it is slow\n")


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch, kind: str = "xterm") -> Terminal:
    """Make stderr a terminal of 80 columns (not in a fixture: pytest would put its own stderr back)."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return stream


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    with progress(Output()) as watch:
        watch(event("start", 0, environment="Cart[red]Pole"))
        watch(event("tick", 100))
        watch(event("progress", 250, train__return=20.0, train__epsilon=0.25))
        watch(event("warning", 250, message="it is [slow]"))
        watch(event("finishing", 250, scored=7000))
    text = stream.getvalue()
    assert "environment  Cart[red]Pole" in text
    assert "250/1000" in text and " 25%" in text
    assert "return 20  epsilon 0.25" in text
    assert "scored 7,000 tokens" in text
    assert "\x1b[1;33mWarning: \x1b[0mit is [slow]\n" in text
    assert text.endswith("\x1b[?25h\r\x1b[1A\x1b[2K\x1b[1A\x1b[2K")  # the cursor is back, the bar's two lines are gone


def test_no_bar_on_a_terminal_that_cannot_draw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch, "dumb")
    with progress(Output()) as watch:
        watch(event("evaluation", 250, eval__return_mean=1.0, eval__return_std=0.0))
    assert stream.getvalue() == "step 250/1000  evaluation 1 ± 0\n"


def test_the_bar_is_drawn_by_events_not_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch)
    with module._bar() as bar:
        assert not bar.live.auto_refresh
        Bar(bar)


def test_a_training_goes_on_when_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Broken(Lines):
        def show(self, event: Event, sight: Sight) -> None:
            told.append(event.kind)
            raise BrokenPipeError

    watch = watcher(Broken())
    watch(event("tick", 1))
    watch(event("evaluation", 2, eval__return_mean=1.0))
    assert told == ["tick"]
