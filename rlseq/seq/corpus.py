"""A text as numbers: one array of tokens, mapped from a cache on disk.

The cache is `$RLSEQ_CACHE`, or `.cache/rlseq` in the home folder. A corpus stands there as `<key>.npy` (its tokens) and
`<key>.json` (its vocabulary, and a checksum of both), the key being the SHA-256 of content and unit: another text never
finds it, and a damaged one is noticed and made anew. Anything in the folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from rlseq.errors import RlseqError, UsageError
from rlseq.files import CHUNK, explained, write_atomic, write_bytes
from rlseq.memory import check_memory
from rlseq.seq.sources import Source, find_source, stream, stream_text
from rlseq.sequence import BYTES, Tokenizer

CACHE_FORMAT = 1
MAX_VOCABULARY = 1 << 16  # two bytes a token
CODE_POINTS = 0x110000


class Corpus(NamedTuple):
    """A text.

    Attributes:
        tokenizer: its vocabulary: the characters that occur, sorted, or the 256 bytes.
        tokens: `[N]` uint8 or uint16, read-only; mapped from the cache if there is one.
        sha256: of the content: the files' bytes, joined by line ends. Of a single file it is the file's own.
        description: name and size.
        files: what it was read from.
        notes: what the user should know.
    """

    tokenizer: Tokenizer
    tokens: np.ndarray
    sha256: str
    description: str
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands beside cached tokens."""

    format_version: int = CACHE_FORMAT
    key: str
    tokenizer: Tokenizer
    num_tokens: Annotated[int, Meta(ge=1)]
    sha256: str = ""  # of this record without the checksum, and the file of tokens


class _Damaged(Exception):
    """A cached corpus is not what was once written."""


def read_corpus(data: str | None, pattern: str = "*", unit: str = "auto") -> Corpus:
    """Read a text, or find it in the cache.

    Args:
        data: a text file, or a folder of them; None: the source of Python's standard library.
        pattern: which files of a folder are read; see `rlseq.seq.sources.find_source`.
        unit: what a token is: `char`, `byte`, or `auto`: a character, but a byte if there are more than 256 different
            characters. With `byte` any file may be read, text or not.

    Raises:
        UsageError: nothing to read, or no text (see `rlseq.seq.sources`), or more than 65,536 different characters.
    """
    source = find_source(data, pattern)
    sha256 = _content_sha256(source)
    key = hashlib.sha256(f"tokens {CACHE_FORMAT} {unit} {sha256}".encode()).hexdigest()
    tokenizer, tokens, notes = _cached(source, sha256, key, unit)
    what = "bytes" if tokenizer.unit == "byte" else f"characters, {tokenizer.size} different"
    files = f"{len(source.files)} files, " if len(source.files) > 1 else ""
    return Corpus(tokenizer, tokens, sha256, f"{source.name} ({files}{len(tokens)} {what})", source.files, tuple(notes))


def _content_sha256(source: Source) -> str:
    digest = hashlib.sha256()
    for _ in stream(source, digest):
        pass
    return digest.hexdigest()


def _cached(source: Source, sha256: str, key: str, unit: str) -> tuple[Tokenizer, np.ndarray, list[str]]:
    """Tokenizer and tokens from the cache, where they are put if they are not there; and what is to be said of it."""
    notes: list[str] = []
    folder = cache_folder()
    if folder is not None:
        try:
            found = _open(folder, key)
            if found is not None:
                return *found, notes
        except _Damaged as error:
            notes.append(f"the cached tokens {folder / key}.npy were {error} and have been made anew")
    tokenizer, count = _survey(source, unit)
    if folder is None:
        notes.append("there is no home folder, so the tokens are not cached; set RLSEQ_CACHE to a folder")
    else:
        try:
            _write(folder, source, sha256, _Record(key=key, tokenizer=tokenizer, num_tokens=count))
            found = _open(folder, key)
            if found is not None:
                return *found, notes
            notes.append(f"{folder / key}.npy was removed while it was read, so the tokens are not cached")
        except UsageError:
            raise
        except _Damaged as error:
            notes.append(f"the cached tokens {folder / key}.npy were {error} as soon as written, and are not used")
        except RlseqError as error:
            reason = getattr(error.__cause__, "strerror", None) or error
            notes.append(f"{folder} cannot be written ({reason}), so the tokens are not cached; set RLSEQ_CACHE")
    return tokenizer, _in_memory(source, sha256, tokenizer, count), notes


def cache_folder() -> Path | None:
    """Where tokens are kept; None where there is no home folder either."""
    if named := os.environ.get("RLSEQ_CACHE"):
        return Path(named)
    try:
        return Path.home() / ".cache" / "rlseq"
    except RuntimeError:
        return None


