"""Damage for files: bytes, JSON, safetensors headers, TOML. Every function takes the generator that decides, changes
what it is given in place, and says what it did."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlseq import checkpoints
from rlseq.files import read_tensors, write_tensors

Rng = np.random.Generator
PLANTED = "planted_for_fuzz"  # a module that leaves a mark when it is imported
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    2**53 + 1,
    2**63,
    10**40,
    -(10**30),
    0.5,
    -1.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "é\u202e\u0000\n[red]",
    "x" * 3_000,
    "../../../etc/passwd",
    "/dev/zero",
    "float16",
    "object",
    f"{PLANTED}:Env-v0",
    PLANTED,
    f"__import__('{PLANTED}')",
    [],
    {},
    [-1],
    [2**40, 2**40],
    [1.5],
    ["a", 1],
    {"id": f"{PLANTED}:Env-v0"},
    [PLANTED],
    DEEP,
]


def mutate_bytes(rng: Rng, path: Path) -> str:
    """Flip bits, cut, double or overwrite a piece."""
    data = bytearray(path.read_bytes())
    at = int(rng.integers(len(data) + 1))
    kind = rng.choice(["flip", "cut", "insert", "zero", "repeat", "empty"], p=[0.4, 0.2, 0.1, 0.1, 0.15, 0.05])
    if kind == "flip":
        for position in rng.integers(0, len(data), int(rng.integers(1, 9))):
            data[position] ^= 1 << int(rng.integers(8))
    elif kind == "cut":
        del data[at:]
    elif kind == "insert":
        data[at:at] = rng.bytes(int(rng.integers(1, 40)))
    elif kind == "zero":
        data[at : at + 16] = bytes(len(data[at : at + 16]))
    elif kind == "repeat":
        data[at:at] = data[max(0, at - 60) : at]
    else:
        data.clear()
    path.write_bytes(data)
    return f"{path.name}: {kind} at {at}"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in inner for found in [(*path, key), *places(item, (*path, key))]]


def mutate_tree(rng: Rng, tree: Any) -> str:
    """Change one value of JSON-like data."""
    ways = places(tree)
    way = ways[int(rng.integers(len(ways)))]
    holder = tree
    for key in way[:-1]:
        holder = holder[key]
    key, old = way[-1], holder[way[-1]]
    kind = rng.choice(["odd", "odd", "delete", "rename", "add", "near", "swap"])
    if kind == "delete":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
    elif kind == "add" and isinstance(holder, dict):
        holder["unknown"] = odd(rng)
    elif kind == "near" and isinstance(old, (int, float)):
        holder[key] = [old + 1, old - 1, old * 2, -old, old * 1e9, str(old)][int(rng.integers(6))]
    elif kind == "swap" and isinstance(holder, dict):
        other = str(rng.choice(list(holder)))
        holder[key], holder[other] = holder[other], old
    else:
        holder[key] = odd(rng)
        kind = "odd"
    new = repr(holder.get(key) if isinstance(holder, dict) else "...")[:60]
    return f"{'.'.join(map(str, way))}: {kind}, {new}"


def odd(rng: Rng) -> Any:
    """A value that fits almost nowhere."""
    return ODD[int(rng.integers(len(ODD)))]


def mutate_json(rng: Rng, path: Path) -> str:
    """Change one to three values of a JSON file."""
    tree = json.loads(path.read_text())
    said = [mutate_tree(rng, tree) for _ in range(int(rng.choice([1, 1, 1, 2, 3])))]
    path.write_text(json.dumps(tree))
    return f"{path.name}: {'; '.join(said)}"


def repair(checkpoint: Path) -> None:
    """Let a changed checkpoint state the checksums that it has, so that its content is what must be refused."""
    path = checkpoint / checkpoints.MANIFEST
    manifest = json.loads(path.read_text())
    files = manifest.get("files")
    for name, entry in (files if isinstance(files, dict) else {}).items():
        file = checkpoint / str(name)
        if isinstance(entry, dict) and file.name == name and file.is_file():
            data = file.read_bytes()
            entry |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    manifest["sha256"] = checkpoints._digest(manifest)
    path.write_text(json.dumps(manifest))


def mutate_manifest(rng: Rng, checkpoint: Path) -> str:
    """Change values of a checkpoint's description; its checksum is mended two times out of three."""
    said = mutate_json(rng, checkpoint / checkpoints.MANIFEST)
    if rng.random() < 2 / 3:
        repair(checkpoint)
        said += " (repaired)"
    return said


