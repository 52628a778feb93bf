"""Do restrictions hold: replicated values, axes kept for some values, no collectives in a part, few reshards?

What a pattern addresses is worked out here again, from the names, tags, sources and kinds in plan.json.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from autoshard.verify.plan.flow import COLLECTIVES, Flow, UseKey, Way
from autoshard.verify.plan.layout import Atoms, Holding, Impossible
from autoshard.verify.plan.program import PROGRAM_OP, Findings, Node

KINDS = ("replicated", "axis_only", "no_collective", "max_reshards", "barrier")
_LINE = re.compile(r"^(?P<file>[^@]*[^/@:]):(?P<line>\d+)(?:-(?P<last>\d+))?(?:/(?P<kind>[^/]+))?$")
_PART = re.compile(r"^\((\d+)\)(\d+)$")
_SOURCE = re.compile(r"^(?P<file>.*?):(?P<line>\d+)\b")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the program: values, output slots, and ops with all ops inside of them. whole: the whole program."""

    values: frozenset[int]
    slots: frozenset[int]
    ops: frozenset[int]
    whole: bool = False

    def has(self, value: int, serves: Sequence[UseKey]) -> bool:
        """Whether a reshard belongs to the part: by its value, or by one of the uses that it serves."""
        if self.whole or value in self.values:
            return True
        return any(use[1] in self.slots if use[0] == PROGRAM_OP else use[0] in self.ops for use in serves)


def part_of(patterns: Sequence[str], flow: Flow) -> Part:
    """The part of the program that patterns address."""
    graph = flow.graph
    values: set[int] = set()
    slots: set[int] = set()
    ops: set[int] = set()
    names = list(zip(graph.input_names, graph.body.args, strict=False))
    for pattern in map(str.strip, patterns):
        if pattern.startswith("@"):
            values |= {v.id for v in graph.values for tag in v.tags if fnmatchcase(tag, pattern[1:])}
            continue
        if pattern == "out" or pattern.startswith("out/"):
            slots |= {k for k, name in enumerate(graph.output_names) if same_path(pattern, name)}
            continue
        inputs = {v for name, v in names if same_path(pattern, name)}
        inputs |= {
            v for v in graph.body.args[len(names) :] if same_path(pattern, graph.values[v].name)
        }  # named constants
        if inputs:
            values |= inputs
            continue
        if pattern.startswith("scope:"):
            addressed_ops = [op for op in graph.nodes.values() if _is_within(op.source, pattern.removeprefix("scope:"))]
        else:
            line = _LINE.match(pattern)
            addressed_ops = [op for op in graph.nodes.values() if _is_at(op, line, pattern)]
        values |= {v for op in addressed_ops for v in op.results}
        ops |= {i for op in addressed_ops for i in _inner(op)}
    return Part(frozenset(values), frozenset(slots), frozenset(ops))


def _is_at(op: Node, line: "re.Match[str] | None", pattern: str) -> bool:
    if line is None:
        return "/" not in pattern and pattern not in ("*", "**") and fnmatchcase(op.kind, pattern)
    source = _SOURCE.match(op.source)
    if source is None or not int(line["line"]) <= int(source["line"]) <= int(line["last"] or line["line"]):
        return False
    named = [step for step in line["file"].split("/") if step not in ("", ".", "..")]
    held = [step for step in source["file"].split("/") if step]
    common = min(len(named), len(held))  # either may be written with more folders
    same = named[-common:] == held[-common:]
    return same and (line["kind"] is None or fnmatchcase(op.kind, line["kind"]))


def _is_within(source: str, wanted: str) -> bool:
    """Whether an op was traced in a scope; ``transpose(name)`` means its backward pass, ``name`` everything else."""
    stack = source[source.rindex("[") + 1 : -1] if source.endswith("]") and "[" in source else ""
    backward = "transpose(" in stack
    name = wanted
    if wanted.startswith("transpose(") and wanted.endswith(")"):
        if not backward:
            return False
        name = wanted[len("transpose(") : -1]
    elif backward:
        return False
    steps = re.sub(r"\w+\(|\)", "/", stack).split("/")  # jvp(a/b)/c is a, b and c
    return any(fnmatchcase(step, name) for step in steps if step)


