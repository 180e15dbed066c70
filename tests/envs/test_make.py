"""Making environments from what a user typed."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium import error as gym_error

from rlseq.envs.make import import_modules, maker, split_id
from rlseq.errors import RlseqError, UsageError
from rlseq.spec import EnvSpec


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
