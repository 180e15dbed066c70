"""Which files are read, in which order, and what cannot be read."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from rlseq.errors import UsageError
from rlseq.seq import sources
from rlseq.seq.sources import Source, find_source, stream, stream_text


def make(folder: Path, **texts: str) -> Path:
    """Files by name, `__` standing for a slash and `_` for a dot."""
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")
    return folder


def names(source: Source, folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in source.files]


def test_a_folder_s_files_by_path_without_the_hidden_and_the_empty(tmp_path: Path) -> None:
    make(tmp_path, b_txt="b", a__z_txt="z", a_txt="a", c_md="c", _hidden_txt="h", _git__config="g", empty_txt="")
    assert names(find_source(str(tmp_path), "*"), tmp_path) == ["a.txt", "a/z.txt", "b.txt", "c.md"]
    assert names(find_source(str(tmp_path), "*.txt"), tmp_path) == ["a.txt", "a/z.txt", "b.txt"]
    assert names(find_source(str(tmp_path), "a/*"), tmp_path) == ["a/z.txt"]


def test_links(tmp_path: Path) -> None:
    """To a file outside: followed. To one that is read anyway: not twice. To a folder, which may hold itself: not."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    make(inside, b_txt="b", sub__c_txt="c")
    make(outside, o_txt="o")
    (inside / "a.txt").symlink_to(inside / "b.txt")
    (inside / "sub/hard.txt").hardlink_to(inside / "sub/c.txt")
    (inside / "out.txt").symlink_to(outside / "o.txt")
    (inside / "loop").symlink_to(inside)
    (inside / "broken.md").symlink_to(tmp_path / "nowhere")
    found = find_source(str(inside), "*.txt")
    assert names(found, inside) == ["a.txt", "out.txt", "sub/c.txt"]
    assert "".join(stream_text(found)) == "b\no\nc"
    (tmp_path / "link").symlink_to(inside)
    assert len(find_source(str(tmp_path / "link"), "*.txt").files) == 3  # what the user names is followed
    with pytest.raises(UsageError, match=r"cannot read .*broken.md: No such file.*seq.pattern"):
        find_source(str(inside), "*")


def test_what_is_no_file_is_passed_over_in_a_folder_and_refused_by_name(tmp_path: Path) -> None:
    make(tmp_path, a_txt="a")
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    assert names(find_source(str(tmp_path), "*"), tmp_path) == ["a.txt"]
    with pytest.raises(UsageError, match=r"pipe' is neither a file nor a folder.*--data PATH"):
        find_source(str(tmp_path / "pipe"), "*")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("nowhere.txt", r"there is no file or folder 'nowhere.txt' \(from /.*--data PATH"),
        ("a.txt/b", r"there is no file or folder 'a.txt/b'"),
        ("nul\0byte", r"there is no file or folder 'nul\\x00byte'"),
        ("", r"the data '' is neither a file nor a folder"),
        ("x" * 5000, r"has 5000 letters: no file has so long a name"),
        ("loop", r"cannot read loop: Too many levels of symbolic links"),
        ("empty.txt", r"the file empty.txt is empty; give one with text in it: --data PATH"),
        ("folder", r"the folder folder holds no file .* matches '\*.txt'; set seq.pattern"),
    ],
)
def test_nothing_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, message: str) -> None:
    make(tmp_path, a_txt="a", empty_txt="", folder__a_md="a", folder__empty_txt="")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        find_source(data, "*.txt")


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for the system: root, whom tests may run as, can read everything."""
    make(tmp_path, a_txt="a", b_txt="b", sub__c_txt="c")
    really_open, really_scan = open, os.scandir

    def refuse_file(path: Any, *rest: Any) -> Any:
        if Path(path).name == "b.txt":
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, *rest)

    def refuse_folder(path: Any) -> Any:
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied", str(path))
        return really_scan(path)

    monkeypatch.setattr("builtins.open", refuse_file)
    with pytest.raises(UsageError, match=r"cannot read \S*/b.txt: Permission denied. .*leave it out: set seq.pattern"):
        list(stream(find_source(str(tmp_path), "*")))
    monkeypatch.setattr("os.scandir", refuse_folder)
    with pytest.raises(UsageError, match=r"cannot read \S*/sub: Permission denied"):
        find_source(str(tmp_path), "*")


@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 20])
def test_text_is_the_files_text_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(sources, "CHUNK", chunk)
    make(tmp_path, a_txt="\ufeffäß€😀\r\nb\r", b_txt="\n", c_txt="ende")
    source = find_source(str(tmp_path), "*")
    assert "".join(stream_text(source)) == "\ufeffäß€😀\r\nb\r\n\n\nende"
    assert b"".join(piece.data for piece in stream(source)) == "\ufeffäß€😀\r\nb\r\n\n\nende".encode()


@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize(
    ("data", "what", "place"),
    [
        (b"caf\xe9 noir", "the byte 0xe9", 3),
        ("ä€ ".encode() + b"\xff", "the byte 0xff", 6),
        (b"abc" + "€".encode()[:2], "the byte 0xe2", 3),  # cut off
        ("ä".encode() * 4 + b"\0x", "a NUL byte", 8),
        ("text".encode("utf-16"), "the byte 0xff|a NUL byte", None),
    ],
)
def test_no_text_is_refused_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, data: bytes, what: str, place: int | None
) -> None:
    monkeypatch.setattr(sources, "CHUNK", chunk)
    (tmp_path / "bad.txt").write_bytes(data)
    make(tmp_path, a_txt="good", c_txt="good")
    where = rf"at byte {place}\." if place is not None else "at byte"
    for source in (find_source(str(tmp_path / "bad.txt"), "*"), find_source(str(tmp_path), "*")):
        with pytest.raises(UsageError, match=rf"bad.txt is no text: it has ({what}).*{where}.*seq.unit=byte"):
            list(stream_text(source))


def test_the_standard_library() -> None:
    root = Path(sysconfig.get_paths()["stdlib"])
    source = find_source(None, "*.nothing")  # a pattern is for folders
    paths = names(source, root)
    assert source.name == f"Python {sys.version_info.major}.{sys.version_info.minor}'s standard library"
    assert {"argparse.py", "json/decoder.py", "unittest/case.py"} <= set(paths)
    assert paths == sorted(paths)
    parts = {part for path in paths for part in path.split("/")[:-1]}
    assert not parts & {"test", "tests", "idle_test", "site-packages", "dist-packages"}
    assert all(path.endswith(".py") and "_sysconfigdata" not in path for path in paths)
    content = b"".join(piece.data for piece in stream(source))
    assert content.isascii()
    assert 2**20 < len(content) < 2**25 + len(paths)


def test_of_a_larger_library_the_first_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, a_py="a" * 40, b_py="ß", c_py="c" * 40, d_py="d" * 40, site__z_txt="z")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    assert names(find_source(None, "*"), tmp_path) == ["a.py", "c.py", "d.py"]
    monkeypatch.setattr(sources, "LIBRARY_BYTES", 100)
    assert names(find_source(None, "*"), tmp_path) == ["a.py", "c.py"]


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_python_without_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / name)})
    with pytest.raises(UsageError, match=rf"no source of its standard library in {re.escape(str(tmp_path))}.*--data"):
        find_source(None, "*")
