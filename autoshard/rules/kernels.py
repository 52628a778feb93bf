"""Sharding rules of custom kernels: from text, from the grid of a Pallas kernel, and from a `sharding_rule`.

What is known of a kernel is plain data (``attrs["kernel"]`` of its op, see `frontends/jax/kernels.py`), so that a rule
can be derived again from a plan file.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from autoshard.errors import RuleError
from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Compound, Label
from autoshard.rules.custom import Tensors, factor_sizes, parse_tensors

CUDNN: Final = frozenset(
    {
        "dot_product_attention_fwd", "dot_product_attention_bwd", "dot_product_attention_fwd_wrapper",
        "dot_product_attention_bwd_wrapper", "dot_product_attention_fp8_fwd", "dot_product_attention_fp8_bwd",
        "dot_product_attention_fp8_fwd_wrapper", "dot_product_attention_fp8_bwd_wrapper", "scaled_matmul",
        "scaled_matmul_wrapper", "cudnn_fusion",
    }
)  # fmt: skip
FROM_ESTIMATE: Final = "its cost_estimate"
CALLED_KERNELS: Final = ("jit", "pjit")
"""Primitives that call a function of a name, which may be said to be a kernel."""
KERNEL_KINDS: Final = CUDNN | {
    "pallas_call", "core_map", "custom_partitioning", "ffi_call", "tpu_custom_call", "mosaic_gpu_p",
    "triton_kernel_call",
}  # fmt: skip
"""Primitives that are custom kernels."""

Labels = list[list[Label | Compound | None]]


def grid_rule(call: Call, facts: Mapping[str, Any], chosen: Sequence[int], unread: Sequence[int] = ()) -> ShardingRule:
    """The rule of a Pallas kernel whose programs along some grid dimensions do not know of each other.

    chosen: numbers of the kernel's own grid dimensions; those of `jax.vmap` come on top. unread: results that nothing
    reads. Raises `RuleError` where a device could not run the kernel on a part of such a dimension.
    """
    if "grid" not in facts:
        raise RuleError(f"{facts['name']} is no Pallas kernel and has no grid; give a rule such as ([i, j])->([i, j])")
    grid, own = facts["grid"], [k for k in range(len(facts["grid"])) if k not in facts["vmapped"]]
    for k in chosen:
        if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < len(own):
            raise RuleError(f"grid {list(chosen)} of {facts['name']}: it has the grid dimensions 0 to {len(own) - 1}")
    cut = [*facts["vmapped"], *(own[k] for k in chosen)]
    for k in cut:
        if (why := _uncuttable(call, facts, k, unread)) is not None:
            raise RuleError(f"grid dimension {own.index(k) if k in own else k} of {facts['name']} cannot be cut: {why}")
    rows = {k: max((t[2] for tensor in facts["ties"] for t in tensor if t and t[0] == k), default=1) for k in cut}
    tensors: Labels = []
    for number, (type_, ties) in enumerate(zip((*call.operands, *call.results), facts["ties"], strict=True)):
        labels: list[Label | Compound | None] = []
        for d, (n, tie) in enumerate(zip(type_.shape, ties, strict=True)):
            parts: list[tuple[Label, int]] = [(("inside", number, d), n)]
            if tie is not None and tie[0] in cut:
                k, block, repeated = tie
                parts = [(("grid", k), grid[k] // rows[k])]
                parts += [(("row", k), rows[k])] if repeated == 1 else []
                parts.append((("inside", number, d), block))
            labels.append(Compound(tuple(parts)))
        tensors.append(labels)
    count = len(call.operands)
    used = {part for labels in tensors for label in labels if isinstance(label, Compound) for part, _ in label.parts}
    whole = [part for part in used if isinstance(part, tuple) and part[0] != "grid"]
    return call.build(tensors[:count], tensors[count:], need_replication=whole, is_custom=True)


def cut_grid_dimensions(rule: ShardingRule, facts: Mapping[str, Any]) -> tuple[int, ...]:
    """The kernel's own grid dimensions, without those of `jax.vmap`, that a rule lets be cut."""
    own = [k for k in range(len(facts["grid"])) if k not in facts["vmapped"]]
    tensors = zip((*rule.operands, *rule.results), facts["ties"], strict=True)
    tied = ((factors, tie) for dims, ties in tensors for factors, tie in zip(dims, ties, strict=True) if tie)
    cut = {tie[0] for factors, tie in tied if set(factors) & set(rule.shardable)}
    return tuple(sorted(own.index(k) for k in cut if k in own))


