"""Statements spread over the program by propagation: the placements on ops that stages start from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from autoshard.constraints import MatchedGroup, MatchedPin, Restriction
from autoshard.errors import ShardingError
from autoshard.formulation.fixed import Cut
from autoshard.program.program import Block, Op, Origin, Program, Value
from autoshard.program.rule import ShardingRule
from autoshard.propagation import Propagated, propagate
from autoshard.propagation.directions import Direction
from autoshard.sharding.axis_algebra import union
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

BARRIER = "propagation_barrier"
_OPEN_WAYS = {"both": Direction.NONE, "forward": Direction.BACKWARD, "backward": Direction.FORWARD}


def spread(
    program: Program,
    mesh: AtomMesh,
    pins: Sequence[MatchedPin],
    groups: Sequence[MatchedGroup] = (),
    restrictions: Sequence[Restriction] = (),
    strategy: str = "user-priority",
) -> Propagated:
    """Shardings of all values that propagation derives from the statements; barriers hold.

    groups: all of them, also those that the program makes.
    """
    values: dict[int, TensorSharding] = {}
    outputs: dict[int, TensorSharding] = {}
    for pin in pins:
        sharding = with_priorities(pin)
        for value in pin.values:
            values[value] = agreed(values[value], sharding, mesh.mesh) if value in values else sharding
        for slot in pin.outputs:
            outputs[slot] = agreed(outputs[slot], sharding, mesh.mesh) if slot in outputs else sharding
    for restriction in restrictions:
        for value, sharding in restriction.hints(program).items():
            values[value] = agreed(values[value], sharding, mesh.mesh) if value in values else sharding
    tied = [group.values for group in groups if len(group.values) > 1]
    for _ in tied:  # a sharding may have to pass through all groups, one per round
        for members in tied:
            stated = [values[v] for v in members if v in values]
            if stated:
                one = reduce(lambda a, b: agreed(a, b, mesh.mesh), stated)
                values.update(dict.fromkeys((v for v in members if v in values), one))
    barred = {value: way for r in restrictions for value, way in r.barriers.items()}
    whole = with_barriers(program, barred) if barred else program
    # what a constraint or a `shard_map` states of a value holds behind a reshard: members of a group may differ in it
    return propagate(
        whole, mesh.mesh, values, strategy=strategy, groups=tied, own_groups=False, apart=True, outputs=outputs
    )


def factor_cuts(propagated: Propagated, program: Program, mesh: AtomMesh) -> dict[int, Cut]:
    """Op -> the atoms on each factor that all tensors of the op agree on; only ops with any."""
    out: dict[int, Cut] = {}
    for op in program.ops:
        cuts = tuple(tuple(_atoms(mesh, axes)) for axes in propagated.factors.get(op, ()))
        if any(cuts):
            out[op] = cuts
    return out


def _atoms(mesh: AtomMesh, axes) -> list[int]:
    atoms: list[int] = []
    for axis in axes:
        try:
            atoms += [a for a in mesh.atoms_for(axis) if mesh.sizes[a] > 1]
        except ShardingError:  # a sub-axis finer than the atoms of this program
            break
    return atoms


def with_priorities(pin: MatchedPin) -> TensorSharding:
    """The sharding with the priority of the pin on every dimension that has none of its own."""
    dims = tuple(
        replace(d, priority=pin.priority) if pin.priority and d.priority is None and (d.axes or d.is_open) else d
        for d in pin.sharding.dims
    )
    return replace(pin.sharding, dims=dims)


def agreed(one: TensorSharding, other: TensorSharding, mesh: Mesh) -> TensorSharding:
    """The sharding that states what both shardings of one value state; they must not contradict each other."""

    def both(a: DimensionSharding, b: DimensionSharding) -> DimensionSharding:
        if a.is_open != b.is_open:
            return b if a.is_open else a
        return a if len(a.axes) >= len(b.axes) else b

    return replace(
        one,
        dims=tuple(both(a, b) for a, b in zip(one.dims, other.dims, strict=True)),
        replicated=union((*one.replicated, *other.replicated), mesh),
        unreduced=union((*one.unreduced, *other.unreduced), mesh),
    )


def with_barriers(program: Program, barred: Mapping[int, str]) -> Program:
    """The program with a barrier op behind each barred value, which lets shardings pass in the directions that are
    left.

    barred: value -> ``forward``, ``backward`` or ``both``. The program is for propagation only.
    """
    behind: dict[int, int] = {}
    values = list(program.values)
    next_op = max(program.ops, default=-1) + 1

    def block(old: Block) -> Block:
        nonlocal next_op
        ops: list[Op] = []

        def bar(defined: Collection[int]) -> None:
            nonlocal next_op
            for value in defined:
                if value in barred:
                    definition = program.values[value]
                    behind[value] = len(values)
                    values.append(Value(len(values), f"{definition.name}, barred", definition.type, Origin.OP))
                    attrs = {"allowed_direction": int(_OPEN_WAYS[barred[value]])}
                    rule = _identity(definition.type.shape)
                    ops.append(Op(next_op, BARRIER, (value,), (behind[value],), rule, attrs=attrs))
                    next_op += 1

        bar(old.args)
        for op in old.ops:
            operands = tuple(behind.get(v, v) for v in op.operands)
            ops.append(replace(op, operands=operands, regions=tuple(map(block, op.regions))))
            bar(op.results)
        return Block(old.args, tuple(ops), tuple(behind.get(v, v) for v in old.results))

    body = block(program.body)
    return replace(program, values=tuple(values), body=body)


def _identity(shape: Sequence[int]) -> ShardingRule:
    sizes = [n for n in shape if n > 1]
    dims: list[tuple[int, ...]] = []
    for n in shape:
        dims.append((sum(len(d) for d in dims),) if n > 1 else ())
    return ShardingRule(tuple(sizes), (tuple(dims),), (tuple(dims),))
