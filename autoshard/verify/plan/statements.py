"""Do the hard statements hold: pins on values and outputs, and the memory limit?"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from typing import Any

from autoshard.verify.plan.flow import Flow
from autoshard.verify.plan.kernels import check_all_kernels, check_kernel
from autoshard.verify.plan.layout import Atoms, Holding, Impossible
from autoshard.verify.plan.program import PROGRAM_OP, Findings
from autoshard.verify.plan.restrictions import KINDS, check_restriction, same_path

MANUAL_COMPUTATION = "manual_computation"
_LISTED = (
    *((kind, kind) for kind in ("replicated", "no_collective", "max_reshards")),
    ("barrier", "barriers"), (MANUAL_COMPUTATION, "manual_computations"),
    ("memory_kind", "memory_kinds"),
)  # fmt: skip
_BY_PATTERN = ("memory_kind",)
"""Kinds of which a config may have a mapping from patterns; a mapping of another kind is one statement."""
_DIM = r"\{[^{}]*\}(?:p\d+)?"
_PIN = re.compile(rf"^(?:<@[^,]+, *)?\[(?P<dims>(?:{_DIM}(?:, *{_DIM})*)?)\](?P<rest>(?:,? *\w+=\{{[^{{}}]*\}})*)>?$")
_AXIS = re.compile(r'"(?P<name>[^"]+)"(?::\((?P<before>\d+)\)(?P<size>\d+))?')


@dataclass(frozen=True, slots=True)
class Pin:
    """A sharding as stated: atoms of each dimension and whether it is open; atoms kept free; atoms unreduced over."""

    text: str
    dims: tuple[tuple[tuple[int, ...], bool], ...]
    replicated: frozenset[int]
    unreduced: frozenset[int]

    def broken_by(self, held: Holding, mesh: Atoms) -> str:
        """Why a layout does not satisfy the pin; empty where it does."""
        if len(held.runs) != len(self.dims):
            return f"it has {len(held.runs)} dimensions"
        for d, (run, (atoms, is_open)) in enumerate(zip(held.runs, self.dims, strict=True)):
            if run.atoms[: len(atoms)] != atoms:
                return f"dimension {d} is cut by {{{mesh.text(run.atoms)}}}"
            if not is_open and len(run.atoms) > len(atoms):
                return f"dimension {d} is closed, but cut further, by {{{mesh.text(run.atoms)}}}"
        if held.cutting & self.replicated:
            return f"it is cut by {{{mesh.text(sorted(held.cutting & self.replicated))}}}"
        if held.partial != self.unreduced:
            return f"it is unreduced over {{{mesh.text(sorted(held.partial))}}}"
        return ""


def read_pin(text: str, mesh: Atoms) -> Pin:
    """Parse ``[{"x"}, {"y", ?}] replicated={"z"}``; `Impossible` where it cannot be read or its axes are not atoms."""
    match = _PIN.match(text.strip())
    if match is None:
        raise Impossible(f"the sharding {text!r} cannot be read")

    def atoms(part: str) -> tuple[int, ...]:
        named_atoms: list[int] = []
        for m in _AXIS.finditer(part):
            named_atoms += mesh.of(m["name"], int(m["before"] or 1), None if m["size"] is None else int(m["size"]))
        return tuple(a for a in named_atoms if mesh.sizes[a] > 1)

    dims = tuple((atoms(d), "?" in _AXIS.sub("", d)) for d in re.findall(_DIM, match["dims"]))
    named = {key: frozenset(atoms(part)) for key, part in re.findall(r"(\w+)=\{([^{}]*)\}", match["rest"])}
    return Pin(text, dims, named.get("replicated", frozenset()), named.get("unreduced", frozenset()))


def pinned_outputs(plan: Any) -> dict[int, str]:
    """Output slots that pins speak of -> the sharding in text."""
    return {slot: s["sharding"] for s in plan["statements"] if s["kind"] == "pin" for slot in s["outputs"]}


def pinned_unevenly(plan: Any, flow: Flow) -> dict[int, set[int]]:
    """Value -> the dimensions of it that a pin, its own or of a value with the same sharding, cuts by axes that do not
    divide them.
    """
    uneven: dict[int, set[int]] = {}
    for statement in plan["statements"]:
        if statement["kind"] != "pin":
            continue
        try:
            pin = read_pin(statement["sharding"], flow.mesh)
        except Impossible:
            continue  # reported where statements are checked
        for v in statement["values"]:
            for d, (size, (atoms, _)) in enumerate(zip(flow.graph.values[v].shape, pin.dims, strict=True)):
                if size % flow.mesh.group(atoms):
                    uneven.setdefault(v, set()).add(d)
    groups = [s["values"] for s in plan["statements"] if s["kind"] == "same_sharding"]
    for _ in groups:  # a value may be in several
        for values in groups:
            stated = {d for v in values for d in uneven.get(v, ())}
            uneven |= {v: uneven.get(v, set()) | stated for v in values if stated}
    return uneven


def of_questions(plan: Any) -> dict[str, set[int]]:
    """Values and outputs that questions to a plan pinned: statements about them may have given way (docs/explain.md).

    Which of them did is derived again by the check of what was asked for.
    """
    pins = [pin for change in plan.get("changed") or () for pin in change["pins"]]
    return {key: {number for pin in pins for number in pin[key]} for key in ("values", "outputs")}


def limit_of(plan: Any) -> int | None:
    """Bytes that a device may hold: the stated limit, else the device's room if the plan was limited to that."""
    stated = next((s["bytes"] for s in plan["statements"] if s["kind"] == "memory_limit"), None)
    return (plan.get("memory_limit") or {}).get("bytes") if stated is None else stated


