"""Linear algebra and FFT: batch dimensions are factors, matrix dimensions must be whole."""

from collections.abc import Mapping

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Label
from autoshard.rules.registry import rule


def _batched(
    call: Call, core_rank: int, *, columns: Mapping[int, int] | None = None, linear: tuple[tuple[int, ...], ...] = ()
) -> ShardingRule:
    """Leading dimensions are tied across all tensors, the others whole.

    core_rank: matrix dimensions of operand 0, behind its batch dimensions.
    columns: operand index -> a dimension (negative) of independent right-hand sides; it is one
        parallel factor of that operand and of every result.
    """
    batch = call.operands[0].rank - core_rank
    columns = columns or {}
    parallel = next(iter(columns.values()), None)

    def labels(what: str, k: int, rank: int, column: int | None) -> list[Label]:
        mine: list[Label] = [*range(batch), *((what, k, d) for d in range(batch, rank))]
        if column is not None:
            mine[column] = "columns"
        return mine

    operands = [labels("operand", k, t.rank, columns.get(k)) for k, t in enumerate(call.operands)]
    results = [labels("result", k, t.rank, parallel) for k, t in enumerate(call.results)]
    whole = [x for tensor in (*operands, *results) for x in tensor if isinstance(x, tuple)]
    return call.build(operands, results, need_replication=whole, linear=linear)


@rule(
    "cholesky", "cholesky_update", "eig", "eigh", "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "ormqr",
    "qr", "schur", "svd", "symmetric_product", "tridiagonal",
)  # fmt: skip
def matrix_function(call: Call) -> ShardingRule:
    """The last two dimensions of operand 0 are the matrix; the leading ones are batch dimensions of every tensor."""
    return _batched(call, 2)


@rule("lu_pivots_to_permutation")
def lu_pivots_to_permutation(call: Call) -> ShardingRule:
    """Pivots of size k become a permutation of size n; both must be whole."""
    return _batched(call, 1)


@rule("triangular_solve")
def triangular_solve(call: Call) -> ShardingRule:
    """Independent right-hand sides (columns of b, rows where a is on the right) are parallel; linear in b."""
    return _batched(call, 2, columns={1: -1 if call.param("left_side") else -2}, linear=((1,),))


@rule("tridiagonal_solve")
def tridiagonal_solve(call: Call) -> ShardingRule:
    """Three diagonals and b, whose columns are parallel; linear in b."""
    return _batched(call, 1, columns={3: -1}, linear=((3,),))


@rule("fft")
def fft(call: Call) -> ShardingRule:
    """Transformed dimensions must be whole (real transforms change the last one's size); linear."""
    x, y = call.operands[0], call.results[0]
    first = x.rank - len(call.param("fft_lengths"))
    result: list[Label] = [d if x.shape[d] == y.shape[d] else ("result", d) for d in range(x.rank)]
    whole = [*range(first, x.rank), *result[first:]]
    return call.build([range(x.rank)], [result], need_replication=whole, linear=((0,),))
