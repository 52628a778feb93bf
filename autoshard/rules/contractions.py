"""dot_general and its ragged form (rows dealt out to groups, as in mixture of experts)."""

from collections.abc import Sequence

from autoshard.errors import RuleError
from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Label, read
from autoshard.rules.registry import rule

_Numbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def _labels(call: Call, numbers: _Numbers) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Labels of both operands: batch and contracting dimensions tied, the rest free."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = numbers
    left = [("lhs", d) for d in range(call.operands[0].rank)]
    right = [("rhs", d) for d in range(call.operands[1].rank)]
    for what, lhs_dims, rhs_dims in (("batch", lhs_batch, rhs_batch), ("contract", lhs_contract, rhs_contract)):
        for n, (i, j) in enumerate(zip(lhs_dims, rhs_dims, strict=True)):
            left[i] = right[j] = (what, n)
    return left, right


@rule("dot_general")
def dot_general(call: Call) -> ShardingRule:
    """Batch, left free, right free, and contracting factors; the latter reduce (S2.14, S2.15).

    ``4x8x32, 4x32x16 -> 4x8x16`` is ``([i, j, l], [i, l, k])->([i, j, k]) reduction={l}``.
    """
    numbers = call.param("dimension_numbers")
    left, right = _labels(call, numbers)
    (contract, _), (batch, _) = numbers
    result = [left[d] for d in batch] + [x for x in (*left, *right) if x[0] in ("lhs", "rhs")]
    return call.build([left, right], [result], reduction=[left[d] for d in contract], linear=((0,), (1,)))


@rule(
    "ragged_dot_general",
    local_care="group sizes stay those of the whole array and are cut to the block. Along a sharded ragged dimension: "
    "of group [s, e) the block's rows [r, r + m) hold clip(e, r, r + m) - clip(s, r, r + m). Along a sharded group "
    "dimension a device owns a range of groups: rows of other groups give zeros (ragged rows free: the sum over "
    "devices is the result) or do not enter (ragged dimension contracted: the result has only the own groups)",
)
def ragged_dot_general(call: Call) -> ShardingRule:
    """Rows of one dimension of the left side belong to consecutive groups of given sizes.

    - Ragged rows free, ``([m, k], [g, k, n], [_g])->([m, n])``: k reduces; so does g, as every row meets one
      group and other devices' groups contribute zeros (expert parallelism); m and n are parallel.
    - Ragged dimension contracted (the gradient of the weights), ``([k, m], [k, n], [_g])->([g, m, n])``: k
      reduces, g is a factor of the result alone.
    - Ragged batch dimension: it must be whole.

    The group sizes are whole (along g; their leading dimensions follow the left side's).
    """
    numbers = call.param("ragged_dot_dimension_numbers")
    dot_numbers: _Numbers = read(numbers, "dot_dimension_numbers")
    ragged_dims = tuple(read(numbers, "lhs_ragged_dimensions"))
    if len(ragged_dims) != 1 or call.params.get("group_offset") is not None:
        raise RuleError(f"{call}: expected one ragged dimension and no group offset, found {numbers}")
    ragged = ragged_dims[0]
    left, right = _labels(call, dot_numbers)
    for d in read(numbers, "rhs_group_dimensions"):
        right[d] = ("group", 0)
    (contract, _), (batch, _) = dot_numbers
    free = [d for d in range(len(left)) if left[d][0] == "lhs"]
    result = [left[d] for d in (*batch, *free)] + [x for x in right if x[0] == "rhs"]
    reduction = [left[d] for d in contract]
    whole: list[Label] = ["all groups"]
    if ragged in contract:
        result.insert(0, ("group", 0))
        prefix = [*batch, *list(contract)[: list(contract).index(ragged)]]
    elif ragged in batch:
        whole.append(left[ragged])
        prefix = list(batch)[: list(batch).index(ragged)]
    else:
        reduction.append(("group", 0))
        prefix = [*batch, *free[: free.index(ragged)]]
    sizes_rank = call.operands[2].rank
    sizes: list[Label] = [*(left[d] for d in prefix if sizes_rank > 1), "all groups"]
    return call.build([left, right, sizes], [result], reduction=reduction, need_replication=whole, linear=((0,), (1,)))
