"""Small trainings in several processes, for tests: one rank of a training, and how each of its ranks ended."""

from __future__ import annotations

import functools
import json
import math
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from rlseq.errors import RlseqError
from rlseq.events import Event
from rlseq.pipeline import train
from tests.ranks import on_ranks
from tests.training import SMALL, SMALL_SEQ, merged

REPORT = {"bytes": 0}


def without_export() -> Any:
    """What follows a training is tested elsewhere, and takes longer than these trainings do."""

    def nothing(*arguments: Any) -> dict[str, Any]:
        next(a for a in arguments if isinstance(a, Path) and a.suffix == ".onnx").write_bytes(b"")
        return REPORT

    stack = mock.patch.multiple("rlseq.trained", export_network=nothing)
    also = mock.patch.multiple("rlseq.trained_sequence", export_sequence_run=nothing)
    return _Both(stack, also)


class _Both:
    def __init__(self, *patches: Any) -> None:
        self.patches = patches

    def __enter__(self) -> None:
        for patch in self.patches:
            patch.start()

    def __exit__(self, *_: object) -> None:
        for patch in self.patches:
            patch.stop()


class Crash(Exception):
    pass


def program(
    *, job: str, values: dict[str, Any], at: int | None = None, what: str = "", **arguments: Any
) -> dict[str, Any]:
    """One rank of a training; what it ended with.

    Args:
        job: `seq` or `dqn`.
        values: changes of the small trainings' options.
        at: step at which `what` happens.
        what: `stop` (a callback of rank 0 asks), `crash` (rank 0's callback raises), `signal` (rank 1 gets a SIGTERM),
            `overflow` (rank 1's gradient of that update does), `compile` (torch.compile, without its compiler).
        arguments: of `rlseq.train`.
    """
    rank, signalled = int(os.environ["RANK"]), False

    def callback(event: Event) -> None:
        if at is None or event.step < at or event.kind != "progress":
            return
        if what == "crash":
            raise Crash
        event.stop()

    def flood(self: Any, session: Any) -> None:
        parameter = next(self.net.parameters())
        parameter.register_hook(
            lambda grad: grad * math.inf if what == "overflow" and session.step == at and rank else grad
        )
        loop(self, session)

    def look(self: Any, num_steps: int) -> None:
        nonlocal signalled
        advance(self, num_steps)
        if what == "signal" and rank == 1 and self.step >= (at or 0) and not signalled:
            signalled = True  # a second one would act at once
            os.kill(os.getpid(), signal.SIGTERM)

    from rlseq.engine.session import Session
    from rlseq.seq.train import SeqTrainer

    advance, loop = Session.advance, SeqTrainer.loop
    if what == "compile":
        import torch

        torch.compile = functools.partial(torch.compile, backend="eager")
    values = values if "resume" in arguments else merged(SMALL_SEQ if job == "seq" else SMALL, values)
    if job == "dqn" and "resume" not in arguments:
        arguments |= {"env": "CartPole-v1", "recipe": "none"}
    end: dict[str, Any] = {}
    with without_export(), mock.patch.object(Session, "advance", look), mock.patch.object(SeqTrainer, "loop", flood):
        try:
            result = train(job, values=values, callbacks=[callback] if what in ("stop", "crash") else [], **arguments)
            end = {"run": str(result.run.absolute()), "summary": result.summary}
        except (RlseqError, Crash) as error:
            end = {"error": type(error).__name__, "message": str(error), "code": getattr(error, "exit_code", None)}
    return {"end": json.dumps(end)}


def on_two(
    folder: Path, job: str, *changes: Mapping[str, Any], size: int = 2, **arguments: Any
) -> list[dict[str, Any]]:
    """How each rank's training ended."""
    results = on_ranks(size, program, folder, job=job, values=merged(*changes), **arguments)
    return [json.loads(str(result["end"])) for result in results]
