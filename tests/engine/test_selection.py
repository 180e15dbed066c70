"""Which parameters are frozen and at which rate the others learn, by name."""

from __future__ import annotations

from typing import Any

import pytest

from rlseq.config import Layer, resolve
from rlseq.engine.config import OptimOptions
from rlseq.engine.selection import covering, matching, select
from rlseq.errors import UsageError

NAMES = ["embedding.weight", "core.blocks.0.up", "core.blocks.0.down", "core.blocks.1.up", "core.norm", "head.weight"]


def options(**values: Any) -> OptimOptions:
    return resolve(OptimOptions, Layer("test", values))


def test_globs_choose_by_the_whole_name() -> None:
    assert matching("core.blocks.0.*", NAMES, "x") == ["core.blocks.0.up", "core.blocks.0.down"]
    assert matching("core.blocks.?.up", NAMES, "x") == ["core.blocks.0.up", "core.blocks.1.up"]
    assert matching("head.weight", NAMES, "x") == ["head.weight"]
    chosen = select(NAMES, options(freeze=["core.blocks.*", "embedding.weight"]))
    assert chosen.frozen == {"embedding.weight", "core.blocks.0.up", "core.blocks.0.down", "core.blocks.1.up"}
    assert chosen.describe(30, 100) == {"frozen": "core.blocks.*, embedding.weight: 70 of 100 parameters"}
    assert select(NAMES, options()) == (frozenset(), {}, options())
    assert select(NAMES, options()).describe(100, 100) == {}


def test_of_several_multipliers_the_last_one_given_counts() -> None:
    rates = {"core.*": 0.1, "core.blocks.0.*": 0.5, "core.norm": 1.0}
    chosen = select(NAMES, options(lr_multipliers=rates, freeze=["core.blocks.1.*"]))
    assert chosen.multipliers == {"core.blocks.0.up": 0.5, "core.blocks.0.down": 0.5}
    assert chosen.describe(60, 60)["rates"] == "core.* x 0.1, core.blocks.0.* x 0.5, core.norm x 1"
    other = select(NAMES, options(lr_multipliers=dict(reversed(rates.items()))))
    assert set(other.multipliers.values()) == {0.1}
    # Also where a recipe has it first and the command line gives it again.
    layers = Layer("recipe", {"lr_multipliers": rates}), Layer("test", {"lr_multipliers": {"core.*": 0.2}})
    assert list(resolve(OptimOptions, *layers).lr_multipliers) == ["core.blocks.0.*", "core.norm", "core.*"]


def test_as_few_globs_as_name_what_is_meant() -> None:
    assert covering(NAMES, NAMES) == ["embedding.weight", "core.*", "head.weight"]
    assert covering(NAMES[1:3], NAMES) == ["core.blocks.0.*"]
    assert covering(NAMES[1:4], NAMES) == ["core.blocks.*"]
    assert covering([NAMES[1], NAMES[3]], NAMES) == ["core.blocks.0.up", "core.blocks.1.up"]
    assert covering([], NAMES) == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"freeze": ["core.block.0.*"]},
            r"optim.freeze: 'core.block.0.\*' matches no parameter of this network. Did you mean core.blocks.0.\*.*"
            r"It has embedding.weight, core.\*, head.weight",
        ),
        ({"freeze": ["head.*", "Core.*"]}, r"'Core.\*' matches no parameter.*Did you mean core.\*"),
        ({"freeze": ["core"]}, r"'core' matches no parameter"),
        ({"lr_multipliers": {"hed.*": 2.0}}, r"optim.lr_multipliers: 'hed.\*' matches no parameter.*Did you mean head"),
        ({"freeze": ["*"]}, r"optim.freeze = \* holds all 6 parameters.*nothing would be learnt"),
        ({"freeze": ["core.*", "embedding.*", "h*"]}, r"optim.freeze = core.\*, embedding.\*, h\* holds all 6"),
        (
            {"freeze": ["core.*"], "lr_multipliers": {"core.norm": 0.5}},
            r"optim.lr_multipliers: core.norm matches only parameters that optim.freeze holds",
        ),
    ],
)
def test_what_makes_no_sense_for_a_network_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        select(NAMES, options(**values))


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (0, r"core.\* = 0 is no factor of a learning rate; to keep weights as they are, freeze them: --freeze 'core"),
        (-0.5, r"core.\* = -0.5 is no factor of a learning rate; give one > 0"),
        ("fast", r"lr_multipliers = .* is not allowed"),
        (float("nan"), r"lr_multipliers = .* is not allowed"),
    ],
)
def test_what_is_no_factor_is_refused(factor: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options(lr_multipliers={"core.*": factor})
