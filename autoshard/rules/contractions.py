"""dot_general and ragged dots."""

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Label
from autoshard.rules.registry import rule


@rule("dot_general")
def dot_general(call: Call) -> ShardingRule:
    """Batch, left free, right free, and contracting factors; the latter reduce (S2.14, S2.15).

    ``4x8x32, 4x32x16 -> 4x8x16`` is ``([i,j,l],[i,l,k])->([i,j,k]) reduction={l}``.
    """
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = call.param("dimension_numbers")
    lhs, rhs = call.operands[:2]
    left: list[Label] = [("lhs", d) for d in range(lhs.rank)]
    right: list[Label] = [("rhs", d) for d in range(rhs.rank)]
    for n, (i, j) in enumerate(zip(lhs_batch, rhs_batch, strict=True)):
        left[i] = right[j] = ("batch", n)
    for n, (i, j) in enumerate(zip(lhs_contract, rhs_contract, strict=True)):
        left[i] = right[j] = ("contract", n)
    result = [("batch", n) for n in range(len(lhs_batch))]
    result += [x for side in (left, right) for x in side if x[0] in ("lhs", "rhs")]  # type: ignore[index]
    return call.build(
        [left, right], [result], reduction=[("contract", n) for n in range(len(lhs_contract))], linear=((0,), (1,))
    )
