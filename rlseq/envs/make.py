"""Making environments from what a user typed, with messages that name the fix."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium import error as gym_error

from rlseq.envs.config import EnvOptions
from rlseq.envs.spaces import action_spec, observation_leaves
from rlseq.errors import RlseqError, UsageError, install_command, nearest
from rlseq.spec import ActionSpec, EnvSpec, Leaf

MakeEnv = Callable[[], gym.Env]
FACTORY = " (Python function)"  # ends the id of an environment that no file can make

# Namespaces and packages that register environments when imported, with what installs them.
PACKAGES = {
    "ALE": ("ale_py", 'pip install "gymnasium[atari]"'),
    "MiniGrid": ("minigrid", "pip install minigrid"),
    "BabyAI": ("minigrid", "pip install minigrid"),
    "MinAtar": ("minatar", "pip install minatar"),
    "highway": ("highway_env", "pip install highway-env"),
    "procgen": ("procgen", "pip install procgen"),
}


def split_id(typed: str) -> tuple[str, tuple[str, ...]]:
    """`my_envs:Maze-v0` as `("Maze-v0", ("my_envs",))`; a plain id as `(id, ())`."""
    module, colon, env_id = typed.partition(":")
    return (env_id, (module,)) if colon else (typed, ())


def import_modules(modules: Sequence[str]) -> None:
    """Import modules the user typed, so that they register their environments. The current folder is searched too.

    Raises:
        UsageError: a module does not exist or fails.
    """
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        if not all(part.strip() for part in module.split(".")):
            raise UsageError(f"--import {module or repr(module)}: this names no module; write my_envs or pkg.my_envs.")
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
                raise UsageError(f"--import {module}: it needs {error.name}, which is not installed.") from error
            raise UsageError(
                f"--import {module}: no module of this name in {os.getcwd()} or among the installed packages."
            ) from error
        except (Exception, SystemExit) as error:
            raise UsageError(f"--import {module}: importing it raised {type(error).__name__}: {error}") from error


def env_spec(options: EnvOptions) -> EnvSpec:
    """What of the options belongs to the policy's own description."""
    return EnvSpec(
        id=options.id,
        kwargs=options.kwargs,
        imports=options.imports,
        max_episode_steps=options.max_episode_steps,
        fresh=options.fresh,
    )


def maker(spec: EnvSpec, *, typed_imports: Sequence[str] = (), render_mode: str | None = None) -> MakeEnv:
    """A function that makes the environment of a spec; one is made and closed at once to see that it works.

    Args:
        spec: which environment. Its `imports` are only names: they are never imported unless typed.
        typed_imports: modules that the user typed.
        render_mode: of the environment.

    Raises:
        UsageError: unknown id (with the nearest), missing package, wrong arguments.
    """
    if ":" in spec.id:
        raise UsageError(
            f"the environment id {spec.id!r} would import a module; a file may not do that. "
            f"Add --import {spec.id.partition(':')[0]} if you trust it."
        )
    if spec.id.endswith(FACTORY):
        raise UsageError(
            f"the environment {spec.id} was made by a function in Python, which a file cannot hold: pass that function "
            "as env=... from Python, or name a registered environment with --env ID."
        )
    import_modules(typed_imports)
    if spec.id not in gym.registry and set(spec.imports) - set(typed_imports):
        modules = " ".join(f"--import {module}" for module in spec.imports)
        raise UsageError(
            f"the environment {spec.id} is registered by {', '.join(spec.imports)}, and a file may not import code by "
            f"itself. If you trust it, add {modules}."
        )

    def make() -> gym.Env:
        kwargs = dict(spec.kwargs)
        if render_mode is not None:
            kwargs["render_mode"] = render_mode
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that there is a newer version, in escape codes
            return gym.make(spec.id, max_episode_steps=spec.max_episode_steps, disable_env_checker=True, **kwargs)

    _try(make, spec, render_mode)
    return make


def _try(make: MakeEnv, spec: EnvSpec, render_mode: str | None) -> None:
    if not spec.id:
        raise UsageError(
            "no environment given. For example: rlseq train dqn CartPole-v1. `rlseq list envs` lists them."
        )
    if spec.id not in gym.registry:
        raise UsageError(_unknown_id(spec.id))
    try:
        make().close()
    except (gym_error.DependencyNotInstalled, ModuleNotFoundError) as error:
        raise UsageError(_missing_package(spec.id, error)) from None
    except TypeError as error:
        if spec.kwargs:
            raise UsageError(
                f"{spec.id} does not take env.kwargs {spec.kwargs}: {error}. "
                f"It takes: {', '.join(_arguments(spec.id))}."
            ) from error
        raise RlseqError(f"{spec.id} could not be made: {type(error).__name__}: {error}") from error
    except Exception as error:
        given = f" with env.kwargs {spec.kwargs}" if spec.kwargs else ""
        mode = f" and render mode {render_mode}" if render_mode else ""
        raise RlseqError(f"{spec.id}{given}{mode} could not be made: {type(error).__name__}: {error}") from error


def _unknown_id(env_id: str) -> str:
    namespace, slash, _ = env_id.partition("/")
    if slash and namespace in PACKAGES and not any(known.startswith(namespace + "/") for known in gym.registry):
        module, command = PACKAGES[namespace]
        return f"{env_id} belongs to the package {module}: {command}, then add --import {module}."
    name = env_id.rpartition("-v")[0] or env_id
    versions = [known for known in gym.registry if known.rpartition("-v")[0] == name]
    if versions:
        return f"there is no environment {env_id}. Its versions: {', '.join(versions)}."
    by_name: dict[str, str] = {known.rpartition("-v")[0] or known: known for known in gym.registry}
    names = [by_name[near] for near in nearest(name, by_name)]
    hint = f" Did you mean {' or '.join(names)}?" if names else ""
    return (
        f"there is no environment {env_id!r}.{hint} `rlseq list envs` lists them; your own: --import MODULE, or "
        "module:Env-v0."
    )


def _missing_package(env_id: str, error: Exception) -> str:
    text = str(error)
    if "box2d" in text.lower():
        return f"{env_id} needs Box2D, which is not installed: {install_command('box2d')}"
    command = ""
    if "pip install" in text:
        package = text.partition("pip install")[2].strip(" `'\".").replace("`", "")
        command = f'pip install "{package}"' if "[" in package and '"' not in package else f"pip install {package}"
    elif isinstance(error, ModuleNotFoundError) and error.name:
        command = f"pip install {error.name.partition('.')[0]}"
    return f"{env_id} needs a package that is not installed: {command or text}"


def _arguments(env_id: str) -> list[str]:
    """The constructor's arguments, as far as they can be seen."""
    entry: Any = gym.spec(env_id).entry_point
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = getattr(importlib.import_module(module), name)
    return [name for name in inspect.signature(entry).parameters if name not in ("self", "render_mode")] or ["nothing"]


def spaces_of(make: MakeEnv, env_id: str) -> tuple[tuple[Leaf, ...], ActionSpec]:
    """Observation leaves and actions of an environment.

    Raises:
        UsageError: a space that DQN cannot learn on.
    """
    env = make()
    try:
        return observation_leaves(env.observation_space, env_id), action_spec(env.action_space, env_id)
    finally:
        env.close()


def has_time_limit(make: MakeEnv) -> bool:
    """Whether an episode is cut at some step, as far as the environment says so."""
    env = make()
    try:
        return env.spec is not None and env.spec.max_episode_steps is not None
    finally:
        env.close()
