"""Small sequence networks with random weights, large enough that a greedy text is not one letter over and over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import seeded
from rlseq.nets.sequence import SequenceNetwork
from rlseq.sequence import SequenceSpec, Signature, Tokenizer

LETTERS = "abcdefghijk"
CORES = ("gpt", "lstm", "gru")
SIGNATURE = Signature(vocabulary=len(LETTERS), tokenizer=Tokenizer(unit="char", characters=LETTERS))
CONTEXT, WINDOW = 16, 12
SEEDS = {"gpt": 2, "lstm": 0, "gru": 1}  # weights that write more than two letters
SCALE = 4.0  # of the weights; with 12 a GRU is chaotic, and rounding grows without bound


def small_network(core: str) -> SequenceNetwork:
    """Two layers, 32 wide, with dropout, so that a forgotten `eval()` shows; a gpt sees less than its context."""
    heads, window = (4, WINDOW) if core == "gpt" else (None, None)
    options = SequenceNetOptions(core=core, layers=2, heads=heads, width=32, window=window, dropout=0.2)
    net = seeded(SEEDS[core], lambda: SequenceNetwork(SIGNATURE, options, CONTEXT))
    assert isinstance(net, SequenceNetwork)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(SCALE)
    return net


def enlarged(net: SequenceNetwork, scale: float) -> SequenceNetwork:
    """With its matrices times `scale`, so that places far apart matter to each other."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 2:
                parameter.mul_(scale)
    return net


def spec_of(net: SequenceNetwork, core: str) -> SequenceSpec:
    """The description of a small network."""
    return SequenceSpec(
        rlseq_version="test",
        task="text",
        model=core,
        signature=SIGNATURE,
        context=CONTEXT,
        window=net.window,
        state=net.state_leaves,
        lineage=({"step": "train", "data_sha256": "0" * 64},),
        scores={"loss": 1.25},
    )


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal but for float32 sums in another order."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-5 * max(1.0, float(np.abs(expected).max())))


def checked_ports(path: Path) -> dict[str, list[int | str]]:
    """The inputs and outputs of a file as it was read back, with their axes; it is of opset 18, for IR version 10."""
    model = onnx.load(path)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
    assert model.ir_version <= 10
    return {
        port.name: [dim.dim_param or dim.dim_value for dim in port.type.tensor_type.shape.dim]
        for port in [*model.graph.input, *model.graph.output]
    }
