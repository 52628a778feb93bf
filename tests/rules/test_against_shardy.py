# ruff: noqa: E501  (rules as text are long)
"""Our rules against the registry of the real Shardy, which comes inside jaxlib.

Each op is lowered alone; Shardy's populate pass writes its rule on the StableHLO op; both rules are
brought to one form (factors by the places they stand in, with size and kind; scalars left out, as
StableHLO has other scalar operands). They are equal, or listed in `DIFFERENCES` with the reason.
"""

import re
from typing import Any, NamedTuple

import jax
import pytest
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, mpmd, sdy, stablehlo

from autoshard.program.rule import ShardingRule, rule_from_text

PIPELINE = "builtin.module(sdy-import-pipeline,func.func(sdy-populate-op-sharding-rules))"


@pytest.fixture(scope="module")
def context() -> ir.Context:
    registry, context = ir.DialectRegistry(), ir.Context()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    context.enable_multithreading(False)
    mhlo.register_mhlo_dialect(context)
    for dialect in (sdy, mpmd, chlo, stablehlo):
        dialect.register_dialect(context)
    return context


def shardy_rule(context: ir.Context, case: Any) -> ShardingRule:
    """The rule that Shardy gives to the one op `case.stablehlo` of the lowered case."""
    eqn = case.equation
    literals = case.literals
    arguments = [x for k, x in enumerate(case.operands()) if k not in literals]

    def alone(*values: Any) -> Any:
        rest = iter(values)
        return eqn.primitive.bind(
            *(literals[k] if k in literals else next(rest) for k in range(len(eqn.invars))), **eqn.params
        )

    with context:
        module = ir.Module.parse(jax.jit(alone).lower(*arguments).as_text())
        passmanager.PassManager.parse(PIPELINE).run(module.operation)
        found: list[str] = []

        def visit(op: Any) -> Any:
            name, attributes = op.name, op.attributes
            if name == f"stablehlo.{case.stablehlo}" and "sdy.sharding_rule" in attributes:
                found.append(str(attributes["sdy.sharding_rule"]))
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
    assert len(found) == 1, f"{case.name}: {len(found)} ops stablehlo.{case.stablehlo} with a rule"
    match = re.fullmatch(r"#sdy.op_sharding_rule<(.*)>", found[0])
    assert match is not None, found[0]
    text = match[1].removesuffix(", custom")
    return rule_from_text(text if "{" in text else text + " {}")


def canonical(rule: ShardingRule) -> frozenset:
    """Factors larger than 1 as (places, size, kind); tensors of rank 0 are not counted."""
    places: dict[int, set] = {}
    for what, tensors in (("operand", rule.operands), ("result", rule.results)):
        for k, tensor in enumerate(t for t in tensors if t):
            for d, dim in enumerate(tensor):
                for position, f in enumerate(x for x in dim if rule.factor_sizes[x] > 1):
                    places.setdefault(f, set()).add((what, k, d, position))

    def kind(f: int) -> str:
        for name in ("reduction", "need_replication", "permutation"):
            if f in getattr(rule, name):
                return name
        return "pass"

    return frozenset((frozenset(at), rule.factor_sizes[f], kind(f)) for f, at in places.items())


class Difference(NamedTuple):
    ours: str
    shardy: str
    reason: str
    newer: str = ""  # Shardy's in jaxlib 0.12, where that is another one


EXCHANGE = (
    "Shardy's permutation factor needs neighbours to exchange borders or blocks; the planner has no such step, "
    "so the dimension is whole, and as a factor has one size (S2.13) its two sizes are two factors"
)
SIZES = "the dimension is whole for both; ours are separate factors, as a factor has one size (S2.13)"
RESHAPE = (
    "what has no common divisor must be whole for a local reshape, and so must be what lies minor to it; "
    "Shardy leaves the reshard to XLA. Ours also finds common divisors from the minor end"
)
COMBINE = "no collective combines these partial results: sum, maximum and minimum are what there is"
INDEX = "an index cannot be combined without its value beside it; Shardy's variadic reduce is left to XLA"
POINTWISE = "a window of 1 without stride, padding or dilation needs no neighbours: parallel, proven by blocks"
BOOLS = "contributions from other devices are zeros to be added; bools have no addition"
SUBTRACT = "subtracting updates is as good a sum as adding them: operand - (a + b); proven by blocks"
PRODUCT = "the reduction would be a product, which no collective computes"

