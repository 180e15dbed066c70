"""Damage for .onnx files: their description, their ports, their operators."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rlseq.sequence import SEQUENCE_KEY
from rlseq.spec import FORMAT_KEY, SPEC_KEY
from tests.fire.mutate import Rng, mutate_tree, odd


def mutate_description(rng: Rng, path: Path) -> str:
    """Change the metadata that rlseq wrote."""
    model = onnx.load(path)
    entries = {entry.key: entry for entry in model.metadata_props}
    key, version_key = (SPEC_KEY, FORMAT_KEY) if SPEC_KEY in entries else (SEQUENCE_KEY, SEQUENCE_KEY)
    kind = rng.choice(["tree", "text", "version", "missing", "twice"], p=[0.8, 0.05, 0.05, 0.05, 0.05])
    if kind == "tree":
        spec = json.loads(entries[key].value)
        kind = "; ".join(mutate_tree(rng, spec) for _ in range(int(rng.choice([1, 1, 2]))))
        entries[key].value = json.dumps(spec)
    elif kind == "text":
        entries[key].value = str(rng.choice(["", "{", "null", "[" * 5_000, "{}", "NaN", '{"format_version": 1e5}']))
    elif kind == "version":
        entries[version_key].value = str(rng.choice(["0", "2", "-1", "9" * 50, "1.5", "é", ""]))
    elif kind == "missing":
        model.metadata_props.remove(entries[str(rng.choice([version_key, key]))])
    else:
        model.metadata_props.add(key=key, value="{}")
    path.write_bytes(model.SerializeToString())
    return f"{path.name}: description, {kind}"


def mutate_graph(rng: Rng, path: Path) -> str:
    """Change inputs, outputs, nodes or weights."""
    model = onnx.load(path)
    kind, change = list(CHANGES.items())[int(rng.integers(len(CHANGES)))]
    change(rng, model)
    path.write_bytes(model.SerializeToString())
    return f"{path.name}: graph, {kind}"


def _rename_port(rng: Rng, model: onnx.ModelProto) -> None:
    ports = [*model.graph.input, *model.graph.output]
    ports[int(rng.integers(len(ports)))].name = str(rng.choice(["x", "", "obs", "é" * 100, "action"]))


def _drop_port(rng: Rng, model: onnx.ModelProto) -> None:
    ports = [model.graph.input, model.graph.output][int(rng.integers(2))]
    del ports[int(rng.integers(len(ports)))]


def _retype(rng: Rng, model: onnx.ModelProto) -> None:
    ports = [*model.graph.input, *model.graph.output]
    ports[int(rng.integers(len(ports)))].type.tensor_type.elem_type = int(rng.choice([0, 7, 8, 11, 16, 99]))


def _reshape(rng: Rng, model: onnx.ModelProto) -> None:
    ports = [*model.graph.input, *model.graph.output]
    axes = ports[int(rng.integers(len(ports)))].type.tensor_type.shape.dim
    if not axes:  # a number that is no array gets an axis
        axes.add()
    axes[int(rng.integers(len(axes)))].dim_value = int(rng.choice([-5, 0, 1, 3, 2**40]))


def _drop_node(rng: Rng, model: onnx.ModelProto) -> None:
    del model.graph.node[int(rng.integers(len(model.graph.node)))]


def _operator(rng: Rng, model: onnx.ModelProto) -> None:
    node = model.graph.node[int(rng.integers(len(model.graph.node)))]
    node.op_type = str(rng.choice(["Evil", "Relu", "Shape", "Loop", "If", "StringNormalizer", "Scan", "", "Identity"]))


def _domain(rng: Rng, model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = str(rng.choice(["evil.custom", "com.microsoft", "ai.onnx.ml", "é"]))
    model.opset_import.append(helper.make_opsetid(model.graph.node[0].domain, int(rng.choice([1, 10**6]))))


def _external(rng: Rng, model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[int(rng.integers(len(model.graph.initializer)))]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", str(rng.choice(["/etc/passwd", "../secret", "/dev/zero", "config.json"]))


def _giant(rng: Rng, model: onnx.ModelProto) -> None:
    """The values plus zeros of a giant shape: cheap in the file, dear in memory."""
    output = next(o for o in model.graph.output if o.name in ("q_values", "logits", "forecast"))
    node = next(n for n in model.graph.node if output.name in n.output)
    node.output[list(node.output).index(output.name)] = "small_values"
    shape = np.array([[2**33], [2**20, 2**14], [2**62, 2**62], [2**31]][int(rng.integers(4))], np.int64)
    for other in model.graph.node:
        for index, name in enumerate(other.input):
            if name == output.name:
                other.input[index] = "small_values"
    model.graph.initializer.append(numpy_helper.from_array(shape, "giant_shape"))
    model.graph.node.append(helper.make_node("ConstantOfShape", ["giant_shape"], ["giant"]))
    kind = str(rng.choice(["ReduceMax", "Size"]))
    model.graph.node.append(
        helper.make_node("Cast", ["giant"], ["whole"], to=TensorProto.FLOAT)
        if kind == "Size"
        else helper.make_node("ReduceMax", ["giant"], ["whole"], keepdims=0)
    )
    model.graph.node.append(helper.make_node("ReduceSum", ["whole"], ["one"], keepdims=0))
    model.graph.node.append(helper.make_node("Add", ["small_values", "one"], [output.name]))


def _initializer(rng: Rng, model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[int(rng.integers(len(model.graph.initializer)))]
    kind = int(rng.integers(4))
    if kind == 0:
        tensor.dims[:] = [int(n) for n in rng.choice([-1, 0, 3, 2**31, 2**62], 2)]
    elif kind == 1:
        tensor.data_type = int(rng.choice([0, 6, 8, 14, 99]))
    elif kind == 2:
        tensor.raw_data = tensor.raw_data[:-3]
    else:
        tensor.raw_data = np.full(max(1, len(tensor.raw_data) // 4), np.nan, np.float32).tobytes()


def _version(rng: Rng, model: onnx.ModelProto) -> None:
    if rng.random() < 0.5:
        model.ir_version = int(rng.choice([1, 3, 99, 2**31]))
    else:
        model.opset_import[0].version = int(rng.choice([0, 1, 6, 99, -1]))


def _attribute(rng: Rng, model: onnx.ModelProto) -> None:
    node = model.graph.node[int(rng.integers(len(model.graph.node)))]
    value = odd(rng)
    plain = value if isinstance(value, (int, float, str)) and value not in (True, False) else "x"
    if isinstance(plain, int) and abs(plain) >= 2**63:
        plain = 2**62
    name = node.attribute[0].name if node.attribute else "axis"
    del node.attribute[:]
    node.attribute.append(helper.make_attribute(name, plain))


CHANGES = {
    "port renamed": _rename_port,
    "port dropped": _drop_port,
    "port of another type": _retype,
    "port of another shape": _reshape,
    "node dropped": _drop_node,
    "other operator": _operator,
    "other domain": _domain,
    "external data": _external,
    "giant constant": _giant,
    "initializer": _initializer,
    "version": _version,
    "attribute": _attribute,
}
