"""A sequence model as an ONNX file that answers alone: inputs and state in, outputs and state out, tokenizer inside.

The file appears only when the graph has been proven to answer what the network answers. What goes in and comes out:
`rlseq.player.sequence_graph`.
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
from rlseq.player.graph import Port
from rlseq.player.sequence import load_sequence
from rlseq.player.sequence_graph import GIVEN, input_ports, output_port
from rlseq.sequence import SEQUENCE_KEY, SequenceSpec, SequenceState, encode_sequence_spec

# All different, and none that the exporter takes for a constant. `read`: places of a source that were read before.
EXAMPLE_SIZES = {"batch": 2, "time": 5, "past": 7, "source": 3, "read": 4}


class SequenceGraph(nn.Module):
    """What is exported: the network itself, its inputs and state as one row of arrays."""

    def __init__(self, net: Network, spec: SequenceSpec) -> None:
        super().__init__()
        self.net = net
        names = [port.name for port in input_ports(spec)]
        self.num_inputs = len(names)
        self.masked = GIVEN in names

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        inputs, state = arrays[: self.num_inputs], arrays[self.num_inputs :]
        read = NetInput(inputs[:-1], inputs[-1]) if self.masked else NetInput(inputs)
        outputs, state = self.net(read, state)
        return outputs, *state


def build_sequence_graph(net: Network, spec: SequenceSpec, opset: int = DEFAULT_OPSET) -> onnx.ModelProto:
    """The network as an ONNX model with symbolic axes for all that has no fixed length, without metadata.

    Raises:
        UsageError, RlseqError: as `rlseq.exporter.graph.traced`.
    """
    assert spec.state == net.state_leaves, "the description is of another network"
    symbols = {name: torch.export.Dim(name) for name in EXAMPLE_SIZES}
    ports = [*input_ports(spec), *(_state_port(leaf) for leaf in spec.state)]
    model = traced(
        SequenceGraph(net, spec),
        [_example(port) for port in ports],
        [{i: symbols[n] for i, n in enumerate(port.shape) if isinstance(n, str)} for port in ports],
        [port.name for port in ports],
        [output_port(spec).name, *(leaf.output for leaf in spec.state)],
        opset,
    )
    _name_axes(model, spec)
    return model


def _state_port(leaf: SequenceState) -> Port:
    """The leaf as an input: of the source it holds what was read before, not what is read now."""
    return Port(leaf.name, leaf.dtype, tuple("read" if n == "source" else n for n in leaf.shape))


def _example(port: Port) -> Tensor:
    sizes = [n if isinstance(n, int) else EXAMPLE_SIZES[str(n)] for n in port.shape]
    return torch.zeros(sizes, dtype=getattr(torch, port.dtype))


def _name_axes(model: onnx.ModelProto, spec: SequenceSpec) -> None:
    """Give the outputs their symbolic axes, and drop the shapes noted inside.

    For recurrent layers the exporter notes the sizes of the examples, which ONNX Runtime would then find contradicted.
    """
    del model.graph.value_info[:]
    answer, following = output_port(spec), {"past": "next_past", "source": "next_source"}
    shapes: dict[str, tuple[int | str | None, ...]] = {answer.name: answer.shape}
    for leaf in spec.state:
        shapes[leaf.output] = tuple(following.get(n, n) if isinstance(n, str) else n for n in leaf.shape)
    for port in model.graph.output:
        kind = port.type.tensor_type.elem_type
        port.CopyFrom(onnx.helper.make_tensor_value_info(port.name, kind, shapes[port.name]))


def with_sequence_spec(model: onnx.ModelProto, spec: SequenceSpec) -> onnx.ModelProto:
    """The model with its description as metadata."""
    return with_metadata(model, {SEQUENCE_KEY: encode_sequence_spec(spec)})


def export_sequence(net: Network, spec: SequenceSpec, path: Path, opset: int | None = None) -> dict[str, Any]:
    """Write a network as one ONNX file that is proven to answer as it does.

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
