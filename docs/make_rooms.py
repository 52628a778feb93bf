"""Write the list of rooms in architecture.md: python docs/make_rooms.py

The floors are those of the import contract in pyproject.toml, what a room is for is the first line of its docstring.
"""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: made by docs/make_rooms.py -->\n", "<!-- end of rooms -->\n"


def floors() -> list[list[str]]:
    """The rooms from the top of the house to its cellar."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            return [[room.strip() for room in floor.split("|")] for floor in contract["layers"]]
    raise SystemExit("pyproject.toml has no contract of layers")


def purpose(room: str) -> str:
    """The first line of a room's docstring."""
    package, module = ROOT / "autoshard" / room / "__init__.py", ROOT / "autoshard" / f"{room}.py"
    text = ast.get_docstring(ast.parse((package if package.exists() else module).read_text())) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def rooms() -> str:
    """The table of rooms."""
    lines = ["| room | what it is for |", "| --- | --- |"]
    for floor in floors():
        for room in floor:
            name = f"{room}/" if (ROOT / "autoshard" / room).is_dir() else f"{room}.py"
            lines.append(f"| `{name}` | {purpose(room)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + rooms() + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
