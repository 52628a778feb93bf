"""The collectives a schedule stands for, as the lowered program will execute them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from autoshard.lowering.blocks import operand_shape
from autoshard.lowering.walk import Run, Share, Take, events
from autoshard.program.program import Block, Op, OtherOrder, Program
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.program.types import TensorType, dtype_bytes
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Reshard, Step, StepKind

_IN_ORDER = {"float16": "int16", "bfloat16": "int16", "float32": "int32", "float64": "int64"}


def sent_as(dtype: str, platform: str | None) -> str:
    """The element type in which maxima and minima of a type are sent: integers in the same order, so that NaN is not
    lost.

    Not to TPUs, whose collectives keep it; nor on GPUs numbers of two bytes, which XLA would send as four.
    """
    word = _IN_ORDER.get(dtype, dtype)
    if platform == "tpu" or (word == "int16" and platform in ("gpu", "cuda", "rocm")):
        return dtype
    return word


@dataclass(frozen=True, slots=True)
class Loop:
    """A region around a collective: the op, which of its regions, and how often it runs (None: not known)."""

    op: int
    kind: str
    region: int
    trips: int | None


@dataclass(frozen=True, slots=True)
class PlannedCollective:
    """One collective operation.

    where: for people: ``dot_general (model.py:12): operand 1``.
    kind: ``all_gather``, ``all_reduce``, ``reduce_scatter``, ``all_to_all`` or ``permute``.
    atoms: the group, major to minor. from_atoms: for a permute the order before.
    group_size: number of devices in one group.
    elements: of the array that one device gives to the collective, padding included.
    dtype: by name; random keys move as their words (uint32), maxima and minima as integers (`sent_as`).
    combiner: of reductions, ``add``, ``max`` or ``min``; else "".
    shift: of a permute that exchanges edges, 1 where every device sends to the next of its group, -1 to the one before.
    pairs: of a permute of a cutout or in the user's own `shard_map`, numbers of senders and receivers in a group, in
        mesh order.
    value: id of the tensor. use: where it goes; None for a shared form or a reduction inside an op (`op`).
    loops: regions around the collective, outermost first.
    """

    where: str
    kind: str
    atoms: tuple[int, ...]
    group_size: int
    elements: int
    dtype: str
    value: int
    use: Use | None = None
    op: int | None = None
    loops: tuple[Loop, ...] = ()
    combiner: str = ""
    from_atoms: tuple[int, ...] = ()
    shift: int = 0
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def local_bytes(self) -> float:
        """Bytes of the array that one device gives to the collective."""
        return self.elements * dtype_bytes(self.dtype)

    @property
    def times(self) -> int | None:
        """How often the collective runs in one call; None inside a loop of unknown length. Branches count as taken."""
        trips = [loop.trips for loop in self.loops]
        return None if None in trips else prod(t for t in trips if t is not None)


def planned_collectives(program: Program, schedule: Schedule) -> list[PlannedCollective]:
    """Every collective of the program under the schedule, in execution order; those of regions where the regions
    stand.
    """
    comes_in = (c for o in program.orders if o.where == "input" for c in order_permute(program, schedule, o))
    leaves = (c for o in program.orders if o.where == "output" for c in order_permute(program, schedule, o))
    return [*comes_in, *_block(program, schedule, program.body, (PROGRAM, -1), ()), *leaves]


def other_order(program: Program, value: int) -> OtherOrder | None:
    """The order of devices that a value inside of the program is brought to and back from; None where none is
    stated.
    """
    return next((o for o in program.orders if o.where == "value" and o.index == value), None)


def order_permute(
    program: Program, schedule: Schedule, order: OtherOrder, loops: tuple[Loop, ...] = ()
) -> Iterator[PlannedCollective]:
    """The permutes of a value in another order of the devices: one at the boundary, two (there and back) inside."""
    value = order.index
    if order.where == "input":
        value = program.body.args[order.index]
        if not any(value in op.operands for op in program.body.ops) and value not in program.body.results:
            return  # no op reads the value
        layout, name = schedule.definitions[value], program.values[value].name
    elif order.where == "output":
        value, name = program.body.results[order.index], f"output {program.output_names[order.index]}"
        layout = schedule.uses[Use(PROGRAM, order.index)].target
    else:
        layout, name = schedule.form_before_use(value), program.values[value].name
    tensor, atoms = program.type_of(value), tuple(range(len(schedule.mesh.sizes)))
    elements, dtype = _sent(prod(layout.local_shape(tensor.shape, schedule.mesh)), tensor.dtype)
    there = tuple(enumerate(order.moves))
    back = tuple(sorted((target, source) for source, target in there))
    for way, pairs in {"input": (("from", back),), "output": (("to", there),)}.get(
        order.where, (("to", there), ("from", back))
    ):
        yield PlannedCollective(
            where=f"{name} {way} its order of devices",
            kind=StepKind.PERMUTE.value,
            atoms=atoms,
            group_size=schedule.mesh.size(atoms),
            elements=elements,
            dtype=dtype,
            value=value,
            loops=loops,
            pairs=pairs,
        )


def trips(op: Op, region: int) -> int | None:
    """How often a region runs for each execution of its op; None where that is not known."""
    if op.kind == "scan":
        return int(op.attrs["length"])
    if op.kind == "while":
        known = op.attrs.get("trips")
        return None if known is None else int(known) + (1 if region == 0 else 0)
    return 1


def _block(
    program: Program, schedule: Schedule, block: Block, owner: tuple[int, int], loops: tuple[Loop, ...]
) -> Iterator[PlannedCollective]:
    for event in events(block, schedule, owner):
        match event:
            case Share(value, reshard):
                where = f"{program.values[value].name}: shared form"
                yield from _steps(program, schedule.mesh, value, reshard, where, None, loops)
                yield from _there_and_back(program, schedule, (value,), loops)
            case Take(value, use, reshard) if reshard is not None:
                where = f"{program.values[value].name} -> {_consumer(program, use)}"
                yield from _steps(program, schedule.mesh, value, reshard, where, use, loops)
            case Run(op):
                if op.rule is not None:
                    yield from _exchanges(program, schedule, op, loops)
                    atoms = schedule.placements[op.id].combine_atoms(op.rule)
                    if atoms:
                        for value in op.results:
                            tensor = program.type_of(value)
                            local = schedule.definitions[value].local_shape(tensor.shape, schedule.mesh)
                            yield PlannedCollective(
                                where=f"{_op_text(op)}: {op.rule.combiner} of its partial results",
                                kind=StepKind.ALL_REDUCE.value,
                                atoms=atoms,
                                group_size=schedule.mesh.size(atoms),
                                elements=prod(local),
                                dtype=sent_as(tensor.dtype, None),
                                value=value,
                                op=op.id,
                                loops=loops,
                                combiner=op.rule.combiner,
                            )
                if op.kind == "shard_map":
                    yield from _manual(program, schedule.mesh, op.regions[0], loops)
                else:
                    for index, region in enumerate(op.regions):
                        inner = (*loops, Loop(op.id, op.kind, index, trips(op, index)))
                        yield from _block(program, schedule, region, (op.id, index), inner)
                yield from _there_and_back(
                    program, schedule, [v for v in op.results if v not in schedule.shared], loops
                )


def _there_and_back(
    program: Program, schedule: Schedule, values: Iterable[int], loops: tuple[Loop, ...]
) -> Iterator[PlannedCollective]:
    for order in (other_order(program, v) for v in values):
        if order is not None:
            yield from order_permute(program, schedule, order, loops)


def _exchanges(program: Program, schedule: Schedule, op: Op, loops: tuple[Loop, ...]) -> Iterator[PlannedCollective]:
    """The edges of blocks that neighbours exchange before an op with a sliding window, and elements of cutouts."""
    assert op.rule is not None
    placement = schedule.placements[op.id]
    for exchange in placement.exchanges(op.rule, schedule.mesh):
        value = op.operands[exchange.operand]
        layout, tensor = placement.operand(op.rule, exchange.operand), program.type_of(value)
        elements = exchange.elements(layout.local_shape(tensor.shape, schedule.mesh))
        yield PlannedCollective(
            where=f"{_op_text(op)}: {'edges' if exchange.shift else 'elements'} of operand {exchange.operand}",
            kind=StepKind.PERMUTE.value,
            atoms=exchange.atoms,
            group_size=schedule.mesh.size(exchange.atoms),
            elements=elements,
            dtype=tensor.dtype,
            value=value,
            op=op.id,
            loops=loops,
            shift=exchange.shift,
            pairs=exchange.pairs,
        )


def _manual(program: Program, mesh: AtomMesh, block: Block, loops: tuple[Loop, ...]) -> Iterator[PlannedCollective]:
    """The user's own collectives in the body of a `shard_map`, as they are (S2.11)."""
    for op in block.ops:
        for index, region in enumerate(op.regions):
            yield from _manual(program, mesh, region, (*loops, Loop(op.id, op.kind, index, trips(op, index))))
        if "collective" not in op.attrs:
            continue
        atoms = tuple(a for name in op.attrs["axes"] for a in mesh.atoms_for(AxisRef(name)))
        for operand in op.sent:
            yield PlannedCollective(
                where=f"{_op_text(op)} of the program's own shard_map",
                kind=op.attrs["collective"],
                atoms=atoms,
                group_size=mesh.size(atoms),
                elements=program.type_of(operand).elements,
                dtype=program.type_of(operand).dtype,
                value=operand,
                op=op.id,
                loops=loops,
                combiner=op.attrs["combiner"],
                pairs=tuple((s, t) for s, t in op.attrs.get("pairs", ())),
            )


