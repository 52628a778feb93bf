"""Sharding groups: values that get one and the same sharding, whichever it is (S4.8 to S4.13)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from autoshard.constraints.leaves import leaf_names
from autoshard.constraints.model import MatchedPin
from autoshard.constraints.patterns import Addresses
from autoshard.constraints.place import written_at
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Program
from autoshard.sharding.tensor_sharding import DimensionSharding, TensorSharding

Member = tuple[str, int]
"""``("value", id)`` or ``("output", slot)``."""


@dataclass(frozen=True, slots=True)
class SameSharding:
    """Everything that the patterns address has the same sharding. Hard; no data need flow between the members (S4.9).

    patterns: as of a `Pin`, together addressing at least two values. source: where it was written, for messages.
    by_leaf: the patterns address trees (``state/params/**`` or its stem ``state/params``); each leaf is tied to its
        counterparts of the same path: as many groups as leaves.

    >>> str(SameSharding(["state/params/w", "state/moments/w"]))
    'same sharding: state/params/w, state/moments/w'
    """

    patterns: Sequence[str]
    source: str = ""
    by_leaf: bool = False
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        written_at(self)
        if isinstance(self.patterns, str) or not all(isinstance(p, str) and p.strip() for p in self.patterns):
            raise InputError(f"a sharding group needs a list of patterns such as ['a', 'b/*'], found {self.patterns!r}")
        if not self.patterns:
            raise InputError("a sharding group needs at least one pattern, found none")
        object.__setattr__(self, "patterns", tuple(self.patterns))

    def __str__(self) -> str:
        place = f"{self.source}: " if self.source else ""
        return f"{place}same sharding{' by leaf' if self.by_leaf else ''}: {', '.join(self.patterns)}"


@dataclass(frozen=True, slots=True)
class MatchedGroup:
    """A group and its members in one program: value ids and output slots, ascending."""

    patterns: tuple[str, ...]
    values: tuple[int, ...]
    outputs: tuple[int, ...]
    source: str = ""
    written: str = field(default="", compare=False, repr=False)

    @property
    def cited(self) -> str:
        """In the user's words, with its place."""
        place = f"{self.source or self.written}: " if self.source or self.written else ""
        return f"{place}same sharding: {', '.join(self.patterns)}"

    @property
    def members(self) -> tuple[Member, ...]:
        return (*(("value", v) for v in self.values), *(("output", k) for k in self.outputs))

    def to_dict(self) -> dict[str, object]:
        """As an entry of ``statements`` in plan.json."""
        return {
            "kind": "same_sharding",
            "patterns": list(self.patterns),
            "source": self.source,
            "values": list(self.values),
            "outputs": list(self.outputs),
        }


def match_groups(groups: Sequence[SameSharding], program: Program) -> tuple[MatchedGroup, ...]:
    """Find the members of every group.

    Raises `InputError` where a pattern addresses nothing or a group has one member only, `ShardingError` where its
    members have different shapes (S4.12).
    """
    addresses = Addresses(program)
    return tuple(
        _match(one, addresses) for group in groups for one in (by_leaf(group, addresses) if group.by_leaf else (group,))
    )


def by_leaf(group: SameSharding, addresses: Addresses) -> tuple[SameSharding, ...]:
    """A group of trees as groups of leaves; `InputError` where a leaf has no counterpart."""
    sides = [leaf_names(pattern, addresses, str(group)) for pattern in group.patterns]
    if len(sides) < 2:
        raise InputError(f"{group}: there is one tree only; name a second one")
    for pattern, leaves in zip(group.patterns, sides, strict=True):
        for other, theirs in zip(group.patterns, sides, strict=True):
            alone = next((path for path in leaves if path not in theirs), None)
            if alone is not None:
                raise InputError(
                    f"{group}: {leaves[alone]} of {pattern!r} has no counterpart in {other!r}, which has "
                    f"{', '.join(list(theirs.values())[:6])}; name trees of the same paths"
                )
    found = [SameSharding([leaves[path] for leaves in sides], group.source) for path in sides[0]]
    for one in found:
        object.__setattr__(one, "written", group.written)
    return tuple(found)


def _match(group: SameSharding, addresses: Addresses) -> MatchedGroup:
    program = addresses.program
    values: set[int] = set()
    outputs: set[int] = set()
    for pattern in group.patterns:
        match = addresses.find(pattern)
        if not match:
            raise InputError(f"{group}: {pattern!r} matches no value of {program.name}; {addresses.hint(pattern)}")
        values.update(match.values)
        outputs.update(match.outputs)
    found = MatchedGroup(
        tuple(group.patterns), tuple(sorted(values)), tuple(sorted(outputs)), group.source, group.written
    )
    if len(found.members) < 2:
        raise InputError(f"{group}: there is one value only; name a second one, or pin it")
    first = found.members[0]
    for member in found.members[1:]:
        one, other = shape_of(first, program), shape_of(member, program)
        if one != other:
            raise ShardingError(
                f"{group}: {name_of(first, program)} has shape {list(one)} and {name_of(member, program)} "
                f"{list(other)}; a group ties values of one shape"
            )
    return found


def name_of(member: Member, program: Program) -> str:
    kind, index = member
    return program.values[index].name if kind == "value" else program.output_names[index]


def shape_of(member: Member, program: Program) -> tuple[int, ...]:
    kind, index = member
    return program.type_of(index if kind == "value" else program.body.results[index]).shape


def spread_pins(
    pins: Sequence[MatchedPin], groups: Sequence[MatchedGroup], program: Program
) -> tuple[MatchedPin, ...]:  # fmt: skip
    """Pins that follow from groups: what is pinned on one member holds for all; intermediates are no partial sums.

    Whether they agree is for others to say (`autoshard.planning.conflicts`, S4.12).
    """
    implied: list[MatchedPin] = []
    for members in _joined(groups):
        for pin in pins:
            pinned = {*(("value", v) for v in pin.values), *(("output", k) for k in pin.outputs)}
            if pinned & members:
                rest = sorted(members - pinned)
                values = tuple(index for kind, index in rest if kind == "value")
                slots = tuple(index for kind, index in rest if kind == "output")
                if rest:
                    implied.append(MatchedPin(pin.pattern, pin.sharding, values, slots, pin.source, pin.priority))
        inner = tuple(index for kind, index in sorted(members) if kind == "value" and index not in program.body.args)
        if inner:
            rank = program.type_of(inner[0]).rank
            anything = TensorSharding(None, (DimensionSharding(is_open=True),) * rank)
            implied.append(MatchedPin("a sharding group", anything, inner, ()))
    return tuple(implied)


def _joined(groups: Sequence[MatchedGroup]) -> list[set[Member]]:
    """Members that are alike by one group or by several that overlap."""
    out: list[set[Member]] = []
    for group in groups:
        members = set(group.members)
        apart = [other for other in out if not other & members]
        for other in out:
            if other & members:
                members |= other
        out = [*apart, members]
    return out
