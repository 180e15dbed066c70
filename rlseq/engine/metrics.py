"""Curves: accumulators between two points, and the TensorBoard file that the points go to.

The event file is written with TensorBoard's own record writer, without a thread, and into one file per run: its length
is known at every checkpoint, so a resumed run cuts off what the interrupted one had logged beyond it and appends. No
step can stand in the file twice.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event as EventProto
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.plugins.text import metadata as text_page
from tensorboard.summary.writer.record_writer import RecordWriter

from rlseq.errors import CorruptFile
from rlseq.files import explained

EVENT_FILE = "events.out.tfevents.rlseq"


class EventLog:
    """The event file of a run.

    Args:
        folder: the run's folder.
        length: bytes to keep of an existing file (from the checkpoint resumed from); 0 begins anew.

    Attributes:
        lost: the file that `length` is of was gone, and a new one has begun.

    Raises:
        CorruptFile: the file is shorter than the checkpoint says.
    """

    def __init__(self, folder: Path, length: int = 0) -> None:
        self.path = folder / EVENT_FILE
        with explained(self.path, "write"):
            self.lost = length > 0 and not self.path.exists()
            length = 0 if self.lost else length
            existing = self.path.stat().st_size if length else 0
            if existing < length:
                raise CorruptFile(
                    f"{self.path} has {existing} bytes, the checkpoint had {length}: it was truncated or replaced. Put "
                    f"the whole file back, or delete {self.path} and resume again: the training goes on exactly, "
                    "without the curves up to here."
                )
            self._file = open(self.path, "ab")  # noqa: SIM115 - open for as long as the run lasts
            self._file.truncate(length)
            self._file.seek(length)
        self._records = RecordWriter(self._file)
        if length == 0:
            self._write(EventProto(wall_time=time.time(), file_version="brain.Event:2"))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Points of several curves at an environment step."""
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        self._write(EventProto(wall_time=time.time(), step=step, summary=summary))

    def texts(self, texts: Mapping[str, str], step: int) -> None:
        """Texts for TensorBoard's TEXT page, shown as they are."""
        for tag, text in texts.items():
            body = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown: a block of code
            tensor = TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(), string_val=[body.encode()])
            page = text_page.create_summary_metadata(tag, "")
            value = Summary.Value(tag=tag, metadata=page, tensor=tensor)
            self._write(EventProto(wall_time=time.time(), step=step, summary=Summary(value=[value])))

    def pictures(self, pictures: Mapping[str, bytes], step: int) -> None:
        """PNG files for TensorBoard's IMAGES page."""
        for tag, png in pictures.items():
            width, height = struct.unpack(">II", png[16:24])  # of the header, which every PNG file begins with
            image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=png)
            summary = Summary(value=[Summary.Value(tag=tag, image=image)])
            self._write(EventProto(wall_time=time.time(), step=step, summary=summary))

    def hparams(self, options: Mapping[str, Any], scores: Mapping[str, float], step: int) -> None:
        """The run's options and final scores, for TensorBoard's HPARAMS page."""
        plain = {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in options.items()}
        config = hparams.hparams_config_pb(
            hparams=[hparams.HParam(name) for name in plain], metrics=[hparams.Metric(name) for name in scores]
        )
        for summary in (config, hparams.hparams_pb(plain, trial_id=str(self.path.parent.name))):
            self._write(EventProto(wall_time=time.time(), step=step, summary=summary))
        self.scalars(scores, step)

    def _write(self, event: EventProto) -> None:
        with explained(self.path, "write"):
            self._records.write(event.SerializeToString())

    def sync(self) -> int:
        """Have everything on disk; gives the bytes written so far."""
        with explained(self.path, "write"):
            self._file.flush()
            os.fsync(self._file.fileno())  # a checkpoint will name this length, and is synced itself
        return self._file.tell()

    def close(self) -> None:
        """Flush and close."""
        with explained(self.path, "write"):
            self._file.close()


class NoLog:
    """In the place of an `EventLog` where another process writes."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Nothing."""

    def texts(self, texts: Mapping[str, str], step: int) -> None:
        """Nothing."""

    def pictures(self, pictures: Mapping[str, bytes], step: int) -> None:
        """Nothing."""

    def hparams(self, options: Mapping[str, Any], scores: Mapping[str, float], step: int) -> None:
        """Nothing."""

    def sync(self) -> int:
        """Nothing was written."""
        return 0

    def close(self) -> None:
        """Nothing is open."""


class Means:
    """Means of named numbers between two points of the curves; part of a checkpoint, so that a point may span one."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}

    def add(self, name: str, total: float, count: int = 1) -> None:
        """Add `count` numbers that sum to `total`."""
        entry = self._sums.setdefault(name, [0.0, 0.0])
        entry[0] += total
        entry[1] += count

    def count(self, name: str) -> float:
        """How many numbers were added under a name since the last point."""
        return self._sums.get(name, [0.0, 0.0])[1]

    def drain(self) -> dict[str, float]:
        """The mean of each name that has numbers, and begin anew."""
        means = {name: total / count for name, (total, count) in self._sums.items() if count}
        self._sums = {}
        return means

    def state(self) -> dict[str, list[float]]:
        """What `load` takes."""
        return {name: list(entry) for name, entry in self._sums.items()}

    @staticmethod
    def merged(states: Sequence[Mapping[str, Sequence[float]]]) -> Means:
        """What several processes have added, from their `state`."""
        means = Means()
        for state in states:
            for name, (total, count) in state.items():
                entry = means._sums.setdefault(name, [0.0, 0.0])
                entry[0] += total
                entry[1] += count
        return means

    def load(self, state: Mapping[str, list[float]]) -> None:
        """Go on from a checkpoint."""
        self._sums = {name: list(entry) for name, entry in state.items()}