def _steps(
    program: Program,
    mesh: AtomMesh,
    value: int,
    reshard: Reshard,
    where: str,
    use: Use | None,
    loops: tuple[Loop, ...],
) -> Iterator[PlannedCollective]:
    layout, tensor = reshard.source, program.type_of(value)
    for step in reshard.steps:
        after = step.apply(layout)
        if step.is_collective:
            yield _collective(step, layout, tensor, mesh, value, where, use, loops)
        layout = after


def _collective(
    step: Step,
    before: Layout,
    tensor: TensorType,
    mesh: AtomMesh,
    value: int,
    where: str,
    use: Use | None,
    loops: tuple[Loop, ...],
) -> PlannedCollective:
    elements, dtype = _sent(prod(operand_shape(step, before, tensor.shape, mesh)), tensor.dtype)
    reduces = step.kind in (StepKind.ALL_REDUCE, StepKind.REDUCE_SCATTER)
    return PlannedCollective(
        where=where,
        kind=step.kind.value,
        atoms=step.atoms,
        group_size=mesh.size(step.atoms),
        elements=elements,
        dtype=dtype,
        value=value,
        use=use,
        loops=loops,
        combiner="add" if reduces else "",
        from_atoms=before.dims[step.dim] if step.kind is StepKind.PERMUTE else (),
    )


def _sent(elements: int, dtype: str) -> tuple[int, str]:
    """Number of elements and dtype as they are sent; random keys are sent as their words (uint32)."""
    if dtype.startswith("key<"):
        return elements * int(dtype_bytes(dtype)) // int(dtype_bytes("uint32")), "uint32"
    return elements, dtype


def _op_text(op: Op) -> str:
    return f"{op.kind} ({op.source})" if op.source else f"{op.kind} #{op.id}"


def _consumer(program: Program, use: Use) -> str:
    if use.op == PROGRAM:
        return program.output_names[use.slot]
    op = program.ops[use.op]
    what = f"operand {use.slot}" if use.region < 0 else f"result {use.slot} of its body"
    return f"{_op_text(op)}: {what}"
