"""Nothing is ever half there, and nothing damaged is taken for whole."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
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


# ----------------------------------------------------------------------------------- what a stranger's file may hold


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("[0, 4611686018427387904]", 0),
        ("[0, 1208925819614629174706176]", 0),
        ("[" + ", ".join(["1"] * 100) + "]", 4),
        ("[1e400]", 8),
        ("[Infinity]", 8),
        ("[NaN]", 8),
        ("[" * 3000 + "]" * 3000, 8),
    ],
    ids=["empty-but-huge", "empty-but-wider-than-a-word", "100-axes", "overflow", "infinity", "nan", "nested"],
)
def test_shapes_that_no_array_can_have_are_refused(tmp_path: Path, shape: str, size: int) -> None:
    text = f'{{"w": {{"dtype": "F32", "shape": {shape}, "data_offsets": [0, {size}]}}}}'.encode()
    path = tmp_path / "h.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    with pytest.raises(CorruptFile, match=r"h\.safetensors"):
        read_tensors(path)


@pytest.mark.parametrize(
    ("header", "length"),
    [
        ({"w": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}, None),
        ({"w": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}, None),
        ({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}} | {"b": {"dtype": "U8", "shape": [2**45]}}, None),
        ({}, 2**63),
        ({}, 90_000_000),
    ],
    ids=["terabytes", "more-than-a-word", "no-offsets", "header-of-exabytes", "header-beyond-the-file"],
)
def test_nothing_is_allocated_for_a_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: Any, length: int | None
) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "h.safetensors"
    path.write_bytes((length or len(text)).to_bytes(8, "little") + text + bytes(8))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("allocated")

    monkeypatch.setattr(np, "empty", refuse)
    with pytest.raises(CorruptFile, match=r"h\.safetensors"):
        read_tensors(path, into=refuse)  # type: ignore[arg-type]
    with pytest.raises(CorruptFile, match=r"h\.safetensors"):
        read_tensors(path)


def test_any_single_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    digest = write_tensors(path, {"w": np.arange(3, dtype=np.float32)})
    data = bytearray(path.read_bytes())
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(CorruptFile):
            read_tensors(path, digest)
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    np.testing.assert_array_equal(read_tensors(path, digest)["w"], np.float32([0, 1, 2]), strict=True)


# ----------------------------------------------------------------------------------------------- layouts and streams


def test_arrays_of_any_layout_are_written_as_they_read(tmp_path: Path) -> None:
    base = np.arange(24.0).reshape(4, 6)
    views = {"transposed": base.T, "strided": base[::2, ::3], "reversed": base[::-1], "sliced": base[1:3]}
    write_tensors(tmp_path / "a.safetensors", views)
    for name, array in load_file(tmp_path / "a.safetensors").items():
        np.testing.assert_array_equal(array, views[name], strict=True)


def test_bytes_in_another_order_keep_their_values(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"x": np.arange(3, dtype=">f4"), "i": np.arange(3, dtype=">i8")})
    found = read_tensors(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(found["x"], np.float32([0, 1, 2]))
    np.testing.assert_array_equal(found["i"], [0, 1, 2])


def test_arrays_larger_than_a_chunk_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlseq.files.CHUNK", 7)
    made = arrays()
    digest = write_tensors(tmp_path / "a.safetensors", made)
    found = read_tensors(tmp_path / "a.safetensors", digest)
    for name, array in made.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_every_array_is_aligned(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {**arrays(), "odd": np.zeros(3, np.uint8)})
    data = (tmp_path / "a.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    for name, entry in json.loads(data[8 : 8 + length]).items():
        assert (8 + length + entry["data_offsets"][0]) % DTYPES[entry["dtype"]].itemsize == 0, name


# ---------------------------------------------------------------------------------------------------- full, read-only


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
def test_a_real_size_limit_leaves_the_old_file(tmp_path: Path) -> None:
    code = (
        "import resource, sys, numpy as np; from pathlib import Path; from rlseq.files import write_tensors\n"
        "from rlseq.errors import RlseqError\n"
        "path = Path(sys.argv[1]); write_tensors(path, {'w': np.ones(3)})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: write_tensors(path, {'w': np.zeros(10_000)})\n"
        "except RlseqError as error: print(error)\n"
    )
    path = tmp_path / "w.safetensors"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "ulimit -f" in done.stdout
    assert "w.safetensors" in done.stdout
    np.testing.assert_array_equal(read_tensors(path)["w"], np.ones(3))
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_a_failing_sync_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may say that it is full only when it is asked to write for good."""
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RlseqError, match=r"cannot write .*a\.json: no space is left"):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_data_is_synced_before_it_takes_its_place_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real_sync(descriptor)

    def replace(a: Any, b: Any) -> None:
        done.append("replace")
        real_replace(a, b)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    write_json(tmp_path / "a.json", {})
    assert done == (["file", "replace", "folder"] if os.name == "posix" else ["file", "replace"])


@pytest.mark.parametrize("where", ["missing/a.json", "file/a.json"])
def test_a_folder_that_is_none(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RlseqError, match=r"cannot write .*a\.json"):
        write_json(tmp_path / where, {})


@pytest.mark.parametrize(
    ("shape", "offsets"),
    [("[1.9]", "[0, 1]"), ('["1"]', "[0, 1]"), ('"1"', "[0, 1]"), ("[true]", "[0, 1]"), ("[1]", "[0.0, 1.0]")],
)
def test_a_number_of_the_header_that_is_no_integer_is_refused(tmp_path: Path, shape: str, offsets: str) -> None:
    text = f'{{"w": {{"dtype": "U8", "shape": {shape}, "data_offsets": {offsets}}}}}'.encode()
    path = tmp_path / "h.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"1")
    with pytest.raises(CorruptFile, match=r"h\.safetensors"):
        read_tensors(path)


def test_a_number_and_an_array_of_one_have_different_checksums() -> None:
    assert sha256_arrays({"a": np.array(1.0)}) != sha256_arrays({"a": np.array([1.0])})
