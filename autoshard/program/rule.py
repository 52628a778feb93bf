"""Sharding rules: the dimensions of an op's tensors written as factors (S2.13 to S2.24).

A rule is all that planning and propagation need to know about an op. Its text form is Shardy's:
``([i, k], [k, j])->([i, j]) {i=8, j=16, k=32} reduction={k}``.
"""

import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from autoshard.errors import RuleError

TensorFactors = tuple[tuple[int, ...], ...]
"""For each dimension its factor indices, major to minor; ``()`` for a dimension of size 1 without factor."""
SMALL_OPERAND = 8
"""Of what is joined along a cut dimension, an operand of less than one part in so many of the largest comes whole."""


@dataclass(frozen=True, slots=True)
class Halo:
    """A sliding window over a dimension: a block also needs its neighbours' edges.

    Dimension `dim` of operand `operand` is the factor `factor` alone. To cut it, every device gets the last `low`
    elements of the block before its own and the first `high` of the block after, zeros at the two ends.
    """

    operand: int
    dim: int
    factor: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Cutout:
    """Along one dimension, a result is a run of the elements of an operand (a slice), or the reverse (a pad, and each
    operand of what is joined).

    Element r of dimension `dim` of result `result` is element ``start + r`` of that dimension of operand `operand`; a
    start of None is known at run time only. wraps: the dimension is rolled, and behind its last element is its first;
    it is cut into even blocks only. taken, made: the factors of the two dimensions, -1 for one of size 1; where the
    sizes are the same (a shift, a roll), they are one factor. They need replication by themselves, but can be cut after
    all

    - both by the same atoms, where the start is known: elements change devices by permutes;
    - `taken` alone, if `sums`: every device fills in what it holds, and the results are partial sums;
    - `made` alone, if `grows` (a pad, what is joined): every device takes what falls into its block.
    """

    operand: int
    result: int
    dim: int
    taken: int
    made: int
    start: int | None
    grows: bool = False
    sums: bool = False
    wraps: bool = False


