"""Which ops to look at again when the sharding of a value changes, in the order that settles conflicts.

The order is that of MLIR's use lists, through loops, calls and computations, as Shardy's rewriter walks them.
"""

from dataclasses import dataclass

from jaxlib.mlir import ir

from autoshard.propagation.mlir.holders import Holders
from autoshard.propagation.mlir.index import ModuleIndex
from autoshard.propagation.mlir.ops import CALL, DATA_FLOW, EDGE, MANUAL, NAMED, TERMINATORS, owning_op, parent_of


@dataclass
class Notify:
    """For a value, the ops to look at again when its sharding changes, in the order in which they are put on the
    stack.
    """

    index: ModuleIndex
    holders: Holders

    def __call__(self, value: ir.Value) -> tuple[int, ...]:
        out: list[int] = []
        op = owning_op(value)
        if not isinstance(value, ir.BlockArgument) and op.name == EDGE:
            region_op = owning_op(op.operands[0])
            if region_op.name == "stablehlo.while":
                number = ir.OpResult(op.operands[0]).result_number
                for region in region_op.regions:
                    self._users(region.blocks[0].arguments[number], out, set())
        out.append(self.index.index[op])
        self._users(value, out, set())
        return tuple(out)

    def _users(self, value: ir.Value, out: list[int], seen: set[ir.Value]) -> None:
        if value in seen:
            return
        seen.add(value)
        index = self.index
        for use in value.uses:
            op = use.owner.operation
            at = index.index[op]
            name = index.names[at]
            if name not in DATA_FLOW and name not in TERMINATORS and name != CALL:
                out.append(at)
                continue
            number = use.operand_number
            edge = self._edge_fed_by(op, name, number)
            if edge >= 0:
                out.append(edge)
            elif name == "func.return":
                function = parent_of(op)
                callers = index.calls.get(ir.StringAttr(function.attributes["sym_name"]).value, [])
                for call in reversed(callers):
                    self._users(call.results[number], out, seen)
            elif name in TERMINATORS:
                out.append(index.index[parent_of(op)])
            elif name == CALL:
                callee = index.functions.get(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
                if callee is not None and list(callee.regions[0].blocks):
                    self._users(callee.regions[0].blocks[0].arguments[number], out, seen)
            else:
                out.append(at)

    def _edge_fed_by(self, user: ir.Operation, name: str, number: int) -> int:
        """The edge that this use is a source of; -1 for none.

        Operands of named and manual computations are not found, as in Shardy: a change of them does not put the edge
        behind the argument on the worklist again.
        """
        is_terminator = name in TERMINATORS
        op = parent_of(user) if is_terminator else user
        if op.name not in DATA_FLOW:
            return -1
        if op.name in (MANUAL, NAMED) and not is_terminator:
            return self.holders.edge_on(self.index.number[op.operands[number]])
        if number >= len(op.results):
            return -1
        return self.holders.edge_on(self.index.number[op.results[number]])
