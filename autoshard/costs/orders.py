"""Values in another order of the devices than the plan's: one permute where they come in or leave, two inside.

Bytes and seconds of the permutes follow from the statements alone: the layout is pinned, and so are the moves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from autoshard.costs.pricing import StepPrices
from autoshard.program.program import OtherOrder, Program
from autoshard.sharding.device_orders import layout_on, moved_atoms
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import StepKind
from autoshard.sharding.tensor_sharding import TensorSharding


@dataclass(frozen=True, slots=True)
class OrderPermute:
    """One permute of all blocks of a value. bytes: of one block; atoms: those over which blocks move."""

    order: OtherOrder
    value: int
    label: str
    atoms: tuple[int, ...]
    bytes: float
    seconds: float


def order_permutes(program: Program, mesh: AtomMesh, prices: StepPrices) -> Iterator[OrderPermute]:
    """The permutes of every value in another order of the devices; those of one value in the order in which they
    run.
    """
    read = {v for op in program.body.ops for v in op.operands} | set(program.body.results)
    for order in program.orders:
        value, name = _meant(program, order)
        if order.where == "input" and value not in read:
            continue
        type_ = program.type_of(value)
        layout = Layout(layout_on(TensorSharding.from_text(order.sharding), mesh))
        size = prod(layout.local_shape(type_.shape, mesh)) * (type_.bytes / max(1, type_.elements))
        atoms = moved_atoms(order.moves, mesh)
        seconds = prices.step_s(StepKind.PERMUTE, atoms, size, size)
        for way in {"input": ("from",), "output": ("to",)}.get(order.where, ("to", "from")):
            yield OrderPermute(order, value, f"{name} {way} its order of devices", atoms, size, seconds)


def _meant(program: Program, order: OtherOrder) -> tuple[int, str]:
    if order.where == "output":
        return program.body.results[order.index], f"output {program.output_names[order.index]}"
    value = program.body.args[order.index] if order.where == "input" else order.index
    return value, program.values[value].name
