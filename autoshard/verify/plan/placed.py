"""What a placement of an op wants of its operands and gives as results, worked out from the op's rule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from autoshard.verify.plan.cutouts import Cutout, cut_alone, cut_both, permutes
from autoshard.verify.plan.layout import Atoms, Holding, Impossible, combine, cut
from autoshard.verify.plan.program import Graph, Node, Tensor
from autoshard.verify.plan.rules import PADDED, Factors, Rule


@dataclass(frozen=True, slots=True)
class Edge:
    """Elements of an operand's dimension that every device sends to the next one of its group (shift 1), or back.

    With shift 0 these are elements of a cutout, sent from device to device as in `pairs`, in mesh order.
    """

    operand: int
    dim: int
    atoms: tuple[int, ...]
    width: int
    shift: int
    before: tuple[tuple[int, int], ...]  # (dimension, elements) that the op has added to the block by then
    pairs: tuple[tuple[int, int], ...] = ()

    def share(self, held: Holding) -> float:
        """The share of the operand's block that is sent."""
        part = self.width / held.runs[self.dim].length
        for dim, more in self.before:
            part *= 1 + more / held.runs[dim].length
        return part


@dataclass(frozen=True, slots=True)
class Placed:
    """What a placement means: the number of parts of each factor, what each operand must be and each result is held as.

    combined: atoms over which each result is all-reduced (max, min) inside the op. edges: what neighbours exchange.
    """

    rule: Rule
    parts: tuple[int, ...]
    operands: tuple[Holding, ...]
    results: tuple[Holding, ...]
    combined: tuple[int, ...]
    edges: tuple[Edge, ...] = ()


def place(op: Node, rule: Rule, placement: Any, graph: Graph, mesh: Atoms) -> Placed:
    """What a placement of plan.json means; `Impossible` where the op cannot be placed so."""
    factors, passes, zeros = placement["factors"], placement["passes"], placement["zeros"]
    _refuse_atoms(rule, factors, passes, zeros, mesh)
    both = cut_both(rule.cutouts, factors, mesh)
    alone, filled = cut_alone(rule.cutouts, factors, mesh)
    edges = [*_edges(rule, factors, mesh), *_moved(rule, both, factors, mesh)]
    tied = {f for c in both for f in (c.taken, c.made)}
    with_edges = {h[2] for h in rule.halos} | tied | alone
    for f, atoms in enumerate(factors):
        if atoms and f in rule.uncut and f not in with_edges:
            raise Impossible(f"it cuts factor {f} by {mesh.text(atoms)}, which must be whole")
        if not cut(rule.sizes[f], atoms, mesh, f"factor {f}").is_even(mesh) and not (
            op.kind in PADDED or f in tied or f in alone
        ):
            raise Impossible(
                f"it cuts factor {f} of size {rule.sizes[f]} in {mesh.group(atoms)} parts by {mesh.text(atoms)}, "
                f"which does not divide it, and {op.kind} does not run on padded blocks"
            )
    if zeros and not op.attrs.get("zero"):
        raise Impossible(f"it takes a result for zeros over {mesh.text(zeros)}, which it is not known to be")
    reduced = sorted(a for f in rule.reduction | filled for a in factors[f])
    summed = {a for a, _ in passes} | set(zeros) | (set(reduced) if rule.combiner == "add" else set())
    for v in op.results:
        if summed and not graph.values[v].is_summable:
            raise Impossible(f"result {graph.values[v]} would be a partial sum, a type without addition")

    def held(dims: Factors, value: Tensor, partial: set[int], what: str) -> Holding:
        runs = tuple(
            combine([(rule.sizes[f], factors[f]) for f in d], mesh, f"dimension {k} of {what} {value.name}")
            for k, d in enumerate(dims)
        )
        return Holding(runs, frozenset(a for a in partial if mesh.sizes[a] > 1))

    operands = []
    for k, dims in enumerate(rule.operands):
        partial = {a for a, which in passes if k in rule.linear[which]}
        if k in rule.accumulators:
            partial |= set(reduced)
        operands.append(held(dims, graph.values[op.operands[k]], partial, f"operand {k}"))
    results = [held(d, graph.values[op.results[k]], summed, f"result {k}") for k, d in enumerate(rule.results)]
    combined = () if rule.combiner == "add" else tuple(reduced)
    return Placed(rule, tuple(mesh.group(f) for f in factors), tuple(operands), tuple(results), combined, tuple(edges))


