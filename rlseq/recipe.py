"""Recipes: TOML files with an algorithm and the options that differ from the defaults. They are data, never code."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from rlseq.errors import UsageError
from rlseq.files import explained

RECIPE_FORMAT = 1


class Recipe(NamedTuple):
    """A recipe file: an algorithm and the options that differ from the defaults."""

    name: str
    algorithm: str
    values: dict[str, Any]


def read_recipe(path: Path, name: str) -> Recipe:
    """Read a recipe; it is data, so a text in it stays a text.

    Args:
        path: the TOML file.
        name: how messages call it.

    Raises:
        UsageError: it is no TOML, names no algorithm, is of a newer format, or would import code.
    """
    with explained(path, "read"):
        data = path.read_bytes()
    try:
        values = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"recipe {name}: {path} is not valid TOML: {error}") from None
    version = values.pop("format_version", RECIPE_FORMAT)
    if type(version) is not int or not 1 <= version <= RECIPE_FORMAT:
        raise UsageError(
            f"recipe {name}: {path} has format_version {version}; this rlseq reads up to {RECIPE_FORMAT}: update rlseq."
        )
    algorithm = values.pop("algorithm", None)
    if not isinstance(algorithm, str):
        raise UsageError(f'recipe {name}: {path} lacks the line algorithm = "dqn"')
    env = values.get("env", {})
    if isinstance(env, dict) and (env.get("imports") or ":" in str(env.get("id", ""))):
        named = env.get("imports") or env.get("id")
        raise UsageError(
            f"recipe {name}: it names {named!r}, which would import code; a file may not do that. "
            "Type it yourself: --import MODULE, or module:Env-v0 as the environment."
        )
    seq = values.get("seq", {})
    if isinstance(seq, dict) and ":" in str(seq.get("loss", "")):
        raise UsageError(
            f"recipe {name}: it names the loss {seq['loss']!r}, which would import code; a file may not do that. "
            f"Type it yourself: --loss {seq['loss']}"
        )
    return Recipe(name, algorithm, values)