def _uncuttable(call: Call, facts: Mapping[str, Any], k: int, unread: Sequence[int]) -> str | None:
    """Why a device cannot run the kernel on a part of a grid dimension; None where it can."""
    if facts["grid"][k] is None:
        return "its size comes with the data"
    if k in facts["bound"]:
        return "blocks are chosen by computing with its number"
    count = len(call.operands)
    for number, ties in enumerate(facts["ties"][count:]):
        if number not in unread and not any(t and t[0] == k for t in ties):
            return f"result {number} does not lie along it, so all its programs write the same blocks"
    if len({t[2] for tensor in facts["ties"] for t in tensor if t and t[0] == k} - {1}) > 1:
        return "arrays repeat their blocks along it differently"
    return None


def text_rule(
    call: Call,
    name: str,
    text: str,
    *,
    reduction: Sequence[str] = (),
    whole: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> tuple[ShardingRule, dict[str, int]]:
    """A rule from text, ``([b, h, q, d], [b, h, k, d])->([b, h, q, d])``, and the sizes of its factors.

    facts: of a Pallas kernel that is to run on its blocks; its cut dimensions are cut between blocks of its grid.
    """
    operands, results = parse_tensors(name, text)
    return _named_rule(call, name, text, (operands, results), {}, reduction, whole, facts)


def shardy_rule(call: Call, facts: Mapping[str, Any]) -> tuple[ShardingRule, dict[str, int]]:
    """The rule of a `custom_partitioning`. Its reductions are whole: the combination is in its own partition function.

    Raises `RuleError` where it does not fit the types.
    """
    rule = facts["rule"]
    sides = [tuple(tuple(tuple(d) for d in t) for t in rule[key]) for key in ("operands", "results")]
    text = "its sharding_rule"
    whole = [*rule["whole"], *rule["reduction"]]
    return _named_rule(call, facts["name"], text, (sides[0], sides[1]), rule["sizes"], (), whole, None)


def _named_rule(
    call: Call,
    name: str,
    text: str,
    sides: tuple[Tensors, Tensors],
    given: Mapping[str, int],
    reduction: Sequence[str],
    whole: Sequence[str],
    facts: Mapping[str, Any] | None,
) -> tuple[ShardingRule, dict[str, int]]:
    used = _factors_of(sides)
    for what, factors in (("reduction", reduction), ("whole", whole)):
        if unknown := sorted(set(factors) - used):
            raise RuleError(f"rule {text!r} of {name}: {what} names {unknown[0]!r}, which no dimension has")
    left = [_without_units(side, types) for side, types in zip(sides, (call.operands, call.results), strict=True)]
    sizes = factor_sizes(call, text, left[0], left[1], given)
    labels = [[[Compound(tuple((f, sizes[f]) for f in d)) if d else None for d in t] for t in side] for side in left]
    in_results = _factors_of(left[1:])
    kept = set(whole) | {f for f in sizes if f not in in_results and f not in reduction}
    if facts is not None and "grid" in facts:
        _between_blocks(name, text, labels, sizes, facts, kept)
    parts = {f for side in labels for t in side for d in t if isinstance(d, Compound) for f, _ in d.parts}
    rule = call.build(
        labels[0], labels[1], reduction=[f for f in reduction if f in sizes],
        need_replication=[f for f in parts if f in kept or isinstance(f, tuple)], is_custom=True,
    )  # fmt: skip
    return rule, {**dict.fromkeys(sorted(used), 1), **sizes}


def _factors_of(sides: Sequence[Tensors]) -> set[str]:
    return {f for side in sides for t in side for d in t for f in d}


def _without_units(side: Tensors, types: Sequence[Any]) -> Tensors:
    """The factors of each dimension, none where it has one element."""
    if len(side) != len(types) or any(len(t) != type_.rank for t, type_ in zip(side, types, strict=True)):
        return side  # `factor_sizes` says what is wrong
    return tuple(
        tuple(() if n == 1 else d for d, n in zip(t, type_.shape, strict=True))
        for t, type_ in zip(side, types, strict=True)
    )


def _between_blocks(
    name: str,
    text: str,
    labels: Sequence[list[list[Compound | None]]],
    sizes: Mapping[str, int],
    facts: Mapping[str, Any],
    kept: set[str],
) -> None:
    """Split, in place, the dimensions of each factor that may be cut into blocks of the grid and what is in a block.

    Raises `RuleError` for a factor that does not go along one grid dimension.
    """
    tensors = [tensor for side in labels for tensor in side]
    for factor in sizes:
        if factor in kept:
            continue
        at = [
            (number, d)
            for number, tensor in enumerate(tensors)
            for d, label in enumerate(tensor)
            if label is not None and any(f == factor for f, _ in label.parts)
        ]
        ties = [facts["ties"][number][d] for number, d in at]
        along = {tie[0] for tie in ties if tie is not None}
        same = [(n, d) for n, tensor in enumerate(facts["ties"]) for d, t in enumerate(tensor) if t and t[0] in along]
        alone = all(len(_parts(tensors[n][d])) == 1 for n, d in at)
        if None in ties or len(along) != 1 or not alone or any(t[2] != 1 for t in ties) or sorted(same) != sorted(at):
            raise RuleError(
                f"rule {text!r} of {name}: factor {factor!r} does not go along one grid dimension of the kernel, so "
                f"the kernel cannot run on a part of it; name it in whole=, or give local= for what a device runs"
            )
        for (number, d), tie in zip(at, ties, strict=True):
            parts = ((factor, sizes[factor] // tie[1]), (("inside", number, d), tie[1]))
            tensors[number][d] = Compound(parts)


def _parts(label: Compound | None) -> tuple[Any, ...]:
    return () if label is None else label.parts


# -- formulas ------------------------------------------------------------------------------------------------------

_OPERATORS: Final[Mapping[type, Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow,
}  # fmt: skip


def formula_value(formula: str | float, sizes: Mapping[str, int], what: str) -> float:
    """The number of a formula over factors, or a number as it is.

    `RuleError` where it cannot be read, names an unknown factor, or is no number from 0.

    >>> formula_value("4 * b * q * k / 2", {"b": 2, "q": 8, "k": 8}, "flop")
    256.0
    """

    def value(node: ast.AST) -> float:
        if isinstance(node, ast.Expression):
            return value(node.body)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return float(node.value)
        if isinstance(node, ast.Name):
            if node.id not in sizes:
                raise RuleError(f"{what}: {formula!r} names {node.id!r}; the factors are {', '.join(sorted(sizes))}")
            return float(sizes[node.id])
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise RuleError(f"{what}: cannot read {formula!r}; write numbers, factors and + - * / // **, as 4*b*h*q*k*d")

    try:
        result = value(ast.parse(formula.strip(), mode="eval")) if isinstance(formula, str) else float(formula)
    except (SyntaxError, ZeroDivisionError, OverflowError, TypeError, RecursionError, MemoryError) as error:
        raise RuleError(f"{what}: cannot read {formula!r}: {error}") from None
    if not isinstance(result, float) or not 0 <= result < float("inf"):  # a root of a negative number is complex
        found = f"{formula!r} is {result}" if isinstance(formula, str) else f"found {formula}"
        raise RuleError(f"{what}: {found}; expected a number from 0")
    return result
