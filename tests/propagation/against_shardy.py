"""Propagation over a traced JAX function next to Shardy's over its lowered module."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir

from autoshard.frontends.jax.function import trace
from autoshard.frontends.mlir.context import mlir_context, parse_module, run_passes
from autoshard.interop.jax import auto_abstract_mesh, spec_from_jax
from autoshard.interop.sdy import sharding_from_attr
from autoshard.propagation import propagate
from autoshard.propagation.mlir.passes import import_passes
from autoshard.sharding.mesh import Mesh

MESH = Mesh.from_dict({"data": 4, "model": 2})
U = P.UNCONSTRAINED
JAX_MESH = auto_abstract_mesh((4, 2), ("data", "model"))


def ours_and_shardys(
    function: Callable, shapes: Sequence[tuple], specs: Sequence[P | None]
) -> tuple[list[str], list[str]]:
    """Shardings of results, then of arguments."""
    args = [
        jax.ShapeDtypeStruct(s[1:], s[0]) if isinstance(s[0], str) else jax.ShapeDtypeStruct(s, "float32")
        for s in shapes
    ]
    program = trace(function, *args).program
    given = {
        v: spec_from_jax(s, program.type_of(v).rank, MESH)
        for v, s in zip(program.body.args, specs, strict=True)
        if s is not None and any(entry is not U for entry in s)  # one that is open everywhere is not in the module
    }
    found = propagate(program, MESH, given)
    ours = [str(s) for s in (*found.returned, *(found.values[v] for v in program.body.args))]
    put = [
        a if s is None else jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(JAX_MESH, s))
        for a, s in zip(args, specs, strict=True)
    ]
    lowered = jax.jit(function, keep_unused=True).trace(*put).lower(lowering_platforms=("cpu",))
    module = parse_module(lowered.as_text())
    with mlir_context(), ir.Location.unknown():
        run_passes(module, import_passes() + ",sdy-user-priority-propagate")
        main = next(o.operation for o in module.body.operations if o.operation.name == "func.func")
        theirs = []
        for name, values_ in (("res_attrs", program.body.results), ("arg_attrs", program.body.args)):
            entries = ir.ArrayAttr(main.attributes[name]) if name in main.attributes else [None] * len(values_)
            for value, entry in zip(values_, entries, strict=True):
                if entry is not None and "sdy.sharding" in entry:
                    theirs.append(str(replace(sharding_from_attr(entry["sdy.sharding"]), mesh_name=None)))
                else:
                    theirs.append("[" + ", ".join(["{?}"] * program.type_of(value).rank) + "]")
    return ours, theirs
