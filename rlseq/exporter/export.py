"""A Q-network as an ONNX file that plays alone: raw observation in, action and action values out, the policy's
description inside. The file appears only when both kinds of parity hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import onnx
import torch
from torch import Tensor, nn

from rlseq.engine.weights import state_arrays
from rlseq.envs.make import MakeEnv
from rlseq.exporter.graph import DEFAULT_OPSET, candidate_for, traced, with_metadata, write_graph
from rlseq.exporter.parity import check_parity
from rlseq.files import sha256_arrays
from rlseq.nets.network import NetInput, QNetwork
from rlseq.nets.policy import TorchPolicy
from rlseq.player.onnx_policy import load_onnx
from rlseq.spec import FORMAT_KEY, SPEC_FORMAT, SPEC_KEY, PolicySpec, encode_spec

PARITY_SEED = 2_000_000  # episodes of the parity check, apart from those of selection and score
EXAMPLE_BATCH = 2


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
        UsageError, RlseqError: as `rlseq.exporter.graph.traced`.
    """
    examples = [
        torch.zeros((EXAMPLE_BATCH, *leaf.shape), dtype=getattr(torch, leaf.dtype)) for leaf in spec.observation
    ]
    for leaf, example in zip(spec.observation, examples, strict=True):
        if leaf.starts:
            example.view(EXAMPLE_BATCH, -1)[:] = torch.tensor(leaf.starts)
    examples += [torch.from_numpy(leaf.zeros(EXAMPLE_BATCH)) for leaf in spec.state]
    batch = torch.export.Dim("batch")
    axes = [{0: batch} for _ in spec.observation] + [{leaf.shape.index(-1): batch} for leaf in spec.state]
    inputs = [leaf.name for leaf in spec.observation] + [leaf.name for leaf in spec.state]
    outputs = [*spec.outputs, *(leaf.output for leaf in spec.state)]
    return traced(PolicyGraph(net, spec), examples, axes, inputs, outputs, opset)


def with_spec(model: onnx.ModelProto, spec: PolicySpec) -> onnx.ModelProto:
    """The model with the policy's description as metadata."""
    return with_metadata(model, {FORMAT_KEY: str(SPEC_FORMAT), SPEC_KEY: encode_spec(spec)})


def export_policy(
    net: QNetwork, spec: PolicySpec, path: Path, make: MakeEnv, *, opset: int | None = None
) -> dict[str, Any]:
    """Write a network as one ONNX file that is proven to act like it.

    Args:
        net: on the CPU.
        spec: of the policy; parity and checksum are filled in.
        path: the file.
        make: makes the environment for the episodes of the proof.
        opset: of the file.

    Returns:
        The parity report.

    Raises:
        ParityError: the graph does not act as the network; no file is left.
        RlseqError: it could not be exported or written; no file is left.
    """
    model = build_graph(net, spec, opset or DEFAULT_OPSET)
    spec = msgspec.structs.replace(spec, weights_sha256=sha256_arrays(state_arrays(net)))
    with candidate_for(path) as candidate:
        write_graph(with_spec(model, spec), candidate, path)
        report = check_parity(
            TorchPolicy(net, spec), load_onnx(candidate), make, seed=PARITY_SEED, fresh=spec.env.fresh
        )
        write_graph(with_spec(model, msgspec.structs.replace(spec, parity=report)), candidate, path)
    return report
