"""The frame of a config for a function of the user, with the names of its parameters; nothing is imported for it."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_FRAME = """\
# What to plan, on which mesh and machine. Change what is below, then: autoshard solve {file}
function: {function} # module:name; the module is looked for beside this file first
args: # shape and type of every argument, by name; pytrees as mappings and lists
{arguments}
# specs: module:function # in place of args: it returns them as jax.ShapeDtypeStructs (jax.eval_shape makes those)

mesh: {{data: 2, model: 4}} # or {{devices: 8, axes: [data, model]}}: the sizes are searched
hardware: {hardware} # autoshard hardware lists the machines

# pins: # shardings that must hold; {{}} is not cut, ? may be cut further
#   {pinned}: '[{{"data"}}, {{?}}]'
# memory_limit: 12GiB # per device; the device's own where nothing is said
# donate: [{donated}] # arguments whose memory the step may reuse: its state
time_limit: 60s
verify: true # check the plan, also against one device
"""

_TREES = re.compile(r"^(params?|parameters|weights|variables|state|\w+_state|moments|momentum|model|cache|ema\w*)$")
_BATCHES = re.compile(r"^(batch|data|inputs|examples?)$")
_KEYS = re.compile(r"^(key|rng|prng|\w+_(key|rng)|(key|rng)_\w+)$")
_WHOLE_NUMBERS = re.compile(r"^(tokens?|ids|\w+_ids|labels?|targets?|positions?|index|indices)$")
_NUMBERS = re.compile(r"^(lr|\w+_rate|rate|step_size|temperature|eps|epsilon|alpha|beta|decay|\w+_decay)$")
_SCALARS = {"float": "float32[]", "int": "int32[]", "bool": "bool[]"}


@dataclass(frozen=True)
class Parameter:
    """A parameter that a config can give: its name, the text of its annotation, and whether it has a default."""

    name: str
    annotation: str = ""
    has_default: bool = False


def frame(function: str, hardware: str, file: Path, parameters: Sequence[Parameter] | None) -> str:
    """The text of the config. parameters: those of the function; None where they are not known."""
    if parameters is None:
        parameters = (Parameter("x"),)
    lines = [_line(p) for p in parameters] or ["  {} # the function takes no arguments"]
    trees = [p.name for p in parameters if _TREES.match(p.name)]
    arrays = [p.name for p in parameters if _is_array(p)]
    return _FRAME.format(
        file=file, function=function, hardware=hardware, arguments="\n".join(lines),
        pinned=arrays[0] if arrays else f"{trees[0]}/w" if trees else "x",
        donated=trees[0] if trees else "0",
    )  # fmt: skip


def parameters_of(function: str, folders: Sequence[Path]) -> tuple[Parameter, ...] | None:
    """The parameters of ``module:name`` as its source states them; None where no such function is found.

    Modules are looked for in `folders` first, then where Python looks.
    """
    module, _, name = function.partition(":")
    path = Path(*module.split("."))
    for folder in (*folders, *map(Path, sys.path)):
        for file in (folder / path.with_suffix(".py"), folder / path / "__init__.py"):
            try:
                tree = ast.parse(file.read_bytes())
            except (OSError, SyntaxError, ValueError):
                continue
            return _found(tree, name)
    return None


def _found(tree: ast.Module, name: str) -> tuple[Parameter, ...] | None:
    """The parameters of a function that is defined in a module, or made of one there: ``step = jax.jit(train)``."""
    made = {
        target.id: node.value.args[0].id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.value.args) == 1
        and isinstance(node.value.args[0], ast.Name)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    node = defined.get(name) or defined.get(made.get(name, ""))
    return None if node is None else tuple(_parameters(node.args))


def _parameters(taken: ast.arguments) -> Iterator[Parameter]:
    places = [*taken.posonlyargs, *taken.args]
    required = len(places) - len(taken.defaults)
    for k, p in enumerate(places):
        yield Parameter(p.arg, _text(p.annotation), k >= required)
    for p, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True):
        yield Parameter(p.arg, _text(p.annotation), default is not None)


def _text(annotation: ast.expr | None) -> str:
    return "" if annotation is None else ast.unparse(annotation)


def _line(p: Parameter) -> str:
    text = f"{p.name}: {_placeholder(p)}"
    if p.has_default:
        return f"  # {text} # has a default, which holds where this is not given"
    if _TREES.match(p.name):
        return f"  {text} # a tree: its leaves by name"
    return f"  {text}" + (" # or a tree of arrays" if _BATCHES.match(p.name) else "")


def _placeholder(p: Parameter) -> str:
    if p.annotation in _SCALARS:
        return f'"{_SCALARS[p.annotation]}"'
    if _TREES.match(p.name):
        return '{w: "float32[512, 512]"}'
    if _KEYS.match(p.name):
        return '"uint32[2]"'
    if _NUMBERS.match(p.name):
        return '"float32[]"'
    return '"int32[128]"' if _WHOLE_NUMBERS.match(p.name) else '"float32[128, 512]"'


def _is_array(p: Parameter) -> bool:
    return not (p.has_default or _TREES.match(p.name)) and "," in _placeholder(p)
