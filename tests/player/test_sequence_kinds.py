"""Models in one .onnx file that translate, classify and forecast: what they take, what they refuse (case X10)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rlseq.errors import CorruptFile, RlseqError
from rlseq.player.sequence import OnnxSequence, load_sequence
from rlseq.sequence import SequenceState, Signature
from tests.kind_graphs import (
    AVERAGING,
    SUMMING,
    TRANSLATING,
    averaged,
    save,
    summed,
    summing,
    translated,
    translating,
)


@pytest.fixture
def translator(tmp_path: Path) -> OnnxSequence:
    return load_sequence(save(tmp_path / "model.onnx", "translating"))


@pytest.fixture
def reader(tmp_path: Path) -> OnnxSequence:
    return load_sequence(save(tmp_path / "model.onnx", "averaging"))


@pytest.fixture
def stepper(tmp_path: Path) -> OnnxSequence:
    return load_sequence(save(tmp_path / "model.onnx", "summing"))


def values_of(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape[0]).normal(size=shape).astype(np.float32)


def tokens_of(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape[0] * 10 + shape[1]).integers(0, 4, shape)


# ------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_a_source_is_read_once_and_the_answer_goes_on(batch: int, translator: OnnxSequence) -> None:
    tokens_BT, source_BS = tokens_of(batch, 6), tokens_of(batch, 4)
    given_BS = np.arange(4) < np.arange(batch)[:, None]  # the first row is all padding
    logits_BTV, state = translator.step(
        tokens_BT[:, :1], translator.initial_state(batch), source=source_BS, given=given_BS
    )
    found = [logits_BTV]
    for place in (1, 3):
        logits_BTV, state = translator.step(tokens_BT[:, place : 2 * place], state)
        found.append(logits_BTV)
    expected = translated(tokens_BT, source_BS, given_BS)
    together = np.concatenate(found, 1)
    np.testing.assert_allclose(together[:, :2], expected[:, :2], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(translator.whole(tokens_BT, given_BS, source_BS), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(state[2], given_BS)


def test_a_source_without_a_mask_is_all_real_and_padding_is_not_looked_at(translator: OnnxSequence) -> None:
    tokens_BT, source_BS = tokens_of(2, 3), tokens_of(2, 4)
    expected = translated(tokens_BT, source_BS)
    np.testing.assert_allclose(translator.whole(tokens_BT, None, source_BS), expected, rtol=1e-5)
    padded_BS = np.pad(source_BS, ((0, 0), (0, 3)), constant_values=-7)
    given_BS = np.arange(7) < np.array([[4], [4]])
    np.testing.assert_allclose(translator.whole(tokens_BT, given_BS, padded_BS), expected, rtol=1e-5)


def test_sources_that_do_not_suit_are_refused(translator: OnnxSequence) -> None:
    tokens, source = tokens_of(2, 1), tokens_of(2, 4)
    start = translator.initial_state(2)
    for more, said in [
        ({}, r"model\.onnx answers to a source: give it in the first step"),
        ({"given": np.ones((2, 4), bool)}, "no source was given"),
        ({"source": source[:1]}, r"2 answers go on, but the source has shape \(1, 4\)"),
        ({"source": source[0]}, r"takes source \[batch, places\] .* of shape \(4,\)"),
        ({"source": source + 0.5}, "these are float64"),
        ({"source": source + 4}, "knows the tokens 0 to 5; these go from"),
        ({"source": source[:, :0]}, r"of shape \(2, 0\)"),
        ({"source": source, "given": np.ones((2, 3), bool)}, r"given is bool of shape \(2, 4\).* of shape \(2, 3\)"),
        ({"source": source, "given": np.ones((2, 4))}, r"this one is float64 of shape \(2, 4\)"),
        ({"source": [[1, 2], [1]]}, "takes rows of one length"),
    ]:
        with pytest.raises(RlseqError, match=said):
            translator.step(tokens, start, **more)
    _, state = translator.step(tokens, start, source=source)
    with pytest.raises(RlseqError, match="has read its source already"):
        translator.step(tokens, state, source=source)
    with pytest.raises(RlseqError, match=r"sources of \[3, 4\] places"):
        translator.step(tokens, (state[0], state[1][:, :3], state[2]))


def test_who_reads_no_source_takes_none(stepper: OnnxSequence) -> None:
    with pytest.raises(RlseqError, match=r"reads no source .*lorenz, its kind forecast"):
        stepper.whole(values_of(1, 2, 3), None, tokens_of(1, 2))


# -------------------------------------------------------------------------------------------------------------- series


@pytest.mark.parametrize("batch", [1, 2, 7])
@pytest.mark.parametrize("time", [1, 5])
def test_series_are_read_at_once(batch: int, time: int, reader: OnnxSequence) -> None:
    values_BTF = values_of(batch, time, 3)
    given_BT = np.arange(time) < np.arange(batch)[:, None]
    values_BTF[~given_BT] = np.nan  # padding is not looked at
    before = values_BTF.copy()
    found = reader.whole(values_BTF, given_BT)
    assert found.shape == (batch, 1, 2) and not found[0].any()
    np.testing.assert_allclose(found, averaged(values_BTF, given_BT), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(values_BTF, before)
    everything = values_of(batch, time, 3)
    np.testing.assert_allclose(
        reader.whole(everything), averaged(everything, np.ones((batch, time), bool)), rtol=1e-5, atol=1e-6
    )


def test_series_are_read_place_by_place(stepper: OnnxSequence) -> None:
    values_BTF, state, found = values_of(3, 9, 3), stepper.initial_state(3), []
    for piece in np.split(values_BTF, [1, 2, 6], axis=1):
        outputs, state = stepper.step(piece, state)
        found.append(outputs)
    np.testing.assert_allclose(np.concatenate(found, 1), summed(values_BTF), rtol=1e-6)
    np.testing.assert_allclose(stepper.whole(values_BTF), summed(values_BTF), rtol=1e-6)
    values_BTF[1, 4:] = np.nan
    found = stepper.whole(values_BTF, np.arange(9) < np.array([[9], [4], [9]]))
    np.testing.assert_allclose(found[1, :4], summed(values_BTF[1:2, :4])[0], rtol=1e-6)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("of", [np.float64, np.float16, np.int64, np.uint8, bool, list])
def test_numbers_of_any_type_are_cast(of: Any, stepper: OnnxSequence) -> None:
    plain = np.array([[[0, 1, 1], [1, 0, 1]]])
    given = plain.tolist() if of is list else plain.astype(of)
    found = stepper.whole(given)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, summed(plain), rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros((4, 2)), r"takes numbers of shape \[batch, time, 3\], the features x, y, z; .* of shape \(4, 2\)"),
        (np.zeros((4, 2, 2)), r"shape \[batch, time, 3\].* float64 of shape \(4, 2, 2\)"),
        (np.zeros((0, 2, 3)), r"of shape \(0, 2, 3\)"),
        (np.zeros((1, 0, 3)), r"of shape \(1, 0, 3\)"),
        (1.0, r"of shape \(1,\)"),
        (np.full((1, 1, 3), "1"), "these are <U1"),
        (np.zeros((1, 1, 3), complex), "these are complex128"),
        ([[[1, 2, 3], [1, 2]]], "takes rows of one length"),
    ],
)
def test_values_that_do_not_suit_are_refused(values: Any, said: str, stepper: OnnxSequence) -> None:
    with pytest.raises(RlseqError, match=rf"model\.onnx.*{said}"):
        stepper.whole(values)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300])
def test_what_is_no_finite_float32_is_refused_by_place(value: float, stepper: OnnxSequence) -> None:
    values = np.zeros((2, 4, 3))
    values[1, 2, 1] = value
    with pytest.raises(
        RlseqError, match=r"reads finite numbers; the feature 'y' is (nan|-?inf) at place 2 of sequence 1"
    ):
        stepper.whole(values)


def test_a_mask_of_another_shape_is_refused(reader: OnnxSequence) -> None:
    with pytest.raises(RlseqError, match=r"given is bool of shape \(2, 3\).* of shape \(2, 4\)"):
        reader.whole(values_of(2, 3, 3), np.ones((2, 4), bool))


# ------------------------------------------------------------------------------------------------------------- damage

SOURCE, SEEN = TRANSLATING.state[1:]
TOTAL = SUMMING.state[0]


def changed(signature: Signature, **changes: Any) -> Signature:
    return msgspec.structs.replace(signature, **changes)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("translating", {"state": TRANSLATING.state[:1]}),  # could not remember its source
        ("translating", {"one_pass": True}),
        ("translating", {"state": (msgspec.structs.replace(SEEN, name="given"), SOURCE)}),
        ("translating", {"state": (msgspec.structs.replace(SEEN, name="source"), SOURCE)}),
        ("translating", {"state": (msgspec.structs.replace(SEEN, shape=("source", "source")), SOURCE)}),
        ("translating", {"signature": changed(TRANSLATING.signature, start=None)}),
        ("translating", {"signature": changed(TRANSLATING.signature, end=6)}),
        ("averaging", {"state": (TOTAL,)}),
        ("averaging", {"signature": changed(AVERAGING.signature, classes=("up", "up"))}),
        ("averaging", {"signature": changed(AVERAGING.signature, classes=("up",))}),
        ("averaging", {"signature": changed(AVERAGING.signature, shift=(0.0,))}),
        ("summing", {"state": (TOTAL, SOURCE)}),  # reads no source
        ("summing", {"state": (msgspec.structs.replace(TOTAL, name="values"),)}),
        ("summing", {"state": (msgspec.structs.replace(TOTAL, output="forecast"),)}),
        ("summing", {"signature": changed(SUMMING.signature, horizon=2**40)}),
        ("summing", {"signature": changed(SUMMING.signature, horizon=2**27, quantiles=(0.1, 0.5, 0.9))}),
    ],
)
def test_descriptions_that_make_no_sense_are_refused(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", name, **changes)
    with pytest.raises(CorruptFile, match=r"model\.onnx holds a description of a sequence model that contradicts"):
        load_sequence(path)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("summing", {"one_pass": True, "state": ()}, "inputs given, values, its graph has inputs total, values"),
        ("averaging", {"one_pass": False}, "inputs values, its graph has inputs given, values"),
        ("summing", {"signature": changed(SUMMING.signature, horizon=3)}, r"forecast: float32 \[batch, time, 3\]"),
        (
            "summing",
            {"signature": Signature(kind="forecast", features=("x",), shift=(0.0,), scale=(1.0,), horizon=2)},
            r"values: float32 \[batch, time, 1\]",
        ),
        (
            "summing",
            {"signature": changed(SUMMING.signature, kind="classify", classes=("up", "down"), horizon=0)},
            "outputs logits, its graph has outputs forecast",
        ),
        (
            "averaging",
            {"signature": changed(AVERAGING.signature, kind="forecast", classes=(), horizon=2)},
            "outputs forecast, its graph has outputs logits",
        ),
        (
            "translating",
            {"signature": Signature(vocabulary=6), "state": (TRANSLATING.state[0],)},
            "inputs counts, tokens, its graph has inputs counts, given",
        ),
        (
            "translating",
            {
                "state": (
                    *TRANSLATING.state[:2],
                    SequenceState(name="seen", output="seen_out", shape=("batch", "source"), dtype="int64"),
                )
            },
            "seen: int64",
        ),
    ],
)
def test_a_description_that_does_not_fit_its_graph_is_refused(
    name: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CorruptFile, match=rf"model\.onnx: its description promises .*{said}"):
        load_sequence(save(tmp_path / "model.onnx", name, **changes))


def test_a_source_that_is_forgotten_is_noticed(tmp_path: Path) -> None:
    model = translating()
    for node, again in zip(model.graph.node[:2], ("source", "given"), strict=True):
        node.input[0] = again  # what was read is lost: twice what is read now instead
    opened = load_sequence(save(tmp_path / "model.onnx", "translating", model))
    with pytest.raises(CorruptFile, match=r"read_out came out as int64 \(1, 6\)"):
        opened.whole(tokens_of(1, 2), None, tokens_of(1, 3))


def test_a_cache_that_grows_faster_than_what_is_read_is_noticed(tmp_path: Path) -> None:
    model = translating()
    for node in model.graph.node[:2]:
        node.input.append(node.input[0])
    past = tuple(
        msgspec.structs.replace(leaf, shape=("batch", "past")) if leaf.name == "seen" else leaf
        for leaf in TRANSLATING.state
    )
    opened = load_sequence(save(tmp_path / "model.onnx", "translating", model, state=past))
    _, state = opened.step(tokens_of(1, 2), opened.initial_state(1), source=tokens_of(1, 1))
    with pytest.raises(CorruptFile, match=r"read_out came out as int64 \(1, 2\)"):
        opened.step(tokens_of(1, 2), state)


def test_nan_is_named_by_its_output(tmp_path: Path) -> None:
    model = summing()
    next(tensor for tensor in model.graph.initializer if tensor.name == "hundred").raw_data = np.float32(
        np.nan
    ).tobytes()
    opened = load_sequence(save(tmp_path / "model.onnx", "summing", model))
    with pytest.raises(CorruptFile, match=r"model\.onnx: forecast holds NaN"):
        opened.whole(values_of(1, 1, 3))


def test_answers_of_another_shape_are_noticed(reader: OnnxSequence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_run_graph", lambda *_: [np.zeros((2, 3, 2), np.float32)])
    with pytest.raises(CorruptFile, match=re.escape("logits came out as (2, 3, 2), not (2, 1, 2)")):
        reader.whole(values_of(2, 3, 3))
