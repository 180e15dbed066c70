"""A sequence model in one .onnx file (cases X1-X3, X7)."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from rlseq.errors import RlseqError
from rlseq.player.generate import generate
from rlseq.player.sampling import GREEDY
from rlseq.player.sequence import OnnxSequence, load_sequence
from rlseq.sequence import SEQUENCE_KEY, encode_sequence_spec
from tests.sequence_graphs import SPEC, WINDOW, save_counting, twin


@pytest.fixture
def model(tmp_path: Path) -> OnnxSequence:
    return load_sequence(save_counting(tmp_path / "model.onnx"))


def tokens_of(batch: int, time: int) -> np.ndarray:
    return np.random.default_rng(batch * 100 + time).integers(0, 4, (batch, time))


# ------------------------------------------------------------------------------------------------------------- stepping


@pytest.mark.parametrize("batch", [1, 2, 7])
@pytest.mark.parametrize("time", [1, 5, 17])
def test_any_number_of_sequences_of_any_length(batch: int, time: int, model: OnnxSequence) -> None:
    tokens_BT = tokens_of(batch, time)
    logits_BTV, (counts, seen, position) = model.step(tokens_BT, model.initial_state(batch))
    np.testing.assert_allclose(logits_BTV, twin(tokens_BT), rtol=1e-5, atol=1e-5)
    assert logits_BTV.dtype == np.float32
    np.testing.assert_array_equal(counts.sum(1), [time] * batch)
    np.testing.assert_array_equal(seen, tokens_BT[:, -(WINDOW - 1) :])
    assert position == time


def test_the_state_carries_on_and_is_the_callers(model: OnnxSequence) -> None:
    tokens_BT = tokens_of(3, 30)
    pieces, state, start = [], model.initial_state(3), 0
    for length in (1, 1, 5, 1, 2, 9, 11):
        before = [array.copy() for array in state]
        logits_BTV, after = model.step(tokens_BT[:, start : start + length], state)
        for array, kept in zip(state, before, strict=True):
            np.testing.assert_array_equal(array, kept)
        pieces.append(logits_BTV)
        state, start = after, start + length
    np.testing.assert_allclose(np.concatenate(pieces, 1), twin(tokens_BT), rtol=1e-5, atol=1e-4)


def test_it_generates(model: OnnxSequence) -> None:
    prompt = [2, 0, 1, 1, 3]  # longer than the context of 3
    made = list(generate(model, np.array(prompt), 30, GREEDY, np.random.default_rng(0)))
    tokens = list(prompt)
    for _ in range(30):
        tokens.append(int(twin(np.array([tokens]))[0, -1].argmax()))
    assert made == tokens[5:]
    assert model.spec.tokenizer is not None
    assert model.spec.tokenizer.decode(np.array(made)) == "".join("abcd"[token] for token in made)


def test_it_is_one_file_that_generates_elsewhere(tmp_path: Path) -> None:
    save_counting(tmp_path / "model.onnx")
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.move(tmp_path / "model.onnx", tmp_path / "elsewhere" / "renamed.onnx")
    assert load_sequence(moved).spec == SPEC


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (np.array([1, 2]), r"takes tokens \[batch, time\] .* of shape \(2,\)"),
        (np.zeros((1, 0), np.int64), r"of shape \(1, 0\)"),
        (np.zeros((0, 1), np.int64), r"of shape \(0, 1\)"),
        (np.zeros((1, 1)), "these are float64"),
        (np.array([[0, 4]]), "knows the tokens 0 to 3; these go from 0 to 4"),
        (np.array([[-1, 2]]), "these go from -1 to 2"),
    ],
)
def test_tokens_that_do_not_suit_are_refused(tokens: np.ndarray, said: str, model: OnnxSequence) -> None:
    with pytest.raises(RlseqError, match=said):
        model.step(tokens, model.initial_state(1))


def test_states_that_do_not_suit_are_refused(model: OnnxSequence) -> None:
    tokens_BT, (counts, seen, position) = tokens_of(2, 1), model.initial_state(2)
    with pytest.raises(RlseqError, match=r"carries 3 state arrays, 0 were given: start with initial_state\(2\)"):
        model.step(tokens_BT, ())
    with pytest.raises(RlseqError, match=r"state counts is float32 of shape \(1, 4\); for 2 sequences"):
        model.step(tokens_BT, (counts[:1], seen, position))  # would be broadcast
    with pytest.raises(RlseqError, match="state counts is float64"):
        model.step(tokens_BT, (counts.astype(np.float64), seen, position))
    with pytest.raises(RlseqError, match=r"state seen is int64 of shape \(2, 4\); .* window 4"):
        model.step(tokens_BT, (counts, np.zeros((2, WINDOW), np.int64), position))
    with pytest.raises(RlseqError, match=r"state position is int64 of shape \(1,\)"):
        model.step(tokens_BT, (counts, seen, position[None]))


def test_the_description_survives_the_file(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(SPEC, lineage=({"step": "train"},), scores={"loss": 1.5}, parity={"max_error": 0.0})
    path = save_counting(tmp_path / "model.onnx", metadata={SEQUENCE_KEY: encode_sequence_spec(spec)})
    assert load_sequence(path).spec == spec