@dataclass(frozen=True)
class ShardingRule:
    """Factors of every operand and result dimension, and how each factor may be sharded.

    factor_sizes: size of each factor.
    operands, results: one `TensorFactors` each.
    reduction: factors whose sharding leaves partial results to be combined by `combiner`. A factor
        is also legal here when it only *acts* like a sum, e.g. the looked-up dimension of a gather
        (each device looks up in its block and contributes zeros otherwise).
    need_replication: factors that must be whole on every device.
    permutation: factors whose sharding needs neighbour exchange (Shardy's notion; not sharded by the planner).
    blocked: factors through which propagation does not pass (the planner may still shard them).
    combiner: 'add', 'max' or 'min'. Only 'add' may stay unreduced after the op.
    linear: alternative sets of operand indices. If exactly the operands of one set are unreduced over
        an axis, and the other operands are whole over it, all results are unreduced over it:
        add is ``((0, 1),)``, mul ``((0,), (1,))``, negation ``((0,),)``, max ``()``.
    accumulators: operands without the reduction factor that the results add to (scatter-add's operand 0);
        they must be unreduced over the axes of sharded reduction factors.
    halos: of factors in `need_replication` that the planner may cut all the same, as the lowering exchanges edges with
        neighbours; each at most into blocks as long as the edges.
    cutouts: of factors in `need_replication` that the planner may cut in the ways that `Cutout` names.
    """

    factor_sizes: tuple[int, ...]
    operands: tuple[TensorFactors, ...]
    results: tuple[TensorFactors, ...]
    reduction: frozenset[int] = frozenset()
    need_replication: frozenset[int] = frozenset()
    permutation: frozenset[int] = frozenset()
    blocked: frozenset[int] = frozenset()
    combiner: str = "add"
    linear: tuple[tuple[int, ...], ...] = ()
    accumulators: tuple[int, ...] = ()
    is_custom: bool = field(default=False, compare=False)
    halos: tuple[Halo, ...] = ()
    cutouts: tuple[Cutout, ...] = ()

    def __post_init__(self) -> None:
        used = {f for t in (*self.operands, *self.results) for d in t for f in d}
        if used != set(range(len(self.factor_sizes))):
            missing = sorted(set(range(len(self.factor_sizes))) - used)
            raise RuleError(
                f"rule has {len(self.factor_sizes)} factors but its tensors use {sorted(used)}"
                + (f"; factors {missing} appear in no operand and no result" if missing else "")
            )
        for special in (self.reduction, self.need_replication, self.permutation, self.blocked):
            if not special <= used:
                raise RuleError(f"rule marks factors {sorted(special - used)} that no tensor has")
        if self.combiner not in ("add", "max", "min"):
            raise RuleError(f"combiner {self.combiner!r} is not one of add, max, min")

    @cached_property
    def shardable(self) -> tuple[int, ...]:
        """Factors the planner may put axes on: larger than 1 and neither whole nor permuted."""
        fixed = self.need_replication | self.permutation
        return tuple(f for f, n in enumerate(self.factor_sizes) if n > 1 and f not in fixed)

    @cached_property
    def placeable(self) -> tuple[int, ...]:
        """`shardable`, the factors that can be cut with an exchange of edges, and those of cutouts that can be cut
        alone.
        """
        alone = {c.made for c in self.cutouts if c.grows and c.made >= 0 and c.made != c.taken}
        return tuple(sorted({*self.shardable, *(h.factor for h in self.halos), *self.filled, *alone}))

    @cached_property
    def filled(self) -> frozenset[int]:
        """Factors of cutouts that leave partial sums where they are cut alone."""
        return frozenset(c.taken for c in self.cutouts if c.sums and c.taken >= 0)

    @cached_property
    def ties(self) -> tuple[tuple[int, ...], ...]:
        """Factors of cutouts that can be cut by the same atoms: that of an operand's dimension, then of its results.

        Of what is joined, the large operands are cut with the result. Small ones come whole.
        """
        made: dict[int, list[Cutout]] = {}
        joined: dict[int, list[Cutout]] = {}
        for c in self.cutouts:
            (joined if c.grows else made).setdefault(c.made if c.grows else c.taken, []).append(c)
        taken_apart = [
            (taken, *(c.made for c in group))
            for taken, group in made.items()
            if taken >= 0 and all(c.made >= 0 and c.start is not None for c in group)
        ]
        put_together = []
        for whole, group in joined.items():
            sizes = {c.taken: self.factor_sizes[c.taken] for c in group if c.taken >= 0}
            large = [taken for taken, size in sizes.items() if size * SMALL_OPERAND >= max(sizes.values())]
            put_together += [(*large, whole)] if large and whole >= 0 else []
        return tuple(tuple(dict.fromkeys(factors)) for factors in (*taken_apart, *put_together))

    def halos_fit(self, parts: Sequence[int]) -> bool:
        """Whether blocks are even and as long as the edges that neighbours need, given the parts of each factor."""
        return all(
            parts[h.factor] == 1
            or (
                self.factor_sizes[h.factor] % parts[h.factor] == 0
                and self.factor_sizes[h.factor] // parts[h.factor] >= max(h.low, h.high)
            )
            for h in self.halos
        )

    def check(self, operand_shapes: Iterable[tuple[int, ...]], result_shapes: Iterable[tuple[int, ...]]) -> None:
        """Raise `RuleError` unless the factors multiply to the given shapes (S2.13)."""
        for what, tensors, shapes in (
            ("operand", self.operands, tuple(operand_shapes)),
            ("result", self.results, tuple(result_shapes)),
        ):
            if len(tensors) != len(shapes):
                raise RuleError(f"rule {self} has {len(tensors)} {what}s, the op has {len(shapes)}")
            for index, (factors, shape) in enumerate(zip(tensors, shapes, strict=True)):
                products = tuple(prod(self.factor_sizes[f] for f in d) for d in factors)
                if products != tuple(shape):
                    raise RuleError(
                        f"rule {self}: {what} {index} has shape {tuple(shape)}, the factors give {products}"
                    )

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """Shardy's notation, factors named i, j, k, ... in order of their index."""
        names = [factor_name(i) for i in range(len(self.factor_sizes))]

        def tensor(t: TensorFactors) -> str:
            return "[" + ", ".join("".join(names[f] for f in d) if d else "_" for d in t) + "]"

        text = f"({', '.join(map(tensor, self.operands))})->({', '.join(map(tensor, self.results))})"
        text += " {" + ", ".join(f"{n}={s}" for n, s in zip(names, self.factor_sizes, strict=True)) + "}"
        for label, special in (
            ("reduction", self.reduction),
            ("need_replication", self.need_replication),
            ("permutation", self.permutation),
            ("blocked_propagation", self.blocked),
        ):
            if special:
                text += f" {label}={{{', '.join(names[f] for f in sorted(special))}}}"
        if self.combiner != "add":
            text += f" combiner={self.combiner}"
        return text


