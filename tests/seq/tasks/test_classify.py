"""Series with labels: the split, the batches, the metrics by hand, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlseq.errors import UsageError
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.classify import ClassifyTask, macro_f1, make_waveforms, read_classify, stratified
from rlseq.seq.tasks.task import Answers, Shown

ROWS = [("a", length) for length in (3, 3, 4, 5, 6)] + [("b", length) for length in (3, 9, 10, 10, 12)]


def long_file(folder: Path, scale: float = 1.0, only: int | None = None) -> str:
    """Ten series, told apart by their first value, 1 to 10; feature y stands still. `only` alone is scaled."""
    lines = ["id,x,y,kind"]
    for number, (kind, length) in enumerate(ROWS, 1):
        factor = scale if only in (None, number) else 1.0
        lines += [f"s{number},{(number + step / 100) * factor},7,{kind}" for step in range(length)]
    path = folder / "long.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def options(data: str, **others: object) -> SeqOptions:
    return SeqOptions(task="classify", data=data, label="kind", group="id", validation=0.4, **others)  # type: ignore[arg-type]


def answers(logits: np.ndarray, targets: np.ndarray) -> Answers:
    loss = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(targets)), targets]
    return Answers(loss, logits.argmax(-1))


def first_values(task: ClassifyTask, seed: int, batch_size: int = 8) -> set[int]:
    return {int(value) for value in task.sample(np.random.default_rng(seed), batch_size).inputs[:, 0, 0]}


def test_the_split_is_stratified_and_apart(tmp_path: Path) -> None:
    task = read_classify(options(long_file(tmp_path)))
    measured = list(task.validation(3))
    labels = np.concatenate([batch.targets for batch in measured])
    held = {int(value) for batch in measured for value in batch.inputs[:, 0, 0]}
    assert np.bincount(labels).tolist() == [2, 2] and len(held) == 4
    trained = set().union(*(first_values(task, seed) for seed in range(40)))
    assert trained == set(range(1, 11)) - held and task.predictions_per_epoch == 6
    again = read_classify(options(long_file(tmp_path)))
    assert {int(value) for batch in again.validation(3) for value in batch.inputs[:, 0, 0]} == held


def test_shares_are_rounded_and_leave_one_on_each_side() -> None:
    labels = np.repeat([0, 1, 2], [2, 20, 5])
    for validation, wanted in ((0.05, [1, 1, 1]), (0.3, [1, 6, 2]), (0.99, [1, 19, 4])):
        split = stratified(labels, ("a", "b", "c"), validation, "it")
        assert np.bincount(labels[split.validation]).tolist() == wanted
        assert sorted([*split.train, *split.validation]) == list(range(27))


def test_no_value_of_the_validation_part_moves_shift_or_scale(tmp_path: Path) -> None:
    task = read_classify(options(long_file(tmp_path)))
    held = [int(value) for batch in task.validation(3) for value in batch.inputs[:, 0, 0]]
    other = read_classify(options(long_file(tmp_path, 1000.0, only=held[0])))
    assert other.sha256 != task.sha256 and other.signature == task.signature
    trained = next(number for number in range(1, 11) if number not in held)
    assert read_classify(options(long_file(tmp_path, 1000.0, only=trained))).signature != task.signature
    # All values of the trained series, and none of the padding, make the mean.
    values = [number + step / 100 for number, (_, n) in enumerate(ROWS, 1) if number not in held for step in range(n)]
    np.testing.assert_allclose(task.signature.shift, (np.mean(values), 7), rtol=1e-6)
    np.testing.assert_allclose(task.signature.scale, (np.std(values), 1), rtol=1e-6)
    assert any("'y' is 7 everywhere" in note for note in task.notes)


def test_variable_lengths_have_few_shapes_and_the_count_is_told(tmp_path: Path) -> None:
    task = read_classify(options(long_file(tmp_path), buckets=2))
    rng = np.random.default_rng(0)
    batches = [task.sample(rng, 4) for _ in range(60)] + list(task.validation(2))
    shapes = {batch.inputs.shape[1] for batch in batches}
    assert shapes == {6, 12} and task.context == 12 and not task.static
    for batch in batches:
        assert batch.given is not None and batch.given.any(1).all() and batch.mask is None
        assert (batch.inputs[~batch.given] == 0).all() and batch.inputs.dtype == np.float32
        # The padding is at the right, and as long as the series is short.
        lengths = batch.given.sum(1)
        assert all(row[:n].all() for row, n in zip(batch.given, lengths, strict=True))
        assert [ROWS[int(x) - 1][1] for x in batch.inputs[:, 0, 0]] == lengths.tolist()
    held = {int(x) for batch in task.validation(9) for x in batch.inputs[:, 0, 0]}
    trained = [n for number, (_, n) in enumerate(ROWS, 1) if number not in held]
    padding = 100 * (1 - sum(trained) / sum(6 if n <= 6 else 12 for n in trained))
    assert task.description.endswith(f"; padded to 2 lengths (6, 12), {padding:.1f} % padding")
    one = read_classify(options(long_file(tmp_path), buckets=1))
    assert one.static and {one.sample(rng, 4).inputs.shape[1] for _ in range(20)} == {12}


def test_every_training_series_is_as_likely_as_every_other(tmp_path: Path) -> None:
    task = read_classify(options(long_file(tmp_path), buckets=3))
    rng = np.random.default_rng(1)
    counts = np.bincount([int(task.sample(rng, 1).inputs[0, 0, 0]) for _ in range(3000)], minlength=11)
    assert (counts > 0).sum() == 6 and np.abs(counts[counts > 0] / 500 - 1).max() < 0.2


def test_rows_of_a_batch_are_rows_of_the_whole_batch(tmp_path: Path) -> None:
    task = read_classify(options(long_file(tmp_path)))
    whole = task.sample(np.random.default_rng(3), 8)
    parts = [task.sample(np.random.default_rng(3), 8, rows) for rows in (slice(0, 3), slice(3, 8))]
    np.testing.assert_array_equal(np.concatenate([part.inputs for part in parts]), whole.inputs)
    np.testing.assert_array_equal(np.concatenate([part.targets for part in parts]), whole.targets)


def test_fewer_targets_are_spread_evenly(tmp_path: Path) -> None:
    task = read_classify(options(long_file(tmp_path)))
    assert sum(batch.num_targets() for batch in task.validation(8, 3)) == 3
    assert sum(batch.num_targets() for batch in task.validation(8, 99)) == 4
    some = {float(x) for batch in task.validation(8, 2) for x in batch.inputs[:, 0, 0]}
    assert some == {float(x) for batch in task.validation(8, 2) for x in batch.inputs[:, 0, 0]} and len(some) == 2


def test_accuracy_f1_and_loss_by_hand() -> None:
    """Truth 0 0 0 1 1 2 against 0 0 1 1 2 2: F1 of 4/5, 1/2, 2/3."""
    task = make_waveforms(SeqOptions(task="waveforms"))
    truth, said = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 2])
    logits = np.log(np.where(np.arange(4) == said[:, None], 0.7, 0.1))
    batch = TokenBatch(np.zeros((6, 1, 1), np.float32), truth, given=np.ones((6, 1), np.bool_))
    sums = task.tally(answers(logits, truth), batch)
    assert sums[0] == 6 and sums[2:].reshape(4, 4).tolist() == [[2, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    # In two parts, as two processes would do it.
    parts = [task.tally(answers(logits[rows], truth[rows]), batch.rows(rows)) for rows in (slice(0, 2), slice(2, 6))]
    np.testing.assert_allclose(parts[0] + parts[1], sums)
    metrics = task.metrics_of(sums, None)
    assert list(metrics) == list(task.metrics) == ["accuracy", "f1", "loss"]
    assert abs(metrics["accuracy"] - 4 / 6) < 1e-12
    assert abs(metrics["f1"] - (4 / 5 + 1 / 2 + 2 / 3) / 3) < 1e-12
    assert abs(metrics["loss"] - (-4 * np.log(0.7) - 2 * np.log(0.1)) / 6) < 1e-12


def test_f1_of_a_class_that_is_never_said_is_zero() -> None:
    assert macro_f1(np.array([[3, 0], [1, 0]])) == pytest.approx((6 / 7 + 0) / 2)
    assert macro_f1(np.eye(5)) == 1


def test_examples_and_picture_show_what_was_said() -> None:
    task = make_waveforms(SeqOptions(task="waveforms", examples=40))
    batch = next(task.validation(3))
    shown = Shown(batch, answers(np.eye(4)[batch.targets], batch.targets))
    name = task.signature.classes[batch.targets[0]]
    assert task.examples(shown).splitlines()[0] == f"{name} -> {name}" and task.prompt() == ""
    assert task.pictures(task.tally(shown.answers, batch), shown)["confusion"].startswith(b"\x89PNG")


def test_waveforms_as_a_task() -> None:
    task = make_waveforms(SeqOptions(task="waveforms"))
    assert task.signature.classes == ("sine", "square", "triangle", "sawtooth") and task.context == 64
    assert task.predictions_per_epoch == 10_000 and sum(len(b.targets) for b in task.validation(256)) == 1000
    labels = np.concatenate([batch.targets for batch in task.validation(256)])
    assert np.bincount(labels).tolist() == [250] * 4 and len(task.signature.features) == 1
    assert task.sha256 == "d043655540178c30bc313a351a4b382ee026d5db5d9aa78020119b2fe062b59d"
    short = make_waveforms(SeqOptions(task="waveforms", length=9, min_length=9, examples=4))
    assert short.context == 9 and short.static and short.sha256 != task.sha256
    with pytest.raises(UsageError, match=r"seq.min_length = 10 is more than seq.length = 9"):
        make_waveforms(SeqOptions(task="waveforms", length=9, min_length=10))
    with pytest.raises(UsageError, match=r"seq.examples = 3: there are 4 kinds"):
        make_waveforms(SeqOptions(task="waveforms", examples=3))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["1,a", "2,a"], "every series has the label 'a'"),
        (["1,a", "2,a", "3,b", "4,c"], "the labels 'b', 'c' occur in one series only, and it takes two"),
    ],
)
def test_too_few_of_a_class_are_refused(tmp_path: Path, rows: list[str], words: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["x,kind", *rows]))
    with pytest.raises(UsageError, match=words):
        read_classify(SeqOptions(task="classify", data=str(path), label="kind"))


def test_file_and_column_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none was named: --data FILE"):
        read_classify(SeqOptions(task="classify"))
    with pytest.raises(UsageError, match=r"which column of .* holds the label\? Give --label COLUMN"):
        read_classify(SeqOptions(task="classify", data=long_file(tmp_path)))
