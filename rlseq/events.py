"""What training tells whoever watches: the progress bar, callbacks from Python, the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

Kind = Literal["start", "tick", "progress", "evaluation", "checkpoint", "warning", "end", "finishing"]


class Event(NamedTuple):
    """Something that happened at a step: of the environments, or an update where nothing is played.

    Attributes:
        kind: `start` (data: what is about to run), `tick` (a few times a second: steps per second so far), `progress`
            (every `run.log_every` steps: points of the curves, by their TensorBoard names), `evaluation` (points, and
            `best`: whether these are the best weights yet), `checkpoint` (`path`), `warning` (`message`), `end`
            (`reason`), `finishing` (of a sequence model, after the end: `scored`, predictions measured so far, in this
            process, those of longer questions included; or `exporting`, once all are).
        step: steps done.
        total_steps: where training ends if nothing stops it before.
        data: numbers and texts of this kind of event.
        stop: call it to end training after this step, as an early stop: everything is saved.
    """

    kind: Kind
    step: int
    total_steps: int
    data: Mapping[str, Any]
    stop: Callable[[], None]


Callback = Callable[[Event], None]
