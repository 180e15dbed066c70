"""Making environments from what a user typed."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium import error as gym_error

from rlseq.config import Layer, resolve
from rlseq.envs.config import EnvOptions
from rlseq.envs.make import PACKAGES, env_spec, import_modules, maker, spaces_of, split_id
from rlseq.errors import RlseqError, UsageError
from rlseq.spec import ActionSpec, EnvSpec, Leaf


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", r"'CartPol-v1'.*CartPole-v1"),
        ("cartpole", r"CartPole-v1"),
        ("CartPole", r"CartPole-v1"),
        ("LunarLander-v2", r"Its versions: LunarLander-v3"),
        ("zzzzzzzz", r"rlseq list envs.*--import"),
        ("ALE/Pong-v5", r'ale_py: pip install "gymnasium\[atari\]".*--import ale_py'),
        ("", r"rlseq train dqn CartPole-v1"),
        ("os:system", r"--import os"),
    ],
)
def test_unknown_ids_are_answered_with_what_is_near(env_id: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        maker(EnvSpec(id=env_id))


def test_wrong_arguments_name_the_right_ones() -> None:
    with pytest.raises(UsageError, match=r"gravity.*sutton_barto_reward"):
        maker(EnvSpec(id="CartPole-v1", kwargs={"gravity": 5}))


def test_arguments_and_time_limit_reach_the_environment() -> None:
    env = maker(EnvSpec(id="CartPole-v1", kwargs={"sutton_barto_reward": True}, max_episode_steps=3))()
    env.reset(seed=0)
    results = [env.step(0) for _ in range(3)]
    assert [reward for _, reward, *_ in results] == [0, 0, 0]
    assert [truncated for *_, truncated, _ in results] == [False, False, True]


def test_a_missing_package_is_answered_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise gym_error.DependencyNotInstalled('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`')

    monkeypatch.setattr(gym, "make", missing)
    with pytest.raises(UsageError, match=r"CartPole-v1 needs .*pip install .?gymnasium\[mujoco\]"):
        maker(EnvSpec(id="CartPole-v1"))


def test_a_constructor_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no screen")

    monkeypatch.setattr(gym, "make", fail)
    with pytest.raises(RlseqError, match=r"CartPole-v1.*RuntimeError: no screen"):
        maker(EnvSpec(id="CartPole-v1"))


def test_modules_are_imported_only_when_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "typed_envs.py").write_text("raise RuntimeError('I was imported')")
    with pytest.raises(UsageError, match=r"add --import typed_envs"):
        maker(EnvSpec(id="Typed-v0", imports=("typed_envs",)))
    with pytest.raises(UsageError, match=r"typed_envs.*RuntimeError: I was imported"):
        maker(EnvSpec(id="Typed-v0", imports=("typed_envs",)), typed_imports=["typed_envs"])


def test_a_module_that_needs_another_one_names_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "needing_envs.py").write_text("import not_there_at_all")
    with pytest.raises(UsageError, match=r"--import needing_envs: it needs not_there_at_all"):
        import_modules(["needing_envs"])
    with pytest.raises(UsageError, match=r"--import not_there_either: no module"):
        import_modules(["not_there_either"])


def test_split_id() -> None:
    assert split_id("my_envs:Maze-v0") == ("Maze-v0", ("my_envs",))
    assert split_id("CartPole-v1") == ("CartPole-v1", ())


def test_a_typed_module_registers_its_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part not in ("", str(tmp_path))])
    (tmp_path / "mine_envs.py").write_text(
        "import gymnasium\ngymnasium.register('Mine-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    env = maker(EnvSpec(id="Mine-v0", imports=("mine_envs",)), typed_imports=["mine_envs"])()
    assert env.spec is not None
    assert env.spec.id == "Mine-v0"
    del gym.registry["Mine-v0"]
    monkeypatch.delitem(sys.modules, "mine_envs")


def test_an_id_with_a_module_in_a_file_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sly_envs.py").write_text("raise SystemError('imported')")
    with pytest.raises(UsageError, match=r"'sly_envs:Sly-v0' would import a module.*--import sly_envs"):
        maker(EnvSpec(id="sly_envs:Sly-v0"))
    with pytest.raises(UsageError, match="would import"):
        maker(EnvSpec(id="sly_envs:CartPole-v1"), typed_imports=["sly_envs"])
    assert "sly_envs" not in sys.modules


def test_imports_that_a_file_names_need_not_be_typed_for_a_known_environment() -> None:
    maker(EnvSpec(id="CartPole-v1", imports=("sly_envs",)))().close()
    assert "sly_envs" not in sys.modules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; sys.exit(0)", "SystemExit"),
        ("def (:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("from gymnasium import nothing_like_that", "ImportError: cannot import name 'nothing_like_that'"),
        ("import broken_envs.part", r"it needs broken_envs\.part"),
    ],
    ids=["exit", "syntax", "zero", "name", "part"],
)
def test_an_import_that_fails_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "broken_envs", raising=False)
    (tmp_path / "broken_envs.py").write_text(text)
    with pytest.raises(UsageError, match=rf"--import broken_envs: .*{message}"):
        import_modules(["broken_envs"])


@pytest.mark.parametrize("module", ["", ".relative", "folder/file.py"])
def test_what_is_no_module_name_is_refused(module: str) -> None:
    with pytest.raises(UsageError, match=f"--import {module}"):
        import_modules([module])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'jax'", name="jax"), "Any-v0 needs .*: pip install jax$"),
        (ModuleNotFoundError("No module named 'a.b'", name="a.b"), "pip install a$"),
        (gym_error.DependencyNotInstalled("box2D is not installed"), r'Any-v0 needs Box2D.*"rlseq\[box2d\]"'),
        (gym_error.DependencyNotInstalled("install it by hand"), "install it by hand"),
        (gym_error.DependencyNotInstalled("run `pip install x y`"), "pip install x y$"),
    ],
    ids=["name", "part", "box2d", "no-command", "command"],
)
def test_every_way_to_say_that_a_package_is_missing(error: Exception, message: str) -> None:
    def fail(**_: object) -> None:
        raise error

    gym.register("Any-v0", entry_point=fail)  # type: ignore[arg-type]
    try:
        with pytest.raises(UsageError, match=message):
            maker(EnvSpec(id="Any-v0"))
    finally:
        del gym.registry["Any-v0"]


@pytest.mark.parametrize(("namespace", "package"), PACKAGES.items())
def test_namespaces_of_known_packages(namespace: str, package: tuple[str, str]) -> None:
    module, command = package
    with pytest.raises(UsageError) as caught:
        maker(EnvSpec(id=f"{namespace}/Some-v1"))
    assert (
        str(caught.value)
        == f"{namespace}/Some-v1 belongs to the package {module}: {command}, then add --import {module}."
    )


def test_the_options_become_the_policys_description() -> None:
    values = {"id": "E-v0", "kwargs": {"a": 1}, "imports": ["m"], "num_envs": 8, "max_episode_steps": 9, "fresh": True}
    options = resolve(EnvOptions, Layer("test", values))
    assert env_spec(options) == EnvSpec(id="E-v0", kwargs={"a": 1}, imports=("m",), max_episode_steps=9, fresh=True)


def test_what_was_made_by_a_function_is_not_made_from_a_file() -> None:
    with pytest.raises(UsageError, match=r"made by a function in Python.*env=\.\.\.|--env ID"):
        maker(EnvSpec(id="Maze (Python function)"))


def test_every_call_makes_another_environment_and_the_kwargs_stay_as_they_are() -> None:
    kwargs = {"sutton_barto_reward": True}
    make = maker(EnvSpec(id="CartPole-v1", kwargs=kwargs), render_mode="rgb_array")
    a, b = make(), make()
    assert a is not b
    assert a.unwrapped is not b.unwrapped
    assert (a.render_mode, kwargs) == ("rgb_array", {"sutton_barto_reward": True})


def test_spaces_of_closes_what_it_made() -> None:
    closed: list[int] = []

    class Closing(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 1, (2,)), gym.spaces.Discrete(2, start=4)

        def close(self) -> None:
            closed.append(1)

    assert spaces_of(Closing, "e") == ((Leaf(name="obs", shape=(2,)),), ActionSpec(n=2, start=4))
    assert closed == [1]
    Closing.action_space = gym.spaces.Box(0, 1, (2,))  # type: ignore[assignment]
    with pytest.raises(UsageError, match=r"^e: "):
        spaces_of(Closing, "e")
    assert closed == [1, 1]
