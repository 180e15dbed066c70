"""Options: one source of truth, and the way a value travels from default, recipe and command line into it.

An option is a field of a frozen `Options` struct in its owner's `config.py`: type, default, bounds and one line of help
stand there and nowhere else. Recipes (TOML), the command line (`--set dqn.gamma=0.995`), the JSON schema, `rlseq
options` and the README's tables are all read from the fields.
"""

from __future__ import annotations

import contextlib
import math
import tomllib
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from rlseq.errors import UsageError, did_you_mean
from rlseq.fields import Field, Options, fields


class RunOptions(Options, frozen=True, kw_only=True):
    """How long to train, and what to keep on disk."""

    steps: Annotated[int, Meta(description="environment steps to train for, over all environments", gt=0)] = 50_000
    horizon: Annotated[
        Annotated[int, Meta(gt=0)] | None,
        Meta(description="environment steps over which epsilon and the learning rate run; none: run.steps"),
    ] = None
    seed: Annotated[int, Meta(description="seed of weights, exploration, replay and episodes", ge=0, le=2**53)] = 0
    name: Annotated[str | None, Meta(description="name of the run folder; none: environment, seed and time")] = None
    log_every: Annotated[int, Meta(description="environment steps between two points of a curve", gt=0)] = 500
    checkpoint_every: Annotated[int, Meta(description="environment steps between checkpoints", gt=0)] = 10_000
    keep: Annotated[int, Meta(description="checkpoints kept besides step 0 and the best", ge=1)] = 3
    inexact_resume: Annotated[
        bool,
        Meta(description="go on even if a half-played episode cannot be rebuilt; it is then begun anew, and logged"),
    ] = False


T = TypeVar("T", bound=Options)
MAX_DEPTH = 32  # parts of an option's name: env.kwargs may be nested


class Layer(NamedTuple):
    """One source of option values; a later layer overrides an earlier one.

    Attributes:
        source: how messages call it ("recipe cartpole-dqn", "command line").
        values: nested dict in the shape of the option tree. A `Typed` string is read as the option's type.
    """

    source: str
    values: Mapping[str, Any]


class Typed(str):
    """A value as typed on a command line: `0.5`, `true`, `[64, 64]`, `none`, or plain text."""


def set_values(assignments: list[str]) -> dict[str, Any]:
    """`["dqn.gamma=0.9", "env.kwargs.gravity=5"]` as nested dicts of `Typed` values.

    Raises:
        UsageError: an assignment has no `=` or no name.
    """
    tree: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        parts = name.strip().split(".")
        if not equals or not all(parts) or len(parts) > MAX_DEPTH:
            raise UsageError(f"--set {text!r}: write NAME=VALUE, for example --set dqn.gamma=0.995")
        merge_into(tree, _nest(parts, Typed(value.strip())))
    return tree


def _nest(parts: list[str], value: Any) -> dict[str, Any]:
    for part in reversed(parts):
        value = {part: value}
    return typing.cast(dict[str, Any], value)


