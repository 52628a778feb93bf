"""An op as one device sees it, and the table of what to do for each primitive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn

import jax
import numpy as np
from jax import lax

from autoshard.errors import AutoshardError, InputError, UnsupportedError
from autoshard.frontends.jax.function import JaxOp
from autoshard.frontends.jax.interpret import bind_local
from autoshard.lowering.steps import Grid
from autoshard.program.program import Op
from autoshard.program.rule import ShardingRule, TensorFactors
from autoshard.program.schedule import Placement
from autoshard.program.types import TensorType
from autoshard.rules.elementwise import NONLINEAR, SUMS, UNARY_LINEAR
from autoshard.sharding.layout import Layout


@dataclass(frozen=True)
class LocalOp:
    """One op under a placement.

    operand_types, result_types: of the whole tensors.
    """

    op: Op
    jax_op: JaxOp
    operand_types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    placement: Placement
    grid: Grid

    @property
    def params(self) -> dict[str, Any]:
        """The primitive's parameters as they were traced, with global sizes."""
        return self.jax_op.params

    @property
    def rule(self) -> ShardingRule:
        """The sharding rule of the op."""
        assert self.op.rule is not None
        return self.op.rule

    @cached_property
    def operand_layouts(self) -> tuple[Layout, ...]:
        """The layout in which the placement needs each operand."""
        return tuple(self.placement.operand(self.rule, k) for k in range(len(self.op.operands)))

    @cached_property
    def result_layouts(self) -> tuple[Layout, ...]:
        """The layout in which the placement defines each result."""
        return tuple(self.placement.result(self.rule, k) for k in range(len(self.op.results)))

    def operand_atoms(self, operand: int, dim: int) -> tuple[int, ...]:
        """Atoms that cut a dimension of an operand; empty where they are all of size 1 and cut nothing."""
        return self._cutting(self.operand_layouts[operand].dims[dim])

    def result_atoms(self, result: int, dim: int) -> tuple[int, ...]:
        """Atoms that cut a dimension of a result; empty where they are all of size 1 and cut nothing."""
        return self._cutting(self.result_layouts[result].dims[dim])

    def _cutting(self, atoms: tuple[int, ...]) -> tuple[int, ...]:
        return atoms if self.grid.mesh.size(atoms) > 1 else ()

    def local_result(self, result: int) -> tuple[int, ...]:
        """Shape of a result on one device."""
        return self.result_layouts[result].local_shape(self.result_types[result].shape, self.grid.mesh)

    def is_uneven(self, n: int, atoms: Sequence[int]) -> bool:
        """Whether cutting a dimension of n elements by these atoms leaves blocks with padding."""
        return n % self.grid.mesh.size(atoms) != 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cut: every device runs the op as it was written."""
        layouts = (*self.operand_layouts, *self.result_layouts)
        return not any(self._cutting(atoms) for layout in layouts for atoms in layout.dims)

    def bind(self, operands: Sequence[Any], **params: Any) -> list[Any]:
        """Results of the primitive on local operands, with these parameters replaced."""
        return bind_local(replace(self.jax_op, params={**self.jax_op.params, **params}), operands)

    def __str__(self) -> str:
        mesh = self.grid.mesh
        ins = ", ".join(f"{t} {x.text(mesh)}" for t, x in zip(self.operand_types, self.operand_layouts, strict=True))
        outs = ", ".join(f"{t} {x.text(mesh)}" for t, x in zip(self.result_types, self.result_layouts, strict=True))
        where = f" at {self.op.source}" if self.op.source else ""
        return f"{self.op.kind}({ins}) -> ({outs}){where}"

    def unsupported(self, reason: str) -> NoReturn:
        """Raise `UnsupportedError`: this op cannot run on local blocks, for the given reason."""
        raise UnsupportedError(f"cannot run {self} on local blocks: {reason}; pin its tensors so that this is whole")


LocalFunction = Callable[..., Sequence[Any]]
_TABLE: dict[str, LocalFunction] = {}


def local(*kinds: str) -> Callable[[LocalFunction], LocalFunction]:
    """Decorator: ``f(ctx, *local_operands) -> local results`` for primitives by name."""

    def register(function: LocalFunction) -> LocalFunction:
        for kind in kinds:
            assert kind not in _TABLE, f"two local forms for {kind}"
            _TABLE[kind] = function
        return function

    return register


# The same primitive on blocks: what a device computes depends on its own elements only, along every
# dimension that its rule lets be cut.
UNCHANGED = frozenset(
    {
        *UNARY_LINEAR, *SUMS, *NONLINEAR, "mul", "div", "select_n", "optimization_barrier",
        "transpose", "squeeze", "rev", "stack", "unstack", "bitcast_convert_type",
        "dot_general", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor",
        "reduce", "argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp",
        "sort", "top_k", "approx_top_k", "cholesky", "triangular_solve", "qr", "lu", "eigh", "svd",
        "householder_product", "geqrf", "lu_pivots_to_permutation", "tridiagonal_solve",
        "geqp3", "cholesky_update", "eig", "hessenberg", "ormqr", "schur", "symmetric_product", "tridiagonal",
        "random_wrap", "random_unwrap", "random_clone", "random_fold_in", "random_split", "random_gamma",
    }
)  # fmt: skip

NEUTRAL: dict[str, Callable[[np.dtype], Any]] = {
    "dot_general": lambda dtype: 0,
    "ragged_dot_general": lambda dtype: 0,
    "conv_general_dilated": lambda dtype: 0,
    "reduce_sum": lambda dtype: 0,
    "reduce_max": lambda dtype: _extreme(dtype, "min"),
    "reduce_min": lambda dtype: _extreme(dtype, "max"),
}
"""The number that padding of a contracted or reduced dimension must hold, so that it does not change the result."""


def _extreme(dtype: np.dtype, which: str) -> Any:
    if dtype == np.bool_:
        return which == "max"
    if jax.numpy.issubdtype(dtype, np.integer):
        return getattr(jax.numpy.iinfo(dtype), which)
    return -np.inf if which == "min" else np.inf


def run_local(ctx: LocalOp, operands: Sequence[Any]) -> list[Any]:
    """The results of one op on one device, before partial results are combined.

    Raises `UnsupportedError` where the op has no local form under this placement.
    """
    check_placement(ctx)
    try:
        results = _run(ctx, operands)
    except AutoshardError:
        raise
    except (TypeError, ValueError) as error:  # JAX's own checks of shapes and parameters
        raise UnsupportedError(f"cannot run {ctx} on local blocks: {str(error)[:500]}") from error
    for k, result in enumerate(results):
        if tuple(np.shape(result)) != ctx.local_result(k):
            ctx.unsupported(f"result {k} has local shape {np.shape(result)}, its layout wants {ctx.local_result(k)}")
    return results


def _run(ctx: LocalOp, operands: Sequence[Any]) -> list[Any]:
    function = _TABLE.get(ctx.op.kind)
    if ctx.is_whole:
        return list(function(ctx, *operands)) if ctx.op.kind in _ALWAYS and function else ctx.bind(operands)
    operands = mask_reduced(ctx, operands)
    if function is not None:
        return list(function(ctx, *operands))
    if ctx.op.kind in UNCHANGED or ctx.rule.is_custom:
        return ctx.bind(operands)
    ctx.unsupported("this primitive has no local form yet")


def check_placement(ctx: LocalOp) -> None:
    """Refuse placements on factors that must be whole, and cuts inside of compound dimensions."""
    rule, sizes = ctx.rule, ctx.grid.mesh
    if len(ctx.placement.factors) != len(rule.factor_sizes):
        raise InputError(f"the placement of {ctx.op.kind} has {len(ctx.placement.factors)} factors, its rule is {rule}")
    parts = [sizes.size(atoms) for atoms in ctx.placement.factors]
    if not rule.halos_fit(parts):
        raise InputError(f"{ctx}: cut into blocks that are uneven or shorter than the edges that neighbours need")
    moved = ctx.placement.moved(rule)
    if any(ctx.placement.factors[c.taken] != ctx.placement.factors[c.made] for c in moved):
        raise InputError(f"{ctx}: a dimension and the run that is taken from it are cut by different axes")
    exchanged = {h.factor for h in rule.halos} | {f for c in moved for f in (c.taken, c.made)}
    for f in sorted((rule.need_replication | rule.permutation) - exchanged - set(rule.placeable)):
        if sizes.size(ctx.placement.factors[f]) > 1:
            raise InputError(f"{ctx}: its rule {rule} wants factor {f} whole, the placement cuts it")
    tensors: list[TensorFactors] = [*rule.operands, *rule.results]
    for dim in (dim for tensor in tensors for dim in tensor if len(dim) > 1):
        for major, minor in pairwise(dim):
            if sizes.size(ctx.placement.factors[minor]) > 1 and (
                sizes.size(ctx.placement.factors[major]) != rule.factor_sizes[major]
            ):
                ctx.unsupported(
                    "a factor is cut inside of a dimension whose major factor is not cut to single elements"
                )
        for f in dim:
            if rule.factor_sizes[f] % sizes.size(ctx.placement.factors[f]):
                ctx.unsupported(
                    f"a factor of size {rule.factor_sizes[f]} of a compound dimension is cut unevenly "
                    f"over {{{sizes.axes_text(ctx.placement.factors[f])}}}"
                )


def mask_tail(x: Any, dim: int, n: int, atoms: Sequence[int], neutral: Any, grid: Grid) -> Any:
    """Put `neutral` into the padding of a dimension of n elements cut unevenly by `atoms`."""
    position = lax.broadcasted_iota(np.int32, x.shape, dim)
    inside = lax.lt(position, lax.broadcast(grid.count(n, atoms), x.shape))
    return lax.select(inside, x, lax.full_like(x, neutral))


def mask_reduced(ctx: LocalOp, operands: Sequence[Any]) -> list[Any]:
    """The operands with the neutral number in the padding of every reduced dimension."""
    out = list(operands)
    if ctx.op.kind not in NEUTRAL:
        return out
    for k, tensor in enumerate(ctx.rule.operands):
        for d, factors in enumerate(tensor):
            atoms, n = ctx.operand_atoms(k, d), ctx.operand_types[k].shape[d]
            if set(factors) & ctx.rule.reduction and ctx.is_uneven(n, atoms):
                out[k] = mask_tail(out[k], d, n, atoms, NEUTRAL[ctx.op.kind](out[k].dtype), ctx.grid)
    return out


_IDENTITIES = frozenset({"sharding_constraint", "layout_constraint", "mesh_cast", "reshard", "device_put"})
_ALWAYS = _IDENTITIES | {"pad", "fft"}
"""Primitives that run in their local form also where nothing is cut."""


@local(*sorted(_IDENTITIES))
def identity(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """The operands unchanged: these ops request a placement, and the schedule has decided it."""
    return operands


@local("fft")
def fft(ctx: LocalOp, x: Any) -> Sequence[Any]:
    """The primitive on arrays in row-major order.

    XLA for CPU may give its FFT the array layout of a collective next to it, and then refuses that layout at run time.
    """
    return [_row_major(out) for out in ctx.bind([_row_major(x)])]


def _row_major(x: Any) -> Any:
    """The same array in row-major order: a flat array has no other, and the barrier keeps the two reshapes apart."""
    return lax.reshape(lax.optimization_barrier(lax.reshape(x, (np.size(x),))), np.shape(x))
