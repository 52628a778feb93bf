"""Sharding rules as the checker reads them, and what it knows by itself about ops.

Where the checker knows nothing about an op, the rule in plan.json is believed. What it knows: factors must multiply to
the shapes; a factor that no result has can be cut only if partial results are combined; pointwise ops tie their
operands to their results; and for many kinds of op, which operands may be partial sums.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from autoshard.verify.plan.cutouts import Cutout, cutout_faults, read_cutout
from autoshard.verify.plan.program import Graph, Node

Factors = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """Factor sizes; factors of each dimension of each tensor; how factors may be cut; how partial sums pass."""

    text: str
    sizes: tuple[int, ...]
    operands: tuple[Factors, ...]
    results: tuple[Factors, ...]
    reduction: frozenset[int]
    uncut: frozenset[int]  # need_replication and permutation
    combiner: str
    linear: tuple[tuple[int, ...], ...]
    accumulators: tuple[int, ...]
    halos: tuple[tuple[int, int, int, int, int], ...] = ()  # operand, dimension, factor, low, high
    cutouts: tuple[Cutout, ...] = ()

    @property
    def is_pointwise(self) -> bool:
        """Whether every operand has the factors of the first result, or has one element only."""
        return not self.reduction and all(t == self.results[0] or not any(t) for t in self.operands)


_PARTS = re.compile(r"^\((?P<ins>.*)\)->\((?P<outs>.*)\) \{(?P<sizes>[^}]*)\}(?P<rest>.*)$")
_MARK = re.compile(r" (?P<key>\w+)=(?:\{(?P<set>[^}]*)\}|(?P<word>\w+))")
_NAME = re.compile(r"z_\d+|[a-z]\d*")


def read_rule(data: Any) -> Rule:
    """The rule of ``{"text", "linear", "accumulators"}`` of plan.json; `ValueError` where it cannot be read."""
    text = data["text"]
    parts = _PARTS.match(text)
    if parts is None:
        raise ValueError(f"rule {text!r} cannot be read")
    number: dict[str, int] = {}
    sizes: list[int] = []
    for item in parts["sizes"].split(", ") if parts["sizes"] else ():
        name, _, size = item.partition("=")
        number[name] = len(sizes)
        sizes.append(int(size))

    def tensors(side: str) -> tuple[Factors, ...]:
        factors = []
        for tensor in re.findall(r"\[(.*?)\]", side):
            dims = tensor.split(", ") if tensor else []
            factors.append(tuple(tuple(number[n] for n in _NAME.findall(d)) for d in dims))
        return tuple(factors)

    marks: dict[str, frozenset[int]] = {}
    combiner, read = "add", 0
    for mark in _MARK.finditer(parts["rest"]):
        read += len(mark[0])
        if mark["key"] == "combiner" and mark["word"]:
            combiner = mark["word"]
        elif mark["key"] in ("reduction", "need_replication", "permutation", "blocked_propagation"):
            marks[mark["key"]] = frozenset(number[n] for n in (mark["set"] or "").split(", ") if n)
        else:
            raise ValueError(f"rule {text!r} has an unknown part {mark['key']!r}")
    if read != len(parts["rest"]) or combiner not in ("add", "max", "min"):
        raise ValueError(f"rule {text!r} cannot be read")
    none: frozenset[int] = frozenset()
    operands, results = tensors(parts["ins"]), tensors(parts["outs"])
    return Rule(
        text, tuple(sizes), operands, results, marks.get("reduction", none),
        marks.get("need_replication", none) | marks.get("permutation", none), combiner,
        tuple(tuple(s) for s in data["linear"]), tuple(data["accumulators"]),
        tuple(_read_halo(h, operands, len(sizes), text) for h in data.get("halos", ())),
        tuple(read_cutout(c, operands, results, text) for c in data.get("cutouts", ())),
    )  # fmt: skip


def _read_halo(data: Any, operands: Sequence[Factors], factors: int, text: str) -> tuple[int, int, int, int, int]:
    """Operand, dimension, factor, low, high; `ValueError` where the rule has no such dimension or factor."""
    operand, dim, factor, low, high = (int(n) for n in data)
    if not (0 <= operand < len(operands) and 0 <= dim < len(operands[operand]) and 0 <= factor < factors):
        raise ValueError(f"rule {text!r} has no dimension for the edges {list(data)}")
    return operand, dim, factor, low, high


# -- what is known about ops -------------------------------------------------------------------------

_ANY: Final = "any"  # the first operand alone: f(x + y) = f(x) + f(y)
_EVERY: Final = "every"  # all operands together
_EITHER: Final = "either"  # one of the first two, the other whole

_LINEAR: Final[dict[str, Any]] = {
    **dict.fromkeys(
        ("neg", "real", "imag", "conj", "convert_element_type", "copy", "copy_p", "pvary", "stop_gradient", "mesh_cast",
         "sharding_constraint", "layout_constraint", "reshard", "name", "optimization_barrier", "device_put",
         "reduce_sum", "cumsum", "broadcast_in_dim", "transpose", "squeeze", "expand_dims", "tile", "unstack", "slice",
         "split", "rev", "roll", "dynamic_slice", "gather", "reshape", "fft", "reduce_window_sum", "div"), _ANY
    ),
    **dict.fromkeys(("add", "sub", "add_any", "complex", "stack", "pad", "concatenate"), _EVERY),
    **dict.fromkeys(("mul", "dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"), _EITHER),
    "select_n": "cases", "tie": {1}, "dynamic_update_slice": {0, 1}, "triangular_solve": {1}, "tridiagonal_solve": {3},
    "select_and_scatter_add": {0}, "select_and_gather_add": {0},
    "scatter": {0, 2}, "scatter-add": {0, 2}, "scatter_add": {0, 2}, "scatter-sub": {0, 2}, "scatter_sub": {0, 2},
}  # fmt: skip
"""Kinds of op through which partial sums may pass, and the operands that are then partial sums."""

_FUNCTIONS: Final = frozenset(
    {
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "ceil", "clz",
        "cos", "cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "integer_pow",
        "is_finite", "lgamma", "log", "log1p", "log2", "logistic", "not", "population_count", "reduce_precision",
        "round",
        "rsqrt", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "and", "atan2", "eq", "ge", "gt", "le",
        "lt", "max", "min", "ne", "nextafter", "or", "pow", "rem", "shift_left", "shift_right_arithmetic",
        "shift_right_logical", "xor", "clamp", "polynomial",
    }
)  # fmt: skip
"""Functions of single elements that are not linear."""

_NOT_LINEAR_EITHER: Final = frozenset(
    {
        "random_seed", "random_fold_in", "random_bits", "random_split", "random_wrap", "random_unwrap",
        "threefry2x32", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor",
        "argmax", "argmin", "cumprod", "cummax", "cummin", "cumlogsumexp", "sort", "top_k", "iota",
        "reduce_window_max", "reduce_window_min", "scatter-max", "scatter-min", "scatter-mul", "cholesky", "lu",
        "qr", "eigh", "svd",
    }
)  # fmt: skip
"""Other kinds through which no partial sum passes."""

_NOT_LINEAR: Final = _FUNCTIONS | _NOT_LINEAR_EITHER

_COMBINERS: Final = {
    **dict.fromkeys(("reduce_max", "scatter-max", "scatter_max"), "max"),
    **dict.fromkeys(("reduce_min", "scatter-min", "scatter_min"), "min"),
    **dict.fromkeys(
        ("reduce_sum", "dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general", "gather",
         "scatter-add", "scatter_add", "scatter-sub", "scatter_sub"), "add"
    ),
}  # fmt: skip
"""Kinds whose partial results can be combined, and how."""

_POINTWISE: Final = _FUNCTIONS | {
    "neg",
    "convert_element_type",
    "add",
    "sub",
    "add_any",
    "mul",
    "div",
    "select_n",
    "copy",
}
PADDED: Final = _POINTWISE | {
    "add_any", "complex", "conj", "copy_p", "eq_to", "from_edtype", "igamma", "igamma_grad_a", "igammac", "imag",
    "layout_constraint", "le_to", "lt_to", "mesh_cast", "mulhi", "name", "one_minus_square", "philox2x32",
    "philox4x32", "polygamma", "pvary", "random_clone", "random_fold_in", "random_gamma_grad", "random_seed", "real",
    "regularized_incomplete_beta", "reshard", "sharding_constraint", "stop_gradient", "threefry2x32", "threefry4x32",
    "to_edtype", "zeta",
    "broadcast_in_dim", "transpose", "squeeze", "expand_dims",
    "dot_general", "reduce_sum", "reduce_max", "reduce_min",
}  # fmt: skip
"""Kinds that run on padded blocks: the padding stays where it is (functions of single elements, plain moves), or can be
made neutral before it is summed or compared."""

_FREE_OPERANDS: Final = frozenset(("tie",))
"""Kinds with an operand whose elements do not matter."""


def rule_faults(op: Node, rule: Rule, graph: Graph) -> list[str]:
    """What is wrong with a rule: against the shapes, against itself, and against what is known about the kind of op."""
    faults: list[str] = []
    used = {f for t in (*rule.operands, *rule.results) for d in t for f in d}
    if used != set(range(len(rule.sizes))):
        faults.append(f"factors {sorted(set(range(len(rule.sizes))) - used)} are in no tensor")
    for what, tensors, values in (("operand", rule.operands, op.operands), ("result", rule.results, op.results)):
        if len(tensors) != len(values):
            return [*faults, f"it has {len(tensors)} {what}s, the op {len(values)}"]
        for k, (dims, value) in enumerate(zip(tensors, values, strict=True)):
            shape = tuple(prod(rule.sizes[f] for f in d) for d in dims)
            if shape != graph.values[value].shape:
                faults.append(f"{what} {k} has factors that multiply to {list(shape)}, it is {graph.values[value]}")
            flat = [f for d in dims for f in d]
            if len(set(flat)) != len(flat):
                faults.append(f"{what} {k} has a factor twice")
    in_results = {f for t in rule.results for d in t for f in d}
    if rule.reduction & in_results:
        faults.append("a reduction factor is left in a result")
    if op.kind not in _FREE_OPERANDS:
        lost = {f for f in used - in_results - rule.reduction - rule.uncut if rule.sizes[f] > 1}
        if lost:
            faults.append(
                "a factor that no result has is neither a reduction nor kept whole: a device would see a part only"
            )
    return [
        *faults,
        *_kind_faults(op, rule, graph, in_results),
        *_linear_faults(op, rule, graph),
        *_halo_faults(op, rule),
        *cutout_faults(op, rule.cutouts, rule.sizes, graph),
    ]


def _kind_faults(op: Node, rule: Rule, graph: Graph, in_results: set[int]) -> list[str]:
    """What is wrong with a rule for an op of this kind; `in_results`: factors that some result has."""
    faults: list[str] = []
    known = op.kind in _NOT_LINEAR or op.kind in _LINEAR
    if rule.reduction and known and _COMBINERS.get(op.kind) != rule.combiner:
        faults.append(
            f"partial results combined by {rule.combiner}; {op.kind} has {_COMBINERS.get(op.kind, 'no combination')}"
        )
    if op.kind == "random_bits" and graph.values[op.operands[0]].dtype != "key<fry>":
        keys = {f for d in rule.operands[0] for f in d}
        if {f for f in in_results - keys - rule.uncut if rule.sizes[f] > 1}:
            faults.append("bits of these keys are made whole: only threefry makes a block of them by itself")
    if op.kind in _POINTWISE and len(op.results) == 1:
        for k, dims in enumerate(rule.operands):
            if any(d and d != rule.results[0][i] for i, d in enumerate(dims) if i < len(rule.results[0])):
                faults.append(f"operand {k} of a pointwise op is not factored as its result")
    if rule.combiner == "add" and rule.reduction and op.kind.startswith("scatter") and rule.accumulators != (0,):
        faults.append("its operand is added to on every device of a cut reduction, so it must be an accumulator")
    if rule.accumulators and known and not op.kind.startswith("scatter"):
        faults.append(f"{op.kind} accumulates nothing")
    return faults


def _halo_faults(op: Node, rule: Rule) -> list[str]:
    """What is wrong with the edges that neighbours exchange: only convolutions need them, along dimensions that their
    window slides over.
    """
    if rule.halos and op.kind != "conv_general_dilated":
        return [f"{op.kind} has no sliding window, its blocks need no edges of their neighbours"]
    faults = []
    for operand, dim, factor, low, high in rule.halos:
        alone = (factor,)
        dims = rule.operands[0]
        if operand or not 0 <= dim < len(dims) or dims[dim] != alone or alone not in rule.results[0]:
            faults.append(f"edges of factor {factor} in dimension {dim} of operand {operand}, which has it not alone")
        windows = [rule.sizes[f] for d in rule.operands[1] for f in d if f in rule.uncut and f != factor]
        if low < 0 or high < 0 or not any(n > 1 and (low + high) and (low + high) % (n - 1) == 0 for n in windows):
            faults.append(f"edges of {low} and {high} elements fit no window of sizes {windows}")
    return faults


def _linear_faults(op: Node, rule: Rule, graph: Graph) -> list[str]:
    if not rule.linear:
        return []
    if op.kind in _NOT_LINEAR:
        return [f"{op.kind} is not linear, no partial sum passes it"]
    operands = [graph.values[v] for v in op.operands]
    everything = set(range(len(operands)))
    zeros = {k for k, t in enumerate(operands) if t.is_zero}
    faults = []
    for members in rule.linear:
        summands = set(members)
        wanted = _linear_operands(op.kind, summands, everything)
        # zeros need not be summands (0 + 0 = 0); a set with another literal is allowed, and can never be used
        if wanted is not None and (not summands or not summands <= wanted or not wanted - summands <= zeros):
            faults.append(f"{op.kind} is linear in operands {sorted(wanted)}, not in {sorted(summands)}")
            continue
        dtypes = {graph.values[op.operands[k]].dtype for k in summands} | {graph.values[v].dtype for v in op.results}
        tensors = [graph.values[v] for v in (*(op.operands[k] for k in summands), *op.results)]
        if not all(t.is_inexact for t in tensors) and not (len(dtypes) == 1 and all(t.is_summable for t in tensors)):
            faults.append(f"no partial sum passes from {sorted(dtypes)} to another type exactly")
        if op.kind == "div" and not graph.values[op.results[0]].is_inexact:
            faults.append("integer division is not linear")
    return faults


def _linear_operands(kind: str, summands: set[int], everything: set[int]) -> set[int] | None:
    """Operands that must be partial sums together; None for a kind the checker does not know: its rule is believed."""
    known = _LINEAR.get(kind)
    if known is None:
        return None
    if known == _ANY:
        return {0}
    if known == _EVERY:
        return everything
    if known == _EITHER:
        return summands if summands in ({0}, {1}) else {0}
    return everything - {0} if known == "cases" else set(known)
