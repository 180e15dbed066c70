"""Tokens against a naive twin, and a cache that is right or not used."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlseq import memory
from rlseq.errors import UsageError
from rlseq.seq import corpus as corpora
from rlseq.seq import sources
from rlseq.seq.corpus import Corpus, cache_folder, read_corpus

TEXT = "Wer reitet so spät\r\ndurch Nacht und Wind?\n"


def file(folder: Path, text: str | bytes, name: str = "text.txt") -> str:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / name)


def assert_is(corpus: Corpus, text: str) -> None:
    """The corpus is this text, character by character."""
    characters = "".join(sorted(set(text)))
    assert corpus.tokenizer.unit == "char" and corpus.tokenizer.characters == characters
    assert corpus.tokens.tolist() == [characters.index(character) for character in text]
    assert corpus.tokenizer.decode(np.asarray(corpus.tokens)) == text


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(
        {
            "first byte": bytes([data[0] ^ 1]) + data[1:],
            "middle byte": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "last byte": data[:-1] + bytes([data[-1] ^ 1]),
            "shorter": data[:-1],
            "longer": data + b"\0",
            "empty": b"",
        }[how]
    )


def no_tokenising(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("tokenised again")

    monkeypatch.setattr(corpora, "_survey", fail)
    monkeypatch.setattr(corpora, "_encoded", fail)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), chunk=st.integers(1, 9)
)
def test_tokens_are_those_of_a_naive_twin(tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int) -> None:
    data = file(tmp_path_factory.mktemp("data"), text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CHUNK", chunk)
        for _ in range(2):  # made, and from the cache
            assert_is(read_corpus(data), text)
            as_bytes = read_corpus(data, unit="byte")
            assert bytes(as_bytes.tokens) == text.encode()
            assert as_bytes.tokenizer.unit == "byte" and as_bytes.tokenizer.size == 256


def test_line_ends_and_byte_order_marks_stay(tmp_path: Path) -> None:
    assert_is(read_corpus(file(tmp_path, "\ufeffa\r\nb\rc\n")), "\ufeffa\r\nb\rc\n")


def test_the_checksum_is_the_content_s(tmp_path: Path) -> None:
    one = read_corpus(file(tmp_path, TEXT))
    assert one.sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
    assert one.description == f"{tmp_path}/text.txt (42 characters, 20 different)"
    assert one.files == (tmp_path / "text.txt",) and one.notes == ()
    file(tmp_path, "zwei", "b.txt")
    both = read_corpus(str(tmp_path))
    assert both.sha256 == hashlib.sha256(b"zwei\n" + TEXT.encode()).hexdigest()
    assert_is(both, "zwei\n" + TEXT)
    assert both.description == f"{tmp_path} (2 files, 47 characters, 22 different)"
    assert read_corpus(file(tmp_path, "zwei"), unit="byte").description == f"{tmp_path}/text.txt (4 bytes)"


@pytest.mark.parametrize(
    ("different", "unit", "chosen", "dtype"),
    [
        (256, "auto", "char", np.uint8),
        (257, "auto", "byte", np.uint8),
        (257, "char", "char", np.uint16),
        (65_536, "char", "char", np.uint16),
        (65_537, "auto", "byte", np.uint8),
        (1, "auto", "char", np.uint8),
    ],
)
def test_the_unit(tmp_path: Path, different: int, unit: str, chosen: str, dtype: type) -> None:
    text = "".join(map(chr, range(0x10000, 0x10000 + different))) * 2
    corpus = read_corpus(file(tmp_path, text), unit=unit)
    assert corpus.tokenizer.unit == chosen and corpus.tokens.dtype == dtype
    if chosen == "char":
        assert corpus.tokenizer.size == different
        np.testing.assert_array_equal(corpus.tokens, [*range(different), *range(different)])
    else:
        assert bytes(corpus.tokens) == text.encode()


def test_more_characters_than_tokens_can_name(tmp_path: Path) -> None:
    data = file(tmp_path, "".join(map(chr, range(0x10000, 0x10000 + 65_537))))
    with pytest.raises(UsageError, match=r"65537 different characters, at most 65536 can be tokens: set seq.unit=byte"):
        read_corpus(data, unit="char")


@pytest.mark.parametrize("data", [b"\x89PNG\0\0", b"caf\xe9", b"ab\0"])
def test_binary_files_only_as_bytes(tmp_path: Path, cache: Path, data: bytes) -> None:
    path = file(tmp_path, data)
    for unit in ("auto", "char"):
        with pytest.raises(UsageError, match=r"text.txt is no text: .* at byte \d.*--set seq.unit=byte"):
            read_corpus(path, unit=unit)
    assert list(cache.iterdir()) == []
    assert bytes(read_corpus(path, unit="byte").tokens) == data


def test_the_second_time_nothing_is_tokenised(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = file(tmp_path, TEXT)
    first = read_corpus(data)
    no_tokenising(monkeypatch)
    second = read_corpus(data)
    assert second.notes == ()
    assert_is(second, TEXT)
    for corpus in (first, second):
        assert isinstance(corpus.tokens, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            corpus.tokens[0] = 1
    with pytest.raises(AssertionError, match="tokenised again"):
        read_corpus(data, unit="byte")  # another unit is another key
    (tmp_path / "text.txt").write_text(TEXT + " ")
    with pytest.raises(AssertionError, match="tokenised again"):
        read_corpus(data)


@pytest.mark.parametrize("suffix", [".npy", ".json"])
@pytest.mark.parametrize("how", ["first byte", "middle byte", "last byte", "shorter", "longer", "empty"])
def test_a_damaged_cache_is_noticed_and_made_anew(tmp_path: Path, cache: Path, suffix: str, how: str) -> None:
    data = file(tmp_path, TEXT)
    read_corpus(data)
    (path,) = cache.glob(f"*{suffix}")
    whole = path.read_bytes()
    damage(path, how)
    again = read_corpus(data)
    assert_is(again, TEXT)
    assert len(again.notes) == 1 and "made anew" in again.notes[0] and str(path.with_suffix(".npy")) in again.notes[0]
    assert path.read_bytes() == whole
    assert read_corpus(data).notes == ()


def test_another_text_s_tokens_under_this_key_are_not_used(tmp_path: Path, cache: Path) -> None:
    """A pair of files that agree with each other, and a vocabulary of other characters beside the right tokens."""
    data, other = file(tmp_path, TEXT), file(tmp_path, TEXT.upper(), "other.txt")
    read_corpus(data)
    (key,) = (path.stem for path in cache.glob("*.npy"))
    read_corpus(other)
    (other_key,) = (path.stem for path in cache.glob("*.npy") if path.stem != key)
    for suffix in (".npy", ".json"):
        shutil.copy(cache / (other_key + suffix), cache / (key + suffix))
    again = read_corpus(data)
    assert_is(again, TEXT)
    assert "were of another text and have been made anew" in again.notes[0]

    record = msgspec.json.decode((cache / f"{key}.json").read_bytes())
    record["tokenizer"]["characters"] = record["tokenizer"]["characters"][::-1]
    (cache / f"{key}.json").write_bytes(msgspec.json.encode(record))
    again = read_corpus(data)
    assert_is(again, TEXT)
    assert "were damaged and have been made anew" in again.notes[0]


def test_no_code_is_run_from_the_cache(tmp_path: Path, cache: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "trapped"),)

    data = file(tmp_path, TEXT)
    read_corpus(data)
    (path,) = cache.glob("*.npy")
    np.save(path, np.array([Trap()], object), allow_pickle=True)
    record = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=corpora._Record)
    digest = corpora._record_digest(record)
    digest.update(path.read_bytes())
    path.with_suffix(".json").write_bytes(
        msgspec.json.encode(msgspec.structs.replace(record, sha256=digest.hexdigest()))
    )
    again = read_corpus(data)
    assert not (tmp_path / "trapped").exists()
    assert_is(again, TEXT)
    assert "unreadable" in again.notes[0]


def test_a_file_of_the_pair_that_is_missing_is_no_damage(tmp_path: Path, cache: Path) -> None:
    data = file(tmp_path, TEXT)
    for suffix in (".npy", ".json"):
        read_corpus(data)
        next(cache.glob(f"*{suffix}")).unlink()
        again = read_corpus(data)
        assert_is(again, TEXT)
        assert again.notes == () and isinstance(again.tokens, np.memmap)


def test_a_folder_that_cannot_be_written_leaves_the_tokens_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLSEQ_CACHE", file(tmp_path, "a file", "taken"))
    corpus = read_corpus(file(tmp_path, TEXT))
    assert_is(corpus, TEXT)
    assert len(corpus.notes) == 1
    assert f"{tmp_path}/taken cannot be written (" in corpus.notes[0] and "set RLSEQ_CACHE" in corpus.notes[0]
    with pytest.raises(ValueError, match="read-only"):
        corpus.tokens[0] = 1


def test_a_full_disk_leaves_the_tokens_in_memory_and_nothing_behind(tmp_path: Path, cache: Path) -> None:
    data = file(tmp_path, TEXT * 100)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        corpus = read_corpus(data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_is(corpus, TEXT * 100)
    assert f"{cache} cannot be written (File too large), so the tokens are not cached" in corpus.notes[0]
    assert list(cache.iterdir()) == []


def test_tokens_that_do_not_fit_into_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = file(tmp_path, TEXT)
    monkeypatch.setattr(memory, "available_memory", lambda: 10)
    assert_is(read_corpus(data), TEXT)
    monkeypatch.setenv("RLSEQ_CACHE", data)
    with pytest.raises(UsageError, match=r"text.txt in memory takes .* set RLSEQ_CACHE to a folder on disk"):
        read_corpus(data)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RLSEQ_CACHE", "")
    assert cache_folder() == tmp_path / ".cache/rlseq"
    monkeypatch.delenv("RLSEQ_CACHE")
    assert cache_folder() == tmp_path / ".cache/rlseq"
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    corpus = read_corpus(file(tmp_path, TEXT))
    assert_is(corpus, TEXT)
    assert corpus.notes == ("there is no home folder, so the tokens are not cached; set RLSEQ_CACHE to a folder",)


@pytest.mark.parametrize("after", [TEXT + "x", TEXT[:-1], TEXT.replace("Wer", "reW"), TEXT[:-1] + "\0"])
@pytest.mark.parametrize("cached", [True, False])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, after: str, cached: bool
) -> None:
    data = file(tmp_path, TEXT)
    survey = corpora._survey

    def survey_and_change(*arguments: Any) -> Any:
        result = survey(*arguments)
        file(tmp_path, after)
        return result

    monkeypatch.setattr(corpora, "_survey", survey_and_change)
    if not cached:
        monkeypatch.setenv("RLSEQ_CACHE", data)
    with pytest.raises(UsageError, match=r"was changed while it was read|NUL byte"):
        read_corpus(data)
    assert list(cache.iterdir()) == []


def test_a_corpus_is_read_in_pieces(tmp_path: Path) -> None:
    size = 48 * 2**20
    data = file(tmp_path, b"0123456789abcde\n" * (size // 16))
    tracemalloc.start()
    try:
        corpus = read_corpus(data)
        assert int(corpus.tokens[-1]) == 0 and len(corpus.tokens) == size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20  # a third of the file; in truth 10 MiB, however large it is


RACER = """
import hashlib, os, sys, time
from rlseq.seq.corpus import read_corpus
data, folder, start = sys.argv[1], sys.argv[2], float(sys.argv[3])
for k in range(12):
    os.environ["RLSEQ_CACHE"] = f"{folder}/{k}"
    time.sleep(max(0, start + 0.1 * k - time.time()))
    corpus = read_corpus(data)
    assert type(corpus.tokens).__name__ == "memmap", type(corpus.tokens)
    print(k, hashlib.sha256(corpus.tokens.tobytes()).hexdigest(), *corpus.notes)
"""


def test_processes_that_build_the_cache_at_once(tmp_path: Path) -> None:
    data = file(tmp_path, "".join(map(chr, range(32, 127))) * 4000)
    command = [sys.executable, "-c", RACER, data, str(tmp_path / "caches"), str(time.time() + 1.5)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [racer.communicate()[0].splitlines() for racer in racers]
    right = hashlib.sha256(bytes(range(95)) * 4000).hexdigest()
    assert said == [[f"{k} {right}" for k in range(12)]] * 3
    for k in range(12):
        assert len(list((tmp_path / "caches" / str(k)).iterdir())) == 2
