"""Options: where a value comes from, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlseq.config import (
    Layer,
    differences,
    fields,
    merge_into,
    resolve,
    set_values,
    to_json,
    value_at,
)
from rlseq.dqn.config import DqnTraining
from rlseq.errors import UsageError
from rlseq.recipe import read_recipe


def typed(*assignments: str) -> DqnTraining:
    return resolve(DqnTraining, Layer("command line", set_values(list(assignments))))


def test_default_then_recipe_then_command_line() -> None:
    recipe = Layer("recipe r", {"dqn": {"gamma": 0.5, "tau": 0.1}, "env": {"kwargs": {"a": 1, "b": 2}}})
    options = resolve(DqnTraining, recipe, Layer("command line", set_values(["dqn.gamma=0.9", "env.kwargs.b=7"])))
    assert (options.dqn.gamma, options.dqn.tau, options.dqn.double) == (0.9, 0.1, True)
    assert options.env.kwargs == {"a": 1, "b": 7}


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("dqn.gamma=.5", "dqn.gamma", 0.5),
        ("optim.lr=1e-3", "optim.lr", 0.001),
        ("run.steps=12", "run.steps", 12),
        ("dqn.double=false", "dqn.double", False),
        ("optim.clip_norm=none", "optim.clip_norm", None),
        ("optim.clip_norm=None", "optim.clip_norm", None),
        ("net.hidden=64,32", "net.hidden", (64, 32)),
        ("net.hidden=[64, 32]", "net.hidden", (64, 32)),
        ("net.hidden=16", "net.hidden", (16,)),
        ("net.hidden=[]", "net.hidden", ()),
        ("optim.name=sgd", "optim.name", "sgd"),
        ("run.name=5", "run.name", "5"),
        ("env.id=a=b", "env.id", "a=b"),
        ("env.kwargs.gravity=-5", "env.kwargs", {"gravity": -5}),
        ("env.kwargs.map=4x4", "env.kwargs", {"map": "4x4"}),
        ("env.kwargs.deep.x=true", "env.kwargs", {"deep": {"x": True}}),
        ("eval.target=-110", "eval.target", -110.0),
    ],
)
def test_typed_values(assignment: str, path: str, value: Any) -> None:
    found = value_at(typed(assignment), path)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("dqn.gama=1", r"command line: unknown option 'dqn.gama'. Did you mean dqn.gamma\?.*rlseq options dqn"),
        ("gamma=1", r"unknown option 'gamma'. Did you mean dqn.gamma\?"),
        ("dqm.gamma=1", r"unknown option 'dqm'.*dqn"),
        ("dqn.gamma=2", r"dqn.gamma = 2 .*float >= 0, <= 1"),
        ("dqn.gamma=high", r"dqn.gamma = high"),
        ("dqn=3", r"dqn is a group.*dqn.gamma"),
        ("run.steps=0", r"run.steps = 0 .*int > 0"),
        ("run.steps=1.5", r"run.steps = 1.5"),
        ("run.steps=none", r"run.steps = none"),
        ("optim.lr=inf", r"optim.lr = inf"),
        ("optim.lr=nan", r"optim.lr = nan"),
        ("env.kwargs.x=nan", r"env.kwargs"),
        ("optim.name=adan", r"adan.*Did you mean adam"),
        ("net.hidden=64,0", r"net.hidden = 64,0 .*list of int >= 1"),
        ("replay.batch_size=200000", r"200000 is larger than replay.capacity = 100000"),
        ("optim.clip_value=1", r"optim.clip_norm = 10.0 and optim.clip_value = 1.0 exclude each other"),
        ("eval.seed=0", r"eval.seed and eval.final_seed are both 0"),
        ("=3", r"NAME=VALUE"),
        ("gamma", r"NAME=VALUE"),
        ("dqn.=3", r"NAME=VALUE"),
    ],
)
def test_refused_values_name_option_value_and_fix(assignment: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        typed(assignment)


def test_every_option_has_a_help_and_a_default_that_is_allowed() -> None:
    for field in fields(DqnTraining):
        assert len(field.help) > 5, field.path
        msgspec.convert(msgspec.to_builtins(field.default), field.type)


def test_the_tree_has_a_json_schema_and_survives_json() -> None:
    schema = msgspec.json.schema(DqnTraining)
    assert "gamma" in schema["$defs"]["DqnOptions"]["properties"]
    options = typed("dqn.gamma=0.25", "net.hidden=3", "env.kwargs.a=[1, 2]")
    assert resolve(DqnTraining, Layer("file", to_json(options))) == options


def test_options_never_change_and_differences_are_named() -> None:
    a, b = typed(), typed("dqn.gamma=0.5", "net.hidden=3")
    with pytest.raises(AttributeError):
        a.run.steps = 3  # type: ignore[misc]
    assert differences(DqnTraining, a, b) == {"dqn.gamma": (0.99, 0.5), "net.hidden": ((256, 256), (3,))}


def test_merging_leaves_its_source_alone() -> None:
    source = {"a": {"b": {"c": 1}}}
    tree: dict[str, Any] = {}
    merge_into(tree, source)
    merge_into(tree, {"a": {"b": {"d": 2}}})
    assert tree == {"a": {"b": {"c": 1, "d": 2}}}
    assert source == {"a": {"b": {"c": 1}}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "not valid TOML"),
        ("\xff", "not valid TOML"),
        ("[dqn]\ngamma = 1", 'lacks the line algorithm = "dqn"'),
        ("format_version = 2\nalgorithm = 'dqn'", r"format_version 2.*up to 1"),
        ("format_version = 'x'\nalgorithm = 'dqn'", r"format_version"),
        ("algorithm = 'dqn'\n[env]\nid = 'os:system'", r"'os:system'.*would import code.*--import"),
        ("algorithm = 'dqn'\n[env]\nid = 'E-v0'\nimports = ['os']", r"\['os'\].*would import code"),
    ],
)
def test_recipes_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=message):
        read_recipe(path, "r")


def test_a_recipe_is_data(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("algorithm = 'dqn'\n[run]\nname = \"__import__('os').getcwd()\"\n[optim]\nclip_norm = 'none'\n")
    recipe = read_recipe(path, "r")
    options = resolve(DqnTraining, Layer("recipe r", recipe.values))
    assert options.run.name == "__import__('os').getcwd()"
    assert options.optim.clip_norm is None