def _inner(op: Node) -> Iterator[int]:
    yield op.id
    for body in op.inner:
        for inner in body.ops:
            yield from _inner(inner)


def same_path(pattern: str, path: str) -> bool:
    """Whether a glob over the steps of a path matches; ``**`` stands for any number of steps."""

    def match(p: Sequence[str], s: Sequence[str]) -> bool:
        if not p:
            return not s
        if p[0] == "**":
            return any(match(p[1:], s[k:]) for k in range(len(s) + 1))
        return bool(s) and fnmatchcase(s[0], p[0]) and match(p[1:], s[1:])

    return pattern == path or match(pattern.split("/"), path.split("/"))


def check_restriction(statement: Any, flow: Flow, findings: Findings) -> None:
    """Check one statement of the `KINDS` against the derived layouts."""
    kind, patterns = statement["kind"], statement["patterns"]
    what = (f"{statement['source']}: " if statement["source"] else "") + statement["text"]
    whole = list(patterns) == ["**"] and kind in ("no_collective", "max_reshards")
    part = Part(frozenset(), frozenset(), frozenset(), True) if whole else part_of(patterns, flow)
    if not whole and not (part.values or part.slots):
        findings.add("statements", f"{what} speaks of nothing in the program")
        return
    told = (list(statement["values"]), list(statement["outputs"]))
    if told != (sorted(part.values), sorted(part.slots)):
        findings.add("statements", f"{what} addresses other values than the statement lists")
    try:
        atoms = frozenset(a for axis in statement["axes"] for a in named_atoms(axis, flow.mesh))  # none of size 1
    except Impossible as error:
        findings.add("statements", f"{what}: {error}")
        return
    all_atoms = frozenset(range(len(flow.mesh.sizes)))
    if kind == "replicated":
        _replicated(what, part, atoms if statement["axes"] else all_atoms, flow, findings)
    elif kind == "axis_only":
        _exclusive(what, part, atoms, flow, findings)
    elif kind == "no_collective":
        _no_collective(what, part, atoms, flow, findings)
    elif kind == "max_reshards":
        count = sum(1 for _ in _reshards(part, atoms if statement["axes"] else None, flow))
        if count > statement["limit"]:
            findings.add("statements", f"{what} is broken: the plan has {count}")


def named_atoms(axis: str, mesh: Atoms) -> tuple[int, ...]:
    """Atoms of an axis, ``x``, or of a part of one, ``x:(1)2``; `Impossible` where the mesh has none such."""
    name, _, part = axis.partition(":")
    sizes = _PART.match(part)
    if not part:
        return mesh.of(axis)
    if sizes is None or int(sizes[2]) < 2:
        raise Impossible(f"{axis!r} names no part of an axis")
    return mesh.of(name, int(sizes[1]), int(sizes[2]))


def _replicated(what: str, part: Part, atoms: Collection[int], flow: Flow, findings: Findings) -> None:
    inputs = set(flow.graph.body.args)
    held = {flow.name(v): flow.defined.get(v) if v in inputs else flow.form(v) for v in sorted(part.values)}
    for slot in sorted(part.slots):
        way = flow.uses.get((PROGRAM_OP, slot, -1))
        held[flow.graph.output_names[slot]] = None if way is None else way.end
    for name, at in held.items():
        if at is not None and (at.cutting & set(atoms) or at.partial):
            findings.add("statements", f"{what} is broken: {name} is {at.text(flow.mesh)}")


