"""What a session and the algorithm that it trains owe each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from rlseq.engine.checkpoint import Arrays, Snapshot


class Evaluation(NamedTuple):
    """What an evaluation came to.

    Attributes:
        score: what chooses the best weights.
        curves: points of the curves.
        lower_is_better: of the score.
        texts: samples worth keeping beside the curves, by their TensorBoard names.
        pictures: likewise, PNG files.
    """

    score: float
    curves: Mapping[str, float]
    lower_is_better: bool = False
    texts: Mapping[str, str] = {}
    pictures: Mapping[str, bytes] = {}

    def beats(self, score: float) -> bool:
        """Whether it is better than another one's score."""
        return self.score < score if self.lower_is_better else self.score > score


class Curves(NamedTuple):
    """Points of the curves since the last ones.

    Attributes:
        points: by their TensorBoard names.
        counts: likewise, of things done; they are shown per second of training.
    """

    points: dict[str, float]
    counts: dict[str, float]


class EvaluationPlan(Protocol):
    """When to evaluate, and when an evaluation ends the training: a part of every algorithm's `eval` options."""

    @property
    def every(self) -> int: ...

    @property
    def target(self) -> float | None: ...

    @property
    def patience(self) -> int | None: ...


class Trainee(Protocol):
    """What an algorithm supplies. Of several processes all call the same methods at the same steps, but for `model`."""

    step_rate: str
    """The curve of steps per second."""

    def curves(self) -> Curves:
        """The `train/*` curves since the last call."""

    def evaluate(self, should_stop: Callable[[], bool]) -> Evaluation | None:
        """Evaluate the weights as they are, touching nothing that training depends on; None if one process was told to
        stop. The same in all processes."""

    def model(self) -> Arrays:
        """The weights."""

    def snapshot(self) -> Snapshot:
        """Everything needed to go on exactly, of all processes; process 0 gets it."""
