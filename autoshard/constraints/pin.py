"""Pins: values that have a stated sharding."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from autoshard.constraints.in_config import ConfigKey, Section, mapping_by
from autoshard.constraints.kind import Kind
from autoshard.constraints.matching import check_contradictions
from autoshard.constraints.other_mesh import on_other_mesh
from autoshard.constraints.patterns import Addresses, Match
from autoshard.constraints.place import written_at
from autoshard.constraints.statement import KeyPath, Matched, Member, Statement, members_of, with_place
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Program
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

OF_JAX = ("NamedSharding", "PartitionSpec", "P")
"""Types that JAX has for shardings (`P` is how newer versions call the second); JAX is not imported here."""


@dataclass(frozen=True, slots=True)
class Pin(Statement):
    """Every value that `pattern` addresses has this sharding. Hard: it holds in the plan, or there is no plan.

    pattern: which values (see `autoshard.constraints.patterns`): ``batch/tokens``, ``state/params/*/wq``,
        ``out/0/**``, ``@attn_out``, ``model.py:123/dot_general``.
    sharding: in Shardy's notation, ``[{"data"}, {}]``. A closed dimension ``{}`` is not cut at all, an open
        one ``{"data", ?}`` is cut by data first and may gain more. Or a `PartitionSpec` of JAX (axes of the planning
        mesh), or a `NamedSharding`, on any mesh over the same devices.
    source: where it was written (``config.yaml:12:3``). `written`: the same for messages; without a source, the
        caller's file and line.
    priority: user priority of the dimensions that carry no mark (``{"x"}p1``) of their own; 0 is decided first (S0.43).

    >>> str(Pin("batch/tokens", '[{"data"}, {}]'))
    'pin batch/tokens: [{"data"}, {}]'
    >>> str(Pin("w", '[{"x"}, {}]', priority=1))
    'pin w (priority 1): [{"x"}, {}]'
    """

    pattern: str
    sharding: TensorSharding | str | Any
    source: str = ""
    priority: int = 0
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        written_at(self)
        if not isinstance(self.pattern, str) or not self.pattern.strip():
            raise InputError(f"a pin needs a pattern such as batch/tokens, found {self.pattern!r}")
        if isinstance(self.sharding, str):
            try:
                object.__setattr__(self, "sharding", TensorSharding.from_text(self.sharding))
            except ShardingError as error:
                raise ShardingError(f"{self.where}: {error}") from None
        elif not isinstance(self.sharding, TensorSharding) and type(self.sharding).__name__ not in OF_JAX:
            raise InputError(
                f"{self.where}: the sharding must be text such as '[{{\"data\"}}, {{}}]', a TensorSharding, or a "
                f"NamedSharding or PartitionSpec of JAX, found {self.sharding!r}"
            )
        if isinstance(self.priority, bool) or not isinstance(self.priority, int) or self.priority < 0:
            raise InputError(f"{self.where}: a priority is a whole number of 0 or more, found {self.priority!r}")

    @property
    def parsed(self) -> TensorSharding:
        """The sharding, parsed when the pin was made (shardings of JAX are read later, see `request.arguments`)."""
        assert isinstance(self.sharding, TensorSharding)
        return self.sharding

    @property
    def where(self) -> str:
        """How messages name this pin: its place where known, and its pattern."""
        return f"{self.source}: pin {self.pattern!r}" if self.source else f"pin {self.pattern!r}"

    def __str__(self) -> str:
        return f"pin {self.pattern}{_priority_text(self.priority)}: {self.sharding}"

    @classmethod
    def from_config(cls, entry: Any, source: str) -> Self:
        """The pin that an entry of ``pins`` states."""
        return cls(entry.pattern, entry.sharding, source, entry.priority)

    @classmethod
    def config_faults(cls, entry: Any, path: KeyPath, mesh: Mesh) -> Iterator[tuple[KeyPath, str]]:
        """Shardings that cannot be read or do not fit the mesh."""
        try:
            pin = cls(entry.pattern, entry.sharding)
        except InputError as error:
            yield path, str(error).removeprefix(f"pin {entry.pattern!r}: ")
            return
        for message in pin.parsed.violations(mesh, what=f"pin {entry.pattern!r}"):
            yield path, message

    def match(self, addresses: Addresses, mesh: Mesh) -> "MatchedPin":
        """The pin with the values that it addresses in one program; its sharding is checked against mesh, rank and
        shape.

        Raises `InputError` where the pattern addresses nothing, `ShardingError` where the sharding does not fit.
        """
        program = addresses.program
        try:
            sharding = TensorSharding.from_text(str(self.parsed), mesh)
        except ShardingError as error:
            raise ShardingError(f"{self.where}: {error}") from None
        match = addresses.find(self.pattern)
        if not match:
            raise InputError(f"{self.where} matches no value of {program.name}; {addresses.hint(self.pattern)}")
        if match.any_rank:
            match = _of_rank(match, sharding.rank, self, program)
        for value, name in _named(match, program):
            shape = program.type_of(value).shape
            if len(shape) != sharding.rank:
                raise ShardingError(
                    f"{self.where}: the sharding {sharding} has {sharding.rank} dimensions, "
                    f"but {name} is {program.type_of(value)} with {len(shape)}" + _ranks_hint(match, program)
                )
            faults = sharding.violations(mesh, shape, what=f"{name} {program.type_of(value)}")
            if faults:
                raise ShardingError(f"{self.where}: " + "; ".join(faults))
        return MatchedPin(self.pattern, sharding, match.values, match.outputs, self.source, self.priority, self.written)


def _priority_text(priority: int) -> str:
    return f" (priority {priority})" if priority else ""


@dataclass(frozen=True, slots=True)
class MatchedPin(Matched):
    """A pin and what it addresses in one program.

    values: ids of values that are defined in this sharding, ascending.
    outputs: slots of program outputs that are handed back in this sharding, ascending.
    sharding: with replicated and unreduced axes in mesh order.
    mesh, stated: where the pin was stated on another mesh, that mesh and the sharding on it. moves: where blocks lie in
        another order than `sharding` says, see `autoshard.sharding.device_orders.Translated`.
    """

    pattern: str
    sharding: TensorSharding
    values: tuple[int, ...]
    outputs: tuple[int, ...]
    source: str = ""
    priority: int = 0
    written: str = field(default="", compare=False, repr=False)
    mesh: str = ""
    stated: str = ""
    moves: tuple[int, ...] = ()

    kind: ClassVar[str] = "pin"

    @property
    def cited(self) -> str:
        """The pin in the user's words, with its place."""
        return with_place(
            f"pin {self.pattern}{_priority_text(self.priority)}: {self.sharding}", self.source, self.written
        )

    @property
    def told(self) -> str:
        """The pin with its place in a file, for answers."""
        return with_place(f"pin {self.pattern} {self.sharding}", self.source)

    @property
    def members(self) -> tuple[Member, ...]:
        """The values and outputs that the pin is on."""
        return members_of(self.values, self.outputs)

    @property
    def shardings(self) -> tuple[TensorSharding, ...]:
        """The stated sharding."""
        return (self.sharding,)

    def claims(self, program: Program) -> list[tuple[Member, TensorSharding]]:
        """The sharding of all its members."""
        return [(member, self.sharding) for member in self.members]

    @property
    def priorities(self) -> tuple[int, ...]:
        """The user priorities of the dimensions, each once, ascending."""
        priorities = {self.priority if d.priority is None else d.priority for d in self.sharding.dims}
        if self.sharding.replicated or self.sharding.unreduced or not priorities:
            priorities.add(self.priority)
        return tuple(sorted(priorities))

    def up_to(self, priority: int) -> "MatchedPin":
        """The part of the pin that counts in the round of this priority: later dimensions are open and empty
        (S0.52).

        Unreduced axes count with its first dimension: without them it would say that the value is no partial sum.
        """
        dims = tuple(
            d if (self.priority if d.priority is None else d.priority) <= priority else DimensionSharding(is_open=True)
            for d in self.sharding.dims
        )
        sharding = replace(self.sharding, dims=dims)
        if self.priority > priority:
            sharding = replace(sharding, replicated=())
        return replace(self, sharding=sharding)

    def to_dict(self) -> dict[str, Any]:
        """The pin as an entry of ``statements`` in plan.json."""
        return {
            "kind": "pin",
            "pattern": self.pattern,
            "sharding": str(self.sharding),
            "source": self.source,
            "values": list(self.values),
            "outputs": list(self.outputs),
            **({"priority": self.priority} if self.priority else {}),
            **({"mesh": self.mesh, "stated": self.stated} if self.mesh else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`; the moves of a pin that was stated on another mesh are worked out again."""
        source = str(data.get("source", ""))
        pin = cls(
            data["pattern"], TensorSharding.from_text(data["sharding"], mesh), tuple(map(int, data["values"])),
            tuple(map(int, data["outputs"])), source, int(data.get("priority", 0)),
        )  # fmt: skip
        if "mesh" not in data:
            return pin
        other = None if mesh is None else on_other_mesh(data["stated"], data["mesh"], mesh, source)
        return replace(pin, mesh=data["mesh"], stated=data["stated"], moves=() if other is None else other.moves)


def match_pins(pins: Iterable[Pin], program: Program, mesh: Mesh, *, compare: bool = True) -> tuple[MatchedPin, ...]:
    """Find the values that every pin addresses, and check its sharding against mesh, rank and shape.

    compare: also look for two pins on one value that cannot both hold; `InfeasibleError` names them.
    Raises `InputError` where a pattern addresses nothing, `ShardingError` where a sharding does not fit.
    """
    addresses = Addresses(program)
    matched = tuple(pin.match(addresses, mesh) for pin in pins)
    if compare:
        check_contradictions(matched, program)
    return matched


def _named(match: Match, program: Program) -> list[tuple[int, str]]:
    named = [(v, program.values[v].name) for v in match.values]
    return named + [(program.body.results[k], program.output_names[k]) for k in match.outputs]


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


class PinSection(Section):
    """One pin: which values, and their sharding."""

    pattern: str
    """Path, tag, source lines, primitive or scope of the values."""
    sharding: str
    """As `[{"data"}, {?}]`."""
    priority: Annotated[int, Field(ge=0)] = 0
    """The stage in which it is decided."""


KIND = Kind(
    MatchedPin, Pin, ConfigKey("pins", Annotated[list[PinSection], mapping_by("pattern", "sharding")], by="pattern")
)
