"""Sharding groups: values that get one and the same sharding, whichever it is (S4.8 to S4.13)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from autoshard.constraints.in_config import ConfigKey
from autoshard.constraints.kind import Kind
from autoshard.constraints.leaves import leaf_names
from autoshard.constraints.patterns import Addresses
from autoshard.constraints.pin import MatchedPin
from autoshard.constraints.place import written_at
from autoshard.constraints.statement import (
    Matched,
    Member,
    Statement,
    members_of,
    name_of,
    shape_of,
    with_place,
)
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Program
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding


@dataclass(frozen=True, slots=True)
class SameSharding(Statement):
    """Everything that the patterns address has the same sharding. Hard; no data need flow between the members (S4.9).

    patterns: as in a `Pin`, together addressing at least two values. source: where it was written, for messages.
    by_leaf: the patterns address trees (``state/params/**`` or its stem ``state/params``); each leaf is tied to the
        leaves of the same path in the other trees, so there are as many groups as leaves.

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
        how = " by leaf" if self.by_leaf else ""
        return with_place(f"same sharding{how}: {', '.join(self.patterns)}", self.source)

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The group that an entry of ``same_sharding`` states."""
        return cls(entry, source=source)

    def match(self, addresses: Addresses, mesh: Mesh | None = None) -> "MatchedGroup":
        """The group with its members in one program.

        Raises `InputError` where a pattern addresses nothing or there is one member only, `ShardingError` where the
        members have different shapes (S4.12).
        """
        return _match(self, addresses)


@dataclass(frozen=True, slots=True)
class MatchedGroup(Matched):
    """A group and its members in one program: value ids and output slots, ascending."""

    patterns: tuple[str, ...]
    values: tuple[int, ...]
    outputs: tuple[int, ...]
    source: str = ""
    written: str = field(default="", compare=False, repr=False)

    kind: ClassVar[str] = "same_sharding"

    @property
    def cited(self) -> str:
        """The group in the user's words, with its place."""
        return with_place(f"same sharding: {', '.join(self.patterns)}", self.source, self.written)

    @property
    def told(self) -> str:
        """The group with its place in a file, for answers."""
        return with_place(f"same sharding {', '.join(self.patterns)}", self.source)

    @property
    def members(self) -> tuple[Member, ...]:
        """Values and outputs that are tied."""
        return members_of(self.values, self.outputs)

    @property
    def alike(self) -> tuple[Member, ...]:
        """The same values and outputs: all of them must have one sharding."""
        return self.members

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        values, outputs = (tuple(map(int, data[key])) for key in ("values", "outputs"))
        return cls(tuple(data["patterns"]), values, outputs, str(data.get("source", "")))

    def to_dict(self) -> dict[str, Any]:
        """The group as an entry of ``statements`` in plan.json."""
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
        leaf_group.match(addresses)
        for group in groups
        for leaf_group in (by_leaf(group, addresses) if group.by_leaf else (group,))
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
    leaf_groups = [SameSharding([leaves[path] for leaves in sides], group.source) for path in sides[0]]
    for leaf_group in leaf_groups:
        object.__setattr__(leaf_group, "written", group.written)
    return tuple(leaf_groups)


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
    matched = MatchedGroup(
        tuple(group.patterns), tuple(sorted(values)), tuple(sorted(outputs)), group.source, group.written
    )
    if len(matched.members) < 2:
        raise InputError(f"{group}: there is one value only; name a second one, or pin it")
    first = matched.members[0]
    for member in matched.members[1:]:
        first_shape, member_shape = shape_of(first, program), shape_of(member, program)
        if first_shape != member_shape:
            raise ShardingError(
                f"{group}: {name_of(first, program)} has shape {list(first_shape)} and {name_of(member, program)} "
                f"{list(member_shape)}; a group ties values of one shape"
            )
    return matched


def spread_pins(
    pins: Sequence[MatchedPin], groups: Sequence[MatchedGroup], program: Program
) -> tuple[MatchedPin, ...]:  # fmt: skip
    """Pins that follow from groups: a pin on one member holds for all members.

    Intermediates among them are no partial sums. Whether the pins agree is judged elsewhere
    (`autoshard.planning.conflicts`, S4.12).
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


KIND = Kind(MatchedGroup, SameSharding, ConfigKey("same_sharding", list[Annotated[list[str], Field(min_length=1)]]))
