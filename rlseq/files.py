"""Writing and reading files so that nothing is ever half there: temporary name, fsync, rename.

Arrays travel as safetensors (https://github.com/huggingface/safetensors: 8 bytes of header length, a JSON header, raw
little-endian data). They are written and read here as a stream, array by array, with the checksum taken on the way: the
library's numpy API holds a second copy of everything while it saves, which for a replay memory of gigabytes is not
affordable. What is written here is read by every safetensors implementation (tested).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from rlseq.errors import CorruptFile, NewerFormat, RlseqError

Into = Callable[[str, tuple[int, ...], np.dtype], np.ndarray]
"""`(name, shape, dtype) -> array`: where an array that is read belongs."""

CHUNK = 1 << 22  # bytes per write: large enough for the disk, small beside any replay
MAX_HEADER = 100_000_000  # bytes, the safetensors format's own limit
DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@contextlib.contextmanager
def explained(path: Path, doing: str) -> Iterator[None]:
    """Turn an `OSError` into a message that names the file, the reason and the fix."""
    try:
        yield
    except OSError as error:
        raise RlseqError(f"cannot {doing} {path}: {_reason(path, error)}") from error


def _reason(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        parent = next((p for p in (path, *path.parents) if p.exists()), Path("/"))
        free = shutil.disk_usage(parent).free / 2**20
        why = "the file size limit is reached (ulimit -f)" if error.errno == errno.EFBIG else "no space is left"
        return f"{why} ({free:.0f} MiB free on this disk). Free some space, or set RLSEQ_RUNS to a folder elsewhere."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{error.strerror}. Choose a folder you may write to: set RLSEQ_RUNS or give another path."
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return "a file stands where a folder is needed. Give another path, or set RLSEQ_RUNS to another folder."
    if error.errno == errno.ENAMETOOLONG:
        return "no file can have so long a name. Give a shorter one."
    return f"{error.strerror or error}."


def fsync_folder(folder: Path) -> None:
    """Make renames in `folder` durable (where the platform can: Windows cannot open folders)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_atomic(path: Path, write: Callable[[IO[bytes]], None], called: Path | None = None) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place; on failure nothing is left.

    Args:
        path: the file.
        write: gets it open.
        called: what messages call it, if `path` is a name that the user never sees.

    Raises:
        RlseqError: the folder is not writable or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(called or path, "write"):
        try:
            with open(temporary, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):  # the error that is told is the one before
                temporary.unlink(missing_ok=True)
            raise
        fsync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinities are refused: they are no JSON."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file, atomically."""

    def write(file: IO[bytes]) -> None:
        file.write(data)

    write_atomic(path, write)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        RlseqError: the file cannot be read.
        CorruptFile: it is no JSON object.
    """
    with explained(path, "read"):
        data = path.read_bytes()
    try:
        value = json.loads(data, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path} is not valid JSON ({error}): the file is truncated or was changed.") from None
    if not isinstance(value, dict):
        raise CorruptFile(f"{path} holds {type(value).__name__} where a JSON object is expected.")
    return value


def checked_version(value: dict[str, Any], path: Path, newest: int) -> dict[str, Any]:
    """`value`, if its format can be read.

    Raises:
        NewerFormat: a newer rlseq wrote it.
        CorruptFile: it states no version.
    """
    version = value.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptFile(f"{path} states no format_version: it was changed, or is no file of rlseq.")
    if version > newest:
        raise NewerFormat(f"{path} has format_version {version}; this rlseq reads up to {newest}: update rlseq.")
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def sha256_file(path: Path) -> str:
    """The file's SHA-256 as hexadecimal digits."""
    with explained(path, "read"), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Stream arrays into a safetensors file, atomically and without a second copy of them.

    Args:
        path: the file.
        arrays: name -> array, C-contiguous (a leading slice of a larger array is), dtypes of `DTYPES`.

    Returns:
        The SHA-256 of the file.
    """
    header: dict[str, Any] = {}
    offset = 0
    # Largest alignment first, as the format's own writer does, so that every array is aligned.
    arrays = {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in arrays.items()}
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    for name in order:
        array = arrays[name]
        header[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()

    def write(file: IO[bytes]) -> None:
        for data in (len(text).to_bytes(8, "little"), text):
            digest.update(data)
            file.write(data)
        for name in order:
            view = _bytes(np.ascontiguousarray(arrays[name]))
            for start in range(0, len(view), CHUNK):
                digest.update(view[start : start + CHUNK])
                file.write(view[start : start + CHUNK])

    write_atomic(path, write)
    return digest.hexdigest()


def read_tensors(path: Path, sha256: str | None = None, into: Into | None = None) -> dict[str, np.ndarray]:
    """Read a safetensors file as a stream, each array straight into its place.

    Args:
        path: the file.
        sha256: the checksum it must have; None to skip the check.
        into: `(name, shape, dtype) -> array` gives the C-contiguous array to fill; None allocates.

    Returns:
        name -> array. On a checksum error the arrays are filled, but the error is raised.

    Raises:
        CorruptFile: truncated, changed, or no safetensors file.
    """
    digest = hashlib.sha256()
    arrays: dict[str, np.ndarray] = {}
    with explained(path, "read"), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        for name, dtype, shape in _read_header(path, file, size, digest):
            array = _empty(path, name, shape, dtype) if into is None else into(name, shape, dtype)
            view = _bytes(array)
            for start in range(0, len(view), CHUNK):
                part = view[start : start + CHUNK]
                if file.readinto(part) != len(part):
                    raise CorruptFile(f"{path} ends in the middle of {name}: the file is truncated.")
                digest.update(part)
            arrays[name] = array
    if sha256 is not None and digest.hexdigest() != sha256:
        raise CorruptFile(
            f"{path} has checksum {digest.hexdigest()[:12]}..., recorded was {sha256[:12]}...: the file was changed or "
            "damaged."
        )
    return arrays


def _empty(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    try:
        return np.empty(shape, dtype)
    except ValueError as error:  # an empty array may still claim axes that no array can have
        raise CorruptFile(f"{path}: {name} has a shape that no array can have ({error}).") from None


def _bytes(array: np.ndarray) -> memoryview:
    """The array's own memory, for reading or filling."""
    return memoryview(array.reshape(-1).view(np.uint8).data)


