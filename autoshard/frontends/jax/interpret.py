"""Running a traced program again, op by op: the reference for every lowering, on one device.

It reads only `TracedFunction`: the Program says what is connected to what, `jax_ops` says how to run each op.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from autoshard.errors import InputError
from autoshard.frontends.jax.facts import is_extended
from autoshard.frontends.jax.function import JaxOp, TracedFunction
from autoshard.frontends.jax.starts import within_bounds
from autoshard.program.program import Block, Op, Origin, Value


def bind_op(jax_op: JaxOp, operands: Sequence[Any]) -> list[Any]:
    """Run one op without regions on `operands`; returns its results.

    `jax_op.params` are used as they are. Callers that run the op on local shards must replace the parameters that hold
    sizes first.
    """
    with jax_op.ctx.manager:
        return _bound(jax_op.primitive, jax_op.params, operands)


def bind_local(jax_op: JaxOp, operands: Sequence[Any], sharding: Any = None) -> list[Any]:
    """As `bind_op`, but without the mesh and shardings of the trace: on local blocks inside of a `shard_map`, or on
    arrays of another mesh.

    sharding: in place of that in the op's parameters.
    """
    plain = {k: (sharding if k in ("out_sharding", "sharding") else v) for k, v in jax_op.params.items()}
    return _bound(jax_op.primitive, plain, operands)


def _bound(primitive: Any, params: dict[str, Any], operands: Sequence[Any]) -> list[Any]:
    """The results of a primitive. On CPUs, for which Pallas compiles nothing, its kernels are interpreted."""
    if str(primitive.name) == "pallas_call" and params.get("interpret") is False:
        interpreted = {**params, "interpret": True}
        return list(
            jax.lax.platform_dependent(
                *operands,
                cpu=lambda *xs: tuple(_bound(primitive, interpreted, xs)),
                default=lambda *xs: tuple(primitive.bind(*xs, **params)),
            )
        )
    operands = within_bounds(str(primitive.name), params, operands)
    bound = primitive.get_bind_params(params)
    functions, words = ((), bound) if isinstance(bound, dict) else bound  # older JAX: (functions, params)
    out = primitive.bind(*functions, *operands, **words)
    return list(out) if primitive.multiple_results else [out]


def literal_array(value: Value) -> np.ndarray:
    """The zero-dimensional array of a LITERAL value."""
    dtype = jax.dtypes.float0 if value.type.dtype == "float0" else jnp.dtype(value.type.dtype)
    return np.asarray(value.literal).astype(dtype)


def evaluate(traced: TracedFunction, *flat_args: Any) -> list[Any]:
    """The flat results of the program on flat arguments (the leaves of the traced function's arguments).

    The same values as ``f(*args)``; may be called under `jax.jit`.
    """
    if len(flat_args) != len(traced.in_types):
        raise InputError(f"the program takes {len(traced.in_types)} arrays, {len(flat_args)} were given")
    args = [
        a if is_extended(t.dtype) or t.dtype == jax.dtypes.float0 else jnp.asarray(a, t.dtype)
        for a, t in zip(flat_args, traced.in_types, strict=True)
    ]
    return _Interpreter(traced).block(traced.program.body, [*args, *traced.consts])


class _Interpreter:
    def __init__(self, traced: TracedFunction) -> None:
        self.values = traced.program.values
        self.jax_ops = traced.jax_ops

    def block(self, block: Block, args: Sequence[Any]) -> list[Any]:
        env = dict(zip(block.args, args, strict=True))

        def read(value: int) -> Any:
            v = self.values[value]
            return literal_array(v) if v.origin is Origin.LITERAL else env[value]

        for _, ops in groupby(block.ops, key=lambda op: op.attrs.get("barrier_group", -1 - op.id)):
            together = list(ops)  # one op, or the members of one barrier
            operands = [read(v) for op in together for v in op.operands]
            out = self.region_op(together[0], operands) if together[0].regions else self.plain(together, operands)
            env.update(zip([r for op in together for r in op.results], out, strict=True))
        return [read(v) for v in block.results]

    def plain(self, ops: Sequence[Op], operands: list[Any]) -> list[Any]:
        return bind_op(self.jax_ops[ops[0].id], operands)

    def region_op(self, op: Op, operands: list[Any]) -> list[Any]:
        return {"scan": self.scan, "while": self.while_, "cond": self.cond, "shard_map": self.shard_map}[op.kind](
            op, operands
        )

    def scan(self, op: Op, operands: list[Any]) -> list[Any]:
        n, k = op.attrs["num_consts"], op.attrs["num_carry"]
        consts, init, xs = operands[:n], operands[n : n + k], operands[n + k :]

        def body(carry: Any, x: Any) -> Any:
            out = self.block(op.regions[0], [*consts, *carry, *x])
            return tuple(out[:k]), tuple(out[k:])

        unroll = self.jax_ops[op.id].params.get("unroll", 1)
        carry, ys = jax.lax.scan(
            body, tuple(init), tuple(xs), length=op.attrs["length"], reverse=op.attrs["reverse"], unroll=unroll
        )
        return [*carry, *ys]

    def while_(self, op: Op, operands: list[Any]) -> list[Any]:
        n, b = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        for_cond, for_body, init = operands[:n], operands[n : n + b], operands[n + b :]
        cond, body = op.regions
        return list(
            jax.lax.while_loop(
                lambda c: self.block(cond, [*for_cond, *c])[0],
                lambda c: tuple(self.block(body, [*for_body, *c])),
                tuple(init),
            )
        )

    def cond(self, op: Op, operands: list[Any]) -> list[Any]:
        branches = [lambda *xs, r=region: tuple(self.block(r, xs)) for region in op.regions]
        index, *rest = operands
        return list(jax.lax.switch(jnp.asarray(index, jnp.int32), branches, *rest))

    def shard_map(self, op: Op, operands: list[Any]) -> list[Any]:
        params = self.jax_ops[op.id].params
        specs = {key: tuple(map(_spec, op.attrs[key])) for key in ("in_names", "out_names")}
        body = jax.shard_map(
            lambda *xs: tuple(self.block(op.regions[0], xs)),
            mesh=params["mesh"],
            in_specs=specs["in_names"],
            out_specs=specs["out_names"],
            axis_names={name for name, _ in op.attrs["mesh_axes"]},
            check_vma=params.get("check_vma", False),
        )
        return list(body(*operands))


def _spec(dims: Sequence[Sequence[str]]) -> PartitionSpec:
    return PartitionSpec(*(None if not d else tuple(d) for d in dims))
