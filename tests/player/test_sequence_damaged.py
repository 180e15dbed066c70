"""Files that are no sequence model, or a damaged one: refused with a clear word, whatever is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rlseq.errors import CorruptFile, NewerFormat, RlseqError, UsageError
from rlseq.player.generate import generate
from rlseq.player.onnx_policy import load_onnx
from rlseq.player.sampling import GREEDY
from rlseq.player.sequence import load_sequence
from rlseq.sequence import SEQUENCE_KEY, SequenceState, Signature, Tokenizer
from tests import graphs
from tests.sequence_graphs import SPEC, counting_model, save_counting


def tokens_of(batch: int, time: int) -> np.ndarray:
    return np.random.default_rng(batch * 100 + time).integers(0, 4, (batch, time))


# -------------------------------------------------------------------------------------------------------- other files


def test_a_policy_is_sent_to_play_and_a_sequence_model_to_generate(tmp_path: Path) -> None:
    policy = graphs.save_linear(tmp_path / "p.onnx", graphs.spec_of("CartPole-v1"), np.ones((4, 2)))
    with pytest.raises(
        UsageError, match=re.escape(f"is a policy, not a sequence model; let it act: rlseq play {policy}")
    ):
        load_sequence(policy)
    sequence = save_counting(tmp_path / "s.onnx")
    for typed in ({}, {"env_id": "CartPole-v1"}):
        with pytest.raises(UsageError, match=re.escape(f"acts in no environment: rlseq generate {sequence}")):
            load_onnx(sequence, **typed)


def test_a_file_of_another_tool_is_refused(tmp_path: Path) -> None:
    path = save_counting(tmp_path / "other.onnx", metadata={"author": "somebody"})
    with pytest.raises(UsageError, match="has no description of a sequence model"):
        load_sequence(path)


def test_files_that_are_no_onnx_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(RlseqError, match=r"model\.onnx"):
        load_sequence(path)
    whole = save_counting(path).read_bytes()
    for data in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(CorruptFile, match=r"model\.onnx"):
            load_sequence(path)
    with pytest.raises(UsageError, match="is not a file"):
        load_sequence(tmp_path)


@pytest.mark.parametrize("where", ["/etc/passwd", "../secret", "model.onnx.data"])
def test_external_data_is_refused_before_onnx_runtime_opens_the_file(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = counting_model()
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "weights")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=where)
    path = save_counting(tmp_path / "model.onnx", model)
    monkeypatch.setattr("onnxruntime.InferenceSession", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(CorruptFile, match=r"its tensor 'weights' lies in another file"):
        load_sequence(path)


# ------------------------------------------------------------------------------------------------- damaged descriptions

STATE = SPEC.state
SERIES = Signature(kind="forecast", features=("x",), shift=(0.0,), scale=(1.0,), horizon=2)


def with_tokenizer(tokenizer: Tokenizer) -> Signature:
    return msgspec.structs.replace(SPEC.signature, tokenizer=tokenizer)


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": Signature(vocabulary=0)},
        {"signature": Signature(vocabulary=2**40)},
        {"signature": msgspec.structs.replace(SPEC.signature, vocabulary=5)},  # the tokenizer has 4
        {"signature": with_tokenizer(Tokenizer(unit="char", characters="abca"))},
        {"signature": with_tokenizer(Tokenizer(unit="byte"))},
        {"signature": msgspec.structs.replace(SPEC.signature, end=4)},
        {"signature": msgspec.structs.replace(SPEC.signature, kind="translate", start=1)},  # without an end
        {"signature": msgspec.structs.replace(SPEC.signature, features=("x",))},
        {"signature": SERIES, "one_pass": True, "state": (STATE[0],)},
        {"signature": msgspec.structs.replace(SERIES, scale=(0.0,)), "state": ()},
        {"signature": msgspec.structs.replace(SERIES, target=1), "state": ()},
        {"signature": msgspec.structs.replace(SERIES, horizon=0), "state": ()},
        {"signature": msgspec.structs.replace(SERIES, quantiles=(1.5,)), "state": ()},
        {"context": 0},
        {"context": 2**62},
        {"window": 0},
        {"window": 2**50},
        {"format_version": 0},
        {"state": (STATE[0], STATE[0])},
        {"state": (msgspec.structs.replace(STATE[0], name="tokens"),)},
        {"state": (msgspec.structs.replace(STATE[0], output="logits"),)},
        {"state": (STATE[0], msgspec.structs.replace(STATE[1], output="counts_out"))},
        {"state": (msgspec.structs.replace(STATE[0], dtype="object"),)},
        {"state": (msgspec.structs.replace(STATE[0], dtype="no such thing"),)},
        {"state": (msgspec.structs.replace(STATE[0], shape=("batch", -1)),)},
        {"state": (msgspec.structs.replace(STATE[0], shape=("batch", "batch")),)},
        {"state": (msgspec.structs.replace(STATE[0], shape=("batch", "time")),)},
        {"state": (msgspec.structs.replace(STATE[0], shape=("batch", 2**20, 2**20)),)},
        {"state": (msgspec.structs.replace(STATE[0], shape=(0, 2**60)),)},
        {"state": (msgspec.structs.replace(STATE[0], shape=("batch", *[1] * 70)),)},
    ],
)
def test_descriptions_that_make_no_sense_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = save_counting(tmp_path / "model.onnx", **changes)
    with pytest.raises(CorruptFile, match=r"model\.onnx holds a description of a sequence model that contradicts"):
        load_sequence(path)


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "{}", "[" * 5000, "NaN", '{"format_version": 1e5}'])
def test_descriptions_that_are_no_descriptions_are_refused(text: str, tmp_path: Path) -> None:
    path = save_counting(tmp_path / "model.onnx", metadata={SEQUENCE_KEY: text})
    with pytest.raises(CorruptFile, match=r"model\.onnx holds a damaged description"):
        load_sequence(path)


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    path = save_counting(tmp_path / "model.onnx", format_version=99)
    with pytest.raises(NewerFormat, match=r"model\.onnx has format_version 99"):
        load_sequence(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"signature": Signature(vocabulary=3)}, r"promises logits: float32 \[batch, time, 3\], its graph has .*, 4\]"),
        ({"state": STATE[:2]}, "promises inputs counts, seen, tokens, its graph has inputs counts, position"),
        ({"state": (*STATE, SequenceState(name="x", output="y", shape=()))}, "promises inputs counts, position, seen"),
        ({"state": (msgspec.structs.replace(STATE[0], output="lost"), *STATE[1:])}, "promises outputs lost"),
        (
            {"state": (msgspec.structs.replace(STATE[0], shape=("batch", 5)), *STATE[1:])},
            r"counts: float32 \[batch, 5\]",
        ),
        ({"state": (msgspec.structs.replace(STATE[0], shape=("batch",)), *STATE[1:])}, r"counts: float32 \[batch\]"),
        ({"state": (msgspec.structs.replace(STATE[0], dtype="float64"), *STATE[1:])}, "counts: float64"),
        ({"state": (msgspec.structs.replace(STATE[0], shape=("batch", "past")), *STATE[1:])}, "counts: float32 .*past"),
    ],
)
def test_a_description_that_does_not_fit_its_graph_is_refused(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CorruptFile, match=rf"model\.onnx: its description .*{said.removeprefix('promises ')}"):
        load_sequence(save_counting(tmp_path / "model.onnx", **changes))


# ------------------------------------------------------------------------------------------------------- damaged graphs


def fixed_axis(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5


def float_tokens(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT


def no_state_output(model: onnx.ModelProto) -> None:
    del model.graph.output[1]


def unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node[4].op_type = "Evil"


def foreign_operator(model: onnx.ModelProto) -> None:
    model.graph.node[4].domain = "evil.custom"
    model.opset_import.append(helper.make_opsetid("evil.custom", 1))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (fixed_axis, r"tokens: int64 \[batch, time\], its graph has tokens: int64 \[batch, 5\]"),
        (float_tokens, "refused by ONNX Runtime"),
        (no_state_output, "outputs counts_out"),
        (unknown_operator, "refused by ONNX Runtime"),
        (foreign_operator, "needs a library of its own"),
    ],
)
def test_graphs_that_do_not_fit_are_refused(
    damage: Callable[[onnx.ModelProto], None], said: str, tmp_path: Path
) -> None:
    model = counting_model()
    damage(model)
    with pytest.raises(CorruptFile, match=rf"model\.onnx.*{said}"):
        load_sequence(save_counting(tmp_path / "model.onnx", model))


def test_nan_logits_are_refused(tmp_path: Path) -> None:
    model = load_sequence(save_counting(tmp_path / "model.onnx", counting_model(bias=[0, np.nan, 0, 0])))
    with pytest.raises(CorruptFile, match=r"model\.onnx: logits holds NaN: its weights are broken"):
        model.step(np.array([[0]]), model.initial_state(1))


def test_a_cache_that_is_never_cut_is_noticed(tmp_path: Path) -> None:
    model = load_sequence(save_counting(tmp_path / "model.onnx", counting_model(kept=1000)))
    with pytest.raises(CorruptFile, match=r"seen_out came out as int64 \(1, 4\); its description says .* window 4"):
        list(generate(model, np.array([0]), 10, GREEDY, np.random.default_rng(0)))


def test_shapes_that_come_out_otherwise_than_promised_are_refused(tmp_path: Path) -> None:
    model = counting_model()
    model.graph.node[6].attribute[0].i = 0  # the counts of the last sequence instead of the last token
    for port in model.graph.output:
        if port.name == "counts_out":
            port.type.tensor_type.shape.dim[1].dim_param = "anything"
    opened = load_sequence(save_counting(tmp_path / "model.onnx", model))
    with pytest.raises(CorruptFile, match=r"counts_out came out as float32 \(3, 4\)"):
        opened.step(tokens_of(2, 3), opened.initial_state(2))


def test_a_graph_that_fails_is_explained(tmp_path: Path) -> None:
    model = counting_model()
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "last")
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(5), "last"))  # the sixth token of every piece
    opened = load_sequence(save_counting(tmp_path / "model.onnx", model))
    with pytest.raises(CorruptFile, match=r"model\.onnx: ONNX Runtime could not run the graph: .*Gather"):
        opened.step(np.array([[0]]), opened.initial_state(1))


@pytest.mark.parametrize(
    "changes",
    [
        {"state": (msgspec.structs.replace(STATE[0], name="x" * 10_000), *STATE[1:])},
        {"state": (msgspec.structs.replace(STATE[0], output="x" * 10_000), *STATE[1:])},
        {"signature": with_tokenizer(Tokenizer(unit="x" * 10_000))},  # type: ignore[arg-type]
    ],
)
def test_a_message_stays_readable_whatever_stands_in_the_file(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match=r"model\.onnx") as caught:
        load_sequence(save_counting(tmp_path / "model.onnx", **changes))
    assert len(str(caught.value)) < 1_000 + len(str(tmp_path))