def _read_header(path: Path, file: IO[bytes], size: int, digest: Any) -> list[tuple[str, np.dtype, tuple[int, ...]]]:
    """The arrays of a safetensors file in file order; every number in the header is checked before it is used."""
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > min(MAX_HEADER, size - 8):
        raise CorruptFile(f"{path} is no safetensors file, or it is truncated.")
    text = file.read(length)
    digest.update(prefix + text)
    entries: list[tuple[int, int, str, np.dtype, tuple[int, ...]]] = []
    try:
        for name, entry in json.loads(text).items():
            if name == "__metadata__":
                continue
            (start, end), dtype, shape = entry["data_offsets"], DTYPES[entry["dtype"]], tuple(entry["shape"])
            if any(type(n) is not int or n < 0 for n in (start, end, *shape)):
                raise ValueError(f"{name}: {entry}"[:80])
            if end - start != dtype.itemsize * math.prod(shape):
                raise ValueError(name)
            entries.append((start, end, name, dtype, shape))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise CorruptFile(f"{path} has a damaged safetensors header ({error}).") from None
    entries.sort(key=lambda entry: entry[:2])
    position = 0
    for start, end, *_ in entries:
        if start != position:
            raise CorruptFile(f"{path} has a damaged safetensors header (data out of place).")
        position = end
    if 8 + length + position != size:
        raise CorruptFile(
            f"{path} has {size} bytes, its header says {8 + length + position}: the file is truncated or was changed."
        )
    return [(name, dtype, shape) for _, _, name, dtype, shape in entries]


def sha256_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, dtypes, shapes and contents by name; the same whatever file they lie in."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(_bytes(np.ascontiguousarray(array)))
    return digest.hexdigest()
