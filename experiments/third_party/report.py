"""The tables of the README, from results.json."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- rows: made by run.py --report -->", "<!-- end of rows -->"
PLAN = "statements, layouts, collectives, costs and memory, worked out again from the file"
COMPILED = "collectives of the lowered and the compiled program"
VALUES = "results against the unsharded program"


def report(rows: Sequence[Mapping[str, Any]], words: Mapping[str, str], is_right: Callable[[Any], bool]) -> str:
    """A sentence of counts, and a line for each program and mesh."""
    programs = {row["program"] for row in rows}
    right = {name for name in programs if all(is_right(r) for r in rows if r["program"] == name)}
    vague = sum(1 for r in rows if "error" not in r and r["three_steps"]["not_determined_leaves"])
    lines = [
        f"{len(programs)} programs, {len(rows)} rows: {sum(map(is_right, rows))} rows and {len(right)} programs are "
        f"right, {vague} of these rows with leaves that the program itself does not determine.",
        "",
        "| program | mesh | machine | ops | collectives | gap | plan | compiled | values | three steps | error |",
        "|" + " --- |" * 11,
    ]
    lines += [_line(row) for row in rows]
    lines += ["", "| program | what it is | packages |", "| --- | --- | --- |"]
    for name in dict.fromkeys(row["program"] for row in rows):
        of = next((r["packages"] for r in rows if r["program"] == name and "packages" in r), {})
        versions = ", ".join(f"{package} {version}" for package, version in of.items())
        lines.append(f"| {name} | {words.get(name, '')} | {versions} |")
    meshes = {name: sum(row["program"] == name for row in rows) for name in words}
    most = max(meshes.values(), default=0)
    unseen = [f"{name} (one mesh)" if count else name for name, count in meshes.items() if count < most]
    if unseen:
        lines += ["", f"On the list, but not run on both meshes yet: {', '.join(unseen)}."]
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    mesh = "x".join(str(size) for size in row["mesh"].values())
    if "error" in row:
        return f"| {row['program']} | {mesh} | | | | | {row['error'].splitlines()[0][:80]} | | | | |"
    checks, loop = row["checks"], row["three_steps"]
    if loop["wrong"]:
        equal = f"wrong: {loop['wrong_leaves']} of {loop['leaves']}"
    else:
        vague = loop["not_determined_leaves"]
        equal = f"{loop['leaves'] - vague} of {loop['leaves']} equal, {vague} not determined" if vague else "equal"
    machine = row.get("hardware", "cpu_sim")
    cells = [
        row["program"], mesh, machine, row["ops"], row["collectives"], f"{row['gap']:.0%}" if row["gap"] else "0",
        checks[PLAN], checks[COMPILED], checks[VALUES], equal, _error(loop),
    ]  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _error(loop: Mapping[str, Any]) -> str:
    if loop["worst_error"] is None:
        return ""
    return f"{loop['worst_error']:.1e} of {loop['tolerance']:.0e}"


def written(page: Path, text: str) -> None:
    """Put the text between the marks of a page."""
    old = page.read_text()
    head, _, rest = old.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")
