"""A plan as a person reads it: how good it is, how parameters are split, what is sent, what memory holds."""

import io
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from autoshard.constraints import HostMemoryLimit, MemoryLimit
from autoshard.constraints.registry import read_only
from autoshard.report.amounts import bytes_text, count_text, seconds_text, units_text
from autoshard.report.rows import input_groups, traffic

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

Json = Mapping[str, Any]

MOST_GROUPS = 40
"""How many groups of inputs are shown: nobody reads a longer table to its end."""
MOST_HELD = 8
"""How many arrays at the memory peak are shown, the largest first."""
ROOM_OF_SHARDINGS = 24
"""Columns that must be left for shardings where paths and types are not broken into lines."""
WIDTH_OF_FILES = 120
"""Width in columns where the output is no terminal."""


def summary(plan: Json, *, width: int = WIDTH_OF_FILES) -> str:
    """Everything `print_plan` shows, as plain text of at most `width` columns."""
    stream = io.StringIO()
    _show(plan, _console(stream, width))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def print_plan(plan: Json, sections: Sequence[str] = ()) -> None:
    """Print a plan (the data of plan.json) on standard output, as wide as the terminal.

    sections: of `SECTIONS`; everything, with headline and notes, where none is named.
    """
    _show(plan, stdout_console(), sections)


