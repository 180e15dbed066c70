"""`rlseq options`: every option, with what it is, in every format."""

from __future__ import annotations

import json
import re
import tomllib

import msgspec
import pytest

from rlseq.cli.options import all_fields, flag_of, groups, markdown_tables, matching, toml_text
from rlseq.config import Layer, Typed, resolve
from rlseq.dqn.config import DqnTraining
from rlseq.errors import UsageError
from rlseq.resolve import EVERYDAY, TREES
from tests.cli.conftest import Cli, failed, only_json


@pytest.mark.parametrize("algorithm", ["dqn", "seq"])
def test_all_options_are_listed(cli: Cli, algorithm: str) -> None:
    text = cli("options", "--for", algorithm).stdout
    assert text.rstrip() in cli("options").stdout
    for field in all_fields(algorithm):
        assert f"  {field.path} = " in text
    for group in groups(algorithm):
        assert re.search(rf"^{group}: \w", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80
    for option in EVERYDAY[algorithm].values():
        if option == "seq.task":  # too long for one line
            continue
        assert re.search(rf"{re.escape(option)} = [^\n]*\s+{flag_of(option, algorithm)}\b", text), option


def test_a_group_and_one_option(cli: Cli) -> None:
    text = cli("options", "dqn").stdout
    assert text.startswith("dqn: Deep Q-learning")
    assert "dqn.gamma = 0.99   float >= 0, <= 1\n      discount of a step\n" in text
    assert "optim." not in text
    one = cli("options", "optim.lr", "--for", "dqn").stdout.splitlines()
    assert one[1:] == ["  optim.lr = 0.0005   float > 0   --lr", "      peak learning rate"]


def test_where_algorithms_differ_both_are_shown(cli: Cli) -> None:
    text = cli("options", "optim.lr").stdout
    assert re.findall(r"^rlseq train (\w+)$", text, re.MULTILINE) == ["dqn", "seq"]
    assert "optim.lr = 0.0005 " in text and "optim.lr = 0.005 " in text
    assert "rlseq train" not in cli("options", "optim.step_factor").stdout
    assert cli("options", "seq").stdout.startswith("seq: What is learnt")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("gamma", "dqn.gamma"), ("dqn.gama", "dqn.gamma"), ("optin", "optim"), ("env.lr", "optim.lr"), ("Dqn", "dqn")],
)
def test_the_nearest_is_offered(cli: Cli, name: str, hint: str) -> None:
    failed(
        cli("options", name), 2, f"there is no option or group {name!r}. Did you mean {hint}", "The groups: run, env,"
    )


def test_every_default_as_shown_can_stand_in_a_recipe() -> None:
    for algorithm, tree in TREES.items():
        for field in all_fields(algorithm):
            shown = toml_text(field.default)
            value = "none" if shown == "none" else tomllib.loads(f"value = {shown}")["value"]
            group, _, name = field.path.partition(".")
            assert resolve(tree, Layer("test", {group: {name: value}})) == tree(), field.path


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (1e-8, "1e-08"),
        (500, "500"),
        ("adam", '"adam"'),
        ((), "[]"),
        ((256, 128), "[256, 128]"),
        (("a",), '["a"]'),
        ({}, "{}"),
    ],
)
def test_defaults_are_written_as_in_a_recipe(value: object, text: str) -> None:
    assert toml_text(value) == text


def test_markdown(cli: Cli) -> None:
    text = cli("options", "--markdown").stdout
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(all_fields("dqn")) + len(all_fields("seq"))
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)
    assert "| `optim.lr`, `--lr` | float > 0 | `0.0005` | peak learning rate |" in rows
    assert sum(row.startswith("| `seq.task`, `TASK` | text \\| copy") for row in rows) == 1
    assert "| `env.id`, `ENV_ID` | str |" in text and "`--task`" not in text
    assert r"| `dqn.loss` | huber \| mse | `" in text
    assert markdown_tables("dqn", matching("dqn")["dqn"]) + "\n" == cli("options", "dqn", "--markdown").stdout


def test_the_schema_is_of_the_options(cli: Cli) -> None:
    value = only_json(cli("options", "--json", "--for", "dqn"))
    assert set(value["$defs"]) >= {"DqnTraining", "DqnOptions", "OptimOptions"}
    assert value == json.loads(json.dumps(msgspec.json.schema(DqnTraining)))
    gamma = value["$defs"]["DqnOptions"]["properties"]["gamma"]
    assert (gamma["minimum"], gamma["maximum"], gamma["default"]) == (0, 1, 0.99)
    assert gamma["description"] == "discount of a step"
    group = only_json(cli("options", "dqn", "--json"))
    assert group == json.loads(json.dumps(msgspec.json.schema(groups("dqn")["dqn"])))
    both = only_json(cli("options", "--json"))
    assert both["anyOf"] == [{"$ref": "#/$defs/DqnTraining"}, {"$ref": "#/$defs/SeqTraining"}]
    assert both["$defs"]["DqnOptions"] == value["$defs"]["DqnOptions"] and "SeqOptions" in both["$defs"]


def test_json_is_of_groups_and_excludes_markdown(cli: Cli) -> None:
    failed(cli("options", "dqn.gamma", "--json"), 2, "a schema is of all options or of a group")
    failed(cli("options", "--json", "--markdown"), 2, "give one of them")


def test_a_typed_value_may_be_a_list() -> None:
    """As in the example of `rlseq train dqn --help`."""
    assert resolve(DqnTraining, Layer("test", {"net": {"hidden": Typed("64,64")}})).net.hidden == (64, 64)


def test_the_unknown_is_refused() -> None:
    with pytest.raises(UsageError):
        matching("")
