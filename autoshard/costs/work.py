"""Work of one op on one device: FLOP (a multiply-add is 2) and elements touched, per placement.

Everything is derived from the rule: cutting a factor in n parts divides each tensor that has the factor, and
the iteration space, by n. Over an axis on none of its factors, an op repeats its work.
"""

from collections.abc import Sequence
from math import ceil, log2, prod
from typing import Final

import numpy as np

from autoshard.program.program import Op, Program
from autoshard.program.rule import ShardingRule, TensorFactors
from autoshard.program.types import dtype_bytes
from autoshard.rules.build import is_inexact

MATMUL: Final = "matmul"
VECTOR: Final = "vector"

MATMUL_KINDS: Final = frozenset({"dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"})

# FLOP per element of functions that take more than one machine operation; a convention, in the range
# of what XLA's cost analysis counts (transcendentals apart), so that no op is free.
_PER_ELEMENT: Final = {
    "exp": 8.0, "exp2": 8.0, "log": 8.0, "log1p": 8.0, "log2": 8.0, "expm1": 8.0, "tanh": 10.0, "logistic": 10.0,
    "sin": 10.0, "cos": 10.0, "tan": 12.0, "pow": 16.0, "rsqrt": 4.0, "sqrt": 4.0, "cbrt": 8.0, "div": 4.0,
    "erf": 12.0, "erfc": 12.0, "erf_inv": 20.0, "lgamma": 30.0, "digamma": 30.0, "atan2": 16.0,
    "random_bits": 40.0, "threefry2x32": 40.0, "rng_bit_generator": 40.0,
    "atan": 10.0, "asin": 20.0, "acos": 20.0, "cosh": 20.0, "atanh": 20.0, "nextafter": 24.0, "sinh": 35.0,
    "asinh": 35.0, "acosh": 35.0, "bessel_i0e": 90.0, "bessel_i1e": 90.0, "zeta": 210.0, "igamma": 230.0,
    "igammac": 230.0, "polygamma": 430.0, "regularized_incomplete_beta": 430.0, "igamma_grad_a": 450.0,
}  # fmt: skip

_MOVES_ONLY: Final = frozenset(
    {
        "broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "slice", "pad", "concatenate",
        "rev", "roll", "copy", "copy_p", "iota", "dynamic_slice", "dynamic_update_slice", "gather", "split",
        "optimization_barrier", "bitcast_convert_type", "stack", "unstack", "tile",
    }
)  # fmt: skip


def is_matmul(op: Op) -> bool:
    """Whether the FLOP of an op are those of the matrix unit; kernels say so themselves."""
    return op.kind in MATMUL_KINDS or (op.attrs.get("work") or {}).get("unit") == MATMUL


def is_update(op: Op) -> bool:
    """Whether an op writes a part of its first operand."""
    return op.kind == "dynamic_update_slice" or op.kind.startswith("scatter")


def dtype_of_work(op: Op, program: Program) -> str:
    """The type that an op computes with: that of its first operand; of kernels the first one that is no integer.

    Of a matmul the type of both operands to which the other one is converted: a fraction, then the longer one; with
    the precision that it asks for where that is float32 (`costmodels.families`).
    """
    dtypes = [program.type_of(v).dtype for v in (*op.operands, *op.results)]
    if "work" in op.attrs:
        return next((d for d in dtypes if is_inexact(d)), dtypes[0])
    if op.kind in MATMUL_KINDS:
        taken = max(dtypes[:2], key=lambda dtype: (is_inexact(dtype), dtype_bytes(dtype)))
        asked = op.attrs.get("precision")
        return f"float32_{asked}" if asked and taken in ("float32", "complex64") else taken
    return dtypes[0]


def common_dimensions(rule: ShardingRule) -> int:
    """How many dimensions a matmul has in all of its tensors: attention has sequences and heads.

    A matmul with weights has none; that of experts has one.
    """
    if len(rule.operands) != 2 or len(rule.results) != 1:
        return 0
    tensors = [{f for dim in t for f in dim if rule.factor_sizes[f] > 1} for t in (*rule.operands, *rule.results)]
    return len(set.intersection(*tensors))


def is_batched_matmul(rule: ShardingRule) -> bool:
    """Whether a matmul has two dimensions or more in all of its tensors, as attention has (sequences and heads)."""
    return common_dimensions(rule) >= 2


def share_of_kernel(rule: ShardingRule, sizes: np.ndarray) -> np.ndarray:
    """[placement] the share of a kernel's work that one device does: its share of every factor."""
    whole = [f for f, n in enumerate(rule.factor_sizes) if n > 1]
    return np.prod(sizes[:, whole] / np.array([rule.factor_sizes[f] for f in whole], np.float64)[None, :], axis=1)


def kernel_vector_flops(op: Op, sizes: np.ndarray) -> np.ndarray:
    """[placement] FLOP that a kernel does on the vector unit beside its matmuls: those of its transcendentals."""
    rule, work = op.rule, op.attrs.get("work")
    assert rule is not None
    if not work or not work["transcendentals"]:
        return np.zeros(len(sizes))
    return _PER_ELEMENT["exp"] * work["transcendentals"] * share_of_kernel(rule, sizes)