def _survey(source: Source, unit: str) -> tuple[Tokenizer, int]:
    """The vocabulary of a text, and its number of tokens."""
    if unit == "byte":
        return Tokenizer(unit="byte"), sum(len(piece.data) for piece in stream(source))
    seen = np.zeros(CODE_POINTS, bool)
    num_characters = num_bytes = 0
    for text in stream_text(source):
        seen[_code_points(text)] = True
        num_characters += len(text)
        num_bytes += len(text) if text.isascii() else len(text.encode())
    characters = "".join(map(chr, np.flatnonzero(seen).tolist()))
    if unit == "auto" and len(characters) > BYTES:
        return Tokenizer(unit="byte"), num_bytes
    if len(characters) > MAX_VOCABULARY:
        raise UsageError(
            f"{source.name} has {len(characters)} different characters, at most {MAX_VOCABULARY} can be tokens: "
            "set seq.unit=byte"
        )
    return Tokenizer(unit="char", characters=characters), num_characters


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def _dtype(tokenizer: Tokenizer) -> np.dtype:
    return np.dtype("u1" if tokenizer.size <= BYTES else "<u2")


def _tokens(source: Source, sha256: str, tokenizer: Tokenizer, count: int) -> Iterator[np.ndarray]:
    """The tokens in pieces.

    Raises:
        UsageError: the files are no longer those whose checksum was taken.
    """
    digest, done = hashlib.sha256(), 0
    for tokens in _encoded(source, tokenizer, digest):
        done += len(tokens)
        if done > count:
            break
        yield tokens
    if done != count or digest.hexdigest() != sha256:
        raise UsageError(f"{source.name} was changed while it was read; try again once nothing writes to it")


def _encoded(source: Source, tokenizer: Tokenizer, digest: Any) -> Iterator[np.ndarray]:
    if tokenizer.unit == "byte":
        for piece in stream(source, digest):
            yield np.frombuffer(piece.data, np.uint8)
        return
    table = np.zeros(CODE_POINTS, _dtype(tokenizer))
    table[_code_points(tokenizer.characters)] = np.arange(tokenizer.size)
    for text in stream_text(source, digest):
        yield table[_code_points(text)]


def _in_memory(source: Source, sha256: str, tokenizer: Tokenizer, count: int) -> np.ndarray:
    check_memory(count * _dtype(tokenizer).itemsize, f"{source.name} in memory", "set RLSEQ_CACHE to a folder on disk")
    array, done = np.empty(count, _dtype(tokenizer)), 0
    for tokens in _tokens(source, sha256, tokenizer, count):
        array[done : done + len(tokens)] = tokens
        done += len(tokens)
    array.flags.writeable = False
    return array


def _write(folder: Path, source: Source, sha256: str, record: _Record) -> None:
    """Put tokens into the cache: first the array, then the record that vouches for it.

    Raises:
        RlseqError: the folder cannot be written.
        UsageError: the files were changed meanwhile.
    """
    with explained(folder, "write"):
        folder.mkdir(parents=True, exist_ok=True)
    tokenizer, count = record.tokenizer, record.num_tokens
    header = io.BytesIO()
    shape = {"descr": _dtype(tokenizer).str, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(header, shape)
    digest = _record_digest(record)  # of what is to stand there: a disk that stores something else is found out

    def write(file: IO[bytes]) -> None:
        parts = (tokens.tobytes() for tokens in _tokens(source, sha256, tokenizer, count))
        for data in itertools.chain([header.getvalue()], parts):
            digest.update(data)
            file.write(data)

    path = folder / f"{record.key}.npy"
    write_atomic(path, write)
    signed = msgspec.structs.replace(record, sha256=digest.hexdigest())
    write_bytes(path.with_suffix(".json"), msgspec.json.encode(signed))


def _record_digest(record: _Record) -> Any:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(record, sha256="")))


def _open(folder: Path, key: str) -> tuple[Tokenizer, np.ndarray] | None:
    """Tokenizer and mapped tokens of a key; None if they are not there.

    Raises:
        _Damaged: they are not what was written.
    """
    path = folder / f"{key}.npy"
    try:
        record = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=_Record)
        if record.format_version != CACHE_FORMAT or record.key != key:
            raise _Damaged("of another text")
        digest = _record_digest(record)
        with open(path, "rb") as file:
            while data := file.read(CHUNK):
                digest.update(data)
        if digest.hexdigest() != record.sha256:
            raise _Damaged("damaged")
        tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _Damaged(f"unreadable ({error})") from None
    return record.tokenizer, tokens
