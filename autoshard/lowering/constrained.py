"""The program on whole arrays with its layouts as `with_sharding_constraint`: XLA's partitioner decides the rest.

Every value is constrained to the layout that it is defined in, and every use to the target of its reshard; so are block
arguments and what bodies of loops hand back. A partial sum has no `PartitionSpec`: its constraint is that of the form
in which it is summed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax, tree_util
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from jax.sharding import Mesh as JaxMesh

from autoshard.errors import UnsupportedError
from autoshard.frontends.jax.interpret import bind_local, bind_op
from autoshard.lowering.arguments import flat_arguments
from autoshard.lowering.contexts import check_meshes, on_mesh
from autoshard.lowering.interpret import LocalInterpreter
from autoshard.lowering.local import run_local
from autoshard.lowering.lower import Lowered, partition_spec
from autoshard.lowering.partitioner import safe_operands, safe_results, windows_that_share
from autoshard.program.order import NOTHING
from autoshard.program.program import Block, Op
from autoshard.program.schedule import PROGRAM, Use
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard

PLACEMENTS = frozenset({"sharding_constraint", "layout_constraint", "mesh_cast", "reshard", "device_put"})
"""Ops that only state where a value lies; the plan has their shardings as statements, so they do nothing here."""


class ConstrainedInterpreter(LocalInterpreter):
    """Runs a program on whole arrays.

    inside: whether every value is constrained; otherwise only inputs and outputs are (by `jit`).
    """

    def __init__(self, lowered: Lowered, mesh: JaxMesh | AbstractMesh, *, inside: bool) -> None:
        order, apart = (lowered.order, lowered.apart) if inside else (NOTHING, frozenset[int]())
        super().__init__(lowered.traced, lowered.schedule, order, apart)
        self.mesh, self.inside = mesh, inside
        self.sharing = windows_that_share(lowered.traced.program)

    def constrain(self, x: Any, layout: Layout) -> Any:
        """The array with a constraint to this layout; unchanged for scalars, partial sums, and where `inside` is
        False.
        """
        if not self.inside or layout.unreduced or not layout.dims:
            return x
        return lax.with_sharding_constraint(x, NamedSharding(self.mesh, partition_spec(layout, self.schedule.mesh)))

    def defined(self, values: Sequence[int], arrays: Sequence[Any]) -> list[Any]:
        """The arrays of these values, each constrained to the layout that it is defined in."""
        return [self.constrain(x, self.schedule.definitions[v]) for v, x in zip(values, arrays, strict=True)]

    def block(self, block: Block, args: Sequence[Any], owner: tuple[int, int] = (PROGRAM, -1)) -> list[Any]:
        """Results of a block on whole arrays, its arguments constrained."""
        return super().block(block, self.defined(block.args, args), owner)

    def reshard(self, x: Any, reshard: Reshard, value: int, use: Use | None = None) -> Any:
        """The array constrained to the target of a reshard; unchanged where only inputs and outputs are constrained."""
        return super().reshard(x, reshard, value, use) if self.inside else x

    def moved(self, x: Any, reshard: Reshard, shape: Sequence[int]) -> Any:
        """The array constrained to the target of a reshard; unchanged where the reshard has no steps."""
        return self.constrain(x, reshard.target) if reshard.steps else x

    def is_as_defined(self, value: int, reshard: Reshard) -> bool:
        """Wherever the plan says so: the partitioner makes a gather in the type of what reads it."""
        return self.schedule.is_as_defined(value, reshard)

    def in_order(self, x: Any, value: int) -> Any:
        """The array itself: XLA has one order of the devices in a program."""
        return x

    def barrier(self, last: Op, operands: Sequence[Any], made: Sequence[int]) -> Sequence[Any]:
        """Results of a barrier, each constrained: else its first use decides for all of them."""
        return self.defined(made, super().barrier(last, operands, made))

    def op(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Results of an op on whole arrays, constrained to the layouts that they are defined in."""
        if "kernel" in op.attrs:
            return self.defined(op.results, self.kernel(op, operands))
        if op.kind.startswith("scatter") and not (self.inside and self.local_op(op).is_whole):
            operands = (lax.optimization_barrier(operands[0]), *operands[1:])  # see `local.indexing._one_update`
        if op.kind in PLACEMENTS:
            return self.defined(op.results, list(operands))
        jax_op = self.jax_ops[op.id]
        operands = safe_operands(op, jax_op.params, operands, self.mesh, op.id in self.sharing)
        with jax_op.ctx.manager, on_mesh(self.mesh):  # the function may have been traced while another one was set
            results = bind_local(jax_op, operands)
        return self.defined(op.results, list(safe_results(op, jax_op.params, results, self.mesh)))

    def kernel(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Results of a custom kernel, which XLA cannot cut: a `shard_map` of its own, cut as planned."""
        ctx, grid = self.local_op(op), self.schedule.mesh
        if ctx.is_whole:
            return bind_op(self.jax_ops[op.id], operands)
        placement = self.schedule.placements[op.id]
        summed = tuple(grid.names[a] for f in sorted(ctx.rule.reduction) for a in placement.factors[f])

        def local(*blocks: Any) -> tuple[Any, ...]:
            results = run_local(ctx, blocks)
            return tuple(lax.psum(x, summed) if summed else x for x in results)  # rules of kernels combine by add

        body = jax.shard_map(
            local,
            mesh=self.mesh,
            in_specs=tuple(partition_spec(layout, grid) for layout in ctx.operand_layouts),
            out_specs=tuple(partition_spec(layout, grid) for layout in ctx.result_layouts),
            check_vma=False,
        )
        return list(body(*operands))

    def region_op(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Results of a loop, a branch or a `shard_map`, constrained to the layouts that they are defined in."""
        return self.defined(op.results, super().region_op(op, operands))

    def shard_map(self, op: Op, operands: Sequence[Any]) -> list[Any]:
        """The user's own region, on the plan's mesh; its axes must be whole axes of that mesh."""
        for name, size in op.attrs["mesh_axes"]:
            if name not in self.mesh.axis_names or self.mesh.shape[name] != size:
                raise UnsupportedError(
                    f"shard_map at {op.source} runs over axis {name!r} of size {size}, which is no whole axis of the "
                    f"plan's mesh {dict(self.mesh.shape)}; plan on the mesh of the shard_map, without sub-axes of it"
                )
        body = jax.shard_map(
            lambda *xs: tuple(self.local_block(op.regions[0], xs)),
            mesh=self.mesh,
            in_specs=tuple(map(_spec, op.attrs["in_names"])),
            out_specs=tuple(map(_spec, op.attrs["out_names"])),
            axis_names={name for name, _ in op.attrs["mesh_axes"]},
            check_vma=False,
        )
        return list(body(*operands))


def constrained_function(lowered: Lowered, mesh: JaxMesh | AbstractMesh, *, inside: bool) -> Callable[..., Any]:
    """The program as a function of global arrays, for `jax.jit` on a mesh (from `Lowered.jax_mesh`)."""
    traced = lowered.traced
    interpreter = ConstrainedInterpreter(lowered, mesh, inside=inside)

    def fn(*call_args: Any) -> Any:
        leaves = flat_arguments(traced, call_args)
        check_meshes(leaves, traced.program.input_names, mesh)
        with on_mesh(mesh):
            results = interpreter.block(traced.program.body, [*leaves, *traced.consts])
        return tree_util.tree_unflatten(traced.out_tree, results)

    return lowered.finished(fn, mesh)


def _spec(dims: Sequence[Sequence[str]]) -> PartitionSpec:
    return PartitionSpec(*(tuple(names) or None for names in dims))
