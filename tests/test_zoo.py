"""The shipped agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlseq import zoo
from rlseq.card_text import card_text
from rlseq.errors import UsageError
from rlseq.files import read_json, sha256_file
from rlseq.recipe import read_recipe

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of agents: one whole, one with a recipe only, and two things that are no agents."""
    for name, env_id in (("cartpole-dqn", "CartPole-v1"), ("acrobot-dqn", "Acrobot-v1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.toml").write_text(f'algorithm = "dqn"\nenv.id = "{env_id}"\n')
    (tmp_path / "cartpole-dqn" / "policy.onnx").write_bytes(b"onnx")
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("agents")
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path)
    return tmp_path


def test_the_agents_stand_beside_the_package_or_inside_an_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "rlseq"
    package.mkdir()
    monkeypatch.setattr(zoo, "__file__", str(package / "zoo.py"))
    assert zoo.agents_folder() == tmp_path / "agents"
    (package / "_agents").mkdir()
    assert zoo.agents_folder() == package / "_agents"


def test_agents_are_the_folders_with_a_recipe(agents: Path) -> None:
    found = zoo.agents()
    assert list(found) == ["acrobot-dqn", "cartpole-dqn"]
    agent = found["cartpole-dqn"]
    assert agent.folder == agents / "cartpole-dqn"
    assert agent.policy.read_bytes() == b"onnx"
    assert (agent.recipe.name, agent.card.name) == ("recipe.toml", "card.md")
    assert not found["acrobot-dqn"].policy.exists()


def test_no_folder_no_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "agents_folder", lambda: tmp_path / "none")
    assert zoo.agents() == {}
    assert zoo.recipe_for("CartPole-v1", "dqn") is None


def test_the_recipe_of_an_environment(agents: Path) -> None:
    found = zoo.recipe_for("Acrobot-v1", "dqn")
    assert found is not None and found.name == "acrobot-dqn"
    assert zoo.recipe_for("Acrobot-v1", "seq") is None
    assert zoo.recipe_for("acrobot-v1", "dqn") is None  # ids are case-sensitive, as in gymnasium
    assert zoo.recipe_for("MountainCar-v0", "dqn") is None


def test_a_broken_recipe_is_named(agents: Path) -> None:
    (agents / "acrobot-dqn" / "recipe.toml").write_text("algorithm =")
    with pytest.raises(UsageError, match=r"recipe acrobot-dqn: .*recipe.toml is not valid TOML"):
        zoo.recipe_for("CartPole-v1", "dqn")


def test_every_card_is_what_its_numbers_say_and_describes_the_policy_beside_it() -> None:
    for agent in zoo.agents().values():
        numbers = agent.card.with_suffix(".json")
        assert agent.card.exists() == numbers.exists()
        if numbers.exists():
            data = read_json(numbers)
            assert agent.card.read_text(encoding="utf-8") == card_text(data)
            assert data["recipe"] == agent.recipe.read_text(encoding="utf-8")
            assert data["shipped"]["sha256"] == sha256_file(agent.policy)
            assert (agent.folder / "curve.png").is_file()


def test_every_shipped_agent_has_a_policy_and_is_found_by_its_environment() -> None:
    for agent in zoo.agents().values():
        recipe = read_recipe(agent.recipe, agent.name)
        if recipe.algorithm == "dqn":
            assert zoo.recipe_for(recipe.values["env"]["id"], recipe.algorithm) is not None
            assert agent.policy.is_file()


def test_a_sequence_model_is_trained_by_a_recipe_only_if_it_is_named() -> None:
    from rlseq.resolve import find_recipe, resolve_new

    assert find_recipe("seq", "auto", {}) is None
    assert resolve_new("seq", {}, "text-gpt", "arguments").recipe == "text-gpt"


def test_a_size_that_is_typed_wins_over_a_recipes_dimensions() -> None:
    from rlseq.resolve import resolve_new

    given = {"seq": {"task": "addition"}, "net": {"core": "transformer"}}
    by_recipe = resolve_new("seq", given, "auto", "arguments")
    assert by_recipe.recipe == "addition-transformer" and by_recipe.options.net.width == 64
    given["net"]["size"] = "base"
    options = resolve_new("seq", given, "auto", "arguments").options
    assert (options.net.width, options.net.layers, options.net.size) == (None, None, "base")
    assert options.run.steps == by_recipe.options.run.steps


def test_the_shipped_sequence_model_stays_below_two_megabytes() -> None:
    from rlseq.nets.sizes import parameters
    from rlseq.resolve import resolve_new
    from rlseq.seq.config import SeqTraining
    from rlseq.sequence import Signature

    options = resolve_new("seq", {}, "text-gpt", "arguments").options
    assert isinstance(options, SeqTraining)
    assert options.seq.data is None  # so that everybody has it
    assert 4 * parameters(options.net, Signature(vocabulary=100)) < 1_930_000  # the graph itself takes the rest
