"""What is known of a program before its graph is built: uses of values, constants, and what constraints bind."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from autoshard.program.program import ALIKE, Op, Origin
from autoshard.propagation.op_classes import CONSTRAINTS, EDGES, is_constant, keeps_constant
from autoshard.propagation.spec import Dim, Spec

if TYPE_CHECKING:
    from autoshard.propagation.program.graph import Builder


def capture(b: "Builder") -> None:
    """Branches take values from outside as they are, and so do ops that do nothing but make a sharding group.

    An argument with a sharding of its own is tied instead.
    """
    for op, _ in b.program.walk():
        pairs = [p for r in op.regions for p in zip(r.args, op.operands[1:], strict=True)] if op.kind == "cond" else []
        if op.kind in CONSTRAINTS and ALIKE in op.attrs:
            pairs = zip(op.results, op.operands, strict=True)
        b.captured.update((inner, value) for inner, value in pairs if inner not in b.specs)


def count_uses(b: "Builder", groups: Sequence[Sequence[int]]) -> None:
    """How often each value is used in the form that a compiler gets; to be in a sharding group is a use."""

    def count(values: Iterable[int]) -> None:
        for value in map(b.meant, values) if b.captured else values:
            b.uses[value] = b.uses.get(value, 0) + 1

    for op, _ in b.program.walk():
        if not b.is_captured(op):
            count(op.operands[:1] if op.kind == "cond" else op.operands)  # branches take the rest in their bodies
        for region in op.regions:
            count(region.results)
        if op.kind == "while":  # the body hands constants back, as it does what it changes
            count(b.handed_back.get(arg, arg) for arg in op.regions[1].args[: op.attrs["body_nconsts"]])
    count(b.program.body.results)
    for members in groups:
        count(members)


def apply_constraints(b: "Builder") -> None:
    """Give values the closed shardings of their constraints.

    A fully closed constraint on a value without sharding becomes the value's own, unless another constraint
    disagrees (S4.4 to S4.6).
    """
    wanted: dict[int, list[Spec | None]] = {}
    constraints: dict[int, Op] = {}
    binding: dict[int, Op] = {}
    for op, _ in b.program.walk():
        _note_constant(b, op)
        if op.kind in CONSTRAINTS and op.results and op.results[0] in b.specs:
            value = b.meant(op.operands[0])
            if value in b.constants or value in b.expansions:
                _bind_copy(b, op)
                continue
            wanted.setdefault(value, []).append(b.specs[op.results[0]])
            constraints.setdefault(value, op)
            binding.setdefault(value, op)
        elif op.kind == "shard_map":
            for value, names in zip(map(b.meant, op.operands), op.attrs["in_names"], strict=True):
                wanted.setdefault(value, []).append(_named_spec(b, names))
                binding.setdefault(value, op)
            for value, names in zip(op.results, op.attrs["out_names"], strict=True):
                spec = _named_spec(b, names)
                if spec is not None and value not in b.specs:
                    b.specs[value] = spec
                    b.bound[value] = op
    targets = _edge_targets(b)
    for value, specs in wanted.items():
        first = specs[0]
        if first is None or value in b.specs or any(s != first for s in specs):
            continue
        if any(d.is_open for d in first.dims):
            continue
        if value not in targets:
            b.specs[value] = first
            b.bound[value] = binding[value]
        elif value in constraints:
            _redirect(b, value, constraints[value])


def _bind_copy(b: "Builder", constraint: Op) -> None:
    """A constraint on a constant binds the copy that it uses, and no other."""
    spec = b.specs[constraint.results[0]]
    if not any(d.is_open for d in spec.dims):
        b.bound_copies[constraint.id] = spec


def _edge_targets(b: "Builder") -> set[int]:
    """Values behind a data-flow edge: a statement on one would bind all that the edge ties together."""
    values: set[int] = set()
    for op, _ in b.program.walk():
        if op.regions or op.kind in EDGES:
            values.update(op.results)
            if op.kind != "shard_map":
                values.update(a for r in op.regions for a in r.args if a not in b.captured)
    return values


def _redirect(b: "Builder", value: int, constraint: Op) -> None:
    """All other uses of `value` take it from behind the constraint."""
    b.redirected[value] = constraint
    others = b.uses[value] - 1
    b.uses[value] = 1
    b.uses[constraint.results[0]] = b.uses.get(constraint.results[0], 0) + others


def _named_spec(b: "Builder", names: Sequence[Sequence[str]]) -> Spec | None:
    mesh = b.graph.meshes[0]
    if not all(n in mesh.axis_names for dim in names for n in dim):
        return None
    dims = tuple(
        Dim(tuple((mesh.axis_names.index(n), 1, mesh.axis_size(n)) for n in dim if mesh.axis_size(n) > 1), False)
        for dim in names
    )
    return Spec(0, dims)


def _note_constant(b: "Builder", op: Op) -> None:
    """Note an op that is (part of) a constant, to be copied for each use."""
    if op.regions or not op.results or any(b.program.type_of(r).rank == 0 for r in op.results):
        return

    def fixed(value: int) -> bool:
        value = b.meant(value)
        return value in b.constants or b.program.values[value].origin is Origin.LITERAL

    if is_constant(op) or (op.operands and keeps_constant(op) and all(fixed(v) for v in op.operands)):
        b.constants.update((r, op) for r in op.results)
    elif op.kind.endswith("broadcast_in_dim") and b.program.type_of(op.operands[0]).rank == 0:
        b.expansions.update((r, op) for r in op.results)