def check_statements(plan: Any, flow: Flow, peak_bytes: int, findings: Findings) -> int:
    """Check every statement against the derived layouts; returns how many there are."""
    asked = of_questions(plan)
    for statement in plan["statements"]:
        if statement["kind"] == "pin":
            _check_pin(statement, asked, flow, findings)
        elif statement["kind"] == "same_sharding":
            _check_group(statement, flow, findings)
        elif statement["kind"] in KINDS:
            check_restriction(statement, flow, findings)
        elif statement["kind"] == "manual":
            _check_manual(statement, flow, findings)
        elif statement["kind"] == "kernel":
            check_kernel(statement, flow, findings)
        elif statement["kind"] in (MANUAL_COMPUTATION, "memory_kind", "host_memory_limit", "memory_limit"):
            continue  # checked in manual.py and host.py, and below
        else:
            findings.add("statements", f"there is no statement of kind {statement['kind']!r}")
    limit = limit_of(plan)
    if limit is not None and peak_bytes > limit:
        findings.add("statements", f"memory limit {limit} bytes: a device holds {peak_bytes} at the peak")
    told = (plan.get("memory_limit") or {}).get("bytes")
    if told not in (None, limit):
        findings.add("statements", f"the plan is limited to {told} bytes, its statements say {limit}")
    check_all_kernels(plan, flow, findings)
    _check_config(plan, findings)
    return len(plan["statements"])


def _check_pin(statement: Any, asked: dict[str, set[int]], flow: Flow, findings: Findings) -> None:
    """Check that a pin holds and speaks of all that it addresses, but for what questions `asked` about."""
    graph, mesh = flow.graph, flow.mesh
    source = f"{statement['source']}: " if statement["source"] else ""
    what = f"{source}pin {statement['pattern']}: {statement['sharding']}"
    try:
        pin = read_pin(statement["sharding"], mesh)
    except Impossible as error:
        findings.add("statements", f"{what}: {error}")
        return
    values, outputs = statement["values"], statement["outputs"]
    if not values and not outputs:
        findings.add("statements", f"{what} speaks of nothing in the program")
    spoken_of = {*values, *(f"out {k}" for k in outputs), *asked["values"], *(f"out {k}" for k in asked["outputs"])}
    missing = _addressed(statement["pattern"], flow) - spoken_of
    for item in sorted(missing, key=str):
        name = graph.values[item].name if isinstance(item, int) else graph.output_names[int(item.split()[1])]
        findings.add("statements", f"{what} addresses {name}, which the statement leaves out")
    for v in values:
        held = flow.form(v)  # inputs are pinned as they come in, others in the form that their uses share
        if v in graph.body.args:
            held = flow.defined.get(v)
        if held is None:
            continue
        fault = pin.broken_by(held, mesh)
        if fault:
            findings.add("statements", f"{what} is broken: {graph.values[v].name} is {held.text(mesh)}: {fault}")
    for slot in outputs:
        way = flow.uses.get((PROGRAM_OP, slot, -1))
        if way is not None:
            fault = pin.broken_by(way.end, mesh)
            if fault:
                findings.add(
                    "statements",
                    f"{what} is broken: output {graph.output_names[slot]} is {way.end.text(mesh)}: {fault}",
                )


def _check_group(statement: Any, flow: Flow, findings: Findings) -> None:
    """All members must be alike: inputs as they come in, outputs as returned, others as their uses share them."""
    graph, mesh = flow.graph, flow.mesh
    source = f"{statement['source']}: " if statement["source"] else ""
    what = f"{source}same sharding: {', '.join(statement['patterns'])}"
    members: dict[int | str, Holding | None] = {}
    for v in statement["values"]:
        members[v] = flow.defined.get(v) if v in graph.body.args else flow.form(v)
    for slot in statement["outputs"]:
        way = flow.uses.get((PROGRAM_OP, slot, -1))
        members[f"out {slot}"] = None if way is None else way.end

    def name(item: int | str) -> str:
        return graph.values[item].name if isinstance(item, int) else graph.output_names[int(item.split()[1])]

    for pattern in statement["patterns"]:
        for item in sorted(_addressed(pattern, flow) - members.keys(), key=str):
            findings.add("statements", f"{what} addresses {name(item)}, which the statement leaves out")
    if len(members) < 2:
        findings.add("statements", f"{what} ties {len(members)} values, at least two are needed")
    told = {item: held.text(mesh) for item, held in members.items() if held is not None}
    for item in members.keys() - told.keys():
        findings.add("statements", f"{what}: {name(item)} has no layout in the plan")
    first = next(iter(told), None)
    for item, text in told.items():
        if first is not None and text != told[first]:
            findings.add("statements", f"{what} is broken: {name(first)} is {told[first]}, {name(item)} is {text}")