def mutate_header(rng: Rng, checkpoint: Path, file: str) -> str:
    """Change names, dtypes, shapes and offsets in a safetensors header; every checksum is mended."""
    path = checkpoint / file
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    name = str(rng.choice(list(header)))
    kind = rng.choice(["tree", "shape", "dtype", "length", "drop", "rename"])
    if kind == "shape":
        header[name]["shape"] = [[2**62, 4], [], [0, 2**60], [1] * 80, [-1], [10**30], [True]][int(rng.integers(7))]
    elif kind == "dtype":
        header[name]["dtype"] = str(rng.choice(["F64", "BF16", "U8", "I64", "F32", "BOOL", "object"]))
    elif kind == "drop":
        del header[name]
    elif kind == "rename":
        header[f"{name}x"] = header.pop(name)
    said = f"{file}: {kind} {mutate_tree(rng, header) if kind == 'tree' else name}"
    text = json.dumps(header).encode()
    size = int(rng.choice([0, 1, 2**32, 2**63 - 1, 99_999_999])) if kind == "length" else len(text)
    path.write_bytes(size.to_bytes(8, "little") + text + data[8 + length :])
    repair(checkpoint)
    return said


def mutate_arrays(rng: Rng, checkpoint: Path, file: str) -> str:
    """Other numbers, shapes and names in a file that is sound in itself; every checksum is mended."""
    path = checkpoint / file
    arrays = read_tensors(path)
    name = str(rng.choice(list(arrays)))
    array = arrays[name]
    kind = rng.choice(["nan", "huge", "noise", "shorter", "longer", "flat", "dtype", "drop", "extra", "minus"])
    if kind in ("nan", "huge") and array.dtype.kind == "f":
        array.flat[: max(1, array.size // 2)] = np.nan if kind == "nan" else 1e38
    elif kind == "noise":
        array.view(np.uint8).flat[:] = np.frombuffer(rng.bytes(array.nbytes), np.uint8) & (array.dtype.kind != "b" or 1)
    elif kind == "minus" and array.dtype.kind in "if":
        array.flat[:] = -1_000_000
    elif kind == "flat":
        arrays[name] = array.reshape(-1)
    elif kind == "dtype":
        arrays[name] = array.astype(np.float64 if array.dtype != np.float64 else np.int32)
    elif kind == "drop":
        del arrays[name]
    elif kind == "extra":
        arrays["extra"] = np.zeros(3, np.float32)
    elif kind == "longer" and array.ndim:
        arrays[name] = np.concatenate([array, array])
    elif array.ndim:
        arrays[name] = np.ascontiguousarray(array[: len(array) // 2])
    write_tensors(path, arrays)
    repair(checkpoint)
    return f"{file}: {kind} {name}"


TOKENS = (
    *("=", "[", "]", "[[", "]]", "{", "}", ",", ".", "\n", "\n", '"', '"""', "'", "#", "\\", "\t", "\r", "\0", "é"),
    *("1", "-1", "1e400", "9" * 400, "0x" + "f" * 50, "nan", "inf", "true", "1979-05-27", '"none"', '"x"', "1.5"),
    *("algorithm", '"dqn"', "[run]", "[env]", "[net]", "[dqn]", "steps", "hidden", "id", "kwargs", "imports", "gamma"),
    *('"CartPole-v1"', f'"{PLANTED}:Env-v0"', f'["{PLANTED}"]', "format_version", "a.b.c.d", "unknown"),
)


def random_toml(rng: Rng, text: str, tokens: Sequence[str] = TOKENS) -> str:
    """A recipe with tokens put in, lines swapped, values replaced; or nothing but tokens."""
    if rng.random() < 0.1:
        return "".join(str(token) for token in rng.choice(tokens, 40))
    if rng.random() < 0.1:
        depth = int(rng.choice([50, 500, 50_000]))
        return f"{text}\n[net]\nhidden = {'[' * depth}{']' * depth}\n"
    lines = text.splitlines()
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(lines)))
        kind = rng.choice(["token", "value", "double", "drop", "table"])
        if kind == "value" and "=" in lines[at]:
            lines[at] = f"{lines[at].partition('=')[0]}= {rng.choice(tokens)}"
        elif kind == "table":
            lines[at] = f"{lines[at].partition('=')[0].strip(' []')}.x.y = {rng.choice(tokens)}"
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "drop" and len(lines) > 1:
            del lines[at]
        else:
            cut = int(rng.integers(len(lines[at]) + 1))
            lines[at] = f"{lines[at][:cut]}{rng.choice(tokens)}{lines[at][cut:]}"
    return "\n".join(lines)
