"""From what the user wrote to what it means in one program: pins matched to values and checked."""

from collections.abc import Iterable, Sequence

from autoshard.constraints.model import MatchedPin, Pin
from autoshard.constraints.patterns import Addresses, Match
from autoshard.errors import InfeasibleError, InputError, ShardingError
from autoshard.program.program import Program
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding


def match_pins(pins: Iterable[Pin], program: Program, mesh: Mesh, *, compare: bool = True) -> tuple[MatchedPin, ...]:
    """Find what every pin addresses, and check its sharding against mesh, rank and shape.

    compare: also look for two pins that ask different things of one value; `InfeasibleError` names them.
    Raises `InputError` where a pattern addresses nothing, `ShardingError` where a sharding does not fit.
    """
    addresses = Addresses(program)
    matched = tuple(_match(pin, addresses, mesh) for pin in pins)
    if compare:
        check_contradictions(matched, program)
    return matched


def _match(pin: Pin, addresses: Addresses, mesh: Mesh) -> MatchedPin:
    program = addresses.program
    try:
        sharding = TensorSharding.from_text(str(pin.parsed), mesh)
    except ShardingError as error:
        raise ShardingError(f"{pin.where}: {error}") from None
    match = addresses.find(pin.pattern)
    if not match:
        raise InputError(f"{pin.where} matches no value of {program.name}; {addresses.hint(pin.pattern)}")
    if match.any_rank:
        match = _of_rank(match, sharding.rank, pin, program)
    for value, name in _named(match, program):
        shape = program.type_of(value).shape
        if len(shape) != sharding.rank:
            raise ShardingError(
                f"{pin.where}: the sharding {sharding} has {sharding.rank} dimensions, "
                f"but {name} is {program.type_of(value)} with {len(shape)}" + _ranks_hint(match, program)
            )
        faults = sharding.violations(mesh, shape, what=f"{name} {program.type_of(value)}")
        if faults:
            raise ShardingError(f"{pin.where}: " + "; ".join(faults))
    return MatchedPin(pin.pattern, sharding, match.values, match.outputs, pin.source, pin.priority, pin.written)


def _named(match: Match, program: Program) -> list[tuple[int, str]]:
    found = [(v, program.values[v].name) for v in match.values]
    return found + [(program.body.results[k], program.output_names[k]) for k in match.outputs]


def _of_rank(match: Match, rank: int, pin: Pin, program: Program) -> Match:
    """Only the values of the stated rank: a line of source makes values of several ranks."""
    values = tuple(v for v in match.values if program.type_of(v).rank == rank)
    if not values:
        types = sorted({str(program.type_of(v)) for v in match.values})
        raise ShardingError(
            f"{pin.where}: the sharding {pin.sharding} has {rank} dimensions, but the {len(match.values)} values "
            f"there are {', '.join(types[:6])}"
        )
    return Match(values=values, any_rank=True)


def _ranks_hint(match: Match, program: Program) -> str:
    ranks = sorted({program.type_of(v).rank for v, _ in _named(match, program)})
    if len(ranks) == 1:
        return ""
    return f"; the pattern matches values of ranks {', '.join(map(str, ranks))}: write one pin for each rank"


def check_contradictions(pins: Sequence[MatchedPin], program: Program) -> None:
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
    """Why no sharding of a value satisfies both, or an empty text where one can.

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
    for i, one in enumerate(first.dims):
        for j, other in enumerate(second.dims):
            if i != j and (clash := _shared(one.axes, other.axes)):
                return f"{_axes(clash)} cuts dimension {i} in one and dimension {j} in the other"
    for one, other in ((first, second), (second, first)):
        clash = _shared(one.replicated, [a for d in other.dims for a in d.axes])
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
        short = min(len(a.axes), len(b.axes))
        return a.axes[:short] == b.axes[:short]
    opened, closed = (a, b) if a.is_open else (b, a)
    return closed.axes[: len(opened.axes)] == opened.axes


def _axes(axes: Iterable[AxisRef]) -> str:
    return "{" + ", ".join(map(str, axes)) + "}"
