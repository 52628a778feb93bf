"""Sharding groups of a module whose members start from different shardings.

Such members are not changed; an open constraint is put behind each, and the group then ties the constraints. That leaves what
the user stated in place, and is what Shardy does.
"""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.propagation.mlir_graph import GROUP, build_module_graph


def open_conflicting_groups(module: ir.Module) -> None:
    """Put open constraints behind the members of every group with more than one given sharding."""
    groups: dict[int, list[ir.Operation]] = {}

    def visit(op: ir.Operation) -> None:
        if op.name == GROUP:
            groups.setdefault(ir.IntegerAttr(op.attributes["group_id"]).value, []).append(op)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner.operation)

    visit(module.operation)
    if not any(len(members) > 1 for members in groups.values()):
        return
    built = build_module_graph(module)
    for _, members in sorted(groups.items()):
        if len(members) > 1:
            _open_if_conflicting(built, members)


def _open_if_conflicting(built, members: list[ir.Operation]) -> None:
    graph = built.graph
    found = None
    conflict = False
    for op in members:
        spec = graph.spec(built.holder_of(op.operands[0]))
        if spec is None or all(d.is_open and not d.axes for d in spec.dims):
            continue
        if found is None:
            found = spec
        elif spec != found:
            conflict = True
            break
    if not conflict or found is None:
        return
    mesh = built.mesh_names[found.mesh]
    open_ = ir.Attribute.parse(f"#sdy.sharding<@{mesh}, [{', '.join(['{?}'] * len(found.dims))}]>")
    for op in members:
        value = op.operands[0]
        at = _after(value)
        with at:
            constraint = sdy.ShardingConstraintOp(value, open_, loc=op.location)
        value.replace_all_uses_except(constraint.result, constraint.operation)


def _after(value: ir.Value) -> ir.InsertionPoint:
    if isinstance(value, ir.BlockArgument):
        return ir.InsertionPoint.at_block_begin(value.owner)
    return ir.InsertionPoint.after(value.owner)
