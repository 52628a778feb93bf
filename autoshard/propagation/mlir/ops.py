"""What propagation needs to know of the ops of an MLIR module: their classes, neighbours and attributes."""

from collections.abc import Callable, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.frontends.mlir.context import run_passes
from autoshard.program.rule import TensorFactors
from autoshard.propagation.directions import Direction, OpClass
from autoshard.propagation.op_classes import ELEMENTWISE, base_name

EDGE = "sdy.data_flow_edge"
FUNC_EDGE = "sdy.func_data_flow_edge"
MANUAL = "sdy.manual_computation"
NAMED = "sdy.named_computation"
BARRIER = "sdy.propagation_barrier"
CONSTRAINT = "sdy.sharding_constraint"
GROUP = "sdy.sharding_group"
FUNC = "func.func"
CALL = "func.call"
DATA_FLOW = frozenset({"stablehlo.while", "stablehlo.case", "stablehlo.optimization_barrier", MANUAL, NAMED})
TERMINATORS = frozenset({"stablehlo.return", "sdy.return", "func.return", "mhlo.return"})
OWN_SHARDING = {CONSTRAINT: "sharding", "sdy.reshard": "sharding", EDGE: "sharding"}
COLLECTIVES = frozenset(
    f"sdy.{n}"
    for n in (
        "all_gather",
        "all_slice",
        "all_to_all",
        "collective_permute",
        "all_reduce",
        "reduce_scatter",
        "sharded_to_unreduced",
        "replicated_to_unreduced",
    )
)
_PASS_THROUGH = frozenset({"stablehlo.reshape", "stablehlo.transpose", EDGE, FUNC_EDGE})
_SLICES = frozenset({"stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"})
_SDY_ELEMENTWISE = frozenset({BARRIER, CONSTRAINT, "sdy.reshard"})
_MHLO_OR_STABLEHLO = ("stablehlo.", "mhlo.")
_IDENTIFIER = "autoshard.id"


def is_elementwise(op: ir.Operation, name: str) -> bool:
    """Whether each element of the results depends on one element of each operand; `name` is the op's full name."""
    if name in _SDY_ELEMENTWISE:
        return True
    if not name.startswith(_MHLO_OR_STABLEHLO):
        return False
    if name == "stablehlo.bitcast_convert":
        return shape_of(op.operands[0]) == shape_of(op.results[0])
    return base_name(name) in ELEMENTWISE


def op_class(op: ir.Operation, name: str, elementwise: bool) -> OpClass:
    """The class of an op in the order of propagation; `name` is its full name."""
    if elementwise or name in _PASS_THROUGH:
        return OpClass.PASS_THROUGH
    if name == "stablehlo.custom_call":
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        return OpClass.PASS_THROUGH if target in ("MoveToDevice", "MoveToHost") else OpClass.OTHER
    if name in _SLICES:
        return OpClass.SLICE
    return OpClass.BROADCAST if name == "stablehlo.broadcast_in_dim" else OpClass.OTHER


def erasable(module: ir.Module, operations: Sequence[ir.Operation], unused: Callable[[int], bool]) -> set[int]:
    """Numbers of the ops that may be removed once their results have no use.

    Those are the ops that a canonicalisation without patterns removes. unused: whether no result of the op with a
    number has a use. The pass does not run where no op with results is unused.
    """
    if not any(unused(number) and len(op.results) for number, op in enumerate(operations)):
        return set()
    with module.context:
        for number, op in enumerate(operations):
            op.attributes[_IDENTIFIER] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
        copy = ir.Module.parse(str(module.operation.get_asm()))
        for op in operations:
            del op.attributes[_IDENTIFIER]
        run_passes(copy, "canonicalize{max-iterations=1 region-simplify=disabled enable-patterns={none}}")
    left: set[int] = set()

    def visit(op: ir.Operation) -> None:
        if _IDENTIFIER in op.attributes:
            left.add(ir.IntegerAttr(op.attributes[_IDENTIFIER]).value)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner.operation)

    visit(copy.operation)
    return {
        i
        for i, op in enumerate(operations)
        if len(op.results) and (i not in left or base_name(op.name) in ("constant", "sdy.constant"))
    }


def shape_of(value: ir.Value) -> tuple[int, ...] | None:
    """The shape of a ranked tensor; None for tokens and the like."""
    kind = value.type
    return tuple(kind.shape) if isinstance(kind, ir.RankedTensorType) else None


def get_attribute(op: ir.Operation, name: str) -> ir.Attribute | None:
    """The attribute of this name; None where the op has none."""
    return op.attributes.get(name)


def owning_op(value: ir.Value) -> ir.Operation:
    """The op that defines a value, or whose region the value is an argument of."""
    owner = value.owner
    return owner.owner.operation if isinstance(owner, ir.Block) else owner.operation


def parent_of(op: ir.Operation) -> ir.Operation:
    """The op whose region holds this one."""
    parent = op.parent
    assert parent is not None
    return parent.operation


def terminator(region: ir.Region) -> ir.Operation:
    """The last op of a region's first block; its operands are what the region hands back."""
    operations = region.blocks[0].operations
    return operations[len(operations) - 1].operation


def manual_axes(op: ir.Operation) -> frozenset[str]:
    """Names of the axes that a manual computation runs over."""
    axes = sdy.ManualAxesAttr(op.attributes["manual_axes"])
    return frozenset(axes[i] for i in range(len(axes)))


def mapping(attr: ir.Attribute) -> TensorFactors:
    """For each dimension of one tensor its factor indices, as in `ShardingRule`, from a mapping of
    ``sdy.sharding_rule``.
    """
    return tuple(tuple(sdy.DimMappingAttr(d).factor_indices) for d in sdy.TensorMappingAttr(attr).dim_mappings)


def barrier_direction(op: ir.Operation) -> Direction:
    """The direction in which a propagation barrier lets axes pass."""
    return Direction(ir.IntegerAttr(op.attributes["allowed_direction"]).value)


def dictionaries(op: ir.Operation, name: str, count: int) -> list[dict[str, ir.Attribute]]:
    """The attribute dictionaries of a function's arguments or results."""
    attr = get_attribute(op, name)
    if attr is None:
        return [{} for _ in range(count)]
    return [{d[i].name: d[i].attr for i in range(len(d))} for d in map(ir.DictAttr, ir.ArrayAttr(attr))]
