"""A hand-made sequence model as a tiny .onnx file, for tests that need a file but no training.

It counts: logits = (how often each token has come, this one included) @ weights + bias. The counts are its state, and
the last `window - 1` tokens stand beside them as what a Transformer's cache is to it: something that grows and is cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rlseq.sequence import (
    SEQUENCE_KEY,
    SequenceSpec,
    SequenceState,
    Signature,
    Tokenizer,
    encode_sequence_spec,
)

LETTERS = "abcd"
WINDOW = 4
SPEC = SequenceSpec(
    rlseq_version="test",
    task="text",
    model="hand",
    signature=Signature(vocabulary=len(LETTERS), tokenizer=Tokenizer(unit="char", characters=LETTERS)),
    context=3,
    window=WINDOW,
    state=(
        SequenceState(name="counts", output="counts_out", shape=("batch", len(LETTERS))),
        SequenceState(name="seen", output="seen_out", shape=("batch", "past"), dtype="int64"),
        SequenceState(name="position", output="position_out", shape=(), dtype="int64"),
    ),
)
WEIGHTS = np.random.default_rng(5).normal(size=(len(LETTERS), len(LETTERS))).astype(np.float32)


def twin(tokens_BT: np.ndarray, weights: Any = WEIGHTS) -> np.ndarray:
    """What the graph gives for whole sequences, by numpy: `[B, T, V]`."""
    return np.eye(len(LETTERS), dtype=np.float32)[tokens_BT].cumsum(1) @ np.asarray(weights, np.float32)


def counting_model(weights: Any = WEIGHTS, bias: Any = 0.0, kept: int = WINDOW - 1) -> onnx.ModelProto:
    """The model without metadata.

    Args:
        weights: `[V, V]`.
        bias: `[V]`, or one number.
        kept: how many tokens the graph remembers in `seen`; a sound one keeps a window less one.
    """
    size = len(LETTERS)
    constants: dict[str, Any] = {
        "size": np.array(size),
        "zero_one": np.array([0, 1], np.float32),
        "one": np.array(1),
        "axis_1": np.array([1]),
        "last": np.array(-1),
        "from": np.array([-kept]),
        "to": np.array([2**62]),
        "weights": np.asarray(weights, np.float32),
        "bias": np.broadcast_to(np.asarray(bias, np.float32), (size,)).copy(),
    }
    nodes = [
        helper.make_node("OneHot", ["tokens", "size", "zero_one"], ["hot"]),
        helper.make_node("CumSum", ["hot", "one"], ["sums"]),
        helper.make_node("Unsqueeze", ["counts", "axis_1"], ["before"]),
        helper.make_node("Add", ["sums", "before"], ["total"]),
        helper.make_node("MatMul", ["total", "weights"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["logits"]),
        helper.make_node("Gather", ["total", "last"], ["counts_out"], axis=1),
        helper.make_node("Concat", ["seen", "tokens"], ["all"], axis=1),
        helper.make_node("Slice", ["all", "from", "to", "axis_1"], ["seen_out"]),
        helper.make_node("Shape", ["tokens"], ["time"], start=1, end=2),
        helper.make_node("Squeeze", ["time"], ["length"]),
        helper.make_node("Add", ["position", "length"], ["position_out"]),
    ]
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "counting",
        [
            port("tokens", TensorProto.INT64, ["batch", "time"]),
            port("counts", TensorProto.FLOAT, ["batch", size]),
            port("seen", TensorProto.INT64, ["batch", "past"]),
            port("position", TensorProto.INT64, []),
        ],
        [
            port("logits", TensorProto.FLOAT, ["batch", "time", size]),
            port("counts_out", TensorProto.FLOAT, ["batch", size]),
            port("seen_out", TensorProto.INT64, ["batch", "next"]),
            port("position_out", TensorProto.INT64, []),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


def save_counting(
    path: Path,
    model: onnx.ModelProto | None = None,
    *,
    metadata: dict[str, str] | None = None,
    **changes: Any,
) -> Path:
    """The model as a file.

    Args:
        path: the file.
        model: None: `counting_model()`.
        metadata: instead of the description.
        changes: of the description.
    """
    described = onnx.ModelProto()
    described.CopyFrom(model or counting_model())
    spec = msgspec.structs.replace(SPEC, **changes)
    helper.set_model_props(described, {SEQUENCE_KEY: encode_sequence_spec(spec)} if metadata is None else metadata)
    path.write_bytes(described.SerializeToString())
    return path
