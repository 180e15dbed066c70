"""The task text: its split, its windows against a naive twin, its metrics by hand."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlseq.errors import UsageError
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqOptions
from rlseq.seq.corpus import Corpus, read_corpus
from rlseq.seq.tasks import text as texts
from rlseq.seq.tasks.table import TASKS
from rlseq.seq.tasks.task import Task
from rlseq.seq.tasks.text import TextTask, split_tokens, word_share, words_of
from rlseq.sequence import Tokenizer


def numbered(num: int) -> Corpus:
    """A corpus in which every token is its own place."""
    tokenizer = Tokenizer(unit="char", characters="".join(map(chr, range(0x10000, 0x10000 + num))))
    return Corpus(tokenizer, np.arange(num, dtype=np.uint16), "", "numbers", ())


def task_of(num: int, context: int, validation: float = 0.5) -> TextTask:
    return TextTask(SeqOptions(context=context, validation=validation), numbered(num))


def read(folder: Path, text: str, unit: str = "auto") -> Corpus:
    (folder / "text.txt").write_bytes(text.encode())
    return read_corpus(str(folder / "text.txt"), unit=unit)


def targets(batch: TokenBatch[np.ndarray]) -> list[int]:
    mask = np.ones_like(batch.targets, bool) if batch.mask is None else batch.mask
    return list(batch.targets[mask].tolist())


@pytest.mark.parametrize(
    ("num", "validation", "train"),
    [(1_115_394, 0.1, 1_003_854), (10, 0.9, 1), (10, 0.7, 3), (10, 0.3, 7), (1000, 0.001, 999), (7, 0.5, 3)],
)
def test_the_split(num: int, validation: float, train: int) -> None:
    corpus = Corpus(Tokenizer(unit="byte"), np.zeros(num, np.uint8), "", "", ())
    if num - train < 2 or train < 3:
        with pytest.raises(UsageError, match=f"leaves {train} tokens to train on and {num - train} for validation"):
            split_tokens(corpus, validation, 2)
    else:
        split = split_tokens(corpus, validation, 2)
        assert (len(split.train), len(split.validation)) == (train, num - train)


def test_training_and_validation_meet_and_do_not_overlap() -> None:
    split = split_tokens(numbered(20), 0.25, 3)
    assert split.train.tolist() == list(range(15)) and split.validation.tolist() == list(range(15, 20))


@pytest.mark.parametrize(
    ("num", "context", "validation", "message"),
    [
        (
            10,
            4,
            0.1,
            r"9 tokens to train on and 1 for validation \(seq.validation = 0.1\), .*set seq.validation higher",
        ),
        (1, 2, 0.1, r"0 tokens to train on and 1 for validation"),
        (
            100,
            90,
            0.1,
            r"90 tokens .* and 10 for validation .* a window needs 91: set seq.context or seq.validation lower",
        ),
    ],
)
def test_too_little_data(num: int, context: int, validation: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        task_of(num, context, validation)
    assert len(list(task_of(100, 89, 0.1).validation(1))) == 1  # the longest context that fits


@settings(max_examples=150, deadline=None)
@given(
    held=st.integers(2, 200),
    context=st.integers(2, 40),
    batch_size=st.integers(1, 9),
    max_tokens=st.none() | st.integers(1, 250),
)
def test_validation_covers_every_target_once(held: int, context: int, batch_size: int, max_tokens: int | None) -> None:
    num_train = context + 2  # one to spare: the share is rounded
    num = num_train + held
    task = TextTask(SeqOptions(context=context, validation=held / num), numbered(num))
    split = list(range(num))[len(task._split.train) :]
    batches = list(task.validation(batch_size, max_tokens))
    seen = [target for batch in batches for target in targets(batch)]
    if max_tokens is None or max_tokens >= len(split) - 1:
        assert seen == split[1:]
    else:
        assert len(set(seen)) == len(seen) <= max_tokens and set(seen) <= set(split[1:])
        assert len(seen) > max_tokens - 2 * context or len(seen) == max_tokens
        starts = [int(row[0]) for batch in batches for row in batch.inputs]
        gaps = np.diff(starts) // context
        assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1  # evenly spread
    for number, batch in enumerate(batches):
        rows = len(batch.inputs)
        assert batch.inputs.shape == batch.targets.shape == (rows, context)
        assert rows == batch_size or (number == len(batches) - 1 and 0 < rows <= batch_size)
        assert batch.inputs.dtype == batch.targets.dtype == np.int64
        mask = np.ones((rows, context), bool) if batch.mask is None else batch.mask
        np.testing.assert_array_equal(batch.inputs[mask] + 1, batch.targets[mask])
        assert not batch.inputs[~mask].any() and not batch.targets[~mask].any()
        assert batch.mask is None or not batch.mask.all()
        for row in mask:  # padding stands behind, where no causal network sees it
            assert row[: row.sum()].all()
    again = [target for batch in task.validation(batch_size + 1, max_tokens) for target in targets(batch)]
    assert again == seen


def test_a_part_of_the_validation_data_is_spread_over_all_of_it() -> None:
    task = task_of(200, 4, 0.5)  # 99 targets: 24 windows of 4, one of 3
    for max_tokens, starts in ((12, [0, 32, 64]), (40, [0, 8, 20, 28, 40, 48, 60, 68, 80, 88]), (3, [0])):
        batches = list(task.validation(100, max_tokens))
        assert [int(row[0]) - 100 for batch in batches for row in batch.inputs] == starts
        assert sum(len(targets(batch)) for batch in batches) == max_tokens


def test_samples_are_windows_with_targets_one_further(tmp_path: Path) -> None:
    text = "the quick brown fox jumps over the lazy dog, and then it does so again and again"
    corpus = read(tmp_path, text)
    task = TextTask(SeqOptions(context=7, validation=0.1), corpus)
    train = text[: math.floor(0.9 * len(text))]
    rng, twin = np.random.default_rng(5), np.random.default_rng(5)
    for _ in range(20):
        batch = task.sample(rng, 3)
        starts = twin.integers(0, len(train) - 7, size=(3, 1))[:, 0]
        assert batch.mask is None
        for row, start in enumerate(starts):
            assert corpus.tokenizer.decode(batch.inputs[row]) == train[start : start + 7]
            assert corpus.tokenizer.decode(batch.targets[row]) == train[start + 1 : start + 8]


def test_every_start_is_equally_likely_and_the_validation_part_never_drawn() -> None:
    task = task_of(48, 4, 0.5)  # 24 to train on: starts 0 to 19
    batch = task.sample(np.random.default_rng(0), 40_000)
    counts = np.bincount(batch.inputs[:, 0], minlength=48)
    assert counts[20:].sum() == 0 and batch.targets.max() == 23
    assert ((counts[:20] - 2000) ** 2 / 2000).sum() < 43.8  # 19 degrees of freedom, 0.1 %


def test_the_generator_s_state_is_the_sampler_s() -> None:
    task = task_of(1000, 8)
    rng = np.random.default_rng(1)
    task.sample(rng, 5)
    state = rng.bit_generator.state
    next(task.validation(4))
    wanted = [task.sample(rng, 5) for _ in range(3)]
    other, other_rng = task_of(1000, 8), np.random.default_rng(99)
    other_rng.bit_generator.state = state
    for batch in wanted:
        again = other.sample(other_rng, 5)
        np.testing.assert_array_equal(again.inputs, batch.inputs)
        np.testing.assert_array_equal(again.targets, batch.targets)


def test_batches_are_the_task_s_own_to_change(tmp_path: Path) -> None:
    task = TextTask(SeqOptions(context=4), read(tmp_path, "abcdefgh" * 9))
    for batch in (task.sample(np.random.default_rng(0), 2), next(task.validation(2))):
        assert batch.inputs.flags.c_contiguous and batch.targets.flags.c_contiguous
        batch.inputs[:] = 99
        batch.targets[:] = 99
        assert not np.shares_memory(batch.inputs, batch.targets)
    assert next(task.validation(2)).inputs.max() < 8


def test_metrics_by_hand(tmp_path: Path) -> None:
    task = TextTask(SeqOptions(context=2), read(tmp_path, "the cat sat on the mat. " * 3))
    metrics = task.metrics_of(np.array([6, 6 * math.log(8)]), "the dog sat_on mat, t")
    assert metrics == {
        "loss": pytest.approx(math.log(8)),
        "bits_per_token": pytest.approx(3),
        "perplexity": pytest.approx(8),
        "word_share": 0.5,  # the and mat; not dog, not sat_on; the last may go on
    }
    assert set(metrics) == set(task.metrics)
    assert task.metrics == {"loss": "lower", "bits_per_token": "lower", "perplexity": "lower", "word_share": "higher"}
    for nothing in (None, ""):
        assert "word_share" not in task.metrics_of(np.ones(2), nothing)
    assert math.isfinite(task.metrics_of(np.array([1, 1e9]), None)["perplexity"])


@pytest.mark.parametrize(
    ("sample", "share"),
    [("a b c ", 2 / 3), ("a b c", 1.0), ("a", 0.0), ("", 0.0), (" .,!\n", 0.0), ("a,a\nq.", 2 / 3), ("A b.", 0.5)],
)
def test_word_share_by_hand(sample: str, share: float) -> None:
    assert word_share(sample, frozenset("ab")) == pytest.approx(share)


@pytest.mark.parametrize("unit", ["char", "byte"])
@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
def test_words_are_whole_wherever_the_pieces_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str, at_once: int
) -> None:
    monkeypatch.setattr(texts, "AT_ONCE", at_once)
    corpus = read(tmp_path, "Größe: naïve_x2,\r\n«日本» —don't  end", unit)
    assert words_of(corpus) == {"Größe", "naïve_x2", "日本", "don", "t", "end"}
    monkeypatch.setattr(texts, "WORDS_OF", 3)
    assert words_of(corpus) == ({"Grö"} if unit == "char" else {"Gr"})  # a character cut in two is of no word


def test_the_prompt_can_be_encoded(tmp_path: Path) -> None:
    for text, unit, prompt in (("ab\n" * 9, "char", "\n"), ("xyz" * 9, "char", "x"), ("xyz" * 9, "byte", "\n")):
        task = TextTask(SeqOptions(context=2), read(tmp_path, text, unit))
        assert task.prompt() == prompt
        assert task.signature.tokenizer is not None and len(task.signature.tokenizer.encode(prompt)) == 1


def test_the_table_builds_a_task_from_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "hello, world\n" * 10
    (tmp_path / "a.txt").write_text(content)
    (tmp_path / "b.md").write_bytes(b"\0")
    task: Task = TASKS["text"].make(
        SeqOptions(data=str(tmp_path), pattern="*.txt", context=4, validation=0.1), "tokens"
    )
    assert (task.name, task.signature.vocabulary, task.notes) == ("text", 10, [])
    assert task.sha256 == hashlib.sha256(content.encode()).hexdigest()
    assert task.description == f"{tmp_path} (130 characters, 10 different)"
    assert task.predictions_per_epoch == 116
    as_bytes = TASKS["text"].make(SeqOptions(data=str(tmp_path), pattern="*.txt", context=4, unit="byte"), "tokens")
    assert as_bytes.signature.vocabulary == 256
    monkeypatch.setenv("RLSEQ_CACHE", str(tmp_path / "a.txt"))
    assert "not cached" in TASKS["text"].make(SeqOptions(data=str(tmp_path / "a.txt"), context=4), "tokens").notes[0]


def test_the_default_is_real_text() -> None:
    task = TextTask(SeqOptions())
    assert 90 <= task.signature.vocabulary <= 128 and task.predictions_per_epoch > 10**6
    assert task.signature.tokenizer is not None and task.signature.tokenizer.unit == "char"
    batch = task.sample(np.random.default_rng(0), 2)
    assert batch.inputs.shape == (2, 128)
    assert task.metrics_of(np.ones(2), "def __init__(self): xyzzyqq ")["word_share"] == 0.75


@pytest.mark.parametrize("size", [1, 2, 3])
def test_rows_of_a_batch_are_rows_of_the_whole(size: int) -> None:
    """Processes that share a batch draw the same one, and their streams stay together."""
    task = task_of(200, context=9)
    whole_rng = np.random.default_rng(3)
    whole = [task.sample(whole_rng, 7) for _ in range(2)]
    for rank in range(size):
        rng, rows = np.random.default_rng(3), slice(7 * rank // size, 7 * (rank + 1) // size)
        for batch in whole:
            own = task.sample(rng, 7, rows)
            assert (own.inputs == batch.inputs[rows]).all() and (own.targets == batch.targets[rows]).all()
        assert rng.bit_generator.state == whole_rng.bit_generator.state
