"""Elementwise primitives: every dimension is one factor, shared by all operands and results.

Operands may be scalars, or have size 1 where the result is larger.
"""

from autoshard.errors import RuleError
from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, is_inexact
from autoshard.rules.registry import rule

UNARY_LINEAR = (
    "neg", "real", "imag", "conj", "convert_element_type", "copy", "copy_p", "pvary", "stop_gradient",
    "layout_constraint", "mesh_cast", "reshard", "name",
)  # fmt: skip
"""Primitives with f(x + y) = f(x) + f(y), identities of JAX (copies, names) included."""

SUMS = ("add", "sub", "add_any", "complex")
"""Primitives with f(a + c, b + d) = f(a, b) + f(c, d)."""

NONLINEAR = (
    # unary
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "ceil", "clz", "cos",
    "cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "integer_pow", "is_finite", "lgamma",
    "log", "log1p", "log2", "logistic", "not", "one_minus_square", "population_count", "reduce_precision", "round",
    "rsqrt", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "to_edtype", "from_edtype",
    # binary
    "and", "atan2", "eq", "eq_to", "ge", "gt", "igamma", "igamma_grad_a", "igammac", "le", "le_to", "lt", "lt_to",
    "max", "min", "mulhi", "ne", "nextafter", "or", "polygamma", "pow", "random_gamma_grad", "rem", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "xor", "zeta",
    # ternary
    "clamp", "regularized_incomplete_beta",
    # any number of operands: the argument and the coefficients
    "polynomial",
    # random numbers: each element is a function of its own key, message or counter
    "random_seed", "random_fold_in", "random_clone", "threefry2x32", "threefry4x32", "philox2x32", "philox4x32",
)  # fmt: skip


def elementwise(call: Call, linear: tuple[tuple[int, ...], ...] = ()) -> ShardingRule:
    """One factor per dimension of the results; scalars and size-1 dimensions are broadcast.

    ``mul(float32[4,1], float32[4,8])`` is ``([i, _], [i, j])->([i, j])``.
    """
    rank = max((t.rank for t in (*call.operands, *call.results)), default=0)
    for k, t in enumerate(call.operands):
        if t.rank not in (0, rank):
            raise RuleError(f"{call}: operand {k} of an elementwise op has rank {t.rank}, expected {rank} or a scalar")
    dims = range(rank)
    return call.build([dims if t.rank else () for t in call.operands], [dims for _ in call.results], linear=linear)


@rule(*NONLINEAR)
def nonlinear(call: Call) -> ShardingRule:
    """Elementwise; no partial sum passes."""
    return elementwise(call)


@rule("sharding_constraint")
def sharding_constraint(call: Call) -> ShardingRule:
    """Identity; partial sums end here, because the constraint is on the whole value."""
    return elementwise(call)


@rule(*UNARY_LINEAR)
def unary_linear(call: Call) -> ShardingRule:
    """Elementwise; partial sums pass (a change of type only between float types, see `Call.build`)."""
    return elementwise(call, ((0,),))


@rule(*SUMS)
def sums(call: Call) -> ShardingRule:
    """Elementwise; partial sums pass if both operands are partial."""
    return elementwise(call, ((0, 1),))


@rule("mul")
def mul(call: Call) -> ShardingRule:
    """Elementwise; one operand may be partial while the other is whole."""
    return elementwise(call, ((0,), (1,)))


@rule("div")
def div(call: Call) -> ShardingRule:
    """Linear in the numerator; integer division rounds and is not."""
    return elementwise(call, ((0,),) if is_inexact(call.results[0].dtype) else ())


@rule("select_n")
def select_n(call: Call) -> ShardingRule:
    """The predicate may be a scalar; the cases are linear together (the predicate whole)."""
    return elementwise(call, (tuple(range(1, len(call.operands))),))


@rule("tie")
def tie(call: Call) -> ShardingRule:
    """The second operand, available once the first is; the sharding of the first is free."""
    labels = [[(k, d) for d in range(t.rank)] for k, t in enumerate(call.operands)]
    return call.build(labels, [labels[1]], linear=((1,),))


@rule("optimization_barrier", "device_put")
def each_its_own(call: Call) -> ShardingRule:
    """Identity on each operand by itself; partial sums pass where there is a single operand."""
    labels = [[(k, d) for d in range(t.rank)] for k, t in enumerate(call.operands)]
    return call.build(labels, labels, linear=((0,),) if len(call.operands) == 1 else ())
