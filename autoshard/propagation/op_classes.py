"""Which ops are elementwise, pass-through, slices, broadcasts or constants, by the names the front ends give them.

The names are those of JAX primitives and of StableHLO ops (without the dialect's prefix). The classes decide the order
of ops in propagation (`directions.py`) and which constants are split.
"""

from autoshard.program.program import Op
from autoshard.propagation.directions import OpClass

_ELEMENTWISE_NAMES = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e bitcast_convert_type cbrt ceil
    clamp clz compare complex conj convert convert_element_type copy copy_p cos cosh cosine count_leading_zeros
    digamma div divide eq erf erf_inv erfc exp exp2 expm1 exponential exponential_minus_one floor ge gt igamma
    igammac imag integer_pow is_finite le lgamma log log1p log_plus_one logistic lt max maximum min minimum mul
    multiply nan_to_num ne neg negate nextafter not one_minus_square or popcnt population_count pow power
    propagation_barrier real reduce_precision regularized_incomplete_beta rem remainder round round_nearest_afz
    round_nearest_even rsqrt sdy.sharding_constraint select select_n sharding_constraint shift_left
    shift_right_arithmetic shift_right_logical sign sin sine sinh sqrt square stop_gradient sub subtract tan tanh
    xor
"""
ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES.split())

CONSTRAINTS = frozenset({"sharding_constraint", "sdy.sharding_constraint"})
EDGES = frozenset({"optimization_barrier", "data_flow_edge"})
_PASS_THROUGH = frozenset({"reshape", "transpose", "squeeze", "expand_dims", "optimization_barrier", "data_flow_edge"})
_SLICE = frozenset({"dynamic_slice", "dynamic_update_slice"})
_BROADCAST = frozenset({"broadcast_in_dim"})
_CONSTANTS = frozenset({"iota", "constant"})
_KEEPS_CONSTANT = frozenset({"broadcast_in_dim", "reshape", "slice", "squeeze", "expand_dims"})


def base_name(kind: str) -> str:
    """The kind of an op without the prefix of the StableHLO dialect."""
    return kind.removeprefix("stablehlo.")


def is_elementwise(op: Op) -> bool:
    """`attrs["elementwise"]` where the front end says so, else by name (`select_n`, `add`, ...)."""
    stated = op.attrs.get("elementwise")
    return base_name(op.kind) in ELEMENTWISE if stated is None else bool(stated)


def op_class(op: Op) -> OpClass:
    """The class of an op in the order of propagation."""
    name = base_name(op.kind)
    if is_elementwise(op) or name in _PASS_THROUGH:
        return OpClass.PASS_THROUGH
    if name in _SLICE:
        return OpClass.SLICE
    return OpClass.BROADCAST if name in _BROADCAST else OpClass.OTHER


def is_constant(op: Op) -> bool:
    """Whether an op makes a tensor without operands."""
    return base_name(op.kind) in _CONSTANTS


def keeps_constant(op: Op) -> bool:
    """Whether the results of an op are constants where its operands are (S2.44).

    A sharding constraint is a statement, and is not copied with a constant.
    """
    if base_name(op.kind) in CONSTRAINTS:
        return False
    return base_name(op.kind) in _KEEPS_CONSTANT or is_elementwise(op)