def factor_name(index: int) -> str:
    """i, j, ..., z, then z_1, z_2, ... as Shardy prints them."""
    letters = string.ascii_lowercase[8:]
    return letters[index] if index < len(letters) else f"z_{index - len(letters) + 1}"


_FACTOR = re.compile(r"z_\d+|[a-z](?:\d+)?")


def rule_from_text(text: str) -> ShardingRule:
    """Parse Shardy's notation; sizes are required, ``_`` is a dimension without factor.

    >>> str(rule_from_text("([i, k], [k, j])->([i, j]) {i=8, k=32, j=16} reduction={k}"))
    '([i, j], [j, k])->([i, k]) {i=8, j=32, k=16} reduction={j}'
    """
    head, brace, tail = text.partition("{")
    if not brace or "->" not in head:
        raise RuleError(f"cannot read rule {text!r}; write ([i, k], [k, j])->([i, j]) {{i=8, j=16, k=32}}")
    sizes_text, _, tail = tail.partition("}")
    sizes: dict[str, int] = {}
    for item in filter(None, (s.strip() for s in sizes_text.split(","))):
        name, eq, value = item.partition("=")
        if not eq or not value.strip().isdecimal():
            raise RuleError(f"cannot read the factor size {item!r} in rule {text!r}")
        sizes[name.strip()] = int(value)
    index = {name: i for i, name in enumerate(sizes)}

    def factor(name: str) -> int:
        if name not in index:
            raise RuleError(f"factor {name!r} has no size in rule {text!r}")
        return index[name]

    def tensors(part: str) -> tuple[TensorFactors, ...]:
        out = []
        for body in re.findall(r"\[([^\]]*)\]", part):
            dims = [d.strip() for d in body.split(",")] if body.strip() else []
            out.append(tuple(() if d == "_" else tuple(factor(n) for n in _FACTOR.findall(d)) for d in dims))
        return tuple(out)

    left, _, right = head.partition("->")
    special: dict[str, frozenset[int]] = {}
    combiner = "add"
    for key, braces, word in re.findall(r"(\w+)\s*=\s*(?:\{([^}]*)\}|(\w+))", tail):
        if key == "combiner":
            combiner = word
        elif key in ("reduction", "need_replication", "permutation", "blocked_propagation"):
            special[key] = frozenset(factor(n.strip()) for n in braces.split(",") if n.strip())
        else:
            raise RuleError(f"unknown part {key!r} in rule {text!r}")
    return ShardingRule(
        factor_sizes=tuple(sizes.values()),
        operands=tensors(left),
        results=tensors(right),
        reduction=special.get("reduction", frozenset()),
        need_replication=special.get("need_replication", frozenset()),
        permutation=special.get("permutation", frozenset()),
        blocked=special.get("blocked_propagation", frozenset()),
        combiner=combiner,
    )
