"""One list of ops, each a single JAX equation, for every test that judges rules by running or asking someone."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Literal

from autoshard.program.rule import ShardingRule
from autoshard.program.types import TensorType
from autoshard.rules import LITERALS, rule_for


@dataclass(frozen=True)
class Case:
    """A function whose jaxpr holds one equation of `primitive`, and arguments to run it on.

    stablehlo: the op to which it lowers alone, where there is one.
    is_thorough: cut every factor and pairs of them; else one factor, as the rule is the same as a sibling's.
    """

    name: str
    primitive: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    stablehlo: str | None
    is_thorough: bool = True

    @cached_property
    def equation(self) -> Any:
        def walk(jaxpr: Any) -> Any:
            for eqn in jaxpr.eqns:
                if eqn.primitive.name == self.primitive:
                    yield eqn
                for inner in eqn.params.values():
                    if hasattr(inner, "jaxpr"):
                        yield from walk(inner.jaxpr)

        found = list(walk(jax.make_jaxpr(self.function)(*self.arguments).jaxpr))
        assert len(found) == 1, f"{self.name}: {len(found)} equations of {self.primitive}"
        return found[0]

    @property
    def literals(self) -> dict[int, Any]:
        return {k: v.val for k, v in enumerate(self.equation.invars) if isinstance(v, Literal)}

    @cached_property
    def rule(self) -> ShardingRule:
        eqn = self.equation
        match = rule_for(
            self.primitive, _types(eqn.invars), _types(eqn.outvars), {**eqn.params, LITERALS: self.literals}
        )
        assert match.warning is None, match.warning
        return match.rule

    def operands(self) -> list[Any]:
        """The arguments in the equation's order, literals in their places."""
        arguments = iter(self.arguments)
        found = [v.val if isinstance(v, Literal) else next(arguments) for v in self.equation.invars]
        for value, var in zip(found, self.equation.invars, strict=True):
            assert np.shape(value) == var.aval.shape, f"{self.name}: operands are not the arguments"
        return found


def _types(variables: Any) -> list[TensorType]:
    return [TensorType(tuple(v.aval.shape), str(v.aval.dtype)) for v in variables]


CASES: list[Case] = []


def add(
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    hlo: str | None = None,
    kind: str = "",
    is_thorough: bool = True,
) -> None:
    CASES.append(Case(name, kind or name.split(":")[0], function, arguments, hlo, is_thorough))


