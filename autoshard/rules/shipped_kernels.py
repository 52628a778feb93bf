"""Rules and work of the kernels that JAX ships: attention and grouped matmuls, Pallas and cuDNN.

Keys are ``file:name`` of the kernel's function, or its name alone; they may have ``*``.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from autoshard.errors import RuleError
from autoshard.program.rule import ShardingRule
from autoshard.program.types import TensorType
from autoshard.rules.build import Call, Compound
from autoshard.rules.kernels import grid_rule, shardy_rule

Facts = Mapping[str, Any]


def shipped_rule(call: Call, facts: Facts, unread: Sequence[int] = ()) -> ShardingRule | None:
    """The shipped rule of a kernel; None where none is shipped, or none fits. unread: results that nothing reads."""
    entry = _entry(_RULES, facts)
    if entry is None:
        return None
    try:
        return entry(call, facts, unread)
    except RuleError:  # another version of the kernel
        return None


def rule_of_kernel(
    kind: str, operands: Sequence[TensorType], results: Sequence[TensorType], facts: Facts
) -> ShardingRule:
    """The rule that a kernel has where nothing is stated of it: its own, a shipped one, or whole on every device."""
    call = Call(kind, tuple(operands), tuple(results), {})
    if facts.get("rule") is not None:
        try:
            return shardy_rule(call, facts)[0]
        except RuleError:
            return call.conservative()
    return shipped_rule(call, facts) or call.conservative()


def shipped_work(call: Call, facts: Facts) -> dict[str, Any] | None:
    """The work of a kernel that says nothing of it itself; None where none is shipped."""
    entry = _entry(_WORK, facts)
    flop = None if entry is None else entry(call, facts)
    if flop is None:
        return None
    return {"flop": float(flop), "transcendentals": 0.0, "bytes": None, "unit": "matmul", "from": "a shipped formula"}


def _entry(table: Mapping[str, Any], facts: Facts) -> Any:
    names = (facts["name"], f"{facts['file']}:{facts['name']}")
    return next((entry for pattern, entry in table.items() if any(fnmatchcase(n, pattern) for n in names)), None)


# -- Pallas ----------------------------------------------------------------------------------------------------------


def _grid(*chosen: int) -> Callable[[Call, Facts, Sequence[int]], ShardingRule]:
    return lambda call, facts, unread: grid_rule(call, facts, chosen, unread)


def _splash(call: Call, facts: Facts, unread: Sequence[int]) -> ShardingRule:
    """Heads, where they share one mask: the arrays that tell which blocks to skip have one row for all of them."""
    masks = [t for t in call.operands if t.dtype in ("int8", "int16", "int32") and t.rank == 3]
    query, ties = next(
        (t, ties)
        for t, ties in zip(call.operands, facts["ties"], strict=False)
        if t.rank >= 3 and t.dtype not in ("int8", "int16", "int32")
    )
    along = ties[query.rank - 3]
    own = [k for k in range(len(facts["grid"])) if k not in facts["vmapped"]]
    if along is not None and along[0] in own and all(t.shape[0] == 1 for t in masks):
        try:
            return grid_rule(call, facts, [own.index(along[0])], unread)
        except RuleError:  # the grid goes over heads in another way
            pass
    return grid_rule(call, facts, [], unread)


def _megablox(call: Call, facts: Facts, unread: Sequence[int]) -> ShardingRule:
    """Columns of the result; of the gradient of the weights (whose rows of groups come last) both its dimensions."""
    own = [n for k, n in enumerate(facts["grid"]) if k not in facts["vmapped"]]
    return grid_rule(call, facts, [0, 1] if own[-1] is None else [0], unread)


def _whole(call: Call, facts: Facts, unread: Sequence[int]) -> ShardingRule:
    return call.conservative()


_FLASH: Final = "flash_attention.py:_flash_attention"


# -- cuDNN -----------------------------------------------------------------------------------------------------------


def _cudnn(call: Call, facts: Facts, unread: Sequence[int]) -> ShardingRule:
    """Batch, and key heads with all their query heads. Dropout, packed sequences and pages keep everything whole."""
    params, is_backward = facts["params"], "bwd" in facts["name"]
    heads_first = params.get("layout") == 1  # BNTH
    q, k = call.operands[:2]
    head = 1 if heads_first else 2
    sequence = 3 - head
    batch, key_heads = q.shape[0], k.shape[head]
    plain = params.get("dropout_rate", 0.0) == 0 and all(t.shape[:1] != (batch + 1,) for t in call.operands[6:8])
    if not plain or any(t.elements > 1 and t.rank > 1 for t in call.operands[8:10]):
        return call.conservative()
    groups = q.shape[head] // key_heads
    many = Compound((("head", key_heads), ("group", groups)))

    def attention(number: int, heads: Any, row: str) -> list[Any]:
        labels: list[Any] = ["batch", None, None, ("inside", number)]
        labels[head], labels[sequence] = heads, row
        return labels

    def other(number: int, type_: Any) -> list[Any]:
        if type_.shape == (batch,):
            return ["batch"]
        if type_.rank == 3:  # statistics of the softmax: batch, heads, queries
            return ["batch", many, "row"]
        if type_.rank == 4:  # bias or mask: batch, heads, queries, keys
            return [
                label if n > 1 else None for n, label in zip(type_.shape, ("batch", many, "row", "column"), strict=True)
            ]
        return [("other", number, d) for d in range(type_.rank)]

    named = {0: (many, "row"), 1: ("head", "column"), 2: ("head", "column")}
    operands = [
        attention(n, *named[n]) if n in named else other(n, t) for n, t in enumerate(call.operands[:10])
    ]  # fmt: skip
    operands += [
        other(10, t) if t.rank == 3 else attention(n, many, "row") for n, t in enumerate(call.operands[10:], 11)
    ]
    results = []
    for n, t in enumerate(call.results):
        if is_backward:
            results.append(attention(20 + n, *named[n]) if n < 3 else other(20 + n, t))
        else:
            results.append(attention(20, many, "row") if n == 0 else other(20 + n, t))
    whole = {x for labels in (*operands, *results) for x in labels if not isinstance(x, Compound)} - {"batch", "head"}
    if is_backward and len(call.results) > 3 and 1 in call.operands[3].shape[:2]:
        whole |= {"batch", "head"}  # the gradient of a bias sums over what shares it
    return call.build(operands, results, need_replication=[*(x for x in whole if x is not None), "group"])


def _attention_flop(matmuls: int) -> Callable[[Call, Facts], float]:
    def flop(call: Call, facts: Facts) -> float:
        q, k = call.operands[:2]
        return 2.0 * matmuls * q.elements * k.shape[2 if facts["params"].get("layout") == 1 else 1]

    return flop


def _paged_flop(call: Call, facts: Facts) -> float | None:
    """Each query with all the tokens that its row of the page table has room for."""
    pages = [t for t in call.operands if t.rank == 4 and t.dtype not in ("int32",)]
    tables = [t for t in call.operands if t.dtype == "int32" and t.elements > 1]
    if len(pages) < 3 or len(tables) < 2:
        return None
    rows, table = tables[0].elements, max(tables, key=lambda t: t.elements).elements
    return 4.0 * pages[0].elements * (table / rows) * pages[1].shape[2]


_RULES: Final[Mapping[str, Callable[[Call, Facts, Sequence[int]], ShardingRule]]] = {
    f"{_FLASH}_kernel*": _grid(0, 1),
    f"{_FLASH}_dkv_kernel": _grid(0, 1),
    f"{_FLASH}_dq_kernel": _grid(0, 1),
    "splash_attention_kernel.py:*": _splash,
    "gmm.py:kernel": _megablox,
    "paged_attention_kernel.py:*": _whole,
    "ragged_paged_attention_kernel": _whole,
    "dot_product_attention_*": _cudnn,
}

_WORK: Final[Mapping[str, Callable[[Call, Facts], float | None]]] = {
    "dot_product_attention_fwd*": _attention_flop(2),
    "dot_product_attention_bwd*": _attention_flop(5),
    "paged_attention_kernel.py:*": _paged_flop,
}


CALLED: Final[Mapping[str, tuple[str, str, str]]] = {
    "paged_attention": (
        "([b, hg, d], [h, p, s, e], [h, p, s, f], [b], [b, n])->([b, hg, c])",
        "gdpsefnc",
        "4*b*h*g*d*n*s",
    ),
}
"""Jitted functions with a shipped rule, for those who say what a device runs: the rule, its whole factors, its FLOP."""


def whole_rule_only(facts: Facts) -> bool:
    """Whether the shipped rule cuts nothing, because the kernel computes with the sizes of whole arrays."""
    return _entry(_RULES, facts) is _whole
