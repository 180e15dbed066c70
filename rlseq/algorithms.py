"""What differs between the algorithms where a run is named, listed and told of; an algorithm is one line here."""

from __future__ import annotations

from typing import NamedTuple


class Algorithm(NamedTuple):
    """Words and names of an algorithm's runs.

    Attributes:
        steps: what `run.steps` counts.
        steps_key: likewise, as the lineage's key.
        exported: the file that a finished run holds.
        example: a command that trains.
    """

    steps: str
    steps_key: str
    exported: str
    example: str


ALGORITHMS = {
    "dqn": Algorithm("environment steps", "env_steps", "policy.onnx", "dqn CartPole-v1"),
    "seq": Algorithm("updates", "updates", "model.onnx", "seq"),
}
