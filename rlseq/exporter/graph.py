"""A network as an ONNX file that plays alone: raw observation in, action and action values out, the policy's
description inside.

torch's exporter (torch.onnx.export, dynamo) is used as it is and its traces are removed: it writes source lines and
absolute paths of the exporting machine into the metadata of every node.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import onnx
import torch
from torch import Tensor, nn

from rlseq.errors import RlseqError, UsageError
from rlseq.files import write_atomic
from rlseq.nets.network import NetInput, QNetwork
from rlseq.spec import FORMAT_KEY, SPEC_FORMAT, SPEC_KEY, PolicySpec, encode_spec

DEFAULT_OPSET = 18
OPSETS = range(18, 22)  # what torch's exporter writes without down-conversion, up to what old runtimes read
MAX_IR = 10
EXAMPLE_BATCH = 2  # not 1, which the exporter would take for a constant


class PolicyGraph(nn.Module):
    """What is exported: the network itself, and the greedy action."""

    def __init__(self, net: QNetwork, spec: PolicySpec) -> None:
        super().__init__()
        self.net = net
        self.num_leaves = len(spec.observation)
        self.start = spec.action.start

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        leaves, state = arrays[: self.num_leaves], arrays[self.num_leaves :]
        q_BA, state = self.net(NetInput(leaves), state)
        return q_BA.argmax(dim=1) + self.start, q_BA, *state


def build_graph(net: QNetwork, spec: PolicySpec, opset: int = DEFAULT_OPSET) -> onnx.ModelProto:
    """The network as an ONNX model with a symbolic batch axis, without metadata.

    Raises:
        UsageError: an opset that is not supported.
        RlseqError: torch could not export the network.
    """
    if opset not in OPSETS:
        raise UsageError(f"--opset {opset} is not supported: choose {OPSETS[0]} to {OPSETS[-1]}.")
    examples = [
        torch.zeros((EXAMPLE_BATCH, *leaf.shape), dtype=getattr(torch, leaf.dtype)) for leaf in spec.observation
    ]
    for leaf, example in zip(spec.observation, examples, strict=True):
        if leaf.starts:
            example.view(EXAMPLE_BATCH, -1)[:] = torch.tensor(leaf.starts)
    examples += [torch.from_numpy(leaf.zeros(EXAMPLE_BATCH)) for leaf in spec.state]
    batch = torch.export.Dim("batch")
    axes = [{0: batch} for _ in spec.observation] + [{leaf.shape.index(-1): batch} for leaf in spec.state]
    names = [leaf.name for leaf in spec.observation] + [leaf.name for leaf in spec.state]
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                PolicyGraph(net, spec).eval(),
                tuple(examples),
                dynamo=True,
                opset_version=opset,
                external_data=False,
                input_names=names,
                output_names=[*spec.outputs, *(leaf.output for leaf in spec.state)],
                dynamic_shapes=(tuple(axes),),
                verbose=False,
            )
    except Exception as error:
        raise RlseqError(f"torch could not export the network: {type(error).__name__}: {error}") from error
    assert program is not None
    return cleaned(program.model_proto)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's prints and warnings off the user's terminal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def cleaned(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without stack traces, paths, doc strings and the exporter's own notes; the calculation is untouched."""
    clean = onnx.ModelProto()
    clean.CopyFrom(model)
    _strip(clean)
    clean.producer_name, clean.producer_version = "rlseq", ""
    return clean


def _strip(message: onnx.ModelProto) -> None:
    """Clear `doc_string` and `metadata_props` of a protobuf message and of all messages inside it."""
    for field, value in message.ListFields():
        if field.name in ("doc_string", "metadata_props"):
            message.ClearField(field.name)
        elif field.message_type is not None and field.name != "raw_data":
            for inner in value if not hasattr(value, "ListFields") else (value,):
                _strip(inner)


def with_spec(model: onnx.ModelProto, spec: PolicySpec) -> onnx.ModelProto:
    """The model with the policy's description as metadata."""
    described = onnx.ModelProto()
    described.CopyFrom(model)
    del described.metadata_props[:]
    onnx.helper.set_model_props(described, {FORMAT_KEY: str(SPEC_FORMAT), SPEC_KEY: encode_spec(spec)})
    return described


def write_graph(model: onnx.ModelProto, path: Path, called: Path | None = None) -> None:
    """Write the one file, after reading back what a runtime will see; messages call it `called`.

    Raises:
        RlseqError: the opset or IR version is too new, or data is external: an exporter that changed its habits.
    """
    opset = max(entry.version for entry in model.opset_import if entry.domain == "")
    if opset > OPSETS[-1] or model.ir_version > MAX_IR:
        raise RlseqError(
            f"the exporter wrote opset {opset}, IR {model.ir_version}; at most {OPSETS[-1]}, {MAX_IR} were asked for."
        )
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise RlseqError("the exporter put weights into a second file; one file was asked for.")
    onnx.checker.check_model(model, full_check=True)
    data = model.SerializeToString(deterministic=True)
    write_atomic(path, lambda file: _write(file, data), called)


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(data)
