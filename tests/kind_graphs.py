"""Hand-made models of the other kinds than text, as tiny .onnx files: what they give can be told by numpy.

- translating: logits = (how often each token stands in the source and in the answer so far) @ WEIGHTS.
- averaging: class logits = mean over the real places @ MIXED, in one pass; 0 where no place is real.
- summing: forecast = 100 + (sum of the values so far) @ MIXED.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rlseq.sequence import SEQUENCE_KEY, SequenceSpec, SequenceState, Signature, Tokenizer, encode_sequence_spec

LETTERS = "abcd=\n"
START, END = 4, 5
FEATURES = ("x", "y", "z")
RNG = np.random.default_rng(6)
WEIGHTS = RNG.normal(size=(len(LETTERS), len(LETTERS))).astype(np.float32)
MIXED = RNG.normal(size=(len(FEATURES), 2)).astype(np.float32)
SCALED: dict[str, Any] = {"features": FEATURES, "shift": (0.0, 1.0, 2.0), "scale": (1.0, 1.0, 2.0)}
NODE, PORT = helper.make_node, helper.make_tensor_value_info
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

TRANSLATING = SequenceSpec(
    rlseq_version="test",
    task="reverse",
    model="hand",
    signature=Signature(
        kind="translate",
        vocabulary=len(LETTERS),
        tokenizer=Tokenizer(unit="char", characters=LETTERS),
        start=START,
        end=END,
    ),
    context=8,
    state=(
        SequenceState(name="counts", output="counts_out", shape=("batch", len(LETTERS))),
        SequenceState(name="read", output="read_out", shape=("batch", "source"), dtype="int64"),
        SequenceState(name="seen", output="seen_out", shape=("batch", "source"), dtype="bool"),
    ),
)
AVERAGING = SequenceSpec(
    rlseq_version="test",
    task="waveforms",
    model="hand",
    signature=Signature(kind="classify", classes=("up", "down"), **SCALED),
    context=5,
    one_pass=True,
)
SUMMING = SequenceSpec(
    rlseq_version="test",
    task="lorenz",
    model="hand",
    signature=Signature(kind="forecast", target=2, horizon=2, **SCALED),
    context=5,
    state=(SequenceState(name="total", output="total_out", shape=("batch", len(FEATURES))),),
)


def translated(tokens_BT: np.ndarray, source_BS: np.ndarray, given_BS: np.ndarray | None = None) -> np.ndarray:
    """What `translating` gives for whole answers, `[B, T, V]`."""
    hot = np.eye(len(LETTERS), dtype=np.float32)
    real_BS1 = 1.0 if given_BS is None else given_BS[..., None]
    return (hot[tokens_BT].cumsum(1) + (hot[source_BS] * real_BS1).sum(1, keepdims=True)) @ WEIGHTS


def averaged(values_BTF: np.ndarray, given_BT: np.ndarray) -> np.ndarray:
    """What `averaging` gives, `[B, 1, 2]`."""
    count_B1 = np.maximum(given_BT.sum(1, keepdims=True), 1)
    return ((np.where(given_BT[..., None], values_BTF, 0).sum(1) / count_B1) @ MIXED)[:, None]


def summed(values_BTF: np.ndarray) -> np.ndarray:
    """What `summing` gives, `[B, T, 2]`."""
    return 100 + values_BTF.cumsum(1) @ MIXED


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any]) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "hand", inputs, outputs, tensors)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


def translating() -> onnx.ModelProto:
    """The model without metadata."""
    size = len(LETTERS)
    nodes = [
        NODE("Concat", ["read", "source"], ["read_out"], axis=1),
        NODE("Concat", ["seen", "given"], ["seen_out"], axis=1),
        NODE("OneHot", ["read_out", "size", "zero_one"], ["hot_source"]),
        NODE("Cast", ["seen_out"], ["real"], to=FLOAT),
        NODE("Unsqueeze", ["real", "axis_2"], ["real_1"]),
        NODE("Mul", ["hot_source", "real_1"], ["real_source"]),
        NODE("ReduceSum", ["real_source", "axis_1"], ["in_source"], keepdims=1),
        NODE("OneHot", ["tokens", "size", "zero_one"], ["hot"]),
        NODE("CumSum", ["hot", "one"], ["sums"]),
        NODE("Unsqueeze", ["counts", "axis_1"], ["before"]),
        NODE("Add", ["sums", "before"], ["total"]),
        NODE("Gather", ["total", "last"], ["counts_out"], axis=1),
        NODE("Add", ["total", "in_source"], ["all"]),
        NODE("MatMul", ["all", "weights"], ["logits"]),
    ]
    inputs = [
        PORT("tokens", INT64, ["batch", "time"]),
        PORT("source", INT64, ["batch", "source"]),
        PORT("given", BOOL, ["batch", "source"]),
        PORT("counts", FLOAT, ["batch", size]),
        PORT("read", INT64, ["batch", "before"]),
        PORT("seen", BOOL, ["batch", "before"]),
    ]
    outputs = [
        PORT("logits", FLOAT, ["batch", "time", size]),
        PORT("counts_out", FLOAT, ["batch", size]),
        PORT("read_out", INT64, ["batch", "after"]),
        PORT("seen_out", BOOL, ["batch", "after"]),
    ]
    constants = {
        "size": np.array(size),
        "zero_one": np.array([0, 1], np.float32),
        "one": np.array(1),
        "axis_1": np.array([1]),
        "axis_2": np.array([2]),
        "last": np.array(-1),
        "weights": WEIGHTS,
    }
    return _model(nodes, inputs, outputs, constants)


def averaging() -> onnx.ModelProto:
    """The model without metadata."""
    nodes = [
        NODE("Unsqueeze", ["given", "axis_2"], ["given_1"]),
        NODE("Where", ["given_1", "values", "zero"], ["real"]),
        NODE("ReduceSum", ["real", "axis_1"], ["sum"], keepdims=1),
        NODE("Cast", ["given_1"], ["ones"], to=FLOAT),
        NODE("ReduceSum", ["ones", "axis_1"], ["count"], keepdims=1),
        NODE("Max", ["count", "at_least"], ["divisor"]),
        NODE("Div", ["sum", "divisor"], ["mean"]),
        NODE("MatMul", ["mean", "weights"], ["logits"]),
    ]
    inputs = [PORT("values", FLOAT, ["batch", "time", len(FEATURES)]), PORT("given", BOOL, ["batch", "time"])]
    constants = {
        "axis_1": np.array([1]),
        "axis_2": np.array([2]),
        "zero": np.array(0, np.float32),
        "at_least": np.array(1, np.float32),
        "weights": MIXED,
    }
    return _model(nodes, inputs, [PORT("logits", FLOAT, ["batch", 1, 2])], constants)


def summing() -> onnx.ModelProto:
    """The model without metadata."""
    nodes = [
        NODE("CumSum", ["values", "one"], ["sums"]),
        NODE("Unsqueeze", ["total", "axis_1"], ["before"]),
        NODE("Add", ["sums", "before"], ["all"]),
        NODE("Gather", ["all", "last"], ["total_out"], axis=1),
        NODE("MatMul", ["all", "weights"], ["product"]),
        NODE("Add", ["product", "hundred"], ["forecast"]),
    ]
    size = len(FEATURES)
    inputs = [PORT("values", FLOAT, ["batch", "time", size]), PORT("total", FLOAT, ["batch", size])]
    outputs = [PORT("forecast", FLOAT, ["batch", "time", 2]), PORT("total_out", FLOAT, ["batch", size])]
    constants = {
        "one": np.array(1),
        "axis_1": np.array([1]),
        "last": np.array(-1),
        "weights": MIXED,
        "hundred": np.array(100, np.float32),
    }
    return _model(nodes, inputs, outputs, constants)


MODELS: dict[str, tuple[SequenceSpec, Callable[[], onnx.ModelProto]]] = {
    "translating": (TRANSLATING, translating),
    "averaging": (AVERAGING, averaging),
    "summing": (SUMMING, summing),
}


def save(path: Path, name: str, model: onnx.ModelProto | None = None, **changes: Any) -> Path:
    """One of the models as a file.

    Args:
        path: the file.
        name: which.
        model: a changed graph; None: as it is made here.
        changes: of the description.
    """
    spec, make = MODELS[name]
    described = make() if model is None else model
    spec = msgspec.structs.replace(spec, **changes)
    helper.set_model_props(described, {SEQUENCE_KEY: encode_sequence_spec(spec)})
    path.write_bytes(described.SerializeToString())
    return path
