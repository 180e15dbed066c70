"""Options: where a value comes from, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlseq.config import Layer, differences, merge_into, resolve, set_values, value_at
from rlseq.dqn.config import DqnTraining
from rlseq.errors import UsageError
from rlseq.fields import fields
from rlseq.recipe import read_recipe
from rlseq.seq.config import SeqTraining


def typed(*assignments: str) -> DqnTraining:
    return resolve(DqnTraining, Layer("command line", set_values(list(assignments))))


def test_default_then_recipe_then_command_line() -> None:
    recipe = Layer("recipe r", {"dqn": {"gamma": 0.5, "tau": 0.1}, "env": {"kwargs": {"a": 1, "b": 2}}})
    options = resolve(DqnTraining, recipe, Layer("command line", set_values(["dqn.gamma=0.9", "env.kwargs.b=7"])))
    assert (options.dqn.gamma, options.dqn.tau, options.dqn.double) == (0.9, 0.1, True)
    assert options.env.kwargs == {"a": 1, "b": 7}


def test_a_size_takes_the_dimensions_of_the_layers_below_away_but_not_those_beside_it() -> None:
    recipe = Layer("recipe r", {"net": {"width": 64, "layers": 2, "mlp_width": 99, "heads": 2, "dropout": 0.1}})
    line = Layer("command line", set_values(["net.width=32", "net.size=tiny"]))

    def net(*layers: Layer) -> tuple[object, ...]:
        options = resolve(SeqTraining, *layers).net
        return options.size, options.width, options.layers, options.mlp_width, options.heads, options.dropout

    assert net(recipe) == ("small", 64, 2, 99, 2, 0.1)
    assert net(recipe, line) == ("tiny", 32, None, None, None, 0.1)
    assert net(line, recipe) == ("tiny", 64, 2, 99, 2, 0.1)
    assert net(recipe, line, Layer("more", {"net": {"size": "base"}})) == ("base", None, None, None, None, 0.1)
    assert net(Layer("file", {"net": {"size": "base", **recipe.values["net"]}})) == ("base", 64, 2, 99, 2, 0.1)


def test_options_stand_only_for_options_of_their_group() -> None:
    paths = {field.path: field.displaces for tree in (DqnTraining, SeqTraining) for field in fields(tree)}
    named = {path.rpartition(".")[0] + "." + name for path, names in paths.items() for name in names}
    assert named == {"net.layers", "net.heads", "net.width", "net.mlp_width"} and named <= paths.keys()


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
    assert resolve(DqnTraining, Layer("file", msgspec.to_builtins(options))) == options


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


# --------------------------------------------------------------------------------------------------- precedence, JSON


def test_every_later_layer_wins_and_an_absent_value_never_does() -> None:
    layers = [Layer(name, {"dqn": {"tau": value}}) for name, value in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    for count, expected in ((0, 0.005), (1, 0.1), (2, 0.2), (3, 0.3)):
        assert resolve(DqnTraining, *layers[:count], Layer("empty", {"dqn": {}})).dqn.tau == expected


def test_lists_are_replaced_and_tables_are_merged() -> None:
    recipe = Layer("recipe", {"net": {"hidden": [512, 512, 512]}, "env": {"kwargs": {"deep": {"a": 1}, "b": [1, 2]}}})
    line = Layer("command line", set_values(["net.hidden=8", "env.kwargs.b=[3]"]))
    options = resolve(DqnTraining, recipe, line)
    assert options.net.hidden == (8,)
    assert options.env.kwargs == {"deep": {"a": 1}, "b": [3]}


def test_the_message_names_the_source_that_was_wrong() -> None:
    good, bad = Layer("recipe good", {"dqn": {"tau": 0.1}}), Layer("recipe bad", {"dqn": {"tau": 7}})
    with pytest.raises(UsageError, match=r"^recipe bad: dqn\.tau = 7 .*float > 0, <= 1"):
        resolve(DqnTraining, good, bad)
    with pytest.raises(UsageError, match=r"^recipe bad: dqn\.tau = 7"):  # not excused by a later layer
        resolve(DqnTraining, bad, good)


@pytest.mark.parametrize("path", [field.path for field in fields(DqnTraining)])
def test_every_option_refuses_what_is_of_no_type_it_takes(path: str) -> None:
    group, name = path.split(".")
    with pytest.raises(UsageError, match=path.replace(".", r"\.")):
        resolve(DqnTraining, Layer("recipe r", {group: {name: object()}}))


def bounds() -> list[tuple[str, Any]]:
    """One value just outside each bound that an option states."""
    found: list[tuple[str, Any]] = []
    for field in fields(DqnTraining):
        if "list" in field.type_text:
            continue
        for bound in filter(None, field.bounds.split(", ")):
            sign, text = bound.split()
            limit = float(text) if "float" in field.type_text else int(text)
            found.append((field.path, {">": limit, ">=": limit - 1, "<": limit, "<=": limit + 1}[sign]))
    return found


@pytest.mark.parametrize(("path", "value"), bounds())
def test_every_stated_bound_holds(path: str, value: Any) -> None:
    group, name = path.split(".")
    with pytest.raises(UsageError, match=path.replace(".", r"\.")):
        resolve(DqnTraining, Layer("recipe r", {group: {name: value}}))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("path", ["optim.lr", "optim.eps", "optim.weight_decay", "optim.clip_norm", "eval.target"])
def test_no_number_is_infinite(path: str, value: float) -> None:
    group, name = path.split(".")
    for tree in ({group: {name: value}}, set_values([f"{path}={value}"])):
        with pytest.raises(UsageError, match=path.replace(".", r"\.")):
            resolve(DqnTraining, Layer("x", tree))
    with pytest.raises(UsageError, match=r"env\.kwargs"):
        resolve(DqnTraining, Layer("x", {"env": {"kwargs": {"deep": [1.0, {"x": value}]}}}))


def test_the_schema_covers_the_whole_tree_with_its_bounds_and_help() -> None:
    schema = msgspec.json.schema(DqnTraining)
    definitions = schema["$defs"]
    root = definitions["DqnTraining"]["properties"]
    for field in fields(DqnTraining):
        group, name = field.path.split(".")
        reference = root[group].get("$ref") or root[group]["allOf"][0]["$ref"]
        entry = definitions[reference.rpartition("/")[2]]["properties"][name]
        assert field.help in str(entry), field.path
    gamma = definitions["DqnOptions"]["properties"]["gamma"]
    assert (gamma["minimum"], gamma["maximum"], gamma["default"]) == (0, 1, 0.99)
    assert definitions["DqnOptions"]["additionalProperties"] is False


def test_what_was_resolved_is_plain_json() -> None:
    """`config.json` must bring back the very values: nothing may change its type on the way."""
    options = typed("env.kwargs.day=2020-01-01", "env.kwargs.list=[1, 2.5, true]")
    assert resolve(DqnTraining, Layer("config.json", msgspec.json.decode(msgspec.json.encode(options)))) == options


@pytest.mark.parametrize("text", ["1\nb = 2", "1\r\n[x]"])
def test_a_typed_value_is_one_value_and_nothing_of_it_is_dropped(text: str) -> None:
    assert typed(f"env.kwargs.x={text}").env.kwargs == {"x": text}


@pytest.mark.parametrize(
    "assignment",
    [
        "optim.lr=" + "9" * 5000,
        "run.steps=" + "9" * 5000,
        "run.steps=" + "9" * 400,  # no float holds it, so no schedule could be computed
        "net.hidden=" + "[" * 20_000,
        "env.kwargs.x=" + "[" * 20_000,
        "env.kwargs." + "a." * 5000 + "b=1",
    ],
    ids=["lr-5000-digits", "steps-5000-digits", "steps-400-digits", "hidden-nested", "kwargs-nested", "name-nested"],
)
def test_absurd_values_are_refused_like_wrong_ones(assignment: str) -> None:
    with pytest.raises(UsageError):
        typed(assignment)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algorithm = 'dqn'\nx = " + "9" * 5000, "not valid TOML"),
        ("algorithm = 'dqn'\nx = " + "[" * 20_000, "not valid TOML"),
        ("algorithm = 3", "lacks the line"),
        ("format_version = true\nalgorithm = 'dqn'", "format_version"),
        ("format_version = -1\nalgorithm = 'dqn'", "format_version"),
        ("algorithm = 'dqn'\n[env]\nimports = 'os'", "would import code"),
    ],
    ids=["digits", "nested", "number", "version-true", "version-negative", "imports-text"],
)
def test_recipes_that_are_absurd(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_recipe(path, "r")


@pytest.mark.parametrize("option", ["env", "net", "run"])
def test_a_recipe_with_a_list_for_a_group_is_refused(tmp_path: Path, option: str) -> None:
    (tmp_path / "r.toml").write_text(f"algorithm = 'dqn'\n[[{option}]]\nid = 'os:system'\n")
    with pytest.raises(UsageError, match=f"recipe r.*{option} is a group"):
        resolve(DqnTraining, Layer("recipe r", read_recipe(tmp_path / "r.toml", "r").values))


def test_code_in_a_recipe_never_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a text it stays a text; where a number belongs it is refused."""
    ran = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(ran)!r}).touch()"
    path = tmp_path / "r.toml"
    path.write_text(f'algorithm = "dqn"\n[run]\nname = """{code}"""\n[env.kwargs]\nx = """{code}"""\n')
    options = resolve(DqnTraining, Layer("recipe r", read_recipe(path, "r").values))
    assert (options.run.name, options.env.kwargs) == (code, {"x": code})
    path.write_text(f'algorithm = "dqn"\n[dqn]\ngamma = """{code}"""\n')
    with pytest.raises(UsageError, match=r"recipe r: dqn\.gamma = "):
        resolve(DqnTraining, Layer("recipe r", read_recipe(path, "r").values))
    assert not ran.exists()
