"""What all generated tasks have in common: layouts, lengths, held-out questions, what is measured."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from rlseq.errors import UsageError
from rlseq.seq.tasks.generated import alphabet_of, ranges
from rlseq.seq.tasks.layout import width
from rlseq.seq.tasks.table import TASKS
from rlseq.seq.tasks.task import Answers, Shown, Task
from rlseq.sequence import Kind
from tests.seq.tasks.generated import KINDS, made, pairs_of, perfect, sampled

NAMES = ("copy", "reverse", "sort", "addition", "selective-copy", "induction", "recall")
both_kinds = pytest.mark.parametrize("kind", KINDS)
all_tasks = pytest.mark.parametrize("name", NAMES)


def test_tokens_are_one_row_of_which_only_the_answer_counts() -> None:
    batch = made("copy", "tokens", length=3, symbols=3).sample(np.random.default_rng(0), 2)
    a, b, c = batch.inputs[0, :3]
    assert batch.inputs[0].tolist() == [a, b, c, 3, a, b, c]  # 3 is the start token, 4 the end
    assert batch.targets[0].tolist() == [b, c, 3, a, b, c, 4]
    assert batch.mask is not None and batch.mask.tolist() == [[False] * 3 + [True] * 4] * 2
    assert batch.source is None and batch.given is None


def test_translate_has_the_question_as_its_source() -> None:
    batch = made("copy", "translate", length=3, symbols=3).sample(np.random.default_rng(0), 2)
    assert batch.source is not None and batch.given is not None and batch.mask is not None
    a, b, c = batch.source[0]
    assert batch.inputs[0].tolist() == [3, a, b, c] and batch.targets[0].tolist() == [a, b, c, 4]
    assert batch.mask.all() and batch.given.all() and batch.given.shape == (2, 3)


@both_kinds
@all_tasks
def test_the_protocol(name: str, kind: Kind) -> None:
    task: Task = made(name, kind, examples=20)
    signature = task.signature
    assert (task.name, signature.kind, signature.is_sound()) == (name, kind, True)
    assert task.static and task.predictions_per_epoch is None and task.prompt() == ""
    assert next(iter(task.metrics)) == "exact_match"
    assert task.description.endswith("symbols") and task.notes == []
    batches = [task.sample(np.random.default_rng(0), 6), *task.validation(7)]
    assert max(map(width, batches)) == task.context  # twice the length included
    for batch in batches:
        assert batch.inputs.dtype == batch.targets.dtype == np.int64
        assert batch.inputs.shape == batch.targets.shape
        assert batch.mask is not None and batch.mask.shape == batch.targets.shape and batch.mask.any(1).all()
        assert (batch.source is None) == (batch.given is None) == (kind == "tokens")
        for array in (batch.inputs, batch.targets, batch.source):
            assert array is None or 0 <= array.min() <= array.max() < signature.vocabulary
            assert array is None or array.flags.c_contiguous
    assert [len(batch.inputs) for batch in batches[1:]] == [7, 7, 6] * 2


@both_kinds
@all_tasks
def test_held_out_questions_are_not_sampled(name: str, kind: Kind) -> None:
    task = made(name, kind, validation=0.3, examples=50, length={"addition": 1, "copy": 3}.get(name))
    asked = {pair for batch in list(task.validation(50))[:1] for pair in pairs_of(task, batch)}
    drawn = {pair for seed in range(3) for pair in pairs_of(task, task.sample(np.random.default_rng(seed), 3000))}
    assert asked and not asked & drawn


@both_kinds
def test_lengths_vary_within_few_shapes(kind: Kind) -> None:
    task = made("copy", kind, min_length=3, length=10, buckets=3)
    rng = np.random.default_rng(0)
    shapes, lengths, mixed = set(), [], False
    for _ in range(400):
        batch = task.sample(rng, 5)
        shapes.add((batch.inputs.shape, None if batch.source is None else batch.source.shape))
        pairs = pairs_of(task, batch)
        sizes = [len(question.rstrip("=")) for question, _ in pairs]
        mixed |= sizes != sorted(sizes)  # so that every process has rows of all lengths
        assert all(answer == question.rstrip("=") + "\n" for question, answer in pairs)
        assert max(sizes) - min(sizes) <= 2
        lengths += sizes
    tops = (4, 7, 10)  # of the ranges 3-4, 5-7, 8-10
    assert shapes == {((5, 2 * n + 1), None) if kind == "tokens" else ((5, n + 1), (5, n)) for n in tops}
    counts = np.bincount(lengths, minlength=11)
    assert counts[:3].sum() == 0 and abs(counts[3:] - 250).max() < 75  # rows of a batch go together: 2 or 3 times 9.4
    assert mixed and not task.static
    assert task.notes == ["Batches have 3 different shapes (seq.buckets): of lengths 3 to 4, 5 to 7, 8 to 10."]
    assert task.description == "repeat the question, lengths 3 to 10, 26 symbols"


@both_kinds
def test_padding_stands_at_the_right_and_counts_nowhere(kind: Kind) -> None:
    batch = made("copy", kind, min_length=1, length=9, buckets=1).sample(np.random.default_rng(1), 64)
    assert batch.mask is not None
    for row in batch.mask:
        first = int(row.argmax())
        assert row[first : first + row.sum()].all()
        assert kind == "tokens" or first == 0
    if batch.given is not None and batch.source is not None:
        assert (batch.given == (np.arange(9) < batch.given.sum(1)[:, None])).all()
        assert (batch.mask.sum(1) == batch.given.sum(1) + 1).all()
        assert (batch.source[~batch.given] == 27).all()  # the end token
    assert (batch.targets[~batch.mask][batch.targets[~batch.mask] > 26] == 27).all()


@pytest.mark.parametrize(
    ("low", "high", "num", "wanted"),
    [(5, 5, 4, [(5, 5)]), (1, 2, 4, [(1, 1), (2, 2)]), (3, 10, 3, [(3, 4), (5, 7), (8, 10)]), (1, 9, 1, [(1, 9)])],
)
def test_ranges(low: int, high: int, num: int, wanted: list[tuple[int, int]]) -> None:
    assert ranges(low, high, num) == wanted


@both_kinds
@pytest.mark.parametrize("options", [{}, {"min_length": 2, "buckets": 2}])
def test_processes_share_a_batch(kind: Kind, options: dict[str, int]) -> None:
    task = made("reverse", kind, length=9, **options)
    whole_rng = np.random.default_rng(3)
    whole = [task.sample(whole_rng, 7) for _ in range(3)]
    for rows in (slice(0, 3), slice(3, 7)):
        rng = np.random.default_rng(3)
        for batch in whole:
            own = task.sample(rng, 7, rows)
            for array, wanted in zip(own, batch, strict=True):
                assert (array is None) == (wanted is None)
                assert array is None or (array == wanted[rows]).all()
        assert rng.bit_generator.state == whole_rng.bit_generator.state


def test_metrics_by_hand() -> None:
    task = made("addition", "translate", length=1, examples=3, validation=0.5)
    first, second = task.validation(3)
    best = first.targets.copy()
    best[0, 0] += 1  # a wrong digit
    best[1, 2] = 0  # and an answer that does not end
    loss = np.full(best.shape, 0.25)
    sums = task.tally(Answers(loss, best), first)
    assert sums[0] == 9  # three answers of two digits and an end
    assert task.metrics_of(sums, None) == {
        "exact_match": pytest.approx(1 / 3),
        "token_accuracy": pytest.approx(5 / 6),
        "loss": pytest.approx(0.25),
    }
    sums += task.tally(Answers(np.full(second.targets.shape, 9.0), second.targets), second)
    assert sums[0] == 9  # the score is of the training length
    metrics = task.metrics_of(sums, None)
    assert metrics["loss"] == pytest.approx(0.25)  # at the training length
    assert (metrics["exact_match_2x"], metrics["token_accuracy_2x"]) == (1, 1)
    assert list(metrics) == list(task.metrics)


@both_kinds
@all_tasks
def test_right_answers_are_right(name: str, kind: Kind) -> None:
    task = made(name, kind, examples=30)
    sums = sum(task.tally(perfect(batch), batch) for batch in task.validation(8))
    metrics = task.metrics_of(np.asarray(sums), None)
    assert metrics.pop("loss") == 0 and set(metrics.values()) == {1.0}


def test_what_is_masked_does_not_count() -> None:
    task = made("copy", "tokens", length=2, symbols=9, examples=4)
    batch = next(iter(task.validation(4)))
    assert batch.mask is not None
    loss, best = np.where(batch.mask, 1.0, np.nan), np.where(batch.mask, batch.targets, -1)
    metrics = task.metrics_of(task.tally(Answers(loss, best), batch), None)
    assert metrics == {"exact_match": 1, "token_accuracy": 1, "loss": 1}


@pytest.mark.parametrize("size", [2, 3])
def test_sums_of_processes_are_those_of_one(size: int) -> None:
    task = made("sort", "tokens", length=5, examples=7)
    rng = np.random.default_rng(0)
    for batch in task.validation(7):
        best = np.where(rng.random(batch.targets.shape) < 0.8, batch.targets, 0)
        loss = rng.random(batch.targets.shape)
        parts = [slice(7 * rank // size, 7 * (rank + 1) // size) for rank in range(size)]
        total = sum(task.tally(Answers(loss[rows], best[rows]), batch.rows(rows)) for rows in parts)
        np.testing.assert_allclose(np.asarray(total), task.tally(Answers(loss, best), batch), rtol=1e-12)


@both_kinds
def test_few_targets_are_spread_over_both_lengths(kind: Kind) -> None:
    task = made("copy", kind, length=4, examples=100)  # 500 and 900 targets
    whole = [pair for batch in task.validation(64) for pair in pairs_of(task, batch)]
    assert len(whole) == 200
    for max_targets, each in ((1400, 100), (10**6, 100), (700, 50), (141, 10), (1, 1)):
        batches = list(task.validation(64, max_targets))
        some = [pair for batch in batches for pair in pairs_of(task, batch)]
        assert some == [whole[n * 100 // each + part] for part in (0, 100) for n in range(each)]
        assert sum(batch.num_targets() for batch in batches) <= max(14, max_targets)


def test_the_space_may_be_too_small() -> None:
    task = made("copy", "tokens", length=2, symbols=5, validation=0.2, examples=100)
    held = len(pairs_of(task, next(iter(task.validation(100)))))
    assert held == 6  # of 25
    assert task.notes == [
        "Only 6 different questions of length 2 are held out for validation, not seq.examples = 100: there are too few."
    ]
    with pytest.raises(UsageError, match="no question of length 1 is held out"):
        made("copy", "tokens", length=1, symbols=2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("copy", {"length": 5, "min_length": 6}, r"seq.min_length = 6 is more than seq.length = 5: set one"),
        ("copy", {"min_length": 30}, r"seq.min_length = 30 is more than seq.length = 20, which is what copy has of"),
        ("selective-copy", {"length": 9}, r"seq.length = 9 is too small for selective-copy: at least 16"),
        ("recall", {"min_length": 3}, r"seq.min_length = 3 is too small for recall: at least 4"),
        ("recall", {"symbols": 7}, r"seq.symbols = 7 has too few keys for seq.pairs = 4: .*seq.symbols=8 or higher"),
    ],
)
def test_options_that_do_not_fit(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made(name, "tokens", **options)


def test_alphabets() -> None:
    assert alphabet_of(3) == "abc" and alphabet_of(62)[-1] == "9"
    many = alphabet_of(8192)
    assert len(set(many)) == 8192 and not set(many) & set("=\n.+") and many.isprintable()


def test_the_checksum_is_of_everything_that_decides_the_questions() -> None:
    variants = [
        made("copy", "tokens"),
        made("reverse", "tokens"),
        made("copy", "translate"),
        made("copy", "tokens", length=19),
        made("copy", "tokens", min_length=19),
        made("copy", "tokens", symbols=25),
        made("copy", "tokens", validation=0.06),
        made("copy", "tokens", examples=999),
        made("recall", "tokens"),
        made("recall", "tokens", pairs=3),
    ]
    assert len({task.sha256 for task in variants}) == len(variants)
    assert made("copy", "tokens").sha256 == variants[0].sha256 and len(variants[0].sha256) == 64


@both_kinds
def test_examples_can_be_read(kind: Kind) -> None:
    task = made("addition", kind, examples=3)
    batch = next(iter(task.validation(3)))
    (first, right), (second, wrong), _ = pairs_of(task, batch)
    best = batch.targets.copy()
    assert batch.mask is not None
    place = int(batch.mask[1].argmax())
    best[1, place] = (best[1, place] + 1) % 10
    lines = task.examples(Shown(batch, Answers(None, best))).split("\n")
    assert lines[0] == f"{first.rstrip('=')}={right.strip()}"
    # What would be written behind the wrong digit is not known.
    assert lines[1] == f"{second.rstrip('=')}={(int(wrong[0]) + 1) % 10}...   not {wrong.strip()}"
    assert len(lines) == 3


def test_teacher_forcing_and_greedy_writing_agree_on_exact_match() -> None:
    """A fixed table of next tokens, followed greedily, is right exactly where `tally` says so."""
    task = made("copy", "translate", length=3, symbols=2, examples=8, validation=0.5)
    batch = next(iter(task.validation(8)))
    assert batch.source is not None
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(40):
        table = {}  # (source, what was written) -> next token
        for source, targets in zip(batch.source.tolist(), batch.targets.tolist(), strict=True):
            for length in range(5):
                for written in np.ndindex(*[4] * length):
                    following = targets[length] if length < 4 and list(written) == targets[:length] else 0
                    right = rng.random() < 0.9
                    table[(*source, -1, *written)] = following if right else int(rng.integers(4))
        best = np.array(
            [
                [table[(*source, -1, *targets[:place])] for place in range(4)]
                for source, targets in zip(batch.source.tolist(), batch.targets.tolist(), strict=True)
            ]
        )
        for row, source in enumerate(batch.source.tolist()):
            written: list[int] = []
            while len(written) < 4:
                written.append(table[(*source, -1, *written)])
            sums = task.tally(Answers(np.zeros((1, 4)), best[row : row + 1]), batch.rows(slice(row, row + 1)))
            exact = task.metrics_of(sums, None)["exact_match"] == 1
            assert exact == (written == batch.targets[row].tolist())
            seen.add(exact)
    assert seen == {True, False}


def test_no_torch() -> None:
    code = (
        "import sys; from rlseq.seq.config import SeqOptions; from rlseq.seq.tasks.table import TASKS; "
        "[TASKS[n].make(SeqOptions(task=n, examples=5), 'tokens') for n in " + repr(NAMES) + "]; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@all_tasks
def test_the_table(name: str) -> None:
    assert TASKS[name].kinds == KINDS and 10 < len(TASKS[name].about) < 80
    assert len(sampled(made(name, "tokens", examples=5), 3)) == 3
    assert math.isfinite(made(name, "tokens", examples=5).context)
