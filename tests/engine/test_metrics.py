"""Event files as TensorBoard reads them, and means over an interval."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlseq.engine.metrics import EventLog, Means
from rlseq.errors import CorruptFile


def read(folder: Path, tag: str) -> list[tuple[int, float]]:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def test_tensorboard_reads_steps_and_values(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for step in range(0, 50, 10):
        log.scalars({"a": step / 4, "b": -1.0}, step)
    log.close()
    assert read(tmp_path, "a") == [(step, step / 4) for step in range(0, 50, 10)]
    assert [value for _, value in read(tmp_path, "b")] == [-1.0] * 5


def test_a_file_cut_to_a_length_goes_on_without_a_doubled_step(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for step in range(3):
        log.scalars({"a": float(step)}, step)
    length = log.sync()
    for step in range(3, 6):
        log.scalars({"a": -1.0}, step)  # logged by the process that was killed
    log.close()
    with open(log.path, "ab") as file:
        file.write(b"half a record")
    log = EventLog(tmp_path, length)
    for step in range(3, 8):
        log.scalars({"a": float(step)}, step)
    log.close()
    assert read(tmp_path, "a") == [(step, float(step)) for step in range(8)]
    assert [path.name for path in tmp_path.iterdir()] == [log.path.name]


def test_a_file_shorter_than_the_checkpoint_says_is_refused(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    length = log.sync()
    log.close()
    with pytest.raises(CorruptFile, match=str(length + 1)):
        EventLog(tmp_path, length + 1)


def test_hparams_are_there_with_the_score(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import plugin_data_pb2

    log = EventLog(tmp_path)
    log.hparams({"optim.lr": 0.5, "net.hidden": [64], "dqn.double": True}, {"hparam/mean_return": 7.0}, 9)
    log.close()
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert accumulator.PluginTagToContent("hparams")
    content = accumulator.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert start.hparams["optim.lr"].number_value == 0.5
    assert start.hparams["net.hidden"].string_value == "[64]"
    assert start.hparams["dqn.double"].bool_value is True
    assert read(tmp_path, "hparam/mean_return") == [(9, 7.0)]


def test_means_weigh_by_count_and_travel_through_a_checkpoint() -> None:
    means = Means()
    means.add("a", 6.0, 3)
    means.add("a", 4.0)
    means.add("b", 0.0, 0)
    copy = Means()
    copy.load(means.state())
    copy.add("a", 10.0, 6)
    assert means.drain() == {"a": 2.5}
    assert means.drain() == {}
    assert copy.count("a") == 10
    assert copy.drain() == {"a": 2.0}


def test_means_of_several_processes_are_one() -> None:
    a, b = Means(), Means()
    a.add("x", 6.0, 2)
    b.add("x", 3.0, 1)
    b.add("y", 5.0, 1)
    merged = Means.merged([a.state(), b.state()])
    assert merged.count("x") == 3 and merged.drain() == {"x": 3.0, "y": 5.0}
    assert a.drain() == {"x": 3.0}  # merging takes nothing away
