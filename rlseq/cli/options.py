"""`rlseq options`: what can be set, printed from the options' own fields."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlseq.cli.output import console, write_json
from rlseq.cli.params import Json
from rlseq.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from rlseq.fields import Field, Options


def complete_group(incomplete: str) -> list[str]:
    """Groups of options, and the options."""
    names = [*groups(), *(field.path for field in all_fields())]
    return [name for name in names if name.startswith(incomplete)]


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
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    as_json: Json = False,
) -> None:
    """List the options: type, default, what each one does.

    Examples:

      rlseq options
      rlseq options optim
      rlseq options dqn.gamma
      rlseq options --json > schema.json            JSON schema, for editors
      rlseq options dqn --markdown

    An option is set with --set NAME=VALUE, in a recipe (TOML), or by its own
    flag where there is one.
    """
    if markdown and as_json:
        raise UsageError("--markdown and --json: give one of them.")
    found = matching(name)
    if as_json:
        write_json(json_schema(name))
    elif markdown:
        typer.echo(markdown_tables(found))
    else:
        _print(found)


def _tree() -> type[Options]:
    from rlseq.resolve import TREES

    (tree,) = TREES.values()
    return tree


def all_fields() -> list[Field]:
    """Every option."""
    from rlseq.fields import fields

    return list(fields(_tree()))


def groups() -> dict[str, type[Options]]:
    """The groups of options by name."""
    import msgspec

    return {field.name: field.type for field in msgspec.structs.fields(_tree())}


def matching(name: str | None) -> list[Field]:
    """The options of a group, or one option.

    Raises:
        UsageError: there is none of this name.
    """
    everything = all_fields()
    found = [f for f in everything if name is None or f.path == name or f.path.startswith(f"{name}.")]
    if not found:
        known = [*groups(), *(field.path for field in everything)]
        elsewhere = [
            field.path for field in everything if field.path.rpartition(".")[2] == str(name).rpartition(".")[2]
        ]
        hint = f" Did you mean {' or '.join(elsewhere)}?" if elsewhere else did_you_mean(str(name), known)
        raise UsageError(f"there is no option or group {name!r}.{hint} The groups: {', '.join(groups())}.")
    return found


def json_schema(name: str | None) -> dict[str, Any]:
    """The JSON schema of all options, or of a group.

    Raises:
        UsageError: `name` is one option.
    """
    import msgspec

    if name is not None and name not in groups():
        raise UsageError(f"--json {name}: a schema is of all options or of a group ({', '.join(groups())}).")
    return msgspec.json.schema(_tree() if name is None else groups()[name])


def flag_of(path: str) -> str | None:
    """The everyday flag that sets an option (`--lr` for optim.lr)."""
    from rlseq.resolve import EVERYDAY

    return next((f"--{name.replace('_', '-')}" for name, option in EVERYDAY.items() if option == path), None)


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


def _print(found: list[Field]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = console()
    last = None
    for field in found:
        group = field.path.partition(".")[0]
        if group != last:
            out.print(
                Text(
                    f"{'' if last is None else chr(10)}{group}: {(groups()[group].__doc__ or '').strip()}", style="bold"
                )
            )
            last = group
        flag = flag_of(field.path)
        line = Text.assemble((field.path, "cyan"), f" = {toml_text(field.default)}", (f"   {_kind(field)}", "dim"))
        out.print(Padding(line + Text(f"   {flag}", style="green") if flag else line, (0, 0, 0, 2), expand=False))
        out.print(Padding(field.help, (0, 0, 0, 6), expand=False))


def markdown_tables(found: list[Field]) -> str:
    """One Markdown table for each group."""
    parts = []
    for group in dict.fromkeys(field.path.partition(".")[0] for field in found):
        rows = [f"**{group}**: {(groups()[group].__doc__ or '').strip()}", ""]
        rows += ["| option | type | default | what it is |", "|---|---|---|---|"]
        for field in found:
            if field.path.partition(".")[0] == group:
                flag = flag_of(field.path)
                name = f"`{field.path}`" + (f", `{flag}`" if flag else "")
                cells = (name, _kind(field), f"`{toml_text(field.default)}`", field.help)
                rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)
