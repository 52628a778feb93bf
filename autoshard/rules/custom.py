"""Rules of users for their own primitives, as text."""

import re
from collections.abc import Mapping, Sequence

from autoshard.errors import RuleError
from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Compound, Label
from autoshard.rules.registry import set_custom

_FACTOR = re.compile(r"[a-z](?:_?\d+)?")
_TENSORS = re.compile(r"\(\s*(?:\[[^\[\]()]*\]\s*(?:,\s*\[[^\[\]()]*\]\s*)*)?\)")

Tensors = tuple[tuple[tuple[str, ...], ...], ...]


def register_rule(
    name: str,
    text: str,
    *,
    reduction: str | Sequence[str] = (),
    need_replication: str | Sequence[str] = (),
    combiner: str = "add",
    linear: Sequence[Sequence[int]] = (),
) -> None:
    """Say how a primitive named `name` may be sharded; replaces an earlier rule of that name.

    text: for every operand and result its dimensions as factors, without sizes, which come from the
        shapes: ``([i, k], [k, j])->([i, j])``. A dimension of several factors is written ``ij``
        (major to minor; their sizes must follow from other dimensions), ``_`` is a dimension of size 1.
    reduction: factors whose sharding leaves partial results, combined by `combiner` (add, max, min).
    need_replication: factors that must be whole; so is one that no result has and that is no reduction. linear: see
        `ShardingRule`.

    Each device will run the primitive on its blocks. Raises `RuleError` if the text is malformed. Wrong ranks and sizes
    raise it later, when a program with the op is read.

    >>> register_rule("my_kernel", "([i, k], [k, j])->([i, j])", reduction="k")
    """
    operands, results = parse_tensors(name, text)
    used = {f for t in (*operands, *results) for d in t for f in d}
    marked = {"reduction": factor_names(reduction), "need_replication": factor_names(need_replication)}
    for what, factors in marked.items():
        for factor in factors:
            if factor not in used:
                raise RuleError(f"rule {text!r} of {name!r}: {what} names {factor!r}, which no dimension has")
    check_reduction(name, text, results, marked["reduction"], need_replication=marked["need_replication"])
    if combiner not in ("add", "max", "min"):
        raise RuleError(f"rule {text!r} of {name!r}: combiner {combiner!r} is not one of add, max, min")
    for k in (k for members in linear for k in members):
        if not 0 <= k < len(operands):
            raise RuleError(f"rule {text!r} of {name!r}: linear names operand {k} of {len(operands)}")

    in_results = {f for t in results for d in t for f in d}
    # cut, each device would have a result of its own, of its block alone
    lost = sorted(used - in_results - set(marked["reduction"]) - set(marked["need_replication"]))
    whole = (*marked["need_replication"], *lost)

    def rule(call: Call) -> ShardingRule:
        sizes = factor_sizes(call, text, operands, results)

        def labels(tensors: Tensors) -> list[list[Label | Compound | None]]:
            return [[Compound(tuple((f, sizes[f]) for f in dim)) if dim else None for dim in t] for t in tensors]

        return call.build(
            labels(operands),
            labels(results),
            reduction=marked["reduction"],
            need_replication=whole,
            combiner=combiner,
            linear=linear,
            is_custom=True,
        )

    set_custom(name, rule)


def unregister_rule(name: str) -> None:
    """Remove a user's rule; a built-in rule of that name counts again."""
    set_custom(name, None)


def factor_names(factors: str | Sequence[str]) -> tuple[str, ...]:
    """Names of factors from ``"k"``, ``"i, k"`` or ``["i", "k"]``; `RuleError` for text with anything else in it."""
    if not isinstance(factors, str):
        return tuple(factors)
    if unread := _FACTOR.sub("", factors).replace(",", "").strip():
        raise RuleError(f"cannot read {unread!r} in the factors {factors!r}; write letters, such as 'k' or 'i, k'")
    return tuple(_FACTOR.findall(factors))


def check_reduction(name: str, text: str, results: Tensors, reduction: Sequence[str], **whole: Sequence[str]) -> None:
    """`RuleError` for factors that cannot be reduced: those of results, and those that are whole.

    whole: the factors that must be whole, by the name of the option that says so.
    """
    for option, factors in whole.items():
        if both := sorted(set(reduction) & set(factors)):
            raise RuleError(f"rule {text!r} of {name!r}: factors {both} are in both reduction and {option}")
    for factor in reduction:
        if any(factor in d for t in results for d in t):
            raise RuleError(
                f"rule {text!r} of {name!r}: reduction factor {factor!r} is in a result, so nothing is reduced"
            )


def parse_tensors(name: str, text: str) -> tuple[Tensors, Tensors]:
    """The factors of each dimension of operands and results; `RuleError` where the text of the rule is malformed."""
    sides = text.strip().split("->")
    hint = "write for example ([i, k], [k, j])->([i, j]); sizes come from the shapes"
    if len(sides) != 2 or not all(_TENSORS.fullmatch(side.strip()) for side in sides):
        raise RuleError(f"cannot read the rule {text!r} of {name!r}; {hint}")

    def dimension(body: str) -> tuple[str, ...]:
        body = body.strip()
        if body == "_":
            return ()
        factors = tuple(_FACTOR.findall(body))
        if not factors or "".join(factors) != body or len(set(factors)) != len(factors):
            raise RuleError(f"cannot read the dimension {body!r} in the rule {text!r} of {name!r}; {hint}")
        return factors

    def tensors(side: str) -> Tensors:
        bodies = re.findall(r"\[([^\]]*)\]", side)
        return tuple(tuple(map(dimension, body.split(","))) if body.strip() else () for body in bodies)

    return tensors(sides[0]), tensors(sides[1])


def factor_sizes(
    call: Call, text: str, operands: Tensors, results: Tensors, given: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Size of every factor, derived from dimensions with a single unknown factor, again and again.

    given: sizes that are known from elsewhere. Raises `RuleError` where ranks or sizes do not fit.
    """
    dims: list[tuple[tuple[str, ...], int, str]] = []
    for what, tensors, types in (("operand", operands, call.operands), ("result", results, call.results)):
        if len(tensors) != len(types):
            raise RuleError(f"{call}: rule {text!r} has {len(tensors)} {what}s, the op has {len(types)}")
        for k, (tensor, type_) in enumerate(zip(tensors, types, strict=True)):
            if len(tensor) != type_.rank:
                raise RuleError(f"{call}: rule {text!r} gives {what} {k} rank {len(tensor)}, it has rank {type_.rank}")
            dims += [
                (f, n, f"dimension {d} of {what} {k}") for d, (f, n) in enumerate(zip(tensor, type_.shape, strict=True))
            ]
    sizes: dict[str, int] = dict(given or {})
    while True:
        before = len(sizes)
        for factors, size, where in dims:
            unknown = [f for f in factors if f not in sizes]
            known = 1
            for f in factors:
                known *= sizes.get(f, 1)
            if (known != size) if not unknown else (known == 0 or size % known != 0):
                known_sizes = ", ".join(f"{f}={sizes[f]}" for f in factors if f in sizes)
                raise RuleError(
                    f"{call}: in rule {text!r} {where} has size {size}, its factors say {known_sizes or known}"
                )
            if len(unknown) == 1:
                sizes[unknown[0]] = size // known
        if len(sizes) == before:
            break
    if missing := sorted({f for factors, _, _ in dims for f in factors} - set(sizes)):
        raise RuleError(f"{call}: rule {text!r} does not settle the sizes of factors {missing}")
    return sizes
