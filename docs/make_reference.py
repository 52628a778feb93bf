"""Write docs/reference/ from the code: python docs/make_reference.py

config.md has the keys of configs from the schema and the kinds of statements, cli.md the commands with their options,
python.md the public names of the package.
"""

import ast
import inspect
import itertools
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic_core import PydanticUndefined

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
MADE = "<!-- made by docs/make_reference.py -->\n\n"

# -- texts -------------------------------------------------------------------------------------------


def first_lines(text: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.cleandoc(text) if text else "").split("\n\n")[0].split())


def cell(text: str) -> str:
    """Text for a cell of a table."""
    plain = text.replace("|", "\\|").replace("\n", " ").replace("``", "`")
    return "`".join(part if k % 2 else part.replace("<", "&lt;") for k, part in enumerate(plain.split("`")))


def row(*cells: str) -> str:
    return f"| {' | '.join(map(cell, cells))} |"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [row(*head), row(*("---" for _ in head)), *(row(*cells) for cells in rows), ""]


def stable(text: str) -> str:
    """Text without the addresses of objects."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


# -- configs -----------------------------------------------------------------------------------------


def field_lines(model: type[BaseModel]) -> dict[str, str]:
    """The docstring under each field of a section, by the name of the field."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        file = inspect.getsourcefile(cls) if cls.__module__.startswith("autoshard") else None
        if file is None or cls.__name__ == "Schema":
            continue
        body = next(
            node.body
            for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        )
        for node, below in itertools.pairwise(body):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(below, ast.Expr):
                if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
                    found[node.target.id] = first_lines(below.value.value)
    return found


def type_text(kind: Any, metadata: tuple[Any, ...] = ()) -> str:
    """A type as a user of configs would say it."""
    from autoshard.config import schema

    named = {id(schema.Reference): "module:function", id(schema.Seconds): "seconds (60, 60s, 10min)"}
    if id(kind) in named:
        return named[id(kind)]
    origin, inside = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return "module:function" if is_reference(inside[1:]) else type_text(inside[0])
    if is_reference(metadata):
        return "module:function"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(type_text(one) for one in inside if one is not type(None)))
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in inside)
    if origin is list:
        return f"list of {type_text(inside[0])}"
    if origin is dict:
        return f"mapping of {type_text(inside[1])}"
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        name = kind.__name__.removesuffix("Section").lower()
        return f"[{name}](#{name})"
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any"}
    return plain.get(kind, "amount of memory" if getattr(kind, "__name__", "") == "MemoryAmount" else str(kind))


def is_reference(metadata: tuple[Any, ...]) -> bool:
    from autoshard.config import schema

    return any(isinstance(one, AfterValidator) and one.func is schema._reference for one in metadata)


def default_text(field: Any) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if default is None or default == [] or isinstance(default, BaseModel):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def section_rows(model: type[BaseModel], names: list[str] | None = None) -> list[tuple[str, ...]]:
    lines = field_lines(model)
    return [
        (f"`{name}`", type_text(field.annotation, tuple(field.metadata)), default_text(field), lines.get(name, ""))
        for name, field in model.model_fields.items()
        if names is None or name in names
    ]