def print_run(losses: Sequence[float]) -> None:
    """Print the losses of train steps, at most ten of them, and by how much they fell."""
    every = max(1, -(-len(losses) // 10))
    shown = sorted({*range(0, len(losses), every), len(losses) - 1})
    print(f"train steps on simulated devices, as planned: {len(losses)}")
    print("  loss " + "  ".join(f"{k + 1}: {losses[k]:.4f}" for k in shown))
    if len(losses) > 1:
        print(f"  {'fell' if losses[-1] < losses[0] else 'did not fall'}: {losses[0]:.4f} -> {losses[-1]:.4f}")


def stdout_console() -> "Console":
    """Standard output, as wide as the terminal."""
    return _console(sys.stdout, None)


def _console(stream: TextIO, width: int | None) -> "Console":
    from rich.console import Console

    if width is None:
        width = shutil.get_terminal_size().columns if stream.isatty() else WIDTH_OF_FILES

    class Told(Console):
        def on_broken_pipe(self) -> None:  # rich would end the process with 1; the commands choose their exit code
            raise BrokenPipeError

    # highlight and markup off: shardings hold brackets
    return Told(file=stream, width=max(60, width), highlight=False, markup=False, emoji=False)


SECTIONS = ("inputs", "collectives", "step", "memory", "baselines", "meshes", "notes")
"""Parts of a plan that can be shown alone."""


def _show(plan: Json, console: "Console", sections: Sequence[str] = ()) -> None:
    if not sections:
        console.print(headline(plan))
    for section in sections or SECTIONS:
        parts = _section(plan, section, console.width)
        for part in parts:
            console.print(part)
        if sections and not parts:
            console.print(f"{section}: none")


def _section(plan: Json, section: str, width: int) -> "list[RenderableType]":
    match section:
        case "inputs":
            return [_inputs(plan, width)]
        case "collectives":
            return [_traffic(plan)]
        case "step":
            return _cost(plan)
        case "memory":
            return _memory(plan)
        case "baselines":
            return _baselines(plan)
        case "meshes":
            return _meshes(plan)
        case _:
            return [f"note: {note}" for note in plan.get("notes", ())]


def headline(plan: Json) -> str:
    """What was planned on what, and how good it is proven to be."""
    mesh = " x ".join(f"{axis}={size}" for axis, size in plan["mesh"]["axes"].items())
    first = f"{plan['program']['name']} on {plan['hardware']['name']}, mesh {mesh}"
    gap = plan.get("gap")
    proof = f"status {plan['status']}, step {seconds_text(plan['objective_s'])}"
    if plan.get("bound_s") is not None:
        stages = len(plan.get("stages", ()))
        of = f" of the last of {stages} stages" if stages > 1 else ""  # of earlier stages a cheaper one may be known
        proof += f", no plan{of} takes less than {seconds_text(plan['bound_s'])}"
    if gap is not None:
        proof += f", gap {gap:.2%}"
    return f"{first}\n{proof}"


def plain_table(title: str, columns: Sequence[tuple[str, str]]) -> "Table":
    """An empty table; columns are (name, "right" or "")."""
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, justify in columns:
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    return table


def _inputs(plan: Json, width: int) -> "Table":
    from rich.cells import cell_len

    columns = [("path", ""), ("arrays", "right"), ("type", ""), ("sharding", ""), ("per device", "right")]
    table = plain_table("inputs", columns)
    groups = input_groups(plan)
    rows = []
    for group in groups[:MOST_GROUPS]:
        kind = "/".join(group.dtypes) + "[" + ",".join(map(str, group.shape)) + "]"
        rows.append((group.label, str(group.count), kind, group.sharding, bytes_text(group.local_bytes)))
    rest = groups[MOST_GROUPS:]
    if rest:
        arrays, held = sum(g.count for g in rest), sum(g.local_bytes for g in rest)
        rows.append((f"and {len(rest)} more groups", str(arrays), "", "", bytes_text(held)))
    for row in rows:
        table.add_row(*row)
    # readers scan paths and types; where there is room, only shardings are broken into lines, at their commas
    names = [name for name, _ in columns]
    others = sum(
        max(cell_len(row[k]) for row in (names, *rows)) + 2 for k in range(len(columns)) if names[k] != "sharding"
    )
    for column in (table.columns[0], table.columns[2]):
        column.no_wrap = others + ROOM_OF_SHARDINGS <= width
    return table


def _traffic(plan: Json) -> "Table | str":
    rows = traffic(plan)
    if not rows:
        return "collectives: none"
    table = plain_table(
        "collectives per step",
        [("axes", ""), ("kind", ""), ("times", "right"), ("bytes per device", "right"), ("seconds", "right")],
    )
    for row in rows:
        table.add_row(row.axes, row.kind, count_text(row.count), bytes_text(row.bytes), seconds_text(row.seconds))
    return table


_TIMES = {"compute": "compute_s", "communication": "communication_s", "local copies": "local_copies_s"}
_BOUNDS = {
    "at least: all at once": "lower",
    "estimate": "estimate",
    "at most: one after the other": "upper",
    "likely: the estimate at the shares of the peak that training runs reach": "likely",
}
MOST_INTENSITIES = 12
"""How many groups of collectives are shown with their intensity; those that take longest come first."""


def _cost(plan: Json) -> "list[RenderableType]":
    from autoshard.costs.steptime import overlap_s

    cost = plan.get("cost", {})
    parts = {name: cost.get(key) for name, key in _TIMES.items()}
    shown = ", ".join(f"{name} {seconds_text(value)}" for name, value in parts.items() if value is not None)
    out: list[RenderableType] = [f"time: {shown}"] if shown else []
    step = cost.get("step_time")
    if step is None:
        return out
    table = plain_table("step", [("", ""), ("seconds", "right"), ("MFU", "right"), ("HFU", "right")])
    for name, key in _BOUNDS.items():
        table.add_row(name, seconds_text(step[f"{key}_s"]), f"{step['mfu'][key]:.1%}", f"{step['hfu'][key]:.1%}")
    busy = sorted(step["resources_s"].items(), key=lambda item: (-item[1], item[0]))
    words = ", ".join(f"{name} {seconds_text(value)}" for name, value in busy)
    compared = "plans, baselines and bounds are compared by what a step takes at most, in which nothing overlaps"
    if (plan.get("options") or {}).get("objective") == "overlap":
        compared = (
            "plans, baselines and bounds are compared by the seconds for which a device waits, or by those that its "
            "busiest link works where these are more"
        )
    if "waited_s" in step:
        overlap = overlap_s(step["waited_s"], step["resources_s"])
        both = f"serial {seconds_text(step['upper_s'])}, overlap {seconds_text(overlap)}"
        compared = f"{compared}\nobjectives: {both} (autoshard objectives: what the other one would choose)"
    return [*out, table, compared, f"busy: {words}", *_intensities(step["groups"])]


def _intensities(groups: Sequence[Json]) -> "list[RenderableType]":
    if not groups:
        return []
    table = plain_table(
        "arithmetic intensity of the collectives",
        [
            ("axes", ""), ("kind", ""), ("of", ""), ("seconds", "right"), ("FLOP/byte", "right"), ("machine", "right"),
            ("bound by", ""), ("compute bound", ""),
        ],
    )  # fmt: skip
    table.columns[1].no_wrap = True  # the last column has words to break between
    for group in groups[:MOST_INTENSITIES]:
        ratios = (f"{group['flops_per_byte']:.4g}", f"{group['machine_flops_per_byte']:.4g}")
        table.add_row(
            group["axes"], group["kind"], group["moves"], seconds_text(group["seconds"]), *ratios, group["verdict"],
            _flip_text(group["flip"]),
        )  # fmt: skip
    return [table]


def _flip_text(flip: Json | None) -> str:
    if flip is None:
        return ""
    side = "from" if flip["more_is_compute"] else "up to"
    if flip["at"] is None:
        return f"{side} {flip['factor']:.3g} times the {flip['quantity']}"
    quantity, _, axes = flip["quantity"].partition(" on ")
    return f"{side} {flip['at']:.4g} {'on ' + axes if axes else quantity}"


def _memory(plan: Json) -> "list[RenderableType]":
    memory = plan.get("memory")
    if not memory:
        return []
    stated = next((limit.bytes for limit in read_only(MemoryLimit, plan.get("statements", ()))), None)
    limit = plan.get("memory_limit") or {"bytes": stated, "from": "stated"}
    head = f"memory: {bytes_text(memory['peak_bytes'])} per device at the peak"
    head += f" of {bytes_text(limit['bytes'])} allowed" if limit["bytes"] is not None else ""
    head += f", {memory['where']}" if memory.get("where") else ""
    head += f"\nlimit: {_limit_text(limit)}"
    if "host_bytes" in memory:
        room = next((limit.bytes for limit in read_only(HostMemoryLimit, plan.get("statements", ()))), None)
        allowed = f" of {bytes_text(room)} allowed" if room is not None else ""
        head += f"\nin host memory: {bytes_text(memory['host_bytes'])} per device{allowed}"
    if "fits" in memory:
        head += "\n" + _fits(memory)
    if "order" in plan:
        head += "\n" + _order(plan["order"])
    if "apart" in plan:
        head += f"\nwritten before an update reads them, not fused with it: {len(plan['apart'])} (docs/lowering.md)"
    held = memory.get("held", [])
    if not held:
        return [head]
    table = plain_table("", [("held at the peak", ""), ("per device", "right")])
    for item in held[:MOST_HELD]:
        table.add_row(str(item["what"]), bytes_text(item["bytes"]))
    if len(held) > MOST_HELD:
        table.add_row(f"and {len(held) - MOST_HELD} more", bytes_text(sum(i["bytes"] for i in held[MOST_HELD:])))
    return [head, table]


def _limit_text(limit: Json) -> str:
    if limit["bytes"] is None:
        return "none"
    if limit["from"] == "device":
        return "the device's usable memory, less headroom (none is stated; memory_limit: none lifts it)"
    return f"stated, {limit['bytes']} bytes per device"


def _fits(memory: Json) -> str:
    """Whether the plan fits the device, in a sentence: with headroom for what compilers allocate beyond live arrays."""
    device, usable = memory["device_bytes"], memory["usable_bytes"]
    left = "" if usable == device else f", of which programs get {bytes_text(usable)}"
    allocated = f"{bytes_text(memory['allocation_bytes'])} with headroom, the device has {bytes_text(device)}{left}"
    if memory["fits"]:
        return f"fits: {allocated}"
    if memory["peak_bytes"] > usable:
        return f"does not fit: {allocated}"
    roomy = usable * memory["peak_bytes"] / memory["allocation_bytes"]
    return f"may not fit: {allocated}; a memory_limit of {bytes_text(roomy)} leaves it room"


def _order(order: Json) -> str:
    """What lowering keeps in order for the memory that is planned, in a sentence."""
    counts = (
        (len(order["again"]), "gathered again rather than kept"),
        (len(order["finished"]), "loops that wait for what comes before them"),
        (len(order["over"]), "outputs written over donated inputs"),
    )
    kept = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"kept in order: {kept}; else a compiler could hold {bytes_text(order['could_hold_bytes'])} (docs/memory.md)"


MOST_MESHES = 12
"""How many meshes of a search are shown; those with the quickest plans come first."""


def _meshes(plan: Json) -> "list[RenderableType]":
    search = plan.get("mesh_search")
    if search is None:
        return []
    table = plain_table(
        f"sizes of the mesh ({len(search['tried'])} ways to put {search['devices']} devices along "
        f"{', '.join(search['axes'])}; none takes less than {seconds_text(search['bound_s'])})",
        [("mesh", ""), ("step", "right"), ("at least", "right"), ("memory", "right"), ("", "")],
    )
    rows = sorted(search["tried"], key=lambda r: (r["objective_s"] is None, r["objective_s"] or 0.0))
    for row in rows[:MOST_MESHES]:
        cost, bound, peak = row["objective_s"], row["bound_s"], row["peak_bytes"]
        why = units_text(row["reason"].split("\n")[0])
        says = {"alike": f"as {row['reason']}", "cannot be": why, "none found": why, "out of time": "out of time"}
        table.add_row(
            _mesh_text(row["mesh"]), "" if cost is None else seconds_text(cost),
            "" if bound is None else seconds_text(bound), "" if peak is None else bytes_text(peak),
            says.get(row["status"], row["status"]),
        )  # fmt: skip
    if len(rows) > MOST_MESHES:
        table.add_row(f"and {len(rows) - MOST_MESHES} more", "", "", "", "")
    points = plain_table("step time against memory", [("mesh", ""), ("step", "right"), ("memory", "right")])
    for point in search["frontier"]:
        points.add_row(_mesh_text(point["mesh"]), seconds_text(point["objective_s"]), bytes_text(point["peak_bytes"]))
    return [table, points]


def _mesh_text(sizes: Json) -> str:
    return " x ".join(f"{axis}={size}" for axis, size in sizes.items())


def _baselines(plan: Json) -> "list[RenderableType]":
    rows = plan.get("baselines", ())
    if not rows:
        return []
    table = plain_table(
        "baselines", [("name", ""), ("step", "right"), ("of the plan", "right"), ("memory", "right"), ("", "")]
    )
    for row in rows:
        cost, peak = row["objective_s"], row.get("peak_bytes")
        times = "" if cost is None or not plan["objective_s"] else f"{cost / plan['objective_s']:.3g} x"
        table.add_row(
            row["name"],
            "no plan" if cost is None else seconds_text(cost),
            times,
            "" if peak is None else bytes_text(peak),
            units_text(row.get("reason") or ""),
        )
    return [table]