WRITES = "every device writes the part of the update that falls into its block: nothing is exchanged; proven by blocks"

# Pinned on both sides, so that a change of either is noticed.
DIFFERENCES: dict[str, Difference] = {
    "reshape:6x4 to 4x6": Difference(
        "([ij, kl])->([im, nl]) {i=2, j=3, k=2, l=2, m=2, n=3} need_replication={j, k, l, m, n}",
        "([ij, mn])->([ik, ln]) {i=2, j=3, k=2, l=3, m=2, n=2}",
        RESHAPE,
        "([ij, lm])->([ij, km]) {i=2, j=3, k=3, l=2, m=2} need_replication={k, l} permutation={j}",
    ),
    "reshape:12x2x5 to 8x15": Difference(
        "([ij, k, l])->([im, nl]) {i=4, j=3, k=2, l=5, m=2, n=3} need_replication={j, k, l, m, n}",
        "([ij, m, n])->([ik, l]) {i=4, j=3, k=2, l=15, m=2, n=5}",
        RESHAPE,
        "([ij, l, m])->([ij, k]) {i=4, j=3, k=15, l=2, m=5} need_replication={k, l, m} permutation={j}",
    ),
    "reshape:2x3x4 to 3x8": Difference(
        "([i, j, k])->([l, mk]) {i=2, j=3, k=4, l=3, m=2} need_replication={i, j, k, l, m}",
        "([i, k, m])->([j, lm]) {i=2, j=3, k=3, l=2, m=4}",
        RESHAPE,
        "([i, j, l])->([i, kl]) {i=2, j=3, k=2, l=4} need_replication={j, k} permutation={i}",
    ),
    "slice": Difference(
        "([i, j])->([i, k]) {i=4, j=6, k=4} need_replication={j, k}",
        "([i, j])->([i, j]) {i=4, j=6} permutation={j}",
        EXCHANGE,
    ),
    "slice:whole": Difference(
        "([i, j])->([i, k]) {i=4, j=6, k=3} need_replication={j, k}",
        "([i, j])->([i, j]) {i=4, j=6} permutation={j}",
        EXCHANGE,
    ),
    "pad": Difference(
        "([i, j], [])->([i, k]) {i=4, j=6, k=9} need_replication={j, k}",
        "([i, j], [])->([i, j]) {i=4, j=6} permutation={j}",
        EXCHANGE,
    ),
    "pad:negative and interior": Difference(
        "([i, j, k], [])->([l, m, k]) {i=4, j=6, k=8, l=7, m=5} need_replication={i, j, l, m}",
        "([i, j, k], [])->([i, j, k]) {i=4, j=6, k=8} permutation={i, j}",
        EXCHANGE,
    ),
    "concatenate": Difference(
        "([i, j], [i, k])->([i, l]) {i=4, j=6, k=8, l=14} need_replication={j, k, l}",
        "([i, j], [i, j])->([i, j]) {i=4, j=14} need_replication={j}",
        SIZES,
    ),
    "rev": Difference(
        "([i, j])->([i, j]) {i=4, j=6} need_replication={j}",
        "([i, j])->([i, j]) {i=4, j=6} permutation={j}",
        EXCHANGE,
    ),
    "dynamic_slice": Difference(
        "([i, j], [], [])->([i, k]) {i=4, j=6, k=3} need_replication={j, k}",
        "([i, j], [], [])->([i, j]) {i=4, j=6} need_replication={j} blocked_propagation={j}",
        SIZES,
    ),
    "reduce_prod": Difference(
        "([i, j])->([i]) {i=4, j=6} need_replication={j}",
        "([i, j], [])->([i]) {i=4, j=6} reduction={j}",
        COMBINE,
    ),
    "reduce_and": Difference(
        "([i, j])->([i]) {i=4, j=6} need_replication={j}",
        "([i, j], [])->([i]) {i=4, j=6} reduction={j}",
        COMBINE,
    ),
    "reduce_or": Difference(
        "([i, j])->([i]) {i=4, j=6} need_replication={j}",
        "([i, j], [])->([i]) {i=4, j=6} reduction={j}",
        COMBINE,
    ),
    "reduce_xor": Difference(
        "([i, j])->([i]) {i=4, j=6} need_replication={j}",
        "([i, j], [])->([i]) {i=4, j=6} reduction={j}",
        COMBINE,
    ),
    "argmax": Difference(
        "([i, j])->([i]) {i=4, j=6} need_replication={j}",
        "([i, j], [i, j], [], [])->([i], [i]) {i=4, j=6} reduction={j}",
        INDEX,
    ),
    "argmin": Difference(
        "([i, j])->([i]) {i=4, j=6} need_replication={j}",
        "([i, j], [i, j], [], [])->([i], [i]) {i=4, j=6} reduction={j}",
        INDEX,
    ),
    "cumsum": Difference(
        "([i, j])->([i, j]) {i=4, j=6} need_replication={j}",
        "([i, j], [])->([i, j]) {i=4, j=6} permutation={j}",
        EXCHANGE,
    ),
    "conv_general_dilated:3x3": Difference(
        "([i, j, k, l], [m, j, n, o])->([i, m, k, l]) {i=2, j=6, k=8, l=8, m=10, n=3, o=3} reduction={j} need_replication={k, l, n, o}",
        "([i, l, j, k], [m, l, n, o])->([i, m, j, k]) {i=2, j=8, k=8, l=6, m=10, n=1, o=1} reduction={l} permutation={j, k}",
        EXCHANGE,
        "([i, n, j, l], [o, n, k, m])->([i, o, j, l]) {i=2, j=8, k=3, l=8, m=3, n=6, o=10} reduction={n} permutation={j, k, l, m}",
    ),
    "conv_general_dilated:1x1": Difference(
        "([i, j, k, l], [m, j, _, _])->([i, m, k, l]) {i=2, j=6, k=8, l=8, m=10} reduction={j}",
        "([i, l, j, k], [m, l, n, o])->([i, m, j, k]) {i=2, j=8, k=8, l=6, m=10, n=1, o=1} reduction={l} permutation={j, k}",
        POINTWISE,
    ),
    "conv_general_dilated:1x1 stride 2": Difference(
        "([i, j, k, l], [m, j, _, _])->([i, m, n, o]) {i=2, j=6, k=8, l=8, m=10, n=4, o=4} reduction={j} need_replication={k, l, n, o}",
        "([i, l, j, k], [m, l, n, o])->([i, m, j, k]) {i=2, j=4, k=4, l=6, m=10, n=1, o=1} reduction={l} permutation={j, k}",
        EXCHANGE,
    ),
    "conv_general_dilated:groups": Difference(
        "([i, jk, l, m], [jn, k, o, p])->([i, jn, l, m]) {i=2, j=2, k=3, l=4, m=4, n=5, o=3, p=3} reduction={k} need_replication={l, m, o, p}",
        "([i, lm, j, k], [ln, m, o, p])->([i, ln, j, k]) {i=2, j=4, k=4, l=2, m=3, n=5, o=1, p=1} reduction={m} permutation={j, k}",
        EXCHANGE,
        "([i, no, j, l], [np, o, k, m])->([i, np, j, l]) {i=2, j=4, k=3, l=4, m=3, n=2, o=3, p=5} reduction={o} permutation={j, k, l, m}",
    ),
    "conv_general_dilated:depthwise": Difference(
        "([i, j, k, l], [jm, _, n, o])->([i, jm, k, l]) {i=2, j=6, k=4, l=4, m=2, n=3, o=3} need_replication={k, l, n, o}",
        "([i, l, j, k], [ln, m, o, p])->([i, ln, j, k]) {i=2, j=4, k=4, l=6, m=1, n=2, o=1, p=1} reduction={m} permutation={j, k}",
        EXCHANGE,
        "([i, n, j, l], [np, o, k, m])->([i, np, j, l]) {i=2, j=4, k=3, l=4, m=3, n=6, o=1, p=2} reduction={o} permutation={j, k, l, m}",
    ),
    "conv_general_dilated:batch groups": Difference(
        "([ij, k, l, m], [in, k, o, p])->([j, in, l, m]) {i=2, j=3, k=4, l=4, m=4, n=3, o=3, p=3} reduction={k} need_replication={l, m, o, p}",
        "([ij, m, k, l], [in, m, o, p])->([j, in, k, l]) {i=2, j=3, k=4, l=4, m=4, n=3, o=1, p=1} reduction={m} permutation={k, l}",
        EXCHANGE,
        "([ij, o, k, m], [ip, o, l, n])->([j, ip, k, m]) {i=2, j=3, k=4, l=3, m=4, n=3, o=4, p=3} reduction={o} permutation={k, l, m, n}",
    ),
    "conv_general_dilated:dilated": Difference(
        "([i, j, k, l], [m, j, n, o])->([i, m, p, q]) {i=2, j=4, k=8, l=8, m=6, n=3, o=3, p=14, q=4} reduction={j} need_replication={k, l, n, o, p, q}",
        "([i, m, j, kl], [n, m, o, l])->([i, n, j, k]) {i=2, j=8, k=4, l=2, m=4, n=6, o=1} reduction={l, m} permutation={j, k}",
        EXCHANGE,
        "([i, n, j, lm], [o, n, k, m])->([i, o, j, l]) {i=2, j=8, k=3, l=4, m=2, n=4, o=6} reduction={m, n} permutation={j, k, l}",
    ),
    "conv_general_dilated:NHWC": Difference(
        "([i, j, k, l], [m, n, l, o])->([i, j, k, o]) {i=2, j=8, k=8, l=6, m=3, n=3, o=4} reduction={l} need_replication={j, k, m, n}",
        "([i, j, k, l], [n, o, l, m])->([i, j, k, m]) {i=2, j=8, k=8, l=6, m=4, n=1, o=1} reduction={l} permutation={j, k}",
        EXCHANGE,
        "([i, j, l, n], [k, m, n, o])->([i, j, l, o]) {i=2, j=8, k=3, l=8, m=3, n=6, o=4} reduction={n} permutation={j, k, l, m}",
    ),
    "conv_general_dilated:weight gradient groups": Difference(
        "([i, jk, l, m], [i, jn, o, p])->([jn, k, q, r]) {i=2, j=2, k=3, l=4, m=4, n=5, o=4, p=4, q=3, r=3} reduction={i} need_replication={l, m, o, p, q, r}",
        "([m, ij, k, l], [m, in, k, l])->([in, j, o, p]) {i=2, j=3, k=4, l=4, m=2, n=5, o=1, p=1} reduction={k, l, m}",
        EXCHANGE,
        "([o, ij, k, m], [o, ip, k, m])->([ip, j, l, n]) {i=2, j=3, k=4, l=3, m=4, n=3, o=2, p=5} reduction={k, m, o} permutation={l, n}",
    ),
    "reduce_window_sum": Difference(
        "([i, j, k])->([i, l, k]) {i=4, j=6, k=8, l=3} need_replication={j, l}",
        "([i, j, k], [])->([i, j, k]) {i=4, j=3, k=8} permutation={j}",
        EXCHANGE,
    ),
    "reduce_window_max": Difference(
        "([i, j, k])->([i, l, k]) {i=4, j=6, k=8, l=3} need_replication={j, l}",
        "([i, j, k], [])->([i, j, k]) {i=4, j=3, k=8} permutation={j}",
        EXCHANGE,
    ),
    "reduce_window_min": Difference(
        "([i, j, k])->([i, l, k]) {i=4, j=6, k=8, l=3} need_replication={j, l}",
        "([i, j, k], [])->([i, j, k]) {i=4, j=3, k=8} permutation={j}",
        EXCHANGE,
    ),
    "select_and_scatter_add": Difference(
        "([i, j, k], [i, l, k])->([i, l, k]) {i=4, j=3, k=8, l=6} need_replication={j, l}",
        "([i, k, l], [i, j, l], [])->([i, k, l]) {i=4, j=3, k=6, l=8} need_replication={j} permutation={k}",
        EXCHANGE,
    ),
    "gather:embedding of bools, clip": Difference(
        "([i, j], [k, l, _])->([k, l, j]) {i=12, j=6, k=4, l=5} need_replication={i}",
        "([l, k], [i, j, m])->([i, j, k]) {i=4, j=5, k=6, l=12, m=1} reduction={l} need_replication={m}",
        BOOLS,
    ),
    "gather:windows of 3, clip": Difference(
        "([i, j], [k, _])->([k, l, j]) {i=12, j=6, k=4, l=3} need_replication={i, l}",
        "([j, k], [i, l])->([i, j, k]) {i=4, j=12, k=6, l=1} need_replication={j, l} blocked_propagation={j}",
        SIZES,
    ),
    "scatter-sub:rows, fill": Difference(
        "([i, j], [k, l, _], [k, l, j])->([i, j]) {i=12, j=6, k=4, l=5} reduction={k, l}",
        "([l, k], [i, j, m], [i, j, k])->([l, k]) {i=4, j=5, k=6, l=12, m=1} need_replication={i, j, m}",
        SUBTRACT,
    ),
    "scatter-mul:rows, fill": Difference(
        "([i, j], [k, l, _], [k, l, j])->([i, j]) {i=12, j=6, k=4, l=5} need_replication={k, l}",
        "([l, k], [i, j, m], [i, j, k])->([l, k]) {i=4, j=5, k=6, l=12, m=1} reduction={i, j} need_replication={m}",
        PRODUCT,
    ),
    "fft:real": Difference(
        "([i, j])->([i, k]) {i=4, j=6, k=4} need_replication={j, k}",
        "([i, j])->([i, j]) {i=4, j=6} need_replication={j} blocked_propagation={j}",
        SIZES,
    ),
}