def merge_into(tree: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Lay `values` over `tree`, in place; dicts are merged, all else is replaced."""
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            merge_into(tree[key], value)
        else:
            tree[key] = _copied(value)


def _copied(value: Any) -> Any:
    return {key: _copied(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def resolve(tree: type[T], *layers: Layer) -> T:
    """Build the option tree from its defaults and the layers, the last layer winning.

    A layer that sets an option which stands for others (`Field.displaces`) takes those of the layers below away, unless
    it sets them too.

    Raises:
        UsageError: an unknown name (with the nearest), a value of the wrong type or out of range, or options that
            exclude each other; named with the source it came from.
    """
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    known = {field.path: field for field in fields(tree)}
    for layer in layers:
        _lay(tree, layer.values, layer.source, "", merged, sources, known)
    return _build(tree, merged, sources)


def _lay(
    tree: type[Options],
    values: Mapping[str, Any],
    source: str,
    prefix: str,
    merged: dict[str, Any],
    sources: dict[str, str],
    known: Mapping[str, Field],
) -> None:
    groups = {field.name: field.type for field in msgspec.structs.fields(tree)}
    for key, value in values.items():
        path = prefix + str(key)
        kind = groups.get(key)
        if kind is None:
            raise UsageError(_unknown(source, path, prefix, groups, known))
        if isinstance(kind, type) and issubclass(kind, Options):
            if not isinstance(value, Mapping):
                raise UsageError(f"{source}: {path} is a group of options; set one of {', '.join(_names(kind, path))}")
            _lay(kind, value, source, path + ".", merged.setdefault(key, {}), sources, known)
        else:
            sources[path] = source
            value = converted(value, known[path], source)
            for displaced in set(known[path].displaces) - values.keys():
                merged.pop(displaced, None)
                sources.pop(prefix + displaced, None)
            if isinstance(value, dict) and isinstance(merged.get(key), dict):
                value = {**{k: v for k, v in merged[key].items() if k not in value}, **value}  # the last stand last
            merged[key] = value


def _unknown(source: str, path: str, prefix: str, groups: Mapping[str, Any], known: Mapping[str, Field]) -> str:
    siblings = [prefix + name for name in groups]
    group = prefix.partition(".")[0]
    # The nearest name: a sibling first, else the same last word in another group.
    last = path.rpartition(".")[2]
    elsewhere = [name for name in known if name.rpartition(".")[2] == last]
    hint = f" Did you mean {elsewhere[0]}?" if elsewhere else did_you_mean(path, [*siblings, *known], count=1)
    table = f"rlseq options {group}" if prefix else "rlseq options"
    return f"{source}: unknown option {path!r}.{hint} `{table}` lists what there is."


def _names(tree: type[Options], prefix: str) -> list[str]:
    return [f"{prefix}.{field.name}" for field in msgspec.structs.fields(tree)]


def converted(value: Any, field: Field, source: str) -> Any:
    """`value` as the option's type.

    Raises:
        UsageError: it is none; the message names option, value and what is allowed.
    """
    for candidate in _readings(value, field):
        try:
            result = msgspec.convert(candidate, field.type)
        except (ValueError, OverflowError, RecursionError):
            continue
        if _sensible(result):
            return result
    shown = _shortened(str(value) if isinstance(value, Typed) else repr(value))
    allowed = field.type_text + (f" {field.bounds}" if field.bounds else "")
    choices = typing.get_args(field.type) if typing.get_origin(field.type) is Literal else ()
    for inner in typing.get_args(field.type):
        choices = choices or (typing.get_args(inner) if typing.get_origin(inner) is Literal else ())
    hint = did_you_mean(str(value), [str(choice) for choice in choices])
    raise UsageError(f"{source}: {field.path} = {shown} is not allowed: it must be {allowed} ({field.help}).{hint}")


def _readings(value: Any, field: Field) -> Iterator[Any]:
    """What a typed or written value may mean, the likeliest first."""
    if isinstance(value, Mapping):
        parts = {key: next(_readings(item, field._replace(type=Any)), ...) for key, item in value.items()}
        if ... not in parts.values():
            yield parts
        return
    if isinstance(value, str) and value.lower() == "none":
        yield None
    if isinstance(value, Typed):
        if field.type is not Any:
            yield str(value)
        yield from _toml(value)
        with contextlib.suppress(ValueError):
            yield float(value)  # .5, which TOML does not take for a number
        if typing.get_origin(_bare(field.type)) is tuple and "[" not in value:  # 64,64 or 64 for [64, 64] or [64]
            yield from _toml(f"[{value.removeprefix('(').removesuffix(')')}]")
        if field.type is not Any or value[:1] not in ("[", "{", '"'):  # what begins like a value must be one
            yield str(value)
    else:
        yield value


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _toml(text: str) -> Iterator[Any]:
    """The text as one TOML value, if it is one that JSON has too."""
    if "\n" in text or "\r" in text:
        return  # more than one value
    try:
        value = tomllib.loads(f"value = {text}")["value"]
        msgspec.json.encode(value)
        if msgspec.json.decode(msgspec.json.encode(value)) == value:
            yield value
    except (ValueError, TypeError, RecursionError, OverflowError):
        return  # no TOML, or numbers and nesting beyond all sense


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def _sensible(value: Any) -> bool:
    """Numbers must be finite, and integers such that a float can hold them."""
    if isinstance(value, Mapping):
        return all(map(_sensible, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_sensible, value))
    if isinstance(value, int):
        return abs(value) <= 2**53
    return not isinstance(value, float) or math.isfinite(value)


def _build(tree: type[T], values: Mapping[str, Any], sources: Mapping[str, str], prefix: str = "") -> T:
    built: dict[str, Any] = dict(values)
    for field in msgspec.structs.fields(tree):
        if isinstance(field.type, type) and issubclass(field.type, Options):
            built[field.name] = _build(field.type, values.get(field.name, {}), sources, f"{prefix}{field.name}.")
    try:
        return tree(**built)
    except ValueError as error:  # raised by a struct's own __post_init__, for options that exclude each other
        where = sorted({source for path, source in sources.items() if path.startswith(prefix)})
        raise UsageError(f"{', '.join(where) or 'defaults'}: {error}") from None


def differences(tree: type[Options], old: Options, new: Options) -> dict[str, tuple[Any, Any]]:
    """The options whose values differ: path -> (old, new)."""
    found = {}
    for field in fields(tree):
        a, b = value_at(old, field.path), value_at(new, field.path)
        if a != b:
            found[field.path] = (a, b)
    return found


def value_at(options: Options, path: str) -> Any:
    """The value of the option `path` ("dqn.gamma")."""
    value: Any = options
    for part in path.split("."):
        value = getattr(value, part)
    return value
