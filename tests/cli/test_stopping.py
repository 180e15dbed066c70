"""A second signal ends workers that would never end by themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from rlseq.cli import stopping
from rlseq.cli.stopping import Stopping

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX's")

DEAF = "import signal, time; signal.signal(2, lambda *_: print('heard', flush=True)); print(flush=True); time.sleep(60)"


class Stopped(Exception):
    pass


@pytest.fixture
def deaf() -> Iterator[subprocess.Popen[str]]:
    """A worker that hears signals and goes on."""
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_the_first_signal_raises_and_the_second_is_passed_on_and_kills(
    deaf: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "KILL_SECONDS", 0.2)
    handler = Stopping(lambda: [deaf.pid], lambda signum: Stopped(signum))
    with pytest.raises(Stopped) as first:
        handler.handle(signal.SIGINT, None)
    assert first.value.args == (signal.SIGINT,)
    time.sleep(0.4)
    assert deaf.poll() is None  # it may be saving
    handler.handle(signal.SIGTERM, None)  # whatever comes second
    assert deaf.stdout is not None and deaf.stdout.readline() == "heard\n"
    assert deaf.wait(timeout=10) == -signal.SIGKILL


def test_who_stays_long_after_the_others_is_killed(
    deaf: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "STRAGGLER_SECONDS", 0.2)
    with subprocess.Popen([sys.executable, "-c", ""], start_new_session=True) as quick:
        handler = Stopping(lambda: [quick.pid, deaf.pid], lambda signum: Stopped(signum))
        with pytest.raises(Stopped):
            handler.handle(signal.SIGTERM, None)
        assert deaf.wait(timeout=10) == -signal.SIGKILL
        assert quick.wait() == 0  # its exit code was left to whoever waits for it
