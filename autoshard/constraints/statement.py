"""The base classes of statements: as a user writes them, and matched to one program.

A kind is two classes in one file: a `Statement`, which a user writes in Python or in a config, and a `Matched`, which
has the values, outputs and ops of one program that the statement is about, what it demands of plans, and its form in
plan.json. The planner calls the methods of `Matched` and knows no kinds; `autoshard.constraints.registry` lists them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from autoshard.constraints.axes_named import axis_named
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Op, Program
from autoshard.program.schedule import PROGRAM, Placement, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

Member = tuple[str, int]
"""``("value", id)`` or ``("output", slot)``."""

KeyPath = tuple[str | int, ...]
"""The path to an entry of a config: keys of mappings and positions in lists."""


class Statement:
    """Base of statements as users write them, a frozen dataclass for each kind; `source` is the place."""

    __slots__ = ()

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The statement that one entry of a config states.

        entry: checked by the kind's part of the schema. source: its place, ``config.yaml:12:3``.
        """
        raise NotImplementedError(f"{cls.__name__} cannot be written in a config")

    @classmethod
    def config_faults(cls, entry: Any, path: KeyPath, mesh: Mesh) -> Iterator[tuple[KeyPath, str]]:
        """Faults of an entry of a config that its schema cannot see: where, and a message.

        By default: axes and parts of axes that the mesh lacks, empty patterns, and what `from_config` refuses.
        """
        sound = True
        for axis in getattr(entry, "axes", None) or [getattr(entry, "axis", None)]:
            try:
                if axis is not None:
                    axis_named(axis, mesh)
            except ShardingError as error:
                sound = False
                yield path, str(error)
        patterns = getattr(entry, "patterns", None) or [getattr(entry, "pattern", None)]
        if any(p is not None and not p.strip() for p in patterns):
            sound = False
            yield path, "expected a pattern such as params/**, found an empty text"
        if sound:
            try:
                cls.from_config(entry, "")
            except InputError as error:
                yield path, str(error)


class Place(NamedTuple):
    """A place where an array has a layout.

    Without a use: a value as it is defined, and as its uses share it. With a use: the value in that use. An output of
    the program is the use of its value by `PROGRAM`.
    """

    value: int
    use: Use | None = None

    @property
    def member(self) -> Member | None:
        """The value itself, or the output that it is handed back as; None for other uses."""
        if self.use is None:
            return "value", self.value
        return ("output", self.use.slot) if self.use.op == PROGRAM else None


LayoutCheck = Callable[[Layout], bool]
PlacementCheck = Callable[[Placement], bool]


@dataclass(frozen=True, slots=True)
class MostReshards:
    """At most `limit` of the reshards that `counts` accepts.

    counts: called with a value and the use that needs it in another layout (None: the form that its uses share, which
    is asked about with each of these uses, too). axes: only reshards that move one of them count (empty: all).
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
    """Base of statements that are matched to one program. By default a statement makes no demands."""

    __slots__ = ()
    kind: ClassVar[str]
    """The name of the kind in plan.json, such as ``no_collective``."""

    source: str

    # -- in words and in plan.json ---------------------------------------------------------------------

    @property
    def cited(self) -> str:
        """The statement in the user's words with its place, for messages."""
        raise NotImplementedError

    @property
    def told(self) -> str:
        """The statement in short, with its place in a file where it has one, for answers about plans."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The statement as an entry of ``statements`` in plan.json."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`. mesh: of the plan; pins need it."""
        raise NotImplementedError

    # -- what the statement is about -------------------------------------------------------------------

    @property
    def members(self) -> tuple[Member, ...]:
        """The values and outputs that the statement is about."""
        return ()

    def told_of(self, member: Member) -> Iterator[str]:
        """The statement in words, as far as it is about one value or output, for answers about that."""
        if member in self.members:
            yield self.told

    @property
    def shardings(self) -> tuple[TensorSharding, ...]:
        """The shardings that the user wrote; plans may use the parts of axes and the orders of axes in them."""
        return ()

    # -- what it demands of plans ----------------------------------------------------------------------

    def check(self, program: Program) -> None:
        """Raise `InfeasibleError` where the program itself does what the statement forbids."""

    def check_with(self, others: Sequence["Matched"], program: Program) -> None:
        """Raise `ShardingError` where no plan can satisfy it beside one of the statements before it."""

    def claims(self, program: Program) -> list[tuple[Member, TensorSharding]]:
        """Shardings that single values and outputs must have."""
        return []

    @property
    def alike(self) -> tuple[Member, ...]:
        """Values and outputs that must have one and the same sharding."""
        return ()

    def hints(self, program: Program) -> Mapping[int, TensorSharding]:
        """Shardings of values that propagation starts from (those of pins come with their priorities)."""
        return {}

    @property
    def barriers(self) -> Mapping[int, str]:
        """Values that propagated shardings do not pass, and the barred direction: ``forward``, ``backward`` or
        ``both``.
        """
        return {}

    def memories(self, program: Program) -> Memories | None:
        """The memories in which inputs and outputs live between calls; None where nothing is stated."""
        return None

    def layouts(
        self, program: Program, mesh: AtomMesh, ties: Mapping[int, int]
    ) -> Callable[[Place], LayoutCheck | None] | None:
        """For each place the check that its layout must pass (None: any layout may be there).

        Return the same check for all places with the same demand: each check runs once for a set of layouts.
        ties: output slot -> donated input that the output replaces.
        """
        return None

    def placements(self, mesh: AtomMesh) -> Callable[[Op], PlacementCheck | None] | None:
        """For each op the check that its placement must pass (None: any)."""
        return None

    def without_collectives(self, value: int, use: Use | None) -> Iterable[str]:
        """Mesh axes over which no collective may bring a value to a use, by the form that its uses share or from there
        (None: to that form).
        """
        return ()

    def without_moves(
        self, program: Program, ties: Mapping[int, int]
    ) -> Callable[[int, Use | None], Iterable[str]] | None:
        """For a value and a use (None: the form that its uses share) the mesh axes over which nothing may change
        between them, not even by a slice. None: any may. ties: as in `layouts`.
        """
        return None

    @property
    def most_reshards(self) -> MostReshards | None:
        """A limit on the number of reshards; None for no limit."""
        return None


def with_place(text: str, *places: str) -> str:
    """The words of a statement behind the first place that is not empty."""
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
