"""Ops inside a user's `shard_map`: the user's collectives stay, JAX's bookkeeping goes.

The body was traced under the user's mesh context, with marks of what varies over which axes (`pvary`,
`psum_invariant`). The `shard_map` that `lower` makes does not track that (check_vma=False), so marks are dropped and
invariant forms become the plain collectives.
"""

from collections.abc import Sequence
from typing import Any

from jax import lax

from autoshard.frontends.jax.function import JaxOp
from autoshard.frontends.jax.interpret import bind_local
from autoshard.program.program import Op

_MARKS = frozenset({"pvary", "pcast", "pbroadcast", "reshard", "mesh_cast", "sharding_constraint", "core_pvary"})
_REDUCE = {"add": lax.psum, "max": lax.pmax, "min": lax.pmin}


def run_manual(op: Op, jax_op: JaxOp, operands: Sequence[Any]) -> list[Any]:
    """The local results of one op of the body."""
    if op.kind in _MARKS:
        return list(operands)
    kind, axes = op.attrs.get("collective"), tuple(op.attrs.get("axes", ()))
    params = jax_op.params
    match kind:
        case "all_reduce":
            return [_REDUCE[op.attrs["combiner"]](x, axes) for x in operands]
        case "all_gather":
            gather = {"axis": params["all_gather_dimension"], "tiled": params["tiled"]}
            return [lax.all_gather(x, axes, **gather) for x in operands]
        case "reduce_scatter":
            scatter = {"scatter_dimension": params["scatter_dimension"], "tiled": params["tiled"]}
            return [lax.psum_scatter(x, axes, **scatter) for x in operands]
    return bind_local(jax_op, operands)
