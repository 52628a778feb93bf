"""Files and functions stay small enough to be read, and what is public says what it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("autoshard", "costmodels", "docs", "experiments", "tests")
MOST_LINES = {"autoshard": 400, "costmodels": 400, "docs": 400, "experiments": 400, "tests": 720}
"""Lines of a file; tables of cases make some files of tests longer."""
MOST_OF_FUNCTION = 120
MOST_PARAMETERS = 12

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files(*folders: str) -> list[Path]:
    """Our Python files; `autoshard/costmodels` is a link to `costmodels`."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "build" not in path.parts and not any(parent.is_symlink() for parent in (path, *path.parents))
    )


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


def is_overload(function: Function) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in function.decorator_list)


def parsed(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for path in files(*folders):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_short(folder: str) -> None:
    found = files(folder)
    assert found
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in found}
    assert {path: count for path, count in lines.items() if count > MOST_LINES[folder]} == {}


def test_functions_are_short() -> None:
    long = [
        (path, name)
        for path, tree in parsed("autoshard", "costmodels", "docs", "experiments")
        for name, function, _ in functions(tree)
        if function.end_lineno is not None and function.end_lineno - function.lineno >= MOST_OF_FUNCTION
    ]
    assert long == []


def test_functions_have_few_parameters() -> None:
    many = [
        (path, name)
        for path, tree in parsed("autoshard", "costmodels")
        for name, function, _ in functions(tree)
        if parameters(function) > MOST_PARAMETERS
    ]
    assert many == []


def test_public_functions_have_a_docstring() -> None:
    bare = [
        (path, name)
        for path, tree in parsed("autoshard", "costmodels")
        for name, function, public in functions(tree)
        if public and not is_overload(function) and not ast.get_docstring(function)
    ]
    assert bare == []


def test_the_check_of_docstrings_finds_what_is_missing() -> None:
    tree = ast.parse("def told():\n 'Says.'\ndef bare(): ...\ndef _own(): ...\nclass A:\n def bare(self): ...\n")
    missing = [name for name, function, public in functions(tree) if public and not ast.get_docstring(function)]
    assert missing == ["bare", "A.bare"]