def _rng(*key: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def f(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Small whole numbers, so that sums are exact in any order."""
    return _rng(shape, len(CASES)).integers(-4, 5, shape).astype(dtype)


def unit(*shape: int) -> np.ndarray:
    """Numbers between 0 and 1."""
    return _rng(shape, len(CASES)).uniform(0.1, 0.9, shape).astype("float32")


def ints(shape: tuple[int, ...], high: int, low: int = 0, dtype: str = "int32") -> np.ndarray:
    return _rng(shape, high, len(CASES)).integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> np.ndarray:
    return _rng(shape, len(CASES)).integers(0, 2, shape).astype(bool)


def _elementwise() -> None:
    plain = (
        "abs acosh asinh atan cbrt ceil cos cosh erf exp exp2 expm1 floor log log1p logistic neg rsqrt sign sin sinh "
        "sqrt square tan tanh digamma lgamma bessel_i0e bessel_i1e is_finite round"
    )
    straight = {
        "abs": "abs", "neg": "negate", "exp": "exponential", "log": "log", "tanh": "tanh",
        "rsqrt": "rsqrt", "sqrt": "sqrt", "cbrt": "cbrt", "ceil": "ceil", "floor": "floor", "sign": "sign",
        "sin": "sine", "cos": "cosine", "log1p": "log_plus_one", "expm1": "exponential_minus_one",
        "is_finite": "is_finite",
    }  # fmt: skip
    for name in plain.split():
        add(
            name,
            getattr(lax, name),
            unit(4, 6) + (1 if name == "acosh" else 0),
            hlo=straight.get(name),
            is_thorough=False,
        )
    for name in ("asin", "acos", "atanh", "erfc", "erf_inv"):
        add(name, getattr(lax, name), unit(4, 6), is_thorough=False)
    for name, op in {"add": "add", "sub": "subtract", "mul": "multiply", "max": "maximum", "min": "minimum",
                     "div": "divide", "rem": "remainder", "pow": "power", "atan2": "atan2"}.items():  # fmt: skip
        add(name, getattr(lax, name), unit(4, 6), unit(4, 6), hlo=op, is_thorough=name == "add")
    for name in ("nextafter", "zeta"):
        add(name, getattr(lax, name), unit(4, 6) + 2, unit(4, 6) + 1, is_thorough=False)
    for name, op in {"eq": "compare", "ne": "compare", "lt": "compare", "le": "compare", "gt": "compare",
                     "ge": "compare"}.items():  # fmt: skip
        add(name, getattr(lax, name), f(4, 6), f(4, 6), hlo=op, is_thorough=False)
    word = ((4, 6), 200)
    for name, op in {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "shift_left": None,
                     "shift_right_logical": None, "shift_right_arithmetic": None}.items():  # fmt: skip
        kind = op or name
        add(f"{kind}:int", getattr(lax, name), ints(*word), ints((4, 6), 5), hlo=op, is_thorough=False)
    add("not", lax.bitwise_not, bools(4, 6), hlo="not")
    add("population_count", lax.population_count, ints(*word), hlo="popcnt")
    add("clz", lax.clz, ints(*word), hlo="count_leading_zeros")
    add("add:size 1", lax.add_p.bind, f(4, 1), f(4, 6))
    add("mul:scalar literal", lambda x: x * 2.0, f(4, 6))
    add("add:int", lax.add, ints(*word), ints(*word), hlo="add")
    add("div:int", lax.div, ints(*word), ints((4, 6), 9, 1), hlo="divide")
    add("integer_pow", lambda x: lax.integer_pow(x, 3), f(4, 6))
    add("reduce_precision", lambda x: lax.reduce_precision(x, 5, 10), unit(4, 6), hlo="reduce_precision")
    add("convert_element_type:narrower", lambda x: lax.convert_element_type(x, jnp.bfloat16), f(4, 6), hlo="convert")
    add("convert_element_type:to int", lambda x: lax.convert_element_type(x, jnp.int32), f(4, 6), hlo="convert")
    add("clamp:scalars", lambda x: lax.clamp(-1.0, x, 2.0), f(4, 6))
    add("clamp", lax.clamp, f(4, 6) - 5, f(4, 6), f(4, 6) + 5, hlo="clamp")
    add("select_n", lax.select_n, bools(4, 6), f(4, 6), f(4, 6), hlo="select")
    add("select_n:scalar predicate", lax.select_n, np.array(True), f(4, 6), f(4, 6), hlo="select")
    add("complex", lax.complex, f(4, 6), f(4, 6), hlo="complex")
    add("real", lax.real, f(4, 6, dtype="complex64"), hlo="real")
    add("imag", lax.imag, f(4, 6, dtype="complex64"), hlo="imag")
    add("conj", lax.conj, f(4, 6, dtype="complex64"))
    add("stop_gradient", lax.stop_gradient, f(4, 6))
    add("copy", jnp.copy, f(4, 6))
    add("optimization_barrier", lax.optimization_barrier, f(4, 6))
    key = jax.random.key(7)
    add("random_bits", lambda k: jax.random.bits(k, (4, 6)), key)
    add("random_fold_in", lambda k, n: jax.vmap(jax.random.fold_in)(k, n), jax.random.split(key, 4), ints((4,), 99))
    add("random_split", lambda k: jax.random.split(k, 6), key)
    add("random_wrap", jax.random.wrap_key_data, ints((4, 2), 99, dtype="uint32"))
    add("random_unwrap", jax.random.key_data, jax.random.split(key, 4))


def _shapes() -> None:
    add("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (3, 4, 6), (1, 2)), f(4, 6), hlo="broadcast_in_dim")
    add("broadcast_in_dim:size 1", lambda x: lax.broadcast_in_dim(x, (4, 6), (0, 1)), f(4, 1), hlo="broadcast_in_dim")
    for source, target in (
        ((8, 4, 5), (2, 16, 5)), ((16, 4), (8, 8)), ((6, 4), (4, 6)), ((4, 1, 6), (24,)), ((12,), (2, 1, 6)),
        ((12, 2, 5), (8, 15)), ((2, 3, 4), (3, 8)), ((8, 12), (2, 4, 4, 3)),
    ):  # fmt: skip
        name = f"reshape:{'x'.join(map(str, source))} to {'x'.join(map(str, target))}"
        add(name, lambda x, target=target: lax.reshape(x, target), f(*source), hlo="reshape")
    add("squeeze", lambda x: lax.squeeze(x, (1,)), f(4, 1, 6), hlo="reshape")
    add("transpose", lambda x: lax.transpose(x, (2, 0, 1)), f(4, 6, 8), hlo="transpose")
    add("iota", lambda: lax.broadcasted_iota(jnp.int32, (4, 6), 1))
    add("bitcast_convert_type", lambda x: lax.bitcast_convert_type(x, jnp.int32), f(4, 6), hlo="bitcast_convert")
    add(
        "bitcast_convert_type:narrower",
        lambda x: lax.bitcast_convert_type(x, jnp.uint8),
        f(4, 6),
        hlo="bitcast_convert",
    )
    add("tile", lambda x: lax.tile(x, (2, 3)), f(4, 6))
    add("stack", lambda x, y: lax.stack((x, y), axis=1), f(4, 6), f(4, 6))
    add("unstack", lambda x: lax.unstack(x, axis=1), f(4, 3, 6))
    add("slice", lambda x: lax.slice(x, (0, 1), (4, 5)), f(4, 6), hlo="slice")
    add("slice:whole", lambda x: lax.slice(x, (0, 0), (4, 6), (1, 2)), f(4, 6), hlo="slice")
    add("pad", lambda x: lax.pad(x, 0.0, ((0, 0, 0), (1, 2, 0))), f(4, 6), hlo="pad")
    add("pad:negative and interior", lambda x, v: lax.pad(x, v, ((0, 0, 1), (-1, 0, 0), (0, 0, 0))), f(4, 6, 8), f(),
        hlo="pad")  # fmt: skip
    add("concatenate", lambda x, y: lax.concatenate((x, y), 1), f(4, 6), f(4, 8), hlo="concatenate")
    add("split", lambda x: lax.split(x, (2, 4), 1), f(4, 6))
    add("rev", lambda x: lax.rev(x, (1,)), f(4, 6), hlo="reverse")
    place = ints((), 3)
    cut = lambda x, i, j: lax.dynamic_slice_p.bind(x, i, j, slice_sizes=(4, 3))  # noqa: E731
    add("dynamic_slice", cut, f(4, 6), place * 0, place, hlo="dynamic_slice")
    for start in (-2, 0, 1, 3, 5, 9):
        for size in (1, 3):
            add(f"dynamic_update_slice:size {size} at {start}", lax.dynamic_update_slice_p.bind, f(4, 6), f(4, size),
                np.int32(0), np.int32(start), hlo="dynamic_update_slice" if start == 1 else None)  # fmt: skip


def _reductions() -> None:
    add("reduce_sum", lambda x: lax.reduce_sum(x, (1,)), f(4, 6, 8), hlo="reduce")
    add("reduce_max", lambda x: lax.reduce_max(x, (1,)), f(4, 6, 8), hlo="reduce")
    add("reduce_min", lambda x: lax.reduce_min(x, (0, 2)), f(4, 6, 8), hlo="reduce")
    add("reduce_prod", lambda x: lax.reduce_prod(x, (1,)), f(4, 6), hlo="reduce")
    add("reduce_and", lambda x: lax.reduce_and(x, (1,)), bools(4, 6), hlo="reduce")
    add("reduce_or", lambda x: lax.reduce_or(x, (1,)), bools(4, 6), hlo="reduce")
    add("reduce_xor", lambda x: lax.reduce_xor(x, (1,)), ints((4, 6), 99), hlo="reduce")
    add("argmax", lambda x: lax.argmax(x, 1, jnp.int32), f(4, 6), hlo="reduce")
    add("argmin", lambda x: lax.argmin(x, 1, jnp.int32), f(4, 6), hlo="reduce")
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        hlo = "reduce_window" if name == "cumsum" else None
        add(name, lambda x, name=name: getattr(lax, name)(x, 1), f(4, 6), hlo=hlo)
    add("sort", lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), f(4, 6), f(4, 6), hlo="sort")
    add("top_k", lambda x: lax.top_k(x, 2), f(4, 6))


def _contractions() -> None:
    add("dot_general", lambda x, y: lax.dot(x, y), f(8, 32), f(32, 16), hlo="dot_general")
    batched = (((2,), (1,)), ((0,), (0,)))
    add("dot_general:batch", lambda x, y: lax.dot_general(x, y, batched), f(4, 8, 32), f(4, 32, 16), hlo="dot_general")
    two = (((3, 1), (0, 2)), ((0,), (3,)))
    add("dot_general:two contracting", lambda x, y: lax.dot_general(x, y, two), f(2, 6, 4, 8), f(8, 3, 6, 2),
        hlo="dot_general")  # fmt: skip
    add("dot_general:wider result", lambda x, y: lax.dot(x, y, preferred_element_type=jnp.float32),
        f(4, 6, dtype="bfloat16"), f(6, 8, dtype="bfloat16"), hlo="dot_general")  # fmt: skip
    sizes = np.array([2, 0, 3, 2], "int32")  # 7 of 8 rows: the last one belongs to no group
    add("ragged_dot_general", lax.ragged_dot, f(8, 6), f(4, 6, 10), sizes)
    numbers = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])
    add(
        "ragged_dot_general:contracting",
        lambda x, y, g: lax.ragged_dot_general(x, y, g, numbers),
        f(8, 6),
        f(8, 10),
        sizes,
    )


def _convolutions() -> None:
    def conv(name: str, lhs: tuple[int, ...], rhs: tuple[int, ...], strides: Any = (1, 1), **options: Any) -> None:
        padding = options.pop("padding", "SAME")
        function = lambda x, k: lax.conv_general_dilated(x, k, strides, padding, **options)  # noqa: E731
        add(f"conv_general_dilated:{name}", function, f(*lhs), f(*rhs), hlo="convolution")

    conv("3x3", (2, 6, 8, 8), (10, 6, 3, 3))
    conv("1x1", (2, 6, 8, 8), (10, 6, 1, 1))
    conv("1x1 stride 2", (2, 6, 8, 8), (10, 6, 1, 1), (2, 2))
    conv("groups", (2, 6, 4, 4), (10, 3, 3, 3), feature_group_count=2)
    conv("depthwise", (2, 6, 4, 4), (12, 1, 3, 3), feature_group_count=6)
    conv("batch groups", (6, 4, 4, 4), (6, 4, 3, 3), batch_group_count=2)
    conv("dilated", (2, 4, 8, 8), (6, 4, 3, 3), rhs_dilation=(2, 2), lhs_dilation=(2, 1), padding=((1, 2), (0, 0)))
    conv("whole window", (4, 6, 8, 4), (2, 6, 8, 4), padding="VALID")
    conv("NHWC", (2, 8, 8, 6), (3, 3, 6, 4), dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def weight_gradient(x: Any, g: Any) -> Any:
        """What JAX makes of the gradient of a strided 1x1 convolution's kernel."""
        forward = lambda k: lax.conv_general_dilated(x, k, (1, 1), "VALID")  # noqa: E731
        return jax.linear_transpose(forward, jax.ShapeDtypeStruct((10, 6, 1, 1), jnp.float32))(g)

    add("conv_general_dilated:weight gradient 1x1", weight_gradient, f(2, 6, 4, 4), f(2, 10, 4, 4), hlo="convolution")

    def grouped_gradient(x: Any, g: Any) -> Any:
        forward = lambda k: lax.conv_general_dilated(x, k, (1, 1), "SAME", feature_group_count=2)  # noqa: E731
        return jax.linear_transpose(forward, jax.ShapeDtypeStruct((10, 3, 3, 3), jnp.float32))(g)

    add(
        "conv_general_dilated:weight gradient groups",
        grouped_gradient,
        f(2, 6, 4, 4),
        f(2, 10, 4, 4),
        hlo="convolution",
    )


def _windows() -> None:
    window = ((1, 2, 1), (1, 2, 1), "VALID")
    add("reduce_window_sum", lambda x: lax.reduce_window(x, 0.0, lax.add, *window), f(4, 6, 8), hlo="reduce_window")
    add("reduce_window_max", lambda x: lax.reduce_window(x, -np.inf, lax.max, *window), f(4, 6, 8), hlo="reduce_window")
    add("reduce_window_min", lambda x: lax.reduce_window(x, np.inf, lax.min, *window), f(4, 6, 8), hlo="reduce_window")

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, *window)

    def gradient(g: Any, x: Any) -> Any:
        return jax.vjp(pooled, x)[1](g)[0]

    add("select_and_scatter_add", gradient, f(4, 3, 8), f(4, 6, 8), hlo="select_and_scatter")
    add("select_and_gather_add", lambda t, x: jax.jvp(pooled, (x,), (t,))[1], f(4, 6, 8), f(4, 6, 8))


def _indexing() -> None:
    def gather(name: str, x: Any, ids: Any, sizes: Any, mode: str, fill: Any = None, **numbers: Any) -> None:
        numbers = lax.GatherDimensionNumbers(**numbers)
        function = lambda x, i: lax.gather(x, i, numbers, sizes, mode=mode, fill_value=fill)  # noqa: E731
        add(f"gather:{name}, {mode}", function, x, ids, hlo="gather" if mode != "fill" else None, kind="gather")

    rows = {"offset_dims": (2,), "collapsed_slice_dims": (0,), "start_index_map": (0,)}
    for mode in ("promise_in_bounds", "clip", "fill"):
        low, high = (0, 12) if mode == "promise_in_bounds" else (-5, 20)
        gather("embedding", f(12, 6), ints((4, 5, 1), high, low), (1, 6), mode, **rows)
    gather("embedding of ints", ints((12, 6), 9), ints((4, 5, 1), 20, -5), (1, 6), "fill", **rows)
    gather("embedding filled with 3", f(12, 6), ints((4, 5, 1), 20, -5), (1, 6), "fill", 3.0, **rows)
    gather("embedding of bools", bools(12, 6), ints((4, 5, 1), 12), (1, 6), "clip", **rows)
    along = {"offset_dims": (), "collapsed_slice_dims": (1,), "start_index_map": (1,), "operand_batching_dims": (0,),
             "start_indices_batching_dims": (0,)}  # fmt: skip
    gather("take_along_axis", f(4, 12), ints((4, 3, 1), 12), (1, 1), "clip", **along)
    points = {"offset_dims": (), "collapsed_slice_dims": (0, 1), "start_index_map": (0, 1)}
    for mode in ("clip", "fill"):
        gather("points", f(4, 12), ints((6, 2), 14, -3), (1, 1), mode, **points)
    kept = {"offset_dims": (1, 2), "collapsed_slice_dims": (), "start_index_map": (0,)}
    gather("row kept as size 1", f(12, 6), ints((4, 1), 12), (1, 6), "clip", **kept)
    gather("windows of 3", f(12, 6), ints((4, 1), 10), (3, 6), "clip", **kept)

    def scatter(name: str, function: Any, x: Any, ids: Any, updates: Any, mode: str, **numbers: Any) -> None:
        numbers = lax.ScatterDimensionNumbers(**numbers)
        kind = function.__name__.replace("_", "-")
        body = lambda x, i, u: function(x, i, u, numbers, mode=mode)  # noqa: E731
        add(f"{kind}:{name}, {mode}", body, x, ids, updates, hlo="scatter" if mode != "clip" else None, kind=kind)

    rows = {"update_window_dims": (2,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
    for mode in ("promise_in_bounds", "clip", "fill"):
        low, high = (0, 12) if mode == "promise_in_bounds" else (-5, 20)
        scatter("rows", lax.scatter_add, f(12, 6), ints((4, 5, 1), high, low), f(4, 5, 6), mode, **rows)
    scatter("rows", lax.scatter_sub, f(12, 6), ints((4, 5, 1), 20, -5), f(4, 5, 6), "fill", **rows)
    scatter("rows", lax.scatter_max, f(12, 6), ints((4, 5, 1), 20, -5), f(4, 5, 6), "fill", **rows)
    scatter("rows", lax.scatter_min, f(12, 6), ints((4, 5, 1), 20, -5), f(4, 5, 6), "fill", **rows)
    scatter("rows", lax.scatter_mul, f(12, 6), ints((4, 5, 1), 20, -5), f(4, 5, 6), "fill", **rows)
    scatter("rows", lax.scatter, f(12, 6), np.arange(20).reshape(4, 5, 1) - 3, f(4, 5, 6), "fill", **rows)
    along = {"update_window_dims": (), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (1,),
             "operand_batching_dims": (0,), "scatter_indices_batching_dims": (0,)}  # fmt: skip
    scatter("along axis", lax.scatter_add, f(4, 12), ints((4, 3, 1), 12), f(4, 3), "fill", **along)
    points = {"update_window_dims": (), "inserted_window_dims": (0, 1), "scatter_dims_to_operand_dims": (0, 1)}
    scatter("points", lax.scatter_add, f(4, 12), ints((6, 2), 14, -3), f(6), "clip", **points)
    parts = {"update_window_dims": (1, 2), "inserted_window_dims": (), "scatter_dims_to_operand_dims": (0,)}
    scatter("windows of 3", lax.scatter_add, f(12, 6), ints((4, 1), 10), f(4, 3, 6), "fill", **parts)


def _linalg() -> None:
    matrix = np.eye(4, dtype="float32") * 9 + unit(3, 4, 4)
    spd = matrix @ matrix.swapaxes(1, 2)
    linalg = lax.linalg
    add("cholesky", lambda a: linalg.cholesky(a, symmetrize_input=False), spd)
    add("eigh", lambda a: linalg.eigh(a, symmetrize_input=False), spd)
    add("svd", lambda a: linalg.svd(a, full_matrices=False), unit(3, 4, 6))
    add("lu", linalg.lu, matrix)
    add("qr", lambda a: linalg.qr(a, full_matrices=False), unit(3, 6, 4))
    add("householder_product", linalg.householder_product, unit(3, 6, 4), unit(3, 4))
    for left in (True, False):
        b = unit(3, 4, 6) if left else unit(3, 6, 4)
        add(f"triangular_solve:left {left}", lambda a, b, s=left: linalg.triangular_solve(a, b, left_side=s), matrix, b)
    one = np.ones((3, 4), "float32")
    add("tridiagonal_solve", linalg.tridiagonal_solve, one, one * 9, one, f(3, 4, 6))
    add("lu_pivots_to_permutation", lambda p: linalg.lu_pivots_to_permutation(p, 5), ints((3, 4), 4))
    add("fft", lambda x: lax.fft(x, "FFT", (6,)), f(4, 6, dtype="complex64"), hlo="fft")
    add("fft:real", lambda x: lax.fft(x, "RFFT", (6,)), f(4, 6), hlo="fft")


for family in (
    _elementwise, _shapes, _reductions, _contractions, _convolutions, _windows, _indexing, _linalg,
):  # fmt: skip
    family()


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    return CASES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `case` runs on every case; `linear_case`, on those with linear sets; `stablehlo_case`, on
    those that Shardy has a rule for."""
    for fixture, cases in (
        ("case", CASES),
        ("linear_case", [c for c in CASES if c.rule.linear]),
        ("stablehlo_case", [c for c in CASES if c.stablehlo]),
    ):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, cases, ids=[c.name.replace(" ", "_") for c in cases])
