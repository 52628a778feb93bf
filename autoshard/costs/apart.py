"""Matmuls with which an update is not fused: the product is written first, and the update reads it.

Where the product of a matmul changes an array in place (the gradient of a weight, its optimizer), the TPU compiler
fuses the update with the matmul. That is well as long as one operand lies on the chip as a whole. Where neither does,
the matmul makes its product piece by piece along what is summed, and reads and writes the arrays of the update with
every piece: a matmul with Adam takes two to two and a half times as long so as the two one after the other. So lowering
puts a barrier between them there (docs/lowering.md). Profiles say up to how many bytes an operand stays on the chip.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from autoshard.costmodels.compiled import WorkKind
from autoshard.costmodels.profile import Memory, Profile
from autoshard.costs.conversions import narrowed
from autoshard.costs.fusion import Fusion, Updates, analyse
from autoshard.costs.kinds import work_kinds
from autoshard.costs.work import element_bytes
from autoshard.program.program import Op, Program
from autoshard.program.schedule import Schedule, Use
from autoshard.sharding.layout import AtomMesh, Layout

_SAME_ARRAY: Final = frozenset({"transpose", "convert_element_type", "copy", "reduce_precision"})
"""Ops between a matmul and its update that the compiler makes one with the matmul."""


def fusion_on(program: Program, profile: Profile) -> Fusion:
    """Which values exist in memory on a machine: by the rules of its compiler, where updates are kept apart, and what
    may be gathered as it is used.
    """
    fusion, compiled = analyse(program, profile.memory_rules), profile.compiled_work
    if compiled is not None and compiled.moved_as_used:
        fusion = replace(fusion, narrowed=narrowed(program))
    return replace(fusion, updates=_updates(program, profile)) if profile.memory.on_chip else fusion


def _updates(program: Program, profile: Profile) -> Updates:
    return Updates(profile.memory, updated_products(program))


def updated_products(program: Program) -> Mapping[int, Op]:
    """Product -> its matmul, of the matmuls with which an update could be fused."""
    kinds = work_kinds(program)
    return {
        op.results[0]: op for op, _ in program.walk() if kinds.get(op.id) is WorkKind.UPDATED and len(op.operands) == 2
    }


def is_apart(
    op: Op, program: Program, mesh: AtomMesh, operands: Sequence[Layout], product: Layout, memory: Memory
) -> bool:
    """Whether an update is kept apart from a matmul with these layouts: neither operand stays on the chip, and no sum
    over devices comes between the two anyway.
    """

    def spills(value: int, layout: Layout) -> bool:
        type_ = program.type_of(value)
        held = prod(layout.local_shape(type_.shape, mesh)) * element_bytes(program, value)
        return held > memory.on_chip_bytes(type_.dtype)

    return not product.unreduced and all(map(spills, op.operands, operands))


def apart_under(program: Program, schedule: Schedule, updates: Updates | None) -> Iterator[int]:
    """Products that are kept apart from their updates under a schedule."""
    if updates is None:
        return
    for value, op in updates.matmuls.items():
        uses = [schedule.uses.get(Use(op.id, slot)) for slot in range(len(op.operands))]
        layouts, product = [use.target for use in uses if use is not None], schedule.definitions.get(value)
        if product is None or len(layouts) < len(uses):
            continue  # inside of a user's `shard_map`, or an operand is a literal
        if is_apart(op, program, schedule.mesh, layouts, product, updates.memory):
            yield value


def barriers(program: Program, schedule: Schedule, profile: Profile) -> frozenset[int]:
    """Values that a barrier makes arrays of their own, so that no update is fused with their matmul.

    Transposes and narrower types stay on the side of the matmul. A product that a collective moves needs no barrier.
    """
    if not profile.memory.on_chip:
        return frozenset()
    readers: dict[int, list[tuple[Op, int]]] = {}
    for op, _ in program.walk():
        for slot, value in enumerate(op.operands):
            readers.setdefault(value, []).append((op, slot))
    out: set[int] = set()
    for product in apart_under(program, schedule, _updates(program, profile)):
        at = product
        while not _is_sent(at, readers.get(at, ()), schedule):
            (reader, _), *others = readers[at]
            after = reader.results[0] if reader.results else at
            if others or reader.kind not in _SAME_ARRAY or element_bytes(program, after) > element_bytes(program, at):
                out.add(at)
                break
            at = after
    return frozenset(out)


def _is_sent(value: int, readers: Sequence[tuple[Op, int]], schedule: Schedule) -> bool:
    """Whether collectives move a value before it is read, or nothing reads it."""
    ways = [schedule.shared.get(value), *(schedule.uses.get(Use(op.id, slot)) for op, slot in readers)]
    return not readers or any(step.is_collective for way in ways if way is not None for step in way.steps)
