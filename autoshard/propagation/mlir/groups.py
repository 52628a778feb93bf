"""Sharding groups of a module whose members start from different shardings.

Such members are not changed. An open constraint is put behind each member, and the group then ties the constraints, as
Shardy does it. The shardings that the user stated stay in place.
"""

from functools import cache

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.frontends.mlir.context import module_text, parse_module, run_passes
from autoshard.propagation.graph import NO_HOLDER
from autoshard.propagation.mlir.graph import ModuleGraph, build_module_graph
from autoshard.propagation.mlir.ops import GROUP
from autoshard.propagation.spec import Spec


def open_conflicting_groups(module: ir.Module) -> dict[int, list[ir.Value]]:
    """Put open constraints behind the members of every group with more than one given sharding.

    Returns the members of the groups that were changed, by group id: a value that was listed twice has two
    constraints then, where the Shardy that is installed gives it two.
    """
    groups: dict[int, list[ir.Operation]] = {}

    def visit(op: ir.Operation) -> None:
        if op.name == GROUP:
            groups.setdefault(ir.IntegerAttr(op.attributes["group_id"]).value, []).append(op)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner.operation)

    visit(module.operation)
    changed: dict[int, list[ir.Value]] = {}
    if not any(len(members) > 1 for members in groups.values()):
        return changed
    built = build_module_graph(module)
    for number, members in sorted(groups.items()):
        given = _given(built, members)
        if len(members) > 1 and any(spec != given[0] for spec in given):
            changed[number] = _open_members(built, members)
        elif given:  # one after the other: a place may be that of members of two groups (argument and result of a loop)
            for holder in {built.holder_of(op.operands[0]) for op in members} - {NO_HOLDER}:
                built.graph.holders[holder] = built.graph.steps.number(given[0])
    return changed


def _given(built: ModuleGraph, members: list[ir.Operation]) -> list[Spec]:
    specs = [built.graph.spec(built.holder_of(op.operands[0])) for op in members]
    return [s for s in specs if s is not None and not s.is_open_and_empty]


def _open_members(built: ModuleGraph, members: list[ir.Operation]) -> list[ir.Value]:
    first = _given(built, members)[0]
    mesh = built.mesh_names[first.mesh]
    open_ = ir.Attribute.parse(f"#sdy.sharding<@{mesh}, [{', '.join(['{?}'] * len(first.dims))}]>")
    out: list[ir.Value] = []
    listed = [(op.operands[0], op.location) for op in members]
    if _is_constrained_once():
        listed = [(v, where) for k, (v, where) in enumerate(listed) if v not in [w for w, _ in listed[:k]]]
    for value, location in listed:
        with _after(value):
            constraint = sdy.ShardingConstraintOp(value, open_, loc=location)
        value.replace_all_uses_except(constraint.result, constraint.operation)
        out.append(constraint.result)
    return out


_LISTED_TWICE = """
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<2x2xf32> {
  %b = stablehlo.negate %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x"}]>]>} : tensor<2x2xf32>
  sdy.sharding_group %b group_id=0 : tensor<2x2xf32>
  sdy.sharding_group %a group_id=0 : tensor<2x2xf32>
  sdy.sharding_group %b group_id=0 : tensor<2x2xf32>
  return %b : tensor<2x2xf32>
}
"""


@cache
def _is_constrained_once() -> bool:
    """Whether Shardy puts one constraint behind a member that is listed twice: that of JAX 0.12 does, of 0.10 two."""
    module = parse_module(_LISTED_TWICE)
    run_passes(module, "sdy-basic-propagate")
    return module_text(module).count("sdy.sharding_constraint") == 2


def _after(value: ir.Value) -> ir.InsertionPoint:
    if isinstance(value, ir.BlockArgument):
        return ir.InsertionPoint.at_block_begin(value.owner)
    return ir.InsertionPoint.after(value.owner)  # pyright: ignore[reportArgumentType]