def _refuse_atoms(rule: Rule, factors: Any, passes: Any, zeros: Any, mesh: Atoms) -> None:
    """Raise `Impossible` for atoms that the mesh has not, that do two things, or that pass where no sum passes."""
    if len(factors) != len(rule.sizes):
        raise Impossible(f"it places {len(factors)} factors, the rule has {len(rule.sizes)}")
    both = cut_both(rule.cutouts, factors, mesh)
    first: dict[int, int] = {c.made: c.taken for c in reversed(both)}
    again = {f for c in both for f in (c.made, c.taken) if f not in first.values()}  # cut by the axes of another factor
    busy = [*(a for k, f in enumerate(factors) if k not in again for a in f), *(a for a, _ in passes), *zeros]
    for a in busy:
        if isinstance(a, bool) or not isinstance(a, int) or not 0 <= a < len(mesh.sizes):
            raise Impossible(f"it names atom {a!r}; the mesh has atoms 0 to {len(mesh.sizes) - 1}")
    twice = sorted({a for a in busy if busy.count(a) > 1})
    if twice:
        raise Impossible(f"it uses {mesh.text(twice)} twice; an axis does one thing in an op")
    for a, which in passes:
        if not 0 <= which < len(rule.linear):
            raise Impossible(f"a partial sum over {mesh.text([a])} passes an op that is not linear that way")


def _edges(rule: Rule, factors: Any, mesh: Atoms) -> list[Edge]:
    """What neighbours exchange along cut factors with a sliding window; `Impossible` where blocks are too small."""
    edges: list[Edge] = []
    added: list[tuple[int, int]] = []
    for operand, dim, f, low, high in rule.halos:
        parts = mesh.group(factors[f])
        if parts > 1 and (rule.sizes[f] % parts or rule.sizes[f] // parts < max(low, high)):
            raise Impossible(
                f"it cuts factor {f} of size {rule.sizes[f]} in {parts} parts, whose neighbours need {low} and {high} "
                "elements of an even block"
            )
        if factors[f]:
            sides = ((low, 1), (high, -1))
            earlier, atoms = tuple(added), tuple(factors[f])
            edges += [Edge(operand, dim, atoms, width, shift, earlier) for width, shift in sides if width]
            added.append((dim, low + high))
    return edges


def _moved(rule: Rule, both: Sequence[Cutout], factors: Any, mesh: Atoms) -> Iterator[Edge]:
    """The elements of cutouts that change devices. A slice has taken what it leaves whole, a pad has not added it,
    but for dimensions before that it cuts.
    """

    def on_device(factor: int) -> int:
        return cut(rule.sizes[factor], factors[factor], mesh).length if factor >= 0 else 1

    for c in both:
        others = [o for o in rule.cutouts if o.result == c.result and o.dim != c.dim]
        turns = [*both, *(o for o in others if o.grows and o.made >= 0 and mesh.group(factors[o.made]) > 1)]
        before = [o for o in others if (o.dim < c.dim if o in turns else not o.grows)]
        changed = [(o.dim, on_device(o.made) - on_device(o.taken)) for o in before]
        run = {o.dim for o in rule.cutouts if o.result == c.result}
        for dim, (taken, made) in enumerate(zip(rule.operands[c.operand], rule.results[c.result], strict=True)):
            if not c.grows and dim not in run and list(taken) != list(made):  # taken with a step
                changed.append((dim, prod(map(on_device, made)) - prod(map(on_device, taken))))
        atoms = tuple(a for a in factors[c.taken] if mesh.sizes[a] > 1)
        if c.wraps and rule.sizes[c.taken] % mesh.group(atoms):
            raise Impossible(f"it cuts dimension {c.dim} of {rule.sizes[c.taken]} elements unevenly and rolls it")
        for pairs, count in permutes(rule.sizes, c, atoms, mesh) if atoms else ():
            yield Edge(c.operand, c.dim, atoms, count, 0, tuple(changed), pairs)


def uncut(rule: Rule) -> Placed:
    """The placement that cuts nothing, for ops inside of a user's shard_map, which have no layouts."""
    return Placed(rule, (1,) * len(rule.sizes), (), (), ())


def literal_partial(op: Node, placed: Placed, graph: Graph) -> Sequence[int]:
    """Slots of operands that the placement wants as partial sums although they are literals."""
    return [k for k, v in enumerate(op.operands) if graph.values[v].is_literal and placed.operands[k].partial]
