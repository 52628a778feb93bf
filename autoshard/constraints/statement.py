"""What statements of every kind have in common: what a user writes, and what that says of one program.

A kind is two classes in one file: a `Statement`, which a user writes in Python or in a config, and a `Matched`, which
knows what it speaks of in one program, what it asks of plans, and its form in plan.json. The planner asks the methods
of `Matched` and knows no kinds; `autoshard.constraints.registry` lists them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from autoshard.errors import InputError, listing
from autoshard.program.program import Op, Program
from autoshard.program.schedule import PROGRAM, Placement, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

Member = tuple[str, int]
"""``("value", id)`` or ``("output", slot)``."""

KeyPath = tuple[str | int, ...]
"""Where something stands in a config: keys of mappings and places in lists."""


class Statement:
    """Base of what users write, a frozen dataclass for each kind with its place as `source`."""

    __slots__ = ()

    @classmethod
    def from_config(cls, given: Any, source: str) -> Self:
        """The statement that one entry of a config makes.

        given: as checked by the kind's part of the schema. source: its place, ``config.yaml:12:3``.
        """
        raise NotImplementedError(f"{cls.__name__} cannot be written in a config")

    @classmethod
    def config_faults(cls, given: Any, path: KeyPath, mesh: Mesh) -> Iterator[tuple[KeyPath, str]]:
        """What is wrong with an entry of a config that its schema cannot see: where, and a message.

        Here: axes that the mesh lacks, empty patterns, and what `from_config` refuses.
        """
        known, sound = mesh.axis_names, True
        for axis in getattr(given, "axes", None) or [getattr(given, "axis", None)]:
            if axis is not None and axis not in known:
                sound = False
                yield path, f"the mesh has no axis {axis!r}; {listing(axis, known)}"
        patterns = getattr(given, "patterns", None) or [getattr(given, "pattern", None)]
        if any(p is not None and not p.strip() for p in patterns):
            sound = False
            yield path, "expected a pattern such as params/**, found an empty text"
        if sound:
            try:
                cls.from_config(given, "")
            except InputError as error:
                yield path, str(error)


class Place(NamedTuple):
    """Where an array lies in a layout: a value as it is defined and as its uses share it, or in one use of it.

    An output of the program is the use of its value by `PROGRAM`.
    """

    value: int
    use: Use | None = None

    @property
    def member(self) -> Member | None:
        """The value as such, or the output that it is handed back as; None for other uses."""
        if self.use is None:
            return "value", self.value
        return ("output", self.use.slot) if self.use.op == PROGRAM else None


LayoutCheck = Callable[[Layout], bool]
PlacementCheck = Callable[[Placement], bool]


@dataclass(frozen=True, slots=True)
class MostReshards:
    """At most `limit` reshards may there be where `counts` says so of a value and the use that wants it resharded.

    use: None for the form that the uses of a value share. axes: counted are those that move one of them (none: all).
    """

    limit: int
    axes: tuple[str, ...]
    counts: Callable[[int, Use | None], bool]


@dataclass(frozen=True, slots=True)
class Memories:
    """Whether inputs and outputs of the program, by their number, lie in host memory between calls."""

    inputs: Mapping[int, bool]
    outputs: Mapping[int, bool]


class Matched:
    """Base of what statements say of one program. What a kind does not define is what it says nothing about."""

    __slots__ = ()
    kind: ClassVar[str]
    """Its name in plan.json, such as ``no_collective``."""

    source: str

    # -- in words and in plan.json ---------------------------------------------------------------------

    @property
    def cited(self) -> str:
        """In the user's words with its place, for messages."""
        raise NotImplementedError

    @property
    def told(self) -> str:
        """In short, with its place in a file where it has one, for answers about plans."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """As an entry of ``statements`` in plan.json."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse. mesh: of the plan; pins need it."""
        raise NotImplementedError

    # -- what it speaks of -----------------------------------------------------------------------------

    @property
    def members(self) -> tuple[Member, ...]:
        """The values and outputs that it speaks of."""
        return ()

    def told_of(self, member: Member) -> Iterator[str]:
        """What it says of one value or output, for answers about that."""
        if member in self.members:
            yield self.told

    @property
    def shardings(self) -> tuple[TensorSharding, ...]:
        """Those that the user wrote; the parts of axes and the orders of axes that plans may use come from them."""
        return ()

    # -- what it asks of plans -------------------------------------------------------------------------

    def check(self, program: Program) -> None:
        """Raise `InfeasibleError` where the program itself does what the statement forbids."""

    def check_with(self, others: Sequence["Matched"], program: Program) -> None:
        """Raise `ShardingError` where it cannot stand beside one of the statements before it, whatever the plan."""

    def claims(self, program: Program) -> list[tuple[Member, TensorSharding]]:
        """Shardings that single values and outputs must have."""
        return []

    @property
    def alike(self) -> tuple[Member, ...]:
        """Values and outputs that must have one and the same sharding."""
        return ()

    def hints(self, program: Program) -> Mapping[int, TensorSharding]:
        """Shardings of values that propagation spreads (those of pins are spread with their priorities)."""
        return {}

    @property
    def barriers(self) -> Mapping[int, str]:
        """Values that hints do not pass, and the way that is barred: ``forward``, ``backward`` or ``both``."""
        return {}

    def memories(self, program: Program) -> Memories | None:
        """Where inputs and outputs live between calls."""
        return None

    def layouts(
        self, program: Program, mesh: AtomMesh, ties: Mapping[int, int]
    ) -> Callable[[Place], LayoutCheck | None] | None:
        """For each place the check that its layout must pass (None: any layout may be there).

        Return the same check for all places where the same is asked: each is made once for a set of layouts.
        ties: output slot -> donated input in whose place the output is.
        """
        return None

    def placements(self, mesh: AtomMesh) -> Callable[[Op], PlacementCheck | None] | None:
        """For each op the check that its placement must pass (None: any)."""
        return None

    def without_collectives(self, value: int, use: Use | None) -> Iterable[str]:
        """Mesh axes over which no collective may bring a value to a use (None: to the form that its uses share)."""
        return ()

    def without_moves(self, value: int, use: Use | None) -> Iterable[str]:
        """Mesh axes over which nothing at all may change between a value and a use, slices included."""
        return ()

    @property
    def most_reshards(self) -> MostReshards | None:
        """A limit on the number of reshards."""
        return None


def with_place(text: str, *places: str) -> str:
    """Words of a statement behind the first place that is known."""
    place = next((p for p in places if p), "")
    return f"{place}: {text}" if place else text


def members_of(values: Iterable[int], outputs: Iterable[int]) -> tuple[Member, ...]:
    """Values and output slots as members."""
    return (*(("value", v) for v in values), *(("output", k) for k in outputs))


def shape_of(member: Member, program: Program) -> tuple[int, ...]:
    """The shape of a value or an output."""
    kind, index = member
    return program.type_of(index if kind == "value" else program.body.results[index]).shape


def name_of(member: Member, program: Program) -> str:
    """The name of a value or an output."""
    kind, index = member
    return program.values[index].name if kind == "value" else program.output_names[index]