def _check_manual(statement: Any, flow: Flow, findings: Findings) -> None:
    """Check that operands and results of a region written for local arrays have the layouts that it states."""
    graph, mesh = flow.graph, flow.mesh
    node = graph.nodes.get(statement["op"])
    what = f"{statement['source']}: {statement['text']}"
    if node is None or not node.is_manual:
        findings.add("statements", f"{what} speaks of op {statement['op']}, which is no shard_map")
        return
    ends = [flow.uses.get((node.id, k, -1)) for k in range(len(node.operands))]
    held = [None if way is None else way.end for way in ends], [flow.defined.get(v) for v in node.results]
    for key, values, layouts in zip(
        ("in_shardings", "out_shardings"), (node.operands, node.results), held, strict=True
    ):
        if len(statement[key]) != len(values):
            findings.add("statements", f"{what} has {len(statement[key])} {key} for {len(values)} values")
            continue
        for text, v, at in zip(statement[key], values, layouts, strict=True):
            try:
                fault = "" if at is None else read_pin(text, mesh).broken_by(at, mesh)
            except Impossible as error:
                fault = str(error)
            if fault:
                findings.add("statements", f"{what} is broken: {graph.values[v].name} should be {text}: {fault}")


def _addressed(pattern: str, flow: Flow) -> set[int | str]:
    """What a path or tag pattern addresses for certain: ids of inputs and tagged values, outputs as ``out 3``."""
    graph = flow.graph
    if pattern.startswith("@"):
        return {v.id for v in graph.values for tag in v.tags if fnmatchcase(tag, pattern[1:])}
    if pattern == "out" or pattern.startswith("out/"):
        return {f"out {k}" for k, name in enumerate(graph.output_names) if same_path(pattern, name)}
    names = zip(graph.input_names, graph.body.args, strict=False)
    inputs: set[int | str] = {v for name, v in names if same_path(pattern, name)}
    return inputs


def _check_config(plan: Any, findings: Findings) -> None:
    """Check that all statements of the config that the plan came from are among the plan's."""
    settings = (plan["config"] or {}).get("settings", {})
    _check_pinned(plan, settings, findings)
    tied = [list(s["patterns"]) for s in plan["statements"] if s["kind"] == "same_sharding"]
    for patterns in settings.get("same_sharding") or ():
        if list(patterns) not in tied:
            findings.add("statements", f"the config ties {', '.join(patterns)}, the plan has no such statement")
    listed = [s for s in plan["statements"] if s["kind"] in (*KINDS, MANUAL_COMPUTATION, "memory_kind")]
    for kind, key in _LISTED:
        stated = settings.get(key)
        several = isinstance(stated, list) or (isinstance(stated, dict) and kind in _BY_PATTERN)
        wanted = len(stated) if several else 0 if stated is None else 1
        count = sum(1 for s in listed if s["kind"] == kind)
        if wanted > count:
            findings.add("statements", f"the config states {key} {wanted} times, the plan has {count} such statements")
    for axis in _exclusive_axes(settings.get("axis_only")):
        if not any(s["kind"] == "axis_only" and s["axes"] == [axis.strip().replace('"', "")] for s in listed):
            findings.add("statements", f"the config keeps axis {axis} for some values, the plan has no such statement")
    limit = settings.get("memory_limit")
    limit = limit.get("device") if isinstance(limit, dict) else limit
    if limit not in (None, "none") and not any(s["kind"] == "memory_limit" for s in plan["statements"]):
        findings.add(
            "statements", f"the config limits memory to {settings['memory_limit']}, the plan has no such statement"
        )


def _check_pinned(plan: Any, settings: Any, findings: Findings) -> None:
    """Check that every value that the config pins is pinned in the plan; pins may have given way to questions."""
    if any(of_questions(plan).values()):
        return
    asked = [s["pattern"] if isinstance(s, dict) else str(s) for s in _pins(settings.get("pins"))]
    patterns = [s["pattern"] for s in plan["statements"] if s["kind"] == "pin"]
    named = isinstance(settings.get("model"), str)  # an ONNX file: pins say the names of its values
    for pattern in asked:
        meant = (pattern, f"weights/{pattern}", f"inputs/{pattern}", "@" + escape(pattern)) if named else (pattern,)
        if not any(text in patterns for text in meant):
            findings.add("statements", f"the config pins {pattern}, the plan has no such statement")


def _pins(data: Any) -> list[Any]:
    if isinstance(data, dict):
        return [{"pattern": pattern} for pattern in data]
    return [item for item in data or () if not isinstance(item, dict) or "pattern" in item]


def _exclusive_axes(data: Any) -> list[str]:
    return list(data) if isinstance(data, dict) else [item["axis"] for item in data or ()]
