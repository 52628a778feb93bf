"""Sharding rules of MLIR ops: Shardy's from the attribute, in autoshard's form; and how partial sums pass an op."""

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.program.rule import ShardingRule, TensorFactors
from autoshard.program.types import TensorType

_LINEAR_UNARY = frozenset(
    {"negate", "convert", "transpose", "reshape", "reverse", "slice", "broadcast_in_dim", "reduce", "real", "imag"}
)
_SUMS = frozenset({"add", "subtract", "concatenate"})
_PRODUCTS = frozenset({"multiply", "dot_general", "convolution"})
_REDUCERS = {"stablehlo.maximum": "max", "stablehlo.minimum": "min", "stablehlo.add": "add"}


def identity(shape: tuple[int, ...]) -> ShardingRule:
    """A rule with one operand and one result; every dimension (but those of size 1) is a factor of its own."""
    sizes = [n for n in shape if n > 1]
    at = iter(range(len(sizes)))
    mapping = tuple((next(at),) if n > 1 else () for n in shape)
    return ShardingRule(tuple(sizes), (mapping,), (mapping,), linear=((0,),))


def free(results: Sequence[TensorType]) -> ShardingRule:
    """The rule of an op without operands: every dimension of every result may be cut."""
    sizes: list[int] = []
    mappings: list[TensorFactors] = []
    for type_ in results:
        mapping: list[tuple[int, ...]] = []
        for n in type_.shape:
            mapping.append((len(sizes),) if n > 1 else ())
            if n > 1:
                sizes.append(n)
        mappings.append(tuple(mapping))
    return ShardingRule(tuple(sizes), (), tuple(mappings))


def rule_from_attr(
    attr: ir.Attribute, kind: str, combiner: str, types: tuple[Sequence[TensorType], Sequence[TensorType]]
) -> ShardingRule:
    """The rule of a ``sdy.sharding_rule`` attribute, without its factors of size 1."""
    rule = sdy.OpShardingRuleAttr(attr)
    sizes = list(rule.factor_sizes)
    number = {f: i for i, f in enumerate(f for f, n in enumerate(sizes) if n > 1)}

    def mapping(tensor: ir.Attribute) -> TensorFactors:
        dims = sdy.TensorMappingAttr(tensor).dim_mappings
        return tuple(tuple(number[f] for f in sdy.DimMappingAttr(d).factor_indices if f in number) for d in dims)

    def special(factors: Sequence[int]) -> frozenset[int]:
        return frozenset(number[f] for f in factors if f in number)

    found = ShardingRule(
        tuple(n for n in sizes if n > 1),
        tuple(mapping(t) for t in rule.operand_mappings),
        tuple(mapping(t) for t in rule.result_mappings),
        special(rule.reduction_factors),
        special(rule.need_replication_factors),
        special(rule.permutation_factors),
        special(rule.blocked_propagation_factors),
        combiner or "add",
        _linear(kind, combiner, types),
        is_custom=rule.is_custom,
    )
    return found


def _linear(
    kind: str, combiner: str, types: tuple[Sequence[TensorType], Sequence[TensorType]]
) -> tuple[tuple[int, ...], ...]:
    """Sets of operands whose partial sums pass through; none for integer and boolean results."""
    if not types[1] or not types[1][0].dtype.startswith(("float", "bfloat", "complex")):
        return ()
    if kind in _SUMS:
        return (tuple(range(len(types[0]))),)
    if kind in _PRODUCTS:
        return ((0,), (1,))
    if kind == "convert" and not types[0][0].dtype.startswith(("float", "bfloat", "complex")):
        return ()
    if kind in _LINEAR_UNARY and combiner in ("", "add"):
        return ((0,),)
    return ()


def combiner_of(op: ir.Operation) -> str:
    """How a reduction combines, by the only op of its body; '' where the op is no such reduction. Never an error."""
    if op.name not in ("stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter") or not len(op.regions):
        return ""
    names = [o.operation.name for o in op.regions[0].blocks[0].operations]
    return _REDUCERS.get(names[0], "") if len(names) == 2 else ""
