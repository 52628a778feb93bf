"""Custom kernels on blocks: a function of the caller's, or the kernel itself, made again for smaller arrays."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax import tree_util
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from autoshard.errors import InputError
from autoshard.frontends.jax.interpret import bind_local
from autoshard.frontends.jax.pallas import on_blocks
from autoshard.interop.jax import auto_abstract_mesh
from autoshard.lowering.local.context import LocalOp, local
from autoshard.rules.kernels import CUDNN
from autoshard.sharding.layout import Layout


def _or_stated(run: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """The caller's function for a kernel where there is one, else `run`."""

    def either(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
        function, said = ctx.jax_op.local, ctx.op.attrs.get("local")
        if function is None and said is not None:
            name = ctx.op.attrs["kernel"]["name"]
            where = "" if said == "?" else f", {said}"
            raise InputError(
                f"kernel {name} was planned with a function for the blocks of a device{where}, which a plan from a "
                f"file does not hold; hand it in: plan.attach(f, *specs, kernels={{{name!r}: function}})"
            )
        return run(ctx, *operands) if function is None else tree_util.tree_leaves(function(*operands))

    return either


@local("pallas_call")
@_or_stated
def pallas_call(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """The kernel on a grid that is as much shorter as the blocks are."""
    results = [ctx.local_result(k) for k in range(len(ctx.result_types))]
    return bind_local(replace(ctx.jax_op, params=on_blocks(ctx.params, operands, results)), operands)


@local("ffi_call")
@_or_stated
def ffi_call(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """The call with local shapes of its results; what its attributes say of sizes stays as it is."""
    avals = tuple(a.update(shape=ctx.local_result(k)) for k, a in enumerate(ctx.params["result_avals"]))
    return ctx.bind(operands, result_avals=avals)


@local(*sorted(CUDNN))
@_or_stated
def cudnn(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """The primitive unchanged: its parameters have no sizes."""
    return ctx.bind(operands)


@local("jit", "pjit", "tpu_custom_call", "mosaic_gpu_p", "triton_kernel_call", "core_map")
@_or_stated
def compiled(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """Only as the caller says: the kernel is made for whole arrays."""
    ctx.unsupported("this kernel is made for whole arrays; give its autoshard.Kernel a local= function")


@local("custom_partitioning")
@_or_stated
def custom_partitioning(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """The function that its own ``partition`` makes for these shardings."""
    params, grid = ctx.params, ctx.grid.mesh
    mesh = auto_abstract_mesh(grid.sizes, grid.names)

    def placed(types: Sequence[Any], layouts: Sequence[Layout]) -> list[jax.ShapeDtypeStruct]:
        return [
            jax.ShapeDtypeStruct(t.shape, x.dtype, sharding=_sharding(layout, grid.names, mesh))
            for t, layout, x in zip(types, layouts, dtypes, strict=True)
        ]

    dtypes: Sequence[Any] = operands
    arguments = placed(ctx.operand_types, ctx.operand_layouts)
    dtypes = params["call"].out_avals
    results = placed(ctx.result_types, ctx.result_layouts)
    _, function, out, into = params["partition"](
        *params["static_args"], mesh, params["in_tree"].unflatten(arguments), params["out_tree"].unflatten(results)
    )
    for what, wanted, planned in (("operand", into, arguments), ("result", out, results)):
        for k, (given, one) in enumerate(zip(tree_util.tree_leaves(wanted), planned, strict=True)):
            if not given.is_equivalent_to(one.sharding, len(one.shape)):
                ctx.unsupported(
                    f"its partition function wants {what} {k} as {given.spec}, its rule allows {one.sharding.spec}; "
                    "give its autoshard.Kernel a rule that says so, or a local= function"
                )
    return tree_util.tree_leaves(function(*params["in_tree"].unflatten(operands)))


def _sharding(layout: Layout, names: Sequence[str], mesh: AbstractMesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*(tuple(names[a] for a in dim) or None for dim in layout.dims)))