def _exclusive(what: str, part: Part, atoms: frozenset[int], flow: Flow, findings: Findings) -> None:
    named = set(part.values)
    for op in flow.graph.nodes.values():
        for region, body in enumerate(op.inner):
            for k, arg in enumerate(body.args):
                if op.operands[_operand_of(op, region, k)] in named:
                    named.add(arg)
    slots = {*part.slots, *(slot for slot, value in flow.ties.items() if value in named)}

    def at(name: str, where: str, held: Holding) -> None:
        if _touches(held, atoms):
            findings.add("statements", f"{what} is broken: {name} is {held.text(flow.mesh)} {where}")

    for value, held in flow.defined.items():
        if value not in named:
            at(flow.name(value), "where it is defined", held)

    def on_way(name: str, where: str, way: Way) -> None:
        at(name, where, way.end)
        for move in way.moves:
            if atoms.intersection(move.atoms):
                over = flow.mesh.text(move.atoms)
                findings.add("statements", f"{what} is broken: {move.kind} over {{{over}}} of {name} {where}")

    for value, way in flow.shared.items():
        if value not in named:
            on_way(flow.name(value), "in the form that its uses share", way)
    for use, way in flow.uses.items():
        if way.value not in named and not (use[0] == PROGRAM_OP and use[1] in slots):
            on_way(flow.name(way.value), f"for {flow.use_name(use)}", way)


def _operand_of(op: Node, region: int, arg: int) -> int:
    """The slot of the operand that an argument of a region stands for."""
    if op.kind == "cond":
        return arg + 1
    if op.kind == "while":
        tests, bodies = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        if region == 1:
            return arg + tests
        return arg if arg < tests else arg + bodies
    return arg


def _touches(held: Holding, atoms: frozenset[int]) -> bool:
    return bool((held.cutting | held.partial) & atoms)


def _ways(flow: Flow) -> Iterator[tuple[str, Sequence[UseKey], Way]]:
    """Each way of a value in words, with the uses that it serves: that to a shared form serves all of the value."""
    for value, way in flow.shared.items():
        serves = [use for use, other in flow.uses.items() if other.value == value]
        yield f"the shared form of {flow.name(value)}", serves, way
    for use, way in flow.uses.items():
        yield f"{flow.name(way.value)} for {flow.use_name(use)}", (use,), way


def _no_collective(what: str, part: Part, atoms: frozenset[int], flow: Flow, findings: Findings) -> None:
    mesh: Atoms = flow.mesh
    for name, serves, way in _ways(flow):
        if not part.has(way.value, serves):
            continue
        for move in way.moves:
            if move.kind in COLLECTIVES and any(a in atoms and mesh.sizes[a] > 1 for a in move.atoms):
                findings.add("statements", f"{what} is broken: {move.kind} over {{{mesh.text(move.atoms)}}} of {name}")
    for op, placed in flow.placed.items():
        if (part.whole or op in part.ops) and atoms.intersection(placed.combined):
            findings.add("statements", f"{what} is broken: {flow.graph.nodes[op].label} combines its results over it")
        if (part.whole or op in part.ops) and any(atoms.intersection(edge.atoms) for edge in placed.edges):
            findings.add("statements", f"{what} is broken: {flow.graph.nodes[op].label} exchanges edges over it")
    for node in flow.graph.nodes.values():
        for inner in _in_code(node) if node.is_manual and (part.whole or node.id in part.ops) else ():
            if atoms.intersection(a for axis in inner.attrs["axes"] for a in mesh.of(axis)):
                findings.add("statements", f"{what} is broken: {inner.label} of the program's own {node.label}")


def _in_code(op: Node) -> Iterator[Node]:
    """The collectives that the user wrote into a shard_map."""
    for body in op.regions:
        for inner in body.ops:
            if "collective" in inner.attrs:
                yield inner
            yield from _in_code(inner)


def _reshards(part: Part, atoms: frozenset[int] | None, flow: Flow) -> Iterator[str]:
    """The reshards in a part of the program; where `atoms` are given only those that move over one of them."""
    for name, serves, way in _ways(flow):
        if part.has(way.value, serves) and way.moves:
            if atoms is None or any(a in atoms for move in way.moves for a in move.atoms):
                yield name
