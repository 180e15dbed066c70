"""What an .onnx file is and holds, read before ONNX Runtime sees it and without the `onnx` package.

A policy from a stranger may at worst be refused. ONNX Runtime, given a path, opens every file that a tensor names as
its "external data", wherever that lies (CVE-2024-27318, CVE-2025-51480). So the bytes are read once, searched here for
external data in every place where a tensor can stand, and those same bytes are handed on: what was checked is what
runs.

An .onnx file is one protobuf message (https://protobuf.dev/programming-guides/encoding); only the wire format and the
field numbers of `onnx.proto3` that lead to tensors are needed for this. A test compares `MESSAGES` with the `onnx`
package.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rlseq.errors import CorruptFile, RlseqError, UsageError
from rlseq.files import explained

MAX_BYTES = 2**31 - 1  # protobuf's own limit for one message
MAX_DEPTH = 100  # nested messages; protobuf's own limit
EXTERNAL_FIELDS = (13, 14)  # TensorProto.external_data, TensorProto.data_location
BUILT_IN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
DEFAULT_DOMAINS = ("", "ai.onnx")

# message -> field number -> the message that stands there; every way from a model to a tensor.
MESSAGES: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 8: "OperatorSetId", 14: "StringStringEntry", 20: "TrainingInfo", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor", 23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "TrainingInfo": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 11: "Attribute"},
    "Tensor": {},
    "OperatorSetId": {},
    "StringStringEntry": {},
}
# message -> field number -> wire type, of the plain fields that are read.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
PLAIN: dict[str, dict[int, int]] = {
    "Model": {1: VARINT},  # ir_version
    "Node": {4: BYTES, 7: BYTES},  # op_type, domain
    "Function": {1: BYTES, 10: BYTES},  # name, domain
    "Tensor": {8: BYTES},  # name
    "OperatorSetId": {1: BYTES, 2: VARINT},  # domain, version
    "StringStringEntry": {1: BYTES, 2: BYTES},  # key, value
}

# (onnxruntime, opset, IR version) that it runs, the oldest first. 1.20, the oldest that rlseq installs with, as in its
# compatibility page (https://onnxruntime.ai/docs/reference/compatibility.html); the other was measured.
RUNTIMES = (("1.20", 21, 10), ("1.32", 28, 14))


class OnnxFile(NamedTuple):
    """An .onnx file that may be handed to ONNX Runtime.

    Attributes:
        data: the whole file.
        ir_version: of the file format.
        opset: of the standard operators; 0 if it imports none.
        metadata: `metadata_props`.
    """

    path: Path
    data: bytes
    ir_version: int
    opset: int
    metadata: dict[str, str]


class _Malformed(Exception):
    """The bytes are no protobuf message of the expected shape."""


def read_onnx_file(path: Path) -> OnnxFile:
    """Read and check an .onnx file.

    Raises:
        RlseqError: it cannot be read or is larger than 2 GiB.
        CorruptFile: it is no ONNX file, refers to data in other files, or needs operators that are not built in.
    """
    data = _read(path)
    try:
        return _checked(path, data)
    except (_Malformed, UnicodeDecodeError) as error:
        hint = " It is a Git LFS pointer: run `git lfs pull`." if data.startswith(b"version https://git-lfs") else ""
        raise CorruptFile(
            f"{path} is not an ONNX file, or it is truncated or damaged ({error}).{hint} Copy or export it again."
        ) from None


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file; an .onnx file is needed here.")
    with explained(path, "read"), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise RlseqError(f"{path} has {size / 2**30:.1f} GiB; an ONNX file has at most 2.")
        return file.read(size)


def _checked(path: Path, data: bytes) -> OnnxFile:
    ir_version, opset = 0, 0
    metadata: dict[str, str] = {}
    used: dict[str, str] = {}  # domain -> one of its operators
    defined: set[str] = set()  # domains of the file's own functions
    has_graph = False
    for kind, found in _messages(data):
        if kind == "Model":
            ir_version = _number(found, 1)
        elif kind == "Graph":
            has_graph = True
        elif kind == "Tensor" and any(number in found for number in EXTERNAL_FIELDS):
            raise CorruptFile(
                f"{path} is refused: its tensor {_text(found, 8)!r} lies in another file (external data), which could "
                "be any file of this machine. A policy is one file: export it again with its weights inside."
            )
        elif kind == "OperatorSetId" and _text(found, 1) in DEFAULT_DOMAINS:
            opset = _number(found, 2)
        elif kind == "StringStringEntry":
            metadata[_text(found, 1)] = _text(found, 2)
        elif kind == "Node":
            used[_text(found, 7)] = _text(found, 4)
        elif kind == "Function":
            defined.add(_text(found, 10))
    if not has_graph or ir_version <= 0:
        raise _Malformed("it holds no graph")
    for domain in sorted(used.keys() - BUILT_IN_DOMAINS - defined):
        raise CorruptFile(
            f"{path} is refused: its operator {used[domain]} of the domain {domain!r} needs a library of its own, "
            "which would be code. Export it again with standard ONNX operators only."
        )
    return OnnxFile(path, data, ir_version, opset, metadata)


def _messages(data: bytes) -> Iterator[tuple[str, dict[int, int | bytes]]]:
    """Every message of `MESSAGES` with its plain fields; of a tensor also what makes it external."""
    stack = [("Model", 0, len(data), 1)]
    while stack:
        kind, start, end, depth = stack.pop()
        inner, plain = MESSAGES[kind], PLAIN.get(kind, {})
        found: dict[int, int | bytes] = {}
        for number, wire, value, stop in _fields(data, start, end):
            if number in inner:
                if wire != BYTES or depth == MAX_DEPTH:
                    raise _Malformed(f"field {number} of {kind} is out of place")
                stack.append((inner[number], value, stop, depth + 1))
            elif number in plain:
                if wire != plain[number]:
                    raise _Malformed(f"field {number} of {kind} has the wrong type")
                found[number] = value if wire == VARINT else data[value:stop]
            elif kind == "Tensor" and number in EXTERNAL_FIELDS and (wire != VARINT or value):
                found[number] = b""  # a data_location of 0, written out, is the default: inside the file
        yield kind, found


def _fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of one message: (number, wire type, value, 0) of a varint, else (number, wire type, start, end)."""
    while position < end:
        tag, position = _varint(data, position, end)
        number, wire = tag >> 3, tag & 7
        if number == 0 or tag >> 32:
            raise _Malformed("a field has no valid number")
        if wire == VARINT:
            value, position = _varint(data, position, end)
            yield number, wire, value, 0
            continue
        if wire == BYTES:
            size, position = _varint(data, position, end)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise _Malformed(f"a field has the unknown wire type {wire}")
        if size > end - position:
            raise _Malformed("a field is longer than the message around it")
        yield number, wire, position, position + size
        position += size


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A number of 1 to 10 bytes, 7 bits each, least significant first; and the position after it."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise _Malformed("a number does not end")


def _text(found: dict[int, int | bytes], number: int) -> str:
    value = found.get(number, b"")
    assert isinstance(value, bytes)
    return value.decode()


def _number(found: dict[int, int | bytes], number: int) -> int:
    """A signed 64-bit field; 0 if absent."""
    value = found.get(number, 0)
    assert isinstance(value, int)
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


def newer_runtime_needed(file: OnnxFile, installed: str) -> str | None:
    """What to install if the file is newer than what the installed onnxruntime is known to run, else None.

    Args:
        file: that could not be loaded.
        installed: version of onnxruntime ("1.18.1").
    """
    have = _version(installed)
    _, opset, ir = [row for row in RUNTIMES if _version(row[0]) <= have][-1]
    if file.opset <= opset and file.ir_version <= ir:
        return None
    for version, opset, ir in RUNTIMES:
        if file.opset <= opset and file.ir_version <= ir:
            return f">= {version}"
    return f"newer than {max(installed, RUNTIMES[-1][0], key=_version)}"


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
