"""Weights of another network: what fits is taken bit for bit, what does not is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from rlseq.engine.inheritance import inherit
from rlseq.engine.weights import state_arrays
from rlseq.errors import UsageError
from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import seeded
from rlseq.nets.sequence import SequenceNetwork
from rlseq.sequence import Signature


def tokens(vocabulary: int = 5, layers: int = 1, width: int = 8, seed: int = 0, tied: bool = False) -> nn.Module:
    options = SequenceNetOptions(layers=layers, heads=2, width=width, tied=tied)
    return seeded(seed, lambda: SequenceNetwork(Signature(vocabulary=vocabulary), options, 6))


def values(shift: float, seed: int = 0) -> nn.Module:
    signature = Signature(kind="forecast", features=("a",), shift=(shift,), scale=(2.0,), horizon=3)
    options = SequenceNetOptions(core="lstm", layers=1, width=8)
    return seeded(seed, lambda: SequenceNetwork(signature, options, 6))


def copied(net: nn.Module) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in state_arrays(net).items()}


def test_everything_is_taken_where_everything_fits() -> None:
    parent, net = tokens(seed=0), tokens(seed=1)
    found = inherit(net, copied(parent), "runs/a")
    for (name, a), b in zip(parent.named_parameters(), net.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert found.warning("runs/a") is None
    assert found.facts() == {"loaded": ["embedding.weight", "core.*", "norm.weight", "head.weight"]}


def test_a_new_head_and_what_only_one_side_has_are_named_with_their_shapes() -> None:
    parent, net = tokens(7, layers=2, seed=0), tokens(5, layers=1, seed=1)
    before = copied(net)
    found = inherit(net, copied(parent), "runs/a", anew=("head.", "embedding."))
    after, theirs = copied(net), copied(parent)
    for name in after:
        expected = before if name.startswith(("head", "embedding")) else theirs
        np.testing.assert_array_equal(after[name], expected[name], err_msg=name)
    assert found.anew == {"embedding.weight": (5, 8), "head.weight": (5, 8)}
    assert found.left_out["head.weight"] == (7, 8)
    assert {name for name in found.left_out if name.startswith("core.")} == {
        name for name in theirs if name.startswith("core.blocks.1.")
    }
    message = found.warning("runs/a")
    assert message is not None
    assert message.startswith(
        f"--from runs/a: {len(after) - 2} of {len(after)} parameters begin with its weights (core.*,"
    )
    assert (
        "Begun anew: embedding.weight [5, 8], head.weight [5, 8]. Not taken from it: embedding.weight [7, 8],"
        in message
    )
    assert "core.blocks.1.mlp.up.weight [32, 8]" in message or "core.blocks.1." in message
    assert found.facts()["anew"] == ["embedding.weight", "head.weight"]


def test_what_belongs_to_the_task_stays_the_task_s() -> None:
    """The scale of the new data, not that of the old; buffers are in a checkpoint as weights are."""
    parent, net = values(5.0, seed=0), values(9.0, seed=1)
    assert "reader.shift" in copied(parent)
    found = inherit(net, copied(parent), "runs/a")
    assert copied(net)["reader.shift"].tolist() == [9.0]
    np.testing.assert_array_equal(copied(net)["reader.linear.weight"], copied(parent)["reader.linear.weight"])
    assert found.warning("runs/a") is None


@pytest.mark.parametrize(
    ("net", "anew", "message"),
    [
        (
            lambda: tokens(7),
            (),
            r"embedding.weight is \[5, 8\] there and \[7, 8\] in this network \(and 1 more\). Add --new",
        ),
        (
            lambda: tokens(7),
            ("head.",),
            r"embedding.weight is \[5, 8\] there and \[7, 8\] in this network. Add --new-head",
        ),
        (lambda: tokens(5, width=4), ("head.", "embedding."), r"core.* is .*8\] there and .*4\] .*more\). THE FIX"),
        (
            lambda: nn.Linear(2, 3),
            (),
            r"none of its weights fits.* It has embedding.weight.*has weight \[3, 2\], bias \[3\]",
        ),
        (lambda: tokens(5), ("",), "none of its weights fits this network"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_loaded(net: object, anew: tuple[str, ...], message: str) -> None:
    made = net()  # type: ignore[operator]
    before = copied(made)
    with pytest.raises(UsageError, match=f"--from runs/a: {message}"):
        inherit(made, copied(tokens(seed=1)), "runs/a", anew=anew, fix="THE FIX")
    for name, array in copied(made).items():
        np.testing.assert_array_equal(array, before[name])