def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The sections that fields of a section hold, in order, each once."""
    seen: list[type[BaseModel]] = []

    def walk(kind: Any) -> None:
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            if kind not in seen:
                seen.append(kind)
                for field in kind.model_fields.values():
                    walk(field.annotation)
        for one in get_args(kind):
            walk(one)

    for field in model.model_fields.values():
        walk(field.annotation)
    yield from seen


def config_page() -> str:
    from autoshard.config.schema import Settings, schema
    from autoshard.constraints import registry

    whole = schema()
    head = ("key", "type", "default", "what it says")
    out = [
        "# Config",
        "",
        "Every key of a config. Types are those of YAML; a key with no default may be left out.",
        "Any key can be set on the command line, too: `autoshard solve CONFIG KEY=VALUE`. A tutorial is in "
        "[a config from scratch](../tutorials/config.md).",
        "",
        "## What is planned, and how",
        "",
        *table(head, section_rows(whole, list(Settings.model_fields))),
        "## Statements",
        "",
        "What they mean is told in [statements](../statements.md).",
        "",
    ]
    rows = []
    for kind in registry.kinds():
        if kind.config is not None:
            field = whole.model_fields[kind.config.name]
            words = first_lines((kind.stated or kind.matched).__doc__)
            by = f" (or a mapping by {kind.config.by})" if kind.config.by else ""
            rows.append((f"`{kind.config.name}`", type_text(field.annotation) + by, words))
    out += table(("key", "type", "what it says"), rows)
    out += ["## Sections", ""]
    for section in sections(whole):
        out += [f"### {section.__name__.removesuffix('Section').lower()}", "", first_lines(section.__doc__), ""]
        out += table(head, section_rows(section))
    return MADE + "\n".join(out).rstrip() + "\n"


# -- commands ----------------------------------------------------------------------------------------


def command_lines(name: str, command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([name, *(argument_name(p) for p in arguments), *(["[OPTIONS]"] if options else [])])
    out = [f"## {name}", "", f"`{usage}`", "", *(inspect.cleandoc(command.help or "").splitlines()), ""]
    rows = [(f"`{argument_name(p)}`", "", p.help or "") for p in arguments]
    for p in options:
        names = ", ".join(f"`{one}`" for one in (*p.opts, *p.secondary_opts))
        shown = p.default not in (None, False, ()) and not callable(p.default)
        rows.append((names, f"`{p.default}`" if shown else "required" if p.required else "", p.help or ""))
    return [*out, *table(("argument or option", "default", "what it says"), rows)] if rows else out


def argument_name(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    shown = name if parameter.required else f"[{name}]"
    return f"{shown}..." if parameter.nargs == -1 else shown


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None or getattr(command, "invoke_without_command", False):
        if below is None or command.params:
            yield name, command
    for word, one in (below or {}).items():
        yield from commands(f"{name} {word}", one)


def cli_page(title: str, about: str, chosen: Callable[[str], bool]) -> str:
    import typer

    from autoshard.cli import app

    out = [f"# {title}", "", f"{about} What the commands are for, and exit codes: [command line](../cli.md).", ""]
    for name, command in commands("autoshard", typer.main.get_command(app)):
        if chosen(name):
            out += command_lines(name, command)
    return MADE + "\n".join(out).rstrip() + "\n"


def in_group(name: str) -> bool:
    return name.startswith(("autoshard cost", "autoshard network"))


# -- Python ------------------------------------------------------------------------------------------


def signature(thing: Callable[..., Any]) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values() if p.name != "self"]
    return stable(str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty)))


def methods(cls: type) -> list[tuple[str, ...]]:
    """Public methods and properties with what their docstrings say, those of bases of ours included."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("autoshard"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    rows = []
    for name, value in sorted(found.items()):
        function = getattr(value, "__func__", None) or getattr(value, "fget", None) or getattr(value, "func", value)
        if inspect.isfunction(function) and (words := first_lines(function.__doc__)):
            call = signature(function) if inspect.isfunction(value) or isinstance(value, classmethod) else ""
            rows.append((f"`{name}{call.replace('(cls, ', '(').replace('(cls)', '()')}`", words))
    return rows


def python_page() -> str:
    import autoshard

    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Statements": [], "Errors": []}
    for name in sorted(autoshard.__all__):
        thing = getattr(autoshard, name)
        is_error = inspect.isclass(thing) and issubclass(thing, Exception)
        stated = getattr(thing, "__module__", "").startswith("autoshard.constraints")
        plain = "Classes" if inspect.isclass(thing) else "Functions"
        groups["Errors" if is_error else "Statements" if stated else plain].append(name)
    out = ["# Python", "", "The public names of `autoshard`. `help(autoshard.plan)` has the whole text of each.", ""]
    for group, names in groups.items():
        out += [f"## {group}", ""]
        if group == "Errors":
            errors = [(name, getattr(autoshard, name)) for name in names]
            rows = [(f"`{n}`", f"{getattr(e, 'exit_code', '')}", first_lines(e.__doc__)) for n, e in errors]
            out += table(("error", "exit code", "what it says"), rows)
            continue
        for name in names:
            thing = getattr(autoshard, name)
            out += [f"### {name}", "", "```text", f"autoshard.{name}{signature(thing)}", "```", ""]
            out += [first_lines(thing.__doc__), ""]
            if group == "Classes" and (rows := methods(thing)):
                out += table(("member", "what it says"), rows)
    return MADE + "\n".join(out).rstrip() + "\n"


def pages() -> dict[str, str]:
    """Name of a file in docs/reference -> its text."""
    about = "Every command takes `-h` and `--help`."
    return {
        "config.md": config_page(),
        "cli.md": cli_page("Commands about programs and plans", about, lambda name: not in_group(name)),
        "cli_groups.md": cli_page("Commands of the groups cost and network", about, in_group),
        "python.md": python_page(),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
