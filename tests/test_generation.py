"""`rlseq generate` and `rlseq eval` of sequence models in one .onnx file; hand-made ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rlseq.errors import CorruptFile, UsageError
from rlseq.evaluation import evaluate
from rlseq.generation import _same
from rlseq.pipeline import generate, load, play
from rlseq.seq.tasks.table import TASKS
from rlseq.sequence import Signature, Tokenizer
from tests import kind_graphs, sequence_graphs
from tests.kind_graphs import END, LETTERS, START, SUMMING, TRANSLATING, translated


def by_hand(question: str) -> str:
    """The greedy answer of `translating`."""
    source = np.array([[LETTERS.index(letter) for letter in question]])
    tokens = [START]
    while tokens[-1] != END and len(tokens) <= 9:
        tokens.append(int(translated(np.array([tokens]), source)[0, -1].argmax()))
    return "".join(LETTERS[token] for token in tokens[1:] if token != END)


@pytest.mark.parametrize("question", ["dcbb", "cd"])
def test_a_question_is_answered(question: str, tmp_path: Path) -> None:
    path = kind_graphs.save(tmp_path / "model.onnx", "translating")
    expected = by_hand(question)
    for prompt in (question, f"{question}="):  # the start token may be typed or not
        heard: list[str] = []
        told = generate(path, prompt=prompt, tokens=9, temperature=0.0, on_text=heard.append)
        assert told["prompt"] == heard[0] == f"{question}="
        assert told["text"] == "".join(heard[1:]) == expected
        assert told["tokens"] == len(expected)
    assert by_hand("dcbb") != by_hand("cd")


def test_a_model_of_questions_is_asked_one(tmp_path: Path) -> None:
    path = kind_graphs.save(tmp_path / "model.onnx", "translating")
    with pytest.raises(UsageError, match=r"model\.onnx answers questions: ask one, --prompt dcba$"):
        generate(path)
    signature = msgspec.structs.replace(sequence_graphs.SPEC.signature, start=2, end=3)
    text = sequence_graphs.save_counting(tmp_path / "text.onnx", signature=signature)
    with pytest.raises(UsageError, match=r"text\.onnx answers questions: ask one, --prompt QUESTION$"):
        generate(text)
    assert generate(text, prompt="ab", tokens=5)["prompt"] == "abc"
    with pytest.raises(UsageError, match="the prompt is empty"):
        generate(text, prompt="")


@pytest.mark.parametrize(
    ("question", "fault"),
    [
        ("dc=b", "it holds '=', which ends a question"),
        ("dxb", "it holds 'x', and its symbols are 'abcd'"),
        ("", "it is empty"),
    ],
)
def test_a_prompt_that_is_no_question_of_the_task_is_refused(question: str, fault: str, tmp_path: Path) -> None:
    path = kind_graphs.save(tmp_path / "model.onnx", "translating")
    message = f"the prompt {question!r} is no question of the task reverse: {fault}. A right one is 'dcba'."
    with pytest.raises(UsageError, match=re.escape(message)):
        generate(path, prompt=question)


def test_symbols_of_another_task_are_told(tmp_path: Path) -> None:
    path = kind_graphs.save(tmp_path / "model.onnx", "translating", task="recall", task_options={"pairs": "x"})
    with pytest.raises(CorruptFile, match=r"does not know: recall, Expected `int \| null`"):
        generate(path, prompt="ab")
    letters = Tokenizer(unit="char", characters="abcdef")
    signature = msgspec.structs.replace(TRANSLATING.signature, tokenizer=letters)
    path = kind_graphs.save(tmp_path / "other.onnx", "translating", signature=signature)
    with pytest.raises(CorruptFile, match=r"other\.onnx describes a task reverse whose symbols are not those of such"):
        generate(path, prompt="ab")


@pytest.mark.parametrize("name", ["averaging", "summing"])
def test_a_model_of_series_is_sent_to_predict(name: str, tmp_path: Path) -> None:
    path = kind_graphs.save(tmp_path / "model.onnx", name)
    with pytest.raises(
        UsageError,
        match=r"reads numbers and writes no text.* rlseq predict .*model\.onnx --data FILE\.csv --out \w+\.csv$",
    ):
        generate(path)
    for use in (play, load):
        with pytest.raises(
            UsageError, match=r" is a sequence model, .*: rlseq predict .*model\.onnx --data FILE\.csv "
        ):
            use(path)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("translating", {"task": "waveforms"}, "a task that there is not: waveforms of kind translate"),
        ("translating", {"task": "text"}, "a task that there is not: text of kind translate"),
        ("translating", {"task": "nothing"}, "a task that this rlseq does not know: nothing"),
        ("translating", {"task_options": {"length": 0}}, "a task that this rlseq does not know: reverse"),
        ("translating", {"task_options": {"evil": 1}}, "a task that this rlseq does not know: reverse"),
    ],
)
def test_tasks_that_make_no_sense_are_refused(name: str, changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match=rf"model\.onnx describes {said}"):
        evaluate(kind_graphs.save(tmp_path / "model.onnx", name, **changes))


def test_a_task_that_would_take_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kind_graphs.save(tmp_path / "model.onnx", "translating", task_options={"examples": 1_000_000, "length": 900})
    monkeypatch.setitem(TASKS, "reverse", TASKS["reverse"]._replace(make=lambda *_: pytest.fail("it was made")))
    with pytest.raises(
        CorruptFile, match=r"model\.onnx describes a task of 1000000 questions of 900 symbols: that takes"
    ):
        evaluate(path)


def test_other_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="other characters than the data of"):
        evaluate(kind_graphs.save(tmp_path / "model.onnx", "translating"))
    with pytest.raises(UsageError, match="other columns, labels or values than the data of"):
        evaluate(kind_graphs.save(tmp_path / "model.onnx", "summing"))


def test_a_scaling_that_was_summed_in_another_order_is_the_same() -> None:
    signature = SUMMING.signature

    def other(**changes: Any) -> Signature:
        return msgspec.structs.replace(signature, **changes)

    assert _same(signature, other(shift=(1e-9, 1.0, 2.0 - 1e-9), scale=(1.0 + 1e-9, 1.0, 2.0)))
    assert not _same(signature, other(shift=(1e-3, 1.0, 2.0)))
    assert not _same(signature, other(scale=(1.0, 1.0, 2.001)))
    assert not _same(signature, other(target=1))
    assert _same(TRANSLATING.signature, TRANSLATING.signature)
    assert not _same(TRANSLATING.signature, msgspec.structs.replace(TRANSLATING.signature, end=0))
