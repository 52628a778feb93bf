"""Arrays of a call that lie on devices in another order than the plan's.

JAX compiles a function for one order of the devices. So such an array is handed over as an array of the plan's mesh
with the same blocks on the same devices (nothing is copied). On the plan's mesh its blocks are then in the wrong
places, and the lowered program begins with the planned permute that brings each block to its place. Outputs take the
same way back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import tree_util
from jax.core import Tracer
from jax.sharding import NamedSharding

Shardings = Sequence[NamedSharding | None]
"""Of each leaf: the sharding on the other mesh, or None where it lies as the plan has it."""


def called(x: jax.Array, sharding: NamedSharding) -> jax.Array:
    """The same blocks on the same devices, declared to be an array of another sharding; nothing moves."""
    return jax.make_array_from_single_device_arrays(x.shape, sharding, [s.data for s in x.addressable_shards])


@dataclass(frozen=True, eq=False)
class OrderedFunction:
    """A jitted function some of whose arguments and results lie in other orders of the devices.

    inner: jitted; takes and returns arrays of the plan's mesh, with their blocks where the other mesh has them. within:
    the function of global arrays, for calls inside of other jitted functions, where all arrays are in one order.
    ins, outs: sharding of each leaf on the other mesh. in_plan: sharding of each argument for `inner`.
    donated: leaves whose buffers `inner` may reuse.
    """

    inner: Any
    within: Callable[..., Any]
    ins: Shardings
    outs: Shardings
    in_plan: Sequence[NamedSharding]
    donated: frozenset[int]

    def __call__(self, *args: Any) -> Any:
        if any(isinstance(x, Tracer) for x in tree_util.tree_leaves(args)):
            return self.within(*args)
        return self.run(self.inner, args)

    def run(self, inner: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call `inner` (jitted or compiled) with arguments that lie in their own orders of the devices."""
        leaves, tree = tree_util.tree_flatten(args)
        handed = list(leaves)
        for k, (there, here) in enumerate(zip(self.ins, self.in_plan, strict=True)):
            if there is not None:
                x = leaves[k]
                lies_there = isinstance(x, jax.Array) and x.sharding.is_equivalent_to(there, x.ndim)
                handed[k] = called(x if lies_there else jax.device_put(x, there), here)
        out, out_tree = tree_util.tree_flatten(inner(*tree_util.tree_unflatten(tree, handed)))
        for k in self.donated:
            if self.ins[k] is not None and isinstance(leaves[k], jax.Array) and not leaves[k].is_deleted():
                leaves[k].delete()
        out = [x if there is None else called(x, there) for x, there in zip(out, self.outs, strict=True)]
        return tree_util.tree_unflatten(out_tree, out)

    def lower(self, *specs: Any, **options: Any) -> "OrderedStage":
        """Lowered for these arguments; once compiled, it takes them in their own orders of the devices."""
        leaves, tree = tree_util.tree_flatten(specs)
        plain = [
            x if there is None or not hasattr(x, "shape") else jax.ShapeDtypeStruct(x.shape, x.dtype)
            for x, there in zip(leaves, self.ins, strict=True)
        ]
        return OrderedStage(self, self.inner.lower(*tree_util.tree_unflatten(tree, plain), **options))


@dataclass(frozen=True, eq=False)
class OrderedStage:
    """An `OrderedFunction` lowered or compiled (`jax.stages.Lowered` or `Compiled`, whose attributes it has)."""

    function: OrderedFunction
    stage: Any

    def compile(self, **options: Any) -> "OrderedStage":
        """The compiled stage; `options` are those of `jax.stages.Lowered.compile`."""
        return OrderedStage(self.function, self.stage.compile(**options))

    def __call__(self, *args: Any) -> Any:
        return self.function.run(self.stage, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stage, name)
