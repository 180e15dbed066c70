"""Nothing is ever half there, and nothing damaged is taken for whole."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rlseq.errors import CorruptFile, NewerFormat, RlseqError
from rlseq.files import (
    DTYPES,
    checked_version,
    explained,
    read_json,
    read_tensors,
    sha256_arrays,
    sha256_file,
    write_atomic,
    write_json,
    write_tensors,
)


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made = {f"x.{name}": rng.integers(0, 2, (3, 2)).astype(dtype) for name, dtype in DTYPES.items()}
    return {**made, "empty": np.zeros((0, 4), np.float32), "scalar": np.array(1.5), "cut": np.arange(20.0)[:7]}


def test_safetensors_of_every_dtype_are_read_by_the_library(tmp_path: Path) -> None:
    digest = write_tensors(tmp_path / "a.safetensors", arrays())
    assert digest == sha256_file(tmp_path / "a.safetensors")
    for name, array in load_file(tmp_path / "a.safetensors").items():
        np.testing.assert_array_equal(array, arrays()[name], strict=True)


def test_safetensors_of_the_library_are_read(tmp_path: Path) -> None:
    save_file(arrays(), tmp_path / "b.safetensors", metadata={"some": "note"})
    found = read_tensors(tmp_path / "b.safetensors")
    assert found.keys() == arrays().keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, arrays()[name], strict=True)


def test_arrays_are_read_straight_into_their_places(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"r": np.arange(6.0).reshape(3, 2)})
    place = np.zeros((10, 2))
    read_tensors(tmp_path / "a.safetensors", into=lambda name, shape, dtype: place[: shape[0]])
    np.testing.assert_array_equal(place[:3], np.arange(6.0).reshape(3, 2))
    assert place[3:].sum() == 0


def test_truncated_at_any_length_or_changed_in_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    digest = write_tensors(path, {"w": np.arange(5, dtype=np.float32), "i": np.array([1, 2])})
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(CorruptFile, match=r"a\.safetensors"):
            read_tensors(path)
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        with pytest.raises(CorruptFile, match=r"a\.safetensors"):
            read_tensors(path, digest)
    path.write_bytes(data + b"more")
    with pytest.raises(CorruptFile):
        read_tensors(path)


@pytest.mark.parametrize(
    "header",
    [
        {"w": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}},
        {"w": {"dtype": "F32", "shape": [1e300], "data_offsets": [0, 8]}},
        {"w": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}},
        {"w": {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": None, "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 9]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": ["0", "8"]}},
        {"w": 3},
        [1, 2],
        "text",
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        },
    ],
)
def test_hostile_headers_are_refused(tmp_path: Path, header: Any) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "h.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(CorruptFile, match=r"h\.safetensors"):
        read_tensors(path)


def test_a_deeply_nested_header_is_refused(tmp_path: Path) -> None:
    text = b"[" * 200_000
    (tmp_path / "d.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    (tmp_path / "d.json").write_bytes(text)
    with pytest.raises(CorruptFile):
        read_tensors(tmp_path / "d.safetensors")
    with pytest.raises(CorruptFile):
        read_json(tmp_path / "d.json")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def fail(file: IO[bytes]) -> None:
        file.write(b"half")
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        write_atomic(path, fail)
    assert read_json(path) == {"a": 1}
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, r"a\.json.*no space is left.*MiB free.*RLSEQ_RUNS"),
        (errno.EFBIG, r"a\.json.*size limit"),
        (errno.EACCES, r"a\.json.*you may write to"),
        (errno.EIO, r"a\.json: Input/output error"),
    ],
)
def test_what_the_system_refuses_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(RlseqError, match=message):
        write_json(tmp_path / "a.json", {})
    assert not list(tmp_path.iterdir())


def test_what_is_no_json_object_is_refused(tmp_path: Path) -> None:
    for text in ("", "{", "[1]", "3", "\xff", '{"a": }'):
        (tmp_path / "a.json").write_text(text, encoding="latin-1")
        with pytest.raises(CorruptFile, match=r"a\.json"):
            read_json(tmp_path / "a.json")
    with pytest.raises(RlseqError, match="missing"), explained(tmp_path / "missing", "read"):
        (tmp_path / "missing").read_bytes()


def test_versions(tmp_path: Path) -> None:
    assert checked_version({"format_version": 1}, tmp_path, 2) == {"format_version": 1}
    with pytest.raises(NewerFormat, match=r"3.*up to 2"):
        checked_version({"format_version": 3}, tmp_path, 2)
    for wrong in (
        {},
        {"format_version": "1"},
        {"format_version": True},
        {"format_version": 0},
        {"format_version": None},
    ):
        with pytest.raises(CorruptFile):
            checked_version(wrong, tmp_path, 2)


def test_the_checksum_of_arrays_is_of_names_dtypes_shapes_and_values_alone() -> None:
    a = {"x": np.arange(4.0), "y": np.zeros(2, np.int64)}
    assert sha256_arrays(a) == sha256_arrays(dict(reversed(a.items())))
    others = [
        {**a, "x": np.arange(4.0) + 1},
        {**a, "x": np.arange(4.0).reshape(2, 2)},
        {**a, "x": np.arange(4.0).astype(np.float32)},
        {"z": a["x"], "y": a["y"]},
    ]
    assert len({sha256_arrays(other) for other in [a, *others]}) == 5
