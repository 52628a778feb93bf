"""From labels on dimensions to a `ShardingRule`: equal labels are one factor.

Every family writes its rule as labels, one per dimension, the way one writes an einsum. Dimensions
of size 1 lose their label here, so broadcasting of size-1 dimensions needs no special case (S2.24).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral
from typing import Any, NamedTuple

from autoshard.errors import RuleError
from autoshard.program.rule import Cutout, Halo, ShardingRule, TensorFactors
from autoshard.program.types import TensorType

LITERALS = "_literals"
"""Key under which the front end may pass ``{operand index: Python scalar}`` for literal operands."""

Label = Hashable
"""Name of a factor inside one rule; None for a dimension without factor."""


@dataclass(frozen=True, slots=True)
class Compound:
    """A dimension of several factors, major to minor, with their sizes."""

    parts: tuple[tuple[Label, int], ...]


class LabelledCutout(NamedTuple):
    """A `Cutout` with labels for its factors."""

    operand: int
    result: int
    dim: int
    taken: Label
    made: Label
    start: int | None
    grows: bool = False
    sums: bool = False
    wraps: bool = False


class UnknownParametersError(Exception):
    """The op lacks a parameter that its rule reads, because the primitive has changed; the caller uses a fallback."""


def read(owner: Any, *names: str) -> Any:
    """The first of the given keys or attributes that `owner` (params or a dimension-numbers object) has.

    Whole numbers of numpy, which batching leaves in some, are those of Python: rules end in files.
    """
    for name in names:
        if isinstance(owner, Mapping):
            if name in owner:
                return _of_python(owner[name])
        elif hasattr(owner, name):
            return _of_python(getattr(owner, name))
    raise UnknownParametersError(names[0])


def _of_python(value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(map(_of_python, value))
    return int(value) if isinstance(value, Integral) and type(value).__module__ == "numpy" else value


def is_inexact(dtype: str) -> bool:
    """Whether a dtype is float or complex."""
    return dtype.startswith(("float", "bfloat", "complex")) and dtype != "float0"


def is_integer(dtype: str) -> bool:
    """Whether a dtype is a signed or unsigned integer; bool is not."""
    return dtype.startswith(("int", "uint"))


def is_numeric(dtype: str) -> bool:
    """Whether a dtype is float, complex or integer, so that adding its zero changes nothing."""
    return is_inexact(dtype) or is_integer(dtype)


@dataclass(frozen=True, slots=True)
class Call:
    """One op as a rule function sees it: types and parameters, no front end's objects."""

    kind: str
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    params: Mapping[str, Any]

    def param(self, *names: str) -> Any:
        """The first of these parameters that the op has; `UnknownParametersError` where it has none."""
        return read(self.params, *names)

    def build(
        self,
        operands: Sequence[Sequence[Label | Compound | None]],
        results: Sequence[Sequence[Label | Compound | None]],
        *,
        reduction: Sequence[Label] = (),
        need_replication: Sequence[Label] = (),
        combiner: str = "add",
        linear: Sequence[Sequence[int]] = (),
        accumulators: Sequence[int] = (),
        is_custom: bool = False,
        halos: Sequence[tuple[int, int, Label, int, int]] = (),
        cutouts: Sequence["LabelledCutout"] = (),
    ) -> ShardingRule:
        """The rule with one factor per label, in order of first appearance.

        Labels that only ever sit on dimensions of size 1 vanish, also from `reduction` and
        `need_replication`, `halos` (operand, dimension, label, low, high) and `cutouts`. Where a result has no sums
        (booleans, keys), labels that would leave partial ones must be whole. Raises `RuleError` where a rank or a size
        does not fit.
        """
        if combiner == "add" and not all(is_numeric(t.dtype) for t in self.results):
            reduction, need_replication = (), (*need_replication, *reduction)
        sizes: list[int] = []
        index: dict[Label, int] = {}

        def factor(label: Label, size: int, where: str) -> int:
            if label not in index:
                index[label] = len(sizes)
                sizes.append(size)
            elif sizes[index[label]] != size:
                raise RuleError(
                    f"{self}: {where} has size {size}, but an earlier dimension of the same factor "
                    f"({label}) has size {sizes[index[label]]}"
                )
            return index[label]

        def tensor(what: str, labels: Sequence[Label | Compound | None], type_: TensorType) -> TensorFactors:
            if len(labels) != type_.rank:
                raise RuleError(f"{self}: the rule has {len(labels)} dimensions for {what} of rank {type_.rank}")
            dims = []
            for d, (label, size) in enumerate(zip(labels, type_.shape, strict=True)):
                where = f"dimension {d} of {what}"
                if isinstance(label, Compound):
                    if prod(n for _, n in label.parts) != size:
                        raise RuleError(f"{self}: {where} has size {size}, its factors {label.parts} give another")
                    dims.append(tuple(factor(part, n, where) for part, n in label.parts if n != 1))
                elif size == 1:
                    dims.append(())
                elif label is None:
                    raise RuleError(f"{self}: {where} has size {size} but no factor; only size 1 may be without one")
                else:
                    dims.append((factor(label, size, where),))
            return tuple(dims)

        for what, labels, types in (("operands", operands, self.operands), ("results", results, self.results)):
            if len(labels) != len(types):
                raise RuleError(f"{self}: the rule has {len(labels)} {what}, the op has {len(types)}")
        operand_factors = tuple(
            tensor(f"operand {k}", labels, t) for k, (labels, t) in enumerate(zip(operands, self.operands, strict=True))
        )
        result_factors = tuple(
            tensor(f"result {k}", labels, t) for k, (labels, t) in enumerate(zip(results, self.results, strict=True))
        )
        return ShardingRule(
            factor_sizes=tuple(sizes),
            operands=operand_factors,
            results=result_factors,
            reduction=frozenset(index[x] for x in reduction if x in index),
            need_replication=frozenset(index[x] for x in need_replication if x in index),
            combiner=combiner if any(x in index for x in reduction) else "add",
            linear=self._additive(linear),
            accumulators=tuple(accumulators) if any(x in index for x in reduction) else (),
            is_custom=is_custom,
            halos=tuple(Halo(k, d, index[x], low, high) for k, d, x, low, high in halos if x in index),
            cutouts=tuple(
                Cutout(c.operand, c.result, c.dim, index.get(c.taken, -1), index.get(c.made, -1), *c[5:])
                for c in cutouts
                if c.taken in index or c.made in index
            ),
        )

    def _additive(self, sets: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """The linear sets that hold for these types and literals.

        Partial sums pass a change of float dtype up to rounding, but integers only where nothing changes the dtype
        (arithmetic modulo 2**n is exact). A literal is never a partial sum: a zero is removed from its set (0 + 0 = 0
        on every device), any other literal removes the set.
        """
        literals = self.params.get(LITERALS, {})
        sets_left: list[tuple[int, ...]] = []
        for members in sets:
            if any(k in literals and literals[k] != 0 for k in members):
                continue
            kept = tuple(k for k in members if k not in literals)
            dtypes = {self.operands[k].dtype for k in members} | {t.dtype for t in self.results}
            exact = len(dtypes) == 1 and all(map(is_integer, dtypes))
            if kept and (exact or all(map(is_inexact, dtypes))) and kept not in sets_left:
                sets_left.append(kept)
        return tuple(sets_left)

    def conservative(self) -> ShardingRule:
        """The rule in which every dimension is a factor of its own and must be whole on every device."""
        operands = [[("operand", k, d) for d in range(t.rank)] for k, t in enumerate(self.operands)]
        results = [[("result", k, d) for d in range(t.rank)] for k, t in enumerate(self.results)]
        everything = [x for labels in (*operands, *results) for x in labels]
        return self.build(operands, results, need_replication=everything)

    def __str__(self) -> str:
        ins, outs = ", ".join(map(str, self.operands)), ", ".join(map(str, self.results))
        return f"{self.kind}({ins}) -> ({outs})"
