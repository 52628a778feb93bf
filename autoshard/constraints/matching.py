"""Whether two statements about one value can both hold."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from autoshard.errors import InfeasibleError
from autoshard.program.program import Program
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.tensor_sharding import TensorSharding

if TYPE_CHECKING:
    from autoshard.constraints.pin import MatchedPin


def check_contradictions(pins: "Sequence[MatchedPin]", program: Program) -> None:
    """Raise `InfeasibleError` naming the two pins where two of them cannot both hold for a value."""
    by_target: dict[tuple[str, int], list[MatchedPin]] = {}
    for pin in pins:
        for value in pin.values:
            by_target.setdefault(("value", value), []).append(pin)
        for slot in pin.outputs:
            by_target.setdefault(("output", slot), []).append(pin)
    for (kind, index), group in by_target.items():
        for k, second in enumerate(group):
            for first in group[:k]:
                reason = conflict(first.sharding, second.sharding)
                if reason:
                    name = program.values[index].name if kind == "value" else program.output_names[index]
                    raise InfeasibleError(
                        f"two pins contradict each other on {name}: {reason}\n"
                        f"  {first.cited}\n  {second.cited}\ndrop or change one of them"
                    )


def conflict(first: TensorSharding, second: TensorSharding) -> str:
    """Why no sharding of a value satisfies both, or an empty text where a sharding can.

    >>> one, two = TensorSharding.from_text('[{"x", ?}]'), TensorSharding.from_text('[{"x", "y"}]')
    >>> conflict(one, two)
    ''
    >>> conflict(two, TensorSharding.from_text('[{"x"}]'))
    'dimension 0 is {"x", "y"} in one and {"x"} in the other'
    """
    for index, (a, b) in enumerate(zip(first.dims, second.dims, strict=True)):
        if not _can_agree(a, b):
            return f"dimension {index} is {a} in one and {b} in the other"
    if set(first.unreduced) != set(second.unreduced):
        return f"one is unreduced over {_axes(first.unreduced)}, the other over {_axes(second.unreduced)}"
    for i, dim in enumerate(first.dims):
        for j, other in enumerate(second.dims):
            if i != j and (clash := _shared(dim.axes, other.axes)):
                return f"{_axes(clash)} cuts dimension {i} in one and dimension {j} in the other"
    for dim, other in ((first, second), (second, first)):
        clash = _shared(dim.replicated, [a for d in other.dims for a in d.axes])
        if clash:
            return f"one is replicated over {_axes(clash)}, the other cut by it"
    return ""


def _shared(some: Iterable[AxisRef], others: Sequence[AxisRef]) -> list[AxisRef]:
    """Those of the first axes that are, or have a part in common with, one of the others."""

    def meet(a: AxisRef, b: AxisRef) -> bool:
        if a.pre_size is None or a.size is None or b.pre_size is None or b.size is None:
            return a.name == b.name
        return a.name == b.name and a.pre_size < b.pre_size * b.size and b.pre_size < a.pre_size * a.size

    return [a for a in some if any(meet(a, b) for b in others)]


def _can_agree(a: DimensionSharding, b: DimensionSharding) -> bool:
    if not a.is_open and not b.is_open:
        return a.axes == b.axes
    if a.is_open and b.is_open:
        return _begins(a.axes, b.axes) or _begins(b.axes, a.axes)
    opened, closed = (a, b) if a.is_open else (b, a)
    return _begins(opened.axes, closed.axes)


def _begins(first: Sequence[AxisRef], axes: Sequence[AxisRef]) -> bool:
    """Whether a list of axes begins with another one, whose last axis may be the major part of its counterpart."""
    n = len(first)
    return not n or (n <= len(axes) and first[:-1] == axes[: n - 1] and _is_major_part(first[-1], axes[n - 1]))


def _is_major_part(part: AxisRef, axis: AxisRef) -> bool:
    if part == axis or part.name != axis.name or part.size is None:
        return part == axis
    return part.pre_size == (axis.pre_size or 1) and (axis.size is None or axis.size % part.size == 0)


def _axes(axes: Iterable[AxisRef]) -> str:
    return "{" + ", ".join(map(str, axes)) + "}"
