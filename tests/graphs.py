"""Hand-made policies as tiny .onnx files, for tests that need a file but no training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rlseq.envs.make import maker, spaces_of
from rlseq.spec import FORMAT_KEY, SPEC_KEY, EnvSpec, Leaf, PolicySpec, StateLeaf, encode_spec
from tests import toy_envs  # noqa: F401 - registers them

OPSET, IR = 18, 8


def spec_of(env_id: str, *, kwargs: dict[str, Any] | None = None, **changes: Any) -> PolicySpec:
    """The description of a policy for an environment."""
    env = EnvSpec(id=env_id, kwargs=kwargs or {})
    observation, action = spaces_of(maker(env), env_id)
    spec = PolicySpec(rlseq_version="test", algorithm="hand", env=env, observation=observation, action=action)
    return msgspec.structs.replace(spec, **changes)


def width_of(spec: PolicySpec) -> int:
    """Features after one-hot coding."""
    return sum(leaf.width for leaf in spec.observation)


def features(obs: Sequence[np.ndarray], spec: PolicySpec) -> np.ndarray:
    """The numpy twin of the graphs' preprocessing: `[B, width]` float32."""
    parts = []
    for value, leaf in zip(obs, spec.observation, strict=True):
        flat = np.asarray(value).reshape(len(value), -1)
        if not leaf.sizes:
            parts.append(flat.astype(np.float32) * np.float32(leaf.scale))
        for column, (size, start) in enumerate(zip(leaf.sizes, leaf.starts, strict=True)):
            parts.append(np.eye(size, dtype=np.float32)[flat[:, column] - start])
    return np.concatenate(parts, 1)


def save_linear(
    path: Path,
    spec: PolicySpec,
    weights: Any,
    bias: Any = 0.0,
    *,
    batch: int | str = "batch",
    metadata: dict[str, str] | None = None,
    opset: int = OPSET,
    ir: int = IR,
) -> Path:
    """A policy with q = features @ weights + bias; it gives those of `action` and `q_values` that `spec.outputs` names.

    Args:
        path: the file.
        spec: any kinds of leaves.
        weights: `[width, n]`.
        bias: `[n]`, or one number.
        batch: name of the batch axis, or a fixed size.
        metadata: instead of the rlseq metadata.
    """
    graph = _Graph(spec, weights, bias, batch)
    graph.finish(graph.features())
    return graph.save(path, metadata, opset, ir)


def save_recurrent(path: Path, spec: PolicySpec, weights: Any, bias: Any = 0.0, *, axis: int = 0) -> Path:
    """A policy that sums the features it has seen in an episode: h' = h + features, q = h' @ weights + bias.

    Args:
        axis: of the batch in the state array: 0 for `[-1, width]`, 1 for `[1, -1, width]` as an LSTM has it.
    """
    width = width_of(spec)
    shape = (-1, width) if axis == 0 else (1, -1, width)
    spec = msgspec.structs.replace(spec, state=(StateLeaf(name="h", output="h_out", shape=shape),))
    graph = _Graph(spec, weights, bias, "batch")
    seen = graph.features()
    axes = ["batch" if n == -1 else n for n in shape]
    graph.inputs.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, axes))
    graph.outputs.append(helper.make_tensor_value_info("h_out", TensorProto.FLOAT, axes))
    total = graph.node("Add", "h", seen, output="h_out")
    if axis == 1:
        total = graph.node("Squeeze", total, graph.constant(np.array([0])))
    graph.finish(total)
    return graph.save(path, None, OPSET, IR)


def rlseq_metadata(spec: PolicySpec) -> dict[str, str]:
    """What makes a file one of rlseq's."""
    return {FORMAT_KEY: str(spec.format_version), SPEC_KEY: encode_spec(spec)}


class _Graph:
    """A graph under construction."""

    def __init__(self, spec: PolicySpec, weights: Any, bias: Any, batch: int | str) -> None:
        self.spec = spec
        self.batch = batch
        self.weights = np.asarray(weights, np.float32)
        self.bias = np.broadcast_to(np.asarray(bias, np.float32), (spec.action.n,))
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray, name: str | None = None) -> str:
        name = name or f"constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def features(self) -> str:
        parts = [part for leaf in self.spec.observation for part in self._leaf(leaf)]
        return self.node("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]

    def _leaf(self, leaf: Leaf) -> list[str]:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(leaf.dtype))
        self.inputs.append(helper.make_tensor_value_info(leaf.name, kind, [self.batch, *leaf.shape]))
        flat = self.node("Reshape", leaf.name, self.constant(np.array([-1, max(1, int(np.prod(leaf.shape)))])))
        if not leaf.sizes:
            number = self.node("Cast", flat, to=TensorProto.FLOAT)
            return [self.node("Mul", number, self.constant(np.array(leaf.scale, np.float32)))]
        parts = []
        for column, (size, start) in enumerate(zip(leaf.sizes, leaf.starts, strict=True)):
            value = self.node("Gather", flat, self.constant(np.array(column)), axis=1)
            index = self.node("Sub", value, self.constant(np.array(start)))
            parts.append(
                self.node("OneHot", index, self.constant(np.array(size)), self.constant(np.array([0, 1], np.float32)))
            )
        return parts

    def finish(self, seen: str) -> None:
        """q_values and action from features, as far as the description names them."""
        product = self.node("MatMul", seen, self.constant(self.weights, "weights"))
        values = self.node("Add", product, self.constant(self.bias, "bias"), output="q_values")
        if "q_values" in self.spec.outputs:
            shape = [self.batch, self.spec.action.n]
            self.outputs.append(helper.make_tensor_value_info("q_values", TensorProto.FLOAT, shape))
        if "action" in self.spec.outputs:
            index = self.node("ArgMax", values, axis=1, keepdims=0)
            self.node("Add", index, self.constant(np.array(self.spec.action.start)), output="action")
            self.outputs.append(helper.make_tensor_value_info("action", TensorProto.INT64, [self.batch]))

    def save(self, path: Path, metadata: dict[str, str] | None, opset: int, ir: int) -> Path:
        graph = helper.make_graph(self.nodes, "policy", self.inputs, self.outputs, self.initializers)
        model = helper.make_model(graph, ir_version=ir, opset_imports=[helper.make_opsetid("", opset)])
        helper.set_model_props(model, rlseq_metadata(self.spec) if metadata is None else metadata)
        path.write_bytes(model.SerializeToString())
        return path
