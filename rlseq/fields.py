"""What an option is: a field of a frozen struct, and how tables and messages show it."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of options. Values are never changed after they were resolved; what follows from them is derived in
    code."""


class Field(NamedTuple):
    """One option as the tables show it.

    Attributes:
        displaces: options of the same group that it stands for: where a later layer sets it, what earlier ones say of
            them is void.
    """

    path: str
    type: Any
    type_text: str
    default: Any
    help: str
    bounds: str
    displaces: tuple[str, ...] = ()


def displacing(*names: str) -> dict[str, Any]:
    """For `Meta(extra=...)`: the option's `Field.displaces`."""
    return {"displaces": names}


def fields(tree: type[Options], prefix: str = "") -> Iterator[Field]:
    """Every option below `tree`, in order of declaration."""
    for field in msgspec.structs.fields(tree):
        path = prefix + field.name
        if isinstance(field.type, type) and issubclass(field.type, Options):
            yield from fields(field.type, path + ".")
            continue
        metas = _metas(field.type)
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        help_text = next((meta.description for meta in metas if meta.description), "")
        displaces = tuple(name for meta in metas for name in (meta.extra or {}).get("displaces", ()))
        yield Field(path, field.type, type_text(field.type), default, help_text, _bounds(metas), displaces)


def _metas(kind: Any) -> list[Meta]:
    """The `Meta` annotations of a type and of the types inside it."""
    found = [meta for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, Meta)]
    for inner in typing.get_args(kind):
        found += _metas(inner)
    return found


def _bounds(metas: list[Meta]) -> str:
    signs = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
    return ", ".join(
        f"{sign} {getattr(meta, name)}" for meta in metas for name, sign in signs if getattr(meta, name) is not None
    )


def type_text(kind: Any) -> str:
    """A type as a person would write it: `int`, `float or none`, `adam | sgd`, `list of int`."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return type_text(inner[0])
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin in (types.UnionType, typing.Union):
        return " or ".join("none" if part is type(None) else type_text(part) for part in inner)
    if origin is tuple:
        return f"list of {type_text(inner[0])}"
    return "table" if origin is dict else getattr(kind, "__name__", str(kind))


def flattened(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested values as `("dqn.gamma", 0.99)`."""
    rows: list[tuple[str, Any]] = []
    for key, value in tree.items():
        nested = isinstance(value, dict) and value
        rows += flattened(value, f"{prefix}{key}.") if nested else [(prefix + key, value)]
    return rows
