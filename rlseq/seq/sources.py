"""Which files a corpus is made of, and their contents as one stream, so that a text may be larger than the memory."""

from __future__ import annotations

import codecs
import os
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from rlseq.errors import UsageError, check_name

CHUNK = 1 << 20  # bytes read at once
SEPARATOR = b"\n"  # between two files

# Of the standard library's folders, these hold no library code: tests, other people's packages, generated tables.
NOT_LIBRARY = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data"})
LIBRARY_BYTES = 1 << 25  # at most this much of it is read: a second's work, and three times what Python 3.11 has


class Source(NamedTuple):
    """Files, none of them empty, in the order in which they are read.

    Attributes:
        name: what messages call them.
        files: their paths.
    """

    name: str
    files: tuple[Path, ...]


class Piece(NamedTuple):
    """Bytes of a file.

    Attributes:
        path: the file.
        offset: where in it they begin; `len(file)` for the separator that follows it.
        data: the bytes.
        separator: whether they stand between this file and the next.
    """

    path: Path
    offset: int
    data: bytes
    separator: bool = False


def find_source(data: str | None, pattern: str) -> Source:
    """The files to read.

    Of a folder: every regular file below it whose name or path in it matches `pattern`, sorted by that path. Names that
    begin with a dot are passed over, links to folders are not followed, and a file that has several names (links) is
    read once, so that no text stands in both training and validation by way of a link.

    Args:
        data: a file or a folder; None: the standard library of the running Python (`library_files`).
        pattern: as in a shell: `*.txt`, `poems/*`.

    Raises:
        UsageError: there is no such file, nothing in it, or it cannot be read.
    """
    if data is None:
        return _library()
    check_name(data, "the data")
    path, name = Path(data), os.fsencode(data).decode(errors="replace")
    try:
        mode = path.stat().st_mode if data else 0
    except (OSError, ValueError) as error:
        raise UsageError(_missing(data, error)) from None
    if stat.S_ISDIR(mode):
        files = _walk(path, lambda name: fnmatchcase(name.rpartition("/")[2], pattern) or fnmatchcase(name, pattern))
        if not files:
            raise UsageError(
                f"the folder {data} holds no file with something in it whose name matches {pattern!r}; "
                "set seq.pattern, or give another folder: --data PATH"
            )
        return Source(name, tuple(files))
    if not stat.S_ISREG(mode):
        raise UsageError(f"the data {data!r} is neither a file nor a folder; give one: --data PATH")
    if path.stat().st_size == 0:
        raise UsageError(f"the file {data} is empty; give one with text in it: --data PATH")
    return Source(name, (path,))


def _missing(data: str, error: OSError | ValueError) -> str:
    if isinstance(error, (FileNotFoundError, NotADirectoryError, ValueError)):
        return f"there is no file or folder {data!r} (from {os.getcwd()}); give one that exists: --data PATH"
    return f"cannot read {data}: {error.strerror}. Give a file or folder that you may read: --data PATH"


def _library() -> Source:
    """`*.py` of the running Python's standard library, as far as it is ASCII.

    Without `NOT_LIBRARY` and the build machine's settings (`_sysconfigdata*`). The few files with other characters
    are left out so that the vocabulary is that of code, a hundred characters. At most `LIBRARY_BYTES`.
    """
    version = ".".join(map(str, sys.version_info[:2]))
    root = Path(sysconfig.get_paths()["stdlib"])
    files: list[Path] = []
    left = LIBRARY_BYTES
    for file in _walk(root, _is_library_code, NOT_LIBRARY) if root.is_dir() else []:
        if all(piece.data.isascii() and b"\0" not in piece.data for piece in stream(Source("", (file,)))):
            left -= file.stat().st_size
            if left < 0:
                break
            files.append(file)
    if not files:
        raise UsageError(
            f"this Python has no source of its standard library in {root}; give a text of your own: --data PATH"
        )
    return Source(f"Python {version}'s standard library", tuple(files))


def _is_library_code(name: str) -> bool:
    return name.endswith(".py") and not name.rpartition("/")[2].startswith("_sysconfigdata")


def _walk(folder: Path, wanted: Callable[[str], bool], without: frozenset[str] = frozenset()) -> list[Path]:
    """Regular files below a folder that are not empty, sorted by path, each once.

    Args:
        folder: which.
        wanted: tells by a file's path below the folder (with `/`).
        without: names of folders that are passed over.

    Raises:
        UsageError: a folder, or a file that is wanted, cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise unreadable(Path(error.filename or folder), error)

    found: list[tuple[str, Path]] = []
    for where, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if name not in without and not name.startswith(".")]
        for name in names:
            path = Path(where, name)
            below = path.relative_to(folder).as_posix()
            if not name.startswith(".") and wanted(below):
                found.append((below, path))
    files, seen = [], set()
    for _, path in sorted(found):
        try:
            info = path.stat()
        except OSError as error:
            raise unreadable(path, error) from None
        if stat.S_ISREG(info.st_mode) and info.st_size and (info.st_dev, info.st_ino) not in seen:
            seen.add((info.st_dev, info.st_ino))
            files.append(path)
    return files


def unreadable(path: Path, error: OSError) -> UsageError:
    """What to say of a file that cannot be read."""
    return UsageError(
        f"cannot read {path}: {error.strerror or error}. Make it readable, or leave it out: set seq.pattern to what "
        "you want"
    )


def stream(source: Source, digest: Any = None) -> Iterator[Piece]:
    """The files' bytes as they are, joined by `SEPARATOR`.

    Args:
        source: the files.
        digest: of hashlib; is updated with all that is read.

    Raises:
        UsageError: a file cannot be read.
    """
    for number, path in enumerate(source.files):
        offset = 0
        try:
            with open(path, "rb") as file:
                while data := file.read(CHUNK):
                    if digest is not None:
                        digest.update(data)
                    yield Piece(path, offset, data)
                    offset += len(data)
        except OSError as error:
            raise unreadable(path, error) from None
        if number + 1 < len(source.files):
            if digest is not None:
                digest.update(SEPARATOR)
            yield Piece(path, offset, SEPARATOR, separator=True)


def stream_text(source: Source, digest: Any = None) -> Iterator[str]:
    """The files' text, joined by a line end. Line ends and byte order marks stay as they are.

    Raises:
        UsageError: a file is no text: it is not UTF-8, or has NUL bytes; named with the place.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    piece = None
    for piece in stream(source, digest):
        if piece.separator:
            yield _decoded(decoder, piece, b"", final=True)
            yield SEPARATOR.decode()
            continue
        if (place := piece.data.find(b"\0")) >= 0:
            raise _no_text(piece.path, piece.offset + place, "a NUL byte")
        yield _decoded(decoder, piece, piece.data, final=False)
    if piece is not None:
        yield _decoded(decoder, piece._replace(offset=piece.offset + len(piece.data)), b"", final=True)


def _decoded(decoder: codecs.IncrementalDecoder, piece: Piece, data: bytes, final: bool) -> str:
    begun = len(decoder.getstate()[0])  # bytes of a character whose rest is still to come
    try:
        return decoder.decode(data, final)
    except UnicodeDecodeError as error:
        what = f"the byte 0x{error.object[error.start]:02x}, which is no UTF-8"
        raise _no_text(piece.path, piece.offset - begun + error.start, what) from None


def _no_text(path: Path, offset: int, what: str) -> UsageError:
    return UsageError(
        f"{path} is no text: it has {what}, at byte {offset}. Leave it out (seq.pattern), convert it to UTF-8, or read "
        "it as bytes: --set seq.unit=byte"
    )