def local_sizes(rule: ShardingRule, shards: np.ndarray) -> np.ndarray:
    """[placement, factor] sizes on one device: ceil(size / parts)."""
    sizes = np.array(rule.factor_sizes, np.int64)
    return -(-sizes[None, :] // shards)


def local_elements(tensor: TensorFactors, sizes: np.ndarray) -> np.ndarray:
    """[placement] number of elements of one tensor on one device."""
    return _product([f for dim in tensor for f in dim], sizes)


def _product(factors: Sequence[int], sizes: np.ndarray) -> np.ndarray:
    """[placement] product of the sizes of some factors; in floats, since that of many large ones exceeds 64 bits."""
    return sizes[:, list(factors)].prod(axis=1, dtype=np.float64)


def element_bytes(program: Program, value: int) -> float:
    """Bytes of one element of a value, as it is stored."""
    return dtype_bytes(program.type_of(value).dtype)


def local_flops(op: Op, program: Program, sizes: np.ndarray) -> np.ndarray:
    """[placement] FLOP of `op` on one device, from the local factor sizes."""
    rule = op.rule
    assert rule is not None
    ones = np.ones(len(sizes))

    def operand(k: int) -> np.ndarray:
        return local_elements(rule.operands[k], sizes)

    def result(k: int = 0) -> np.ndarray:
        return local_elements(rule.results[k], sizes)

    kind = op.kind
    if "work" in op.attrs:
        return (op.attrs["work"]["flop"] or 0.0) * share_of_kernel(rule, sizes)
    adds = kind in MATMUL_KINDS or kind in LINALG_KINDS
    each = 8.0 if adds and program.type_of(op.operands[0]).dtype.startswith("complex") else 2.0
    if kind == "dot_general":
        return each * _product(range(sizes.shape[1]), sizes)
    if kind in ("ragged_dot", "ragged_dot_general"):
        # every row meets one group's matrix, or is a part of one group's gradient: all of the left side by the columns
        # of the right one, whatever the number of groups
        left, right, made = ({f for d in t for f in d} for t in (*rule.operands[:2], rule.results[0]))
        return each * _product(sorted(left | right & made), sizes)
    if kind == "conv_general_dilated":
        # each output element sums over the kernel's elements of one output channel
        per_channel = operand(1) / np.maximum(_product(_output_features(rule), sizes), 1.0)
        return each * result() * per_channel * share_of_taps(op)
    if kind == "fft":
        # 5 n log2 n of a transform of complex numbers, the convention of FFTW's benchmarks; half of it of real ones
        of_real = any(not program.type_of(v).dtype.startswith("complex") for v in (*op.operands, *op.results))
        whole = np.maximum(operand(0), result())  # that of real numbers has about half of them on its other side
        return (2.5 if of_real else 5.0) * whole * log2(max(2, prod(op.attrs.get("window", ()))))
    if kind.startswith(("reduce_window", "select_and")):
        window = op.attrs.get("window", ())
        places = np.minimum(operand(0), operand(1)) if kind.startswith("select_and_scatter") else result()
        return places * float(prod(window) if window else 1)
    if kind == "reduce" or kind.startswith(("reduce_", "argm", "cum")):
        return sum((operand(k) for k in range(len(op.operands))), 0.0 * ones)
    if kind.startswith("scatter"):
        return operand(2)
    if kind in ("sort", "top_k", "approx_top_k"):
        length = prod(rule.factor_sizes[f] for d in rule.operands[0] for f in d if f in rule.need_replication)
        return operand(0) * ceil(log2(max(2, length)))
    if kind in LINALG_KINDS:
        return each / 2 * _linalg_flop(op, program, operand(0), result())
    if kind in _MOVES_ONLY:
        return 0.0 * ones
    return sum((result(k) for k in range(len(op.results))), 0.0 * ones) * _PER_ELEMENT.get(kind, 1.0)


def share_of_taps(op: Op) -> float:
    """The share of a convolution's taps that meet no zero between the elements of a dilated input, as that of the
    gradient of a strided convolution is: zeros are no work (unlike padding, which arrays may have in memory).
    """
    met, all_ = op.attrs.get("taps", (1, 1))
    return met / all_ if all_ else 1.0


def _output_features(rule: ShardingRule) -> list[int]:
    """The output features of a convolution: the factors that its kernel shares with its result."""
    return sorted({f for d in rule.operands[1] for f in d} & {f for d in rule.results[0] for f in d})


# leading terms of the textbook algorithms of an m x n matrix (Golub and Van Loan, Matrix Computations)
_CUBIC: Final = {
    "cholesky": 1 / 3, "tridiagonal": 4 / 3, "hessenberg": 10 / 3, "eigh": 9.0, "svd": 22.0, "eig": 25.0, "schur": 25.0,
}  # fmt: skip
LINALG_KINDS: Final = frozenset({*_CUBIC, "lu", "qr", "geqrf", "householder_product", "triangular_solve"})


def _linalg_flop(op: Op, program: Program, operand: np.ndarray, result: np.ndarray) -> np.ndarray:
    """[placement] FLOP of factorisations and solves; operand, result: elements of the first ones on one device."""
    rows, columns = program.type_of(op.operands[0]).shape[-2:]
    short, elements = min(rows, columns), rows * columns
    factored = short**2 * (max(rows, columns) - short / 3)  # multiply-adds of Gaussian elimination
    if op.kind == "triangular_solve":
        return rows * result  # half of the matrix for each element of the right-hand sides
    if op.kind == "lu":
        each = factored
    elif op.kind in ("qr", "geqrf", "householder_product"):
        made = program.type_of(op.results[0]).shape[-1]  # columns of Q
        formed = 4 * rows * made * short - 2 * (rows + made) * short**2 + 4 / 3 * short**3
        each = {"geqrf": 2 * factored, "householder_product": formed, "qr": 2 * factored + formed}[op.kind]
    else:
        each = _CUBIC[op.kind] * elements * short
    return each * operand / max(1, elements)
