"""`rlseq options`: what can be set, printed from the options' own fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlseq.cli.output import console, write_json
from rlseq.cli.params import Json
from rlseq.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from rlseq.fields import Field, Options


# Options that are typed as words of `rlseq train ALGORITHM`, not as flags.
ARGUMENTS = {"env.id": "ENV_ID", "seq.task": "TASK"}


class Algorithm(StrEnum):
    """Whose options."""

    dqn = "dqn"
    seq = "seq"


def complete_group(incomplete: str) -> list[str]:
    """Groups of options, and the options."""
    names = [name for algorithm in Algorithm for name in _names(algorithm)]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="GROUP",
            help="A group (dqn, optim, ...) or one option (dqn.gamma). Left out: all.",
            autocompletion=complete_group,
            show_default=False,
        ),
    ] = None,
    algorithm: Annotated[
        Algorithm | None, typer.Option("--for", help="Of rlseq train dqn or seq alone.", show_default="both")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    as_json: Json = False,
) -> None:
    """List the options: type, default, what each one does.

    Examples:

      rlseq options
      rlseq options optim
      rlseq options dqn.gamma
      rlseq options --for seq
      rlseq options --json > schema.json            JSON schema, for editors
      rlseq options dqn --markdown

    An option is set with --set NAME=VALUE, in a recipe (TOML), or by its own
    flag where there is one.
    """
    if markdown and as_json:
        raise UsageError("--markdown and --json: give one of them.")
    found = matching(name, algorithm)
    if as_json:
        write_json(json_schema(name, algorithm))
    elif markdown:
        typer.echo("\n\n".join(headed(found, markdown_tables, "## ")))
    else:
        for index, (one, fields) in enumerate(found.items()):
            if len(found) > 1:
                typer.echo(f"{chr(10) if index else ''}rlseq train {one}\n")
            _print(one, fields)


def headed(found: Mapping[str, list[Field]], text: Callable[[str, list[Field]], str], sign: str) -> list[str]:
    """A text for each algorithm, with a heading where there are several."""
    return [
        (f"{sign}rlseq train {algorithm}\n\n" if len(found) > 1 else "") + text(algorithm, fields)
        for algorithm, fields in found.items()
    ]


def _tree(algorithm: str) -> type[Options]:
    from rlseq.resolve import TREES

    return TREES[algorithm]


def _names(algorithm: str) -> list[str]:
    return [*groups(algorithm), *(field.path for field in all_fields(algorithm))]


def all_fields(algorithm: str) -> list[Field]:
    """Every option of an algorithm."""
    from rlseq.fields import fields

    return list(fields(_tree(algorithm)))


def groups(algorithm: str) -> dict[str, type[Options]]:
    """The groups of options by name."""
    import msgspec

    return {field.name: field.type for field in msgspec.structs.fields(_tree(algorithm))}


def matching(name: str | None, algorithm: str | None = None) -> dict[str, list[Field]]:
    """The options of a group, or one option, by algorithm; those that are the same for all stand with the first.

    Raises:
        UsageError: there is none of this name.
    """
    chosen = [algorithm] if algorithm is not None else [one.value for one in Algorithm]
    found: dict[str, list[Field]] = {}
    for one in map(str, chosen):
        fields = [f for f in all_fields(one) if name is None or f.path == name or f.path.startswith(f"{name}.")]
        if fields and fields not in found.values():
            found[one] = fields
    if found:
        return found
    known = list(dict.fromkeys(known for one in map(str, chosen) for known in _names(one)))
    elsewhere = [path for path in known if "." in path and path.rpartition(".")[2] == str(name).rpartition(".")[2]]
    hint = f" Did you mean {' or '.join(elsewhere)}?" if elsewhere else did_you_mean(str(name), known)
    listed = ", ".join(path for path in known if "." not in path)
    raise UsageError(f"there is no option or group {name!r}.{hint} The groups: {listed}.")


def json_schema(name: str | None, algorithm: str | None = None) -> dict[str, Any]:
    """The JSON schema of all options, or of a group; where algorithms differ, any of theirs.

    Raises:
        UsageError: `name` is one option.
    """
    import msgspec

    chosen = [algorithm] if algorithm is not None else [one.value for one in Algorithm]
    if name is None:
        types = [_tree(str(one)) for one in chosen]
    else:
        types = [groups(str(one))[name] for one in chosen if name in groups(str(one))]
        if not types:
            listed = ", ".join(dict.fromkeys(group for one in chosen for group in groups(str(one))))
            raise UsageError(f"--json {name}: a schema is of all options or of a group ({listed}).")
    if len(types) == 1:
        return msgspec.json.schema(types[0])
    references, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    return {"anyOf": list(references), "$defs": definitions}


def flag_of(path: str, algorithm: str) -> str | None:
    """The everyday flag that sets an option (`--lr` for optim.lr), or the argument that does (`TASK` for seq.task)."""
    from rlseq.resolve import EVERYDAY

    if path in ARGUMENTS:
        return ARGUMENTS[path]
    flags = EVERYDAY[algorithm]
    return next((f"--{name.replace('_', '-')}" for name, option in flags.items() if option == path), None)


def toml_text(value: Any) -> str:
    """A default as it is written in a recipe; `none` for an optional left empty."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "{}" if not value else json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def _kind(field: Field) -> str:
    return f"{field.type_text} {field.bounds}".strip()


def _print(algorithm: str, found: list[Field]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = console()
    last = None
    for field in found:
        group = field.path.partition(".")[0]
        if group != last:
            out.print(
                Text(
                    f"{'' if last is None else chr(10)}{group}: {(groups(algorithm)[group].__doc__ or '').strip()}",
                    style="bold",
                )
            )
            last = group
        flag = flag_of(field.path, algorithm)
        line = Text.assemble((field.path, "cyan"), f" = {toml_text(field.default)}", (f"   {_kind(field)}", "dim"))
        out.print(Padding(line + Text(f"   {flag}", style="green") if flag else line, (0, 0, 0, 2), expand=False))
        out.print(Padding(field.help, (0, 0, 0, 6), expand=False))


def markdown_tables(algorithm: str, found: list[Field]) -> str:
    """One Markdown table for each group."""
    parts = []
    for group in dict.fromkeys(field.path.partition(".")[0] for field in found):
        rows = [f"**{group}**: {(groups(algorithm)[group].__doc__ or '').strip()}", ""]
        rows += ["| option | type | default | what it is |", "|---|---|---|---|"]
        for field in found:
            if field.path.partition(".")[0] == group:
                flag = flag_of(field.path, algorithm)
                name = f"`{field.path}`" + (f", `{flag}`" if flag else "")
                cells = (name, _kind(field), f"`{toml_text(field.default)}`", field.help)
                rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)
