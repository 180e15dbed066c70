"""A sequence model as an ONNX file that generates alone: tokens and state in, logits and state out, tokenizer inside.

The file appears only when the graph has been proven to write what the network writes.

Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import onnx
import torch
from torch import Tensor, nn

from rlseq.engine.weights import state_arrays
from rlseq.exporter.graph import DEFAULT_OPSET, candidate_for, traced, with_metadata, write_graph
from rlseq.exporter.sequence_parity import check_sequence_parity
from rlseq.files import sha256_arrays
from rlseq.nets.build import Network
from rlseq.nets.network import NetInput
from rlseq.nets.stepper import TorchSequence
from rlseq.player.sequence import LOGITS, TOKENS, load_sequence
from rlseq.sequence import SEQUENCE_KEY, SequenceSpec, SequenceState, encode_sequence_spec

EXAMPLE_SIZES = {"batch": 2, "time": 5, "past": 7}  # all different, and none that the exporter takes for a constant


class SequenceGraph(nn.Module):
    """What is exported: the network itself, its tokens and state as one row of arrays."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        logits_BTV, state = self.net(NetInput(arrays[:1]), arrays[1:])
        return logits_BTV, *state


def build_sequence_graph(net: Network, spec: SequenceSpec, opset: int = DEFAULT_OPSET) -> onnx.ModelProto:
    """The network as an ONNX model with symbolic batch, time and past, without metadata.

    Raises:
        UsageError, RlseqError: as `rlseq.exporter.graph.traced`.
    """
    assert spec.state == net.state_leaves, "the description is of another network"
    symbols = {name: torch.export.Dim(name) for name in EXAMPLE_SIZES}
    tokens = torch.zeros((EXAMPLE_SIZES["batch"], EXAMPLE_SIZES["time"]), dtype=torch.int64)
    axes = [{0: symbols["batch"], 1: symbols["time"]}]
    axes += [{i: symbols[n] for i, n in enumerate(leaf.shape) if isinstance(n, str)} for leaf in spec.state]
    model = traced(
        SequenceGraph(net),
        [tokens, *map(_example, spec.state)],
        axes,
        [TOKENS, *(leaf.name for leaf in spec.state)],
        [LOGITS, *(leaf.output for leaf in spec.state)],
        opset,
    )
    _name_axes(model, spec)
    return model


def _example(leaf: SequenceState) -> Tensor:
    sizes = [EXAMPLE_SIZES[n] if isinstance(n, str) else n for n in leaf.shape]
    return torch.zeros(sizes, dtype=getattr(torch, leaf.dtype))


def _name_axes(model: onnx.ModelProto, spec: SequenceSpec) -> None:
    """Give the outputs their symbolic axes, and drop the shapes noted inside.

    For recurrent layers the exporter notes the sizes of the examples, which ONNX Runtime would then find contradicted.
    """
    del model.graph.value_info[:]
    shapes: dict[str, tuple[int | str, ...]] = {LOGITS: ("batch", "time", spec.vocabulary)}
    for leaf in spec.state:
        shapes[leaf.output] = tuple("next_past" if n == "past" else n for n in leaf.shape)
    for port in model.graph.output:
        kind = port.type.tensor_type.elem_type
        port.CopyFrom(onnx.helper.make_tensor_value_info(port.name, kind, shapes[port.name]))


def with_sequence_spec(model: onnx.ModelProto, spec: SequenceSpec) -> onnx.ModelProto:
    """The model with its description as metadata."""
    return with_metadata(model, {SEQUENCE_KEY: encode_sequence_spec(spec)})


def export_sequence(net: Network, spec: SequenceSpec, path: Path, opset: int | None = None) -> dict[str, Any]:
    """Write a network as one ONNX file that is proven to write as it does.

    Args:
        net: on the CPU.
        spec: of the model; parity and checksum are filled in.
        path: the file.
        opset: of the file.

    Returns:
        The parity report.

    Raises:
        ParityError: the graph does not do as the network does; no file is left.
        RlseqError: it could not be exported or written; no file is left.
    """
    model = build_sequence_graph(net, spec, opset or DEFAULT_OPSET)
    spec = msgspec.structs.replace(spec, weights_sha256=sha256_arrays(state_arrays(net)))
    with candidate_for(path) as candidate:
        write_graph(with_sequence_spec(model, spec), candidate, path)
        report = check_sequence_parity(TorchSequence(net, spec), load_sequence(candidate))
        write_graph(with_sequence_spec(model, msgspec.structs.replace(spec, parity=report)), candidate, path)
    return report
