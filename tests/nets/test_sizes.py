"""Sizes by name, and what they are said to cost against what is built."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from rlseq.errors import UsageError
from rlseq.nets.build import Network, sequence_network
from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import NetInput, num_parameters
from rlseq.nets.sizes import CORE_KINDS, SIZES, Dimensions, dimensions, kept_numbers, parameters, training_bytes
from rlseq.sequence import Kind, Signature
from tests.nets.test_build import SIGNATURES, every_network

VOCABULARY, CONTEXT, ROWS = 65, 32, 4
TOKENS = SIGNATURES["tokens"]


def saved_bytes(net: Network, kind: Kind) -> int:
    """Bytes that forward and loss keep for the backward pass, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage
        return tensor

    tokens_BT = torch.randint(VOCABULARY, (ROWS, CONTEXT))
    values = (torch.randn(ROWS, CONTEXT, 3),)
    x = {"tokens": (tokens_BT,), "translate": (tokens_BT, tokens_BT)}.get(kind, values)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y_BPO = net(NetInput(x, mask=torch.ones(ROWS, CONTEXT, dtype=torch.bool)))[0]
        if kind == "forecast":
            loss = F.mse_loss(y_BPO, torch.zeros_like(y_BPO))
        else:
            loss = F.cross_entropy(y_BPO.flatten(0, 1), torch.zeros(y_BPO.shape[:2], dtype=torch.int64).flatten())
    count = sum(storage.nbytes() for storage in storages.values())
    assert loss.requires_grad
    return count


def suits(core: str) -> Signature:
    """Of the first kind of task of a core."""
    return SIGNATURES[CORE_KINDS[core][0]]


def test_the_names_mean_these_dimensions() -> None:
    assert dimensions(SequenceNetOptions(size="small")) == Dimensions(4, 4, 256, 1024)
    assert dimensions(SequenceNetOptions(size="base")) == Dimensions(6, 6, 384, 1536)
    given = SequenceNetOptions(size="small", layers=3, heads=8, width=128, mlp_width=100)
    assert dimensions(given) == Dimensions(3, 8, 128, 100)
    assert dimensions(SequenceNetOptions(width=128)).mlp_width == 512
    assert dimensions(SequenceNetOptions(core="gru", size="tiny", layers=5)) == Dimensions(5, 0, 96, 0)


@pytest.mark.parametrize("core", sorted(SIZES))
def test_a_name_costs_about_as_much_whatever_the_core(core: Any) -> None:
    millions = [
        parameters(SequenceNetOptions(core=core, size=size), suits(core)) / 1e6 for size in ("tiny", "small", "base")
    ]
    assert millions == pytest.approx([0.11, 3.2, 10.3], rel=0.15)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied": True},
        {"activation": "swiglu"},
        {"mlp_width": 40},
        {"core": "lstm"},
        {"core": "gru", "layers": 3},
        {"core": "lstm", "layers": 1, "tied": True},
        {"activation": "relu", "qk_norm": False},
    ],
)
def test_parameters_are_counted_without_building(options: dict[str, Any]) -> None:
    chosen = SequenceNetOptions(**{"size": "tiny", **options})
    assert parameters(chosen, TOKENS) == num_parameters(sequence_network(TOKENS, chosen, CONTEXT))


@every_network
@pytest.mark.parametrize("layers", [1, 3])
def test_parameters_of_every_core_and_task_are_counted(
    core: Any, kind: Kind, bidirectional: bool | None, layers: int
) -> None:
    chosen = SequenceNetOptions(core=core, size="tiny", bidirectional=bidirectional, layers=layers)
    net = sequence_network(SIGNATURES[kind], chosen, CONTEXT)
    assert parameters(chosen, SIGNATURES[kind]) == num_parameters(net)


@pytest.mark.parametrize(("core", "kind"), [("transformer", "translate"), ("encoder", "classify")])
def test_the_estimate_of_memory_counts_normalised_queries_and_keys(core: Any, kind: Kind) -> None:
    plain, normed = (
        SequenceNetOptions(core=core, size="tiny", layers=4, mlp_width=8, qk_norm=on) for on in (False, True)
    )
    found = [
        saved_bytes(sequence_network(SIGNATURES[kind], chosen, CONTEXT).train(), kind) for chosen in (plain, normed)
    ]
    estimate = [4 * ROWS * CONTEXT * kept_numbers(chosen, SIGNATURES[kind], CONTEXT) for chosen in (plain, normed)]
    assert found[1] - found[0] == pytest.approx(estimate[1] - estimate[0], rel=0.15)


@every_network
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_estimate_of_memory_is_what_every_core_and_task_keeps(
    core: Any, kind: Kind, bidirectional: bool | None, dropout: float
) -> None:
    chosen = SequenceNetOptions(core=core, size="tiny", bidirectional=bidirectional, dropout=dropout)
    net = sequence_network(SIGNATURES[kind], chosen, CONTEXT).train()
    estimate = 4 * ROWS * CONTEXT * kept_numbers(chosen, SIGNATURES[kind], CONTEXT)
    assert saved_bytes(net, kind) == pytest.approx(estimate, rel=0.15)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"qk_norm": False, "layers": 5},
        {"activation": "gelu", "dropout": 0.1},
        {"activation": "relu"},
        {"activation": "swiglu", "window": 8},
        {"core": "lstm"},
        {"core": "gru", "dropout": 0.1},
    ],
)
def test_the_estimate_of_memory_is_what_is_kept(options: dict[str, Any]) -> None:
    chosen = SequenceNetOptions(**{"size": "tiny", **options})
    net = sequence_network(TOKENS, chosen, CONTEXT).train()
    estimate = 4 * ROWS * CONTEXT * kept_numbers(chosen, TOKENS, CONTEXT)
    assert saved_bytes(net, "tokens") == pytest.approx(estimate, rel=0.25)
    weights = 16 * num_parameters(net)  # themselves, gradients, two moments
    assert training_bytes(chosen, TOKENS, CONTEXT, ROWS) == weights + estimate


def test_checkpointing_is_estimated_to_keep_less() -> None:
    plain, spared = (
        kept_numbers(SequenceNetOptions(layers=12, checkpoint_activations=on), TOKENS, CONTEXT) for on in (False, True)
    )
    assert spared < plain / 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"width": 130, "heads": 4}, r"net\.width = 130 .* net\.heads = 4; set net\.width=136"),
        ({"width": 60, "heads": 4}, r"heads of 15 numbers.*set net\.width=64"),
        ({"core": "lstm", "heads": 4}, r"net\.heads = 4 means nothing for net\.core = lstm"),
        ({"core": "gru", "window": 4}, r"net\.window = 4 .* net\.core=gpt"),
        ({"core": "gru", "checkpoint_activations": True}, r"net\.checkpoint_activations = True"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        dimensions(SequenceNetOptions(**options))