IN_NEWER: dict[str, Difference] = {
    "dynamic_update_slice:size 1 at 1": Difference(
        "([i, j], [i, _], [], [])->([i, j]) {i=4, j=6}",
        "([i, j], [i, k], [], [])->([i, j]) {i=4, j=6, k=1} permutation={j, k}",
        WRITES,
    ),
    "dynamic_update_slice:size 3 at 1": Difference(
        "([i, j], [i, k], [], [])->([i, j]) {i=4, j=6, k=3} need_replication={k}",
        "([i, j], [i, k], [], [])->([i, j]) {i=4, j=6, k=3} permutation={j, k}",
        WRITES,
    ),
}
"""Equal in jaxlib 0.10; since 0.12 Shardy has another rule."""


def test_every_listed_difference_is_of_a_case(cases: list[Any]) -> None:
    assert set(DIFFERENCES) | set(IN_NEWER) <= {case.name for case in cases if case.stablehlo}


def test_rule_equals_shardys_or_the_reason_is_known(stablehlo_case: Any, context: ir.Context) -> None:
    ours, theirs = stablehlo_case.rule, shardy_rule(context, stablehlo_case)
    name = stablehlo_case.name
    expected = DIFFERENCES.get(name)
    if expected is None and canonical(ours) != canonical(theirs):
        expected = IN_NEWER.get(name)
    if expected is None:
        assert canonical(ours) == canonical(theirs), f"ours {ours}, Shardy's {theirs}"
    else:
        assert str(ours) == expected.ours
        assert str(theirs) in (expected.shardy, expected.newer)
        assert canonical(ours) != canonical(theirs), "no difference any more: take it out of the list"
