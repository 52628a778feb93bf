"""Files and functions stay small enough to be read, and what is public says what it is."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("autoshard", "costmodels", "docs", "experiments", "tests")
WRITTEN = (".py", ".md", ".js", ".css", ".j2", ".sh", ".toml")
"""Endings of files that people write and read; all others are data."""
MOST_LINES = 400
MOST_OF_FUNCTION = 120
MOST_PARAMETERS = 12
MOST_COMPLEXITY = 30
REASON = "# complexity: "
"""Begins the line above a function that is more complex, and says why it is one function."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files(folder: str, *endings: str) -> list[Path]:
    """Our files with these endings; `autoshard/costmodels` is a link to `costmodels`."""
    return sorted(
        path
        for path in (ROOT / folder).rglob("*")
        if path.suffix in endings
        and "build" not in path.parts
        and not any(parent.is_symlink() for parent in (path, *path.parents))
    )


def too_long(paths: Iterable[Path]) -> dict[str, int]:
    """Those of more lines than a file may have, with how many they have."""
    lines = {
        str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path): path.read_text().count("\n")
        for path in paths
    }
    return {path: count for path, count in lines.items() if count > MOST_LINES}


def functions(node: ast.AST, name: str = "", public: bool = True) -> Iterator[tuple[str, Function, bool]]:
    """(name, function, whether it is public) of all functions: public are those without an underscore, outside of
    functions and of private classes.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{name}{child.name}", child, public and not child.name.startswith("_")
            yield from functions(child, f"{name}{child.name}.", False)
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{name}{child.name}.", public and not child.name.startswith("_"))
        else:
            yield from functions(child, name, public)


def parameters(function: Function) -> int:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def complexity(function: Function) -> int:
    """Ways through a function as radon counts them: branches, loops, conditions of comprehensions, each `and` and `or`.

    Functions inside of it are counted by themselves.
    """
    count, waiting = 1, list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.Try | ast.TryStar):
            count += len(node.handlers) + bool(node.orelse)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            count += 1 + bool(node.orelse)
        elif isinstance(node, ast.If | ast.IfExp | ast.Assert | ast.match_case | ast.Lambda):
            count += 1
    return count


def is_overload(function: Function) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in function.decorator_list)


@dataclass(frozen=True)
class Counted:
    """What is told of a function of a file. says_why: whether the line above it gives a reason for its complexity."""

    where: tuple[str, str]
    lines: int
    parameters: int
    complexity: int
    says_why: bool
    lacks_docstring: bool


@cache
def counted(folder: str) -> tuple[Counted, ...]:
    """All functions of a folder; each file is parsed once for all tests of a process."""
    out = []
    for path in files(folder, ".py"):
        text = path.read_text()
        lines = text.splitlines()
        for name, function, public in functions(ast.parse(text)):
            first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
            out.append(
                Counted(
                    where=(str(path.relative_to(ROOT)), name),
                    lines=0 if function.end_lineno is None else function.end_lineno - function.lineno + 1,
                    parameters=parameters(function),
                    complexity=complexity(function),
                    says_why=lines[first - 2].strip().startswith(REASON),
                    lacks_docstring=public and not is_overload(function) and not ast.get_docstring(function),
                )
            )
    return tuple(out)


def all_counted(*folders: str) -> Iterator[Counted]:
    return chain.from_iterable(map(counted, folders))


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_short(folder: str) -> None:
    found = files(folder, *WRITTEN)
    assert any(path.suffix == ".py" for path in found)
    assert too_long(found) == {}


def test_files_at_the_top_of_the_repository_are_short() -> None:
    found = [path for path in ROOT.iterdir() if path.suffix in WRITTEN]
    assert {"README.md", "CHANGELOG.md", "pyproject.toml"} <= {path.name for path in found}
    assert too_long(found) == {}


def test_a_file_of_one_line_too_many_is_found(tmp_path: Path) -> None:
    for name, lines in (("short.py", MOST_LINES), ("long.py", MOST_LINES + 1)):
        (tmp_path / name).write_text("#\n" * lines)
    assert too_long(tmp_path.iterdir()) == {str(tmp_path / "long.py"): MOST_LINES + 1}


def test_functions_are_short() -> None:
    assert [f.where for f in all_counted(*FOLDERS) if f.lines > MOST_OF_FUNCTION] == []


def test_functions_have_few_parameters() -> None:
    assert [f.where for f in all_counted(*FOLDERS) if f.parameters > MOST_PARAMETERS] == []


def test_functions_that_are_complex_say_why() -> None:
    complex_ = [f for f in all_counted(*FOLDERS) if f.complexity > MOST_COMPLEXITY]
    assert [(f.where, f.complexity) for f in complex_ if not f.says_why] == []


def test_complexity_counts_ways_through_a_function() -> None:
    (function,) = ast.parse(
        "def f(x):\n if x and y or z:\n  return [a for a in x if a]\n while x:\n  x = 1 if y else 2\n"
    ).body
    assert isinstance(function, ast.FunctionDef)
    assert complexity(function) == 8  # itself, if, and, or, for, if in it, while, 1 if 2


def test_public_functions_have_a_docstring() -> None:
    assert [f.where for f in all_counted("autoshard", "costmodels") if f.lacks_docstring] == []


def test_the_check_of_docstrings_finds_what_is_missing() -> None:
    tree = ast.parse("def told():\n 'Says.'\ndef bare(): ...\ndef _own(): ...\nclass A:\n def bare(self): ...\n")
    missing = [name for name, function, public in functions(tree) if public and not ast.get_docstring(function)]
    assert missing == ["bare", "A.bare"]
