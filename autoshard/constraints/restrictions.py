"""Statements that are no sharding of a value: axes kept for some values, regions without collectives, few reshards.

What they speak of is addressed by the patterns of `autoshard.constraints.patterns`; ``**`` stands for the whole
program. All are hard: they hold in the plan, or there is no plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from autoshard.constraints.groups import Member
from autoshard.constraints.manual import (
    ManualComputation,
    Stated,
    check_local,
    check_nesting,
    match_manual,
)
from autoshard.constraints.patterns import Addresses
from autoshard.constraints.place import written_at
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Op, Program
from autoshard.program.ties import donated_ties, layout_ties
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

EVERYTHING = "**"
"""The pattern of the whole program."""


def _patterns(given: str | Sequence[str], what: str) -> tuple[str, ...]:
    listed = (given,) if isinstance(given, str) else tuple(given)
    if not listed or not all(isinstance(p, str) and p.strip() for p in listed):
        raise InputError(f"{what} needs a pattern such as params/** or a list of them, found {given!r}")
    return listed


def _axis(given: Any, what: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InputError(f"{what} needs the name of a mesh axis, found {given!r}")
    return given


@dataclass(frozen=True, slots=True)
class Replicated:
    """No dimension of these values is cut by `axes` (by no axis at all where none are given).

    Inputs as they are stored, outputs as they are handed back, others in the form that their uses share.

    >>> str(Replicated("params/*/scale"))
    'replicated params/*/scale'
    >>> str(Replicated("batch/**", ["model"]))
    'replicated batch/** over model'
    """

    pattern: str
    axes: Sequence[str] = ()
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise InputError(f"replicated needs a pattern such as params/**, found {self.pattern!r}")
        _patterns(self.pattern, "replicated")
        axes = (self.axes,) if isinstance(self.axes, str) else tuple(self.axes)
        object.__setattr__(self, "axes", tuple(_axis(a, f"replicated {self.pattern}") for a in axes))
        written_at(self)

    def __str__(self) -> str:
        return f"replicated {self.pattern}" + (f" over {', '.join(self.axes)}" if self.axes else "")


@dataclass(frozen=True, slots=True)
class AxisOnly:
    """The mesh axis is used for these values only: no other array, in memory or on its way into an op, is cut by it
    or a partial sum over it.

    >>> str(AxisOnly("zero", ["state/moments/**", "out/moments/**"]))
    'axis zero only for state/moments/**, out/moments/**'
    """

    axis: str
    patterns: Sequence[str]
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _axis(self.axis, "axis_only")
        object.__setattr__(self, "patterns", _patterns(self.patterns, f"axis {self.axis} only for"))
        written_at(self)

    def __str__(self) -> str:
        return f"axis {self.axis} only for {', '.join(self.patterns)}"


@dataclass(frozen=True, slots=True)
class NoCollective:
    """No collective over this mesh axis where the values of the pattern are made or used.

    A pattern of lines or primitives speaks of those ops (loops with all that is inside of them): of what brings their
    operands and of the reductions inside of them; every pattern speaks of what is done to the values it addresses.

    >>> str(NoCollective("model", "attention.py:120"))
    'no collective over model at attention.py:120'
    """

    axis: str
    pattern: str = EVERYTHING
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _axis(self.axis, "no_collective")
        _patterns(self.pattern, f"no collective over {self.axis}")
        written_at(self)

    def __str__(self) -> str:
        return f"no collective over {self.axis} at {self.pattern}"


@dataclass(frozen=True, slots=True)
class MaxReshards:
    """At most so many reshards: places of the program where a value changes its layout.

    Counted are the uses that take a value in another layout, and the values whose uses share another one; a loop's
    body counts once. axis: only those that move this mesh axis. pattern: only those in this part of the program (as of
    `NoCollective`).

    >>> str(MaxReshards(3, axis="model"))
    'at most 3 reshards over model'
    """

    limit: int
    axis: str | None = None
    pattern: str = EVERYTHING
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 0:
            raise InputError(f"max_reshards needs a whole number of 0 or more, found {self.limit!r}")
        if self.axis is not None:
            _axis(self.axis, "max_reshards")
        _patterns(self.pattern, "max_reshards")
        written_at(self)

    def __str__(self) -> str:
        over = f" over {self.axis}" if self.axis else ""
        at = "" if self.pattern == EVERYTHING else f" at {self.pattern}"
        return f"at most {self.limit} reshards{over}{at}"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Hints do not pass through these values: what is stated on one side is not spread to the other.

    direction: the way that is barred, ``forward`` (from operands to results), ``backward`` or ``both``. It concerns
    the propagation of priorities and named strategies; the search by cost is free on both sides.

    >>> str(Barrier("@hidden", "backward"))
    'barrier (backward) at @hidden'
    """

    pattern: str
    direction: str = "both"
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _patterns(self.pattern, "barrier")
        if self.direction not in ("forward", "backward", "both"):
            raise InputError(
                f"barrier {self.pattern}: the direction is forward, backward or both, found {self.direction!r}"
            )
        written_at(self)

    def __str__(self) -> str:
        return f"barrier ({self.direction}) at {self.pattern}"


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """These inputs or outputs live in host memory (``pinned_host``) between calls.

    An input is copied to the device when it is first read, an output to the host when it is made; donated inputs and
    the outputs in their place are stated together.

    >>> str(MemoryKind("state/opt/**", "pinned_host"))
    'memory pinned_host for state/opt/**'
    """

    pattern: str
    kind: str = "pinned_host"
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise InputError(f"a memory kind needs a pattern such as state/opt/**, found {self.pattern!r}")
        _patterns(self.pattern, "memory kind")
        if self.kind not in MEMORY_KINDS:
            raise InputError(
                f"memory kind of {self.pattern}: {self.kind!r} is none of {', '.join(MEMORY_KINDS)}, the memories that "
                "values can be planned for"
            )
        written_at(self)

    def __str__(self) -> str:
        return f"memory {self.kind} for {self.pattern}"


MEMORY_KINDS = ("device", "pinned_host")
"""JAX's names of the memories that values may be stated to live in."""

Restricting = MemoryKind | Replicated | AxisOnly | NoCollective | MaxReshards | Barrier | ManualComputation


class Kind(StrEnum):
    """What a restriction says; also its `kind` in plan.json."""

    REPLICATED = "replicated"
    AXIS_ONLY = "axis_only"
    NO_COLLECTIVE = "no_collective"
    MAX_RESHARDS = "max_reshards"
    BARRIER = "barrier"
    MANUAL = "manual_computation"
    MEMORY_KIND = "memory_kind"


@dataclass(frozen=True, slots=True)
class Restriction:
    """A statement of this module and what it speaks of in one program.

    axes: mesh axes (none: all of them). values, outputs: ids and slots that are addressed, ascending. ops: the ops of
    the region, for NO_COLLECTIVE, MAX_RESHARDS and MANUAL. whole: the pattern is ``**``. limit: of MAX_RESHARDS.
    direction: of BARRIER; the memory of MEMORY_KIND. entering, leaving: values at the borders of MANUAL and their
    shardings, with all manual axes; inside: values that its region defines. text: in the user's words.
    """

    kind: Kind
    text: str
    patterns: tuple[str, ...]
    axes: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    ops: tuple[int, ...] = ()
    whole: bool = False
    limit: int = 0
    direction: str = ""
    source: str = ""
    written: str = field(default="", compare=False, repr=False)
    entering: Stated = ()
    leaving: Stated = ()
    inside: frozenset[int] = frozenset()

    @property
    def cited(self) -> str:
        """With its place, for messages."""
        place = self.source or self.written
        return f"{place}: {self.text}" if place else self.text

    def sharding_for(self, rank: int) -> TensorSharding:
        """What `Replicated` says about a value of this rank."""
        if not self.axes:
            return TensorSharding.closed(rank)
        return TensorSharding(None, TensorSharding.open(rank).dims, tuple(AxisRef(a) for a in self.axes))

    def claims(self, program: Program) -> list[tuple[Member, TensorSharding]]:
        """What it says of single values and outputs, as a pin would: of REPLICATED, and what leaves a MANUAL region."""
        if self.kind is Kind.MANUAL:
            return [(("value", v), sharding) for v, sharding in self.leaving]
        if self.kind is not Kind.REPLICATED:
            return []
        results = program.body.results
        members: list[tuple[Member, int]] = [(("value", v), v) for v in self.values]
        members += [(("output", k), results[k]) for k in self.outputs]
        return [(member, self.sharding_for(program.type_of(v).rank)) for member, v in members]

    @property
    def shardings(self) -> tuple[TensorSharding, ...]:
        """Those that the user wrote."""
        return tuple(sharding for _, sharding in (*self.entering, *self.leaving))

    def to_dict(self) -> dict[str, Any]:
        """As an entry of ``statements`` in plan.json."""
        borders = {"in_shardings": self.entering, "out_shardings": self.leaving} if self.kind is Kind.MANUAL else {}
        return {
            "kind": self.kind.value, "text": self.text, "patterns": list(self.patterns), "axes": list(self.axes),
            "values": list(self.values), "outputs": list(self.outputs), "ops": list(self.ops), "whole": self.whole,
            "limit": self.limit, "direction": self.direction, "source": self.source,
            **{key: [{"value": v, "sharding": str(s)} for v, s in border] for key, border in borders.items()},
            **({"inside": sorted(self.inside)} if self.inside else {}),
        }  # fmt: skip

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Restriction":
        return Restriction(
            Kind(data["kind"]), data["text"], tuple(data["patterns"]), tuple(data["axes"]), tuple(data["values"]),
            tuple(data["outputs"]), tuple(data["ops"]), data["whole"], data["limit"], data["direction"],
            data["source"], entering=_border(data.get("in_shardings", ())),
            leaving=_border(data.get("out_shardings", ())), inside=frozenset(data.get("inside", ())),
        )  # fmt: skip


def _border(data: Sequence[dict[str, Any]]) -> Stated:
    return tuple((item["value"], TensorSharding.from_text(item["sharding"])) for item in data)


def restrictions_of(statements: Sequence[dict[str, Any]]) -> tuple[Restriction, ...]:
    """Those among the statements of a plan.json."""
    kinds = {kind.value for kind in Kind}
    return tuple(Restriction.from_dict(s) for s in statements if s["kind"] in kinds)


def match_restrictions(given: Sequence[Restricting], program: Program, mesh: Mesh) -> tuple[Restriction, ...]:
    """Find what every statement speaks of.

    Raises `InputError` where a pattern addresses nothing, `ShardingError` for an axis that the mesh lacks.
    """
    addresses = Addresses(program)
    found = tuple(_match(statement, addresses, mesh) for statement in given)
    manual = [r for r in found if r.kind is Kind.MANUAL]
    check_nesting([(r.cited, r.axes, frozenset(r.ops)) for r in manual], program)
    return found


def _match(statement: Restricting, addresses: Addresses, mesh: Mesh) -> Restriction:
    place = f"{statement.source}: " if statement.source else ""
    axes: tuple[str, ...] = ()
    limit, direction = 0, ""
    match statement:
        case Replicated():
            kind, patterns, axes = Kind.REPLICATED, (statement.pattern,), tuple(statement.axes)
        case AxisOnly():
            kind, patterns, axes = Kind.AXIS_ONLY, tuple(statement.patterns), (statement.axis,)
        case NoCollective():
            kind, patterns, axes = Kind.NO_COLLECTIVE, (statement.pattern,), (statement.axis,)
        case MaxReshards():
            kind, patterns, limit = Kind.MAX_RESHARDS, (statement.pattern,), statement.limit
            axes = () if statement.axis is None else (statement.axis,)
        case Barrier():
            kind, patterns, direction = Kind.BARRIER, (statement.pattern,), statement.direction
        case MemoryKind():
            kind, patterns, direction = Kind.MEMORY_KIND, (statement.pattern,), statement.kind
        case ManualComputation():
            kind, patterns = Kind.MANUAL, tuple(statement.region)
            axes = (
                *(a for a in mesh.axis_names if a in statement.axes),
                *(a for a in statement.axes if a not in mesh.axis_names),
            )
    for axis in axes:
        if axis not in mesh.axis_names:
            raise ShardingError(
                f"{place}{statement}: the mesh has no axis {axis!r}; its axes are {', '.join(mesh.axis_names)}"
            )
    values: set[int] = set()
    outputs: set[int] = set()
    ops: set[int] = set()
    whole = EVERYTHING in patterns and kind in (Kind.NO_COLLECTIVE, Kind.MAX_RESHARDS)
    for pattern in () if whole else patterns:
        found = addresses.find(pattern)
        if not found:
            raise InputError(
                f"{place}{statement}: {pattern!r} matches no value of {addresses.program.name}; "
                f"{addresses.hint(pattern)}"
            )
        if kind is Kind.MEMORY_KIND and not set(found.values) <= set(addresses.program.body.args):
            raise InputError(
                f"{place}{statement}: {pattern!r} names values that ops make; inputs and outputs of the program can be "
                "planned for other memories, intermediates cannot"
            )
        values.update(found.values)
        outputs.update(found.outputs)
        if kind is Kind.MANUAL and not found.any_rank:
            raise InputError(
                f"{place}{statement}: {pattern!r} names values; the region of a manual computation is made of ops: "
                "scope:NAME, FILE.py:LINE-LINE or a primitive"
            )
        if found.any_rank and kind in (Kind.NO_COLLECTIVE, Kind.MAX_RESHARDS, Kind.MANUAL):
            made = set(found.values)
            for op in addresses.ops:
                if made.intersection(op.results):
                    ops.update(_with_inner(op))
    entering: Stated = ()
    leaving: Stated = ()
    inside: frozenset[int] = frozenset()
    if isinstance(statement, ManualComputation):
        region, entering, leaving = match_manual(statement, ops, addresses, mesh)
        check_local(f"{place}{statement}", addresses.program, region, axes, entering, leaving)
        inside = region.inside
    return Restriction(
        kind, str(statement), patterns, axes, tuple(sorted(values)), tuple(sorted(outputs)), tuple(sorted(ops)), whole,
        limit, direction, statement.source, statement.written, entering, leaving, inside,
    )  # fmt: skip


def in_memories(program: Program, restrictions: Sequence[Restriction]) -> Program:
    """The program with what restrictions say of the memories of its inputs and outputs; later ones win.

    Raises `InputError` for constants, and for outputs that take the place of donated inputs in another memory.
    """
    inputs: dict[int, bool] = {}
    outputs: dict[int, bool] = {}
    for restriction in restrictions:
        if restriction.kind is Kind.MEMORY_KIND:
            on_host = restriction.direction == "pinned_host"
            for value in restriction.values:
                if program.body.args.index(value) >= len(program.input_names):
                    raise InputError(
                        f"{restriction.cited}: {program.values[value].name} is a constant of the program, which lies "
                        "in device memory; pass it as an argument"
                    )
            inputs.update(dict.fromkeys(map(program.body.args.index, restriction.values), on_host))
            outputs.update(dict.fromkeys(restriction.outputs, on_host))
    if not any((*inputs.values(), *outputs.values())):
        return program
    for slot, value in donated_ties(program).items():
        there = inputs.get(program.body.args.index(value), False)
        if outputs.setdefault(slot, there) != there:
            raise InputError(
                f"output {program.output_names[slot]} takes the place of the donated input "
                f"{program.values[value].name}, so both live in one memory; state them together"
            )
    for slot, value in layout_ties(program).items():  # carried ones follow where nothing is stated
        outputs.setdefault(slot, inputs.get(program.body.args.index(value), False))
    return replace(
        program,
        host_inputs=frozenset(k for k, on_host in inputs.items() if on_host),
        host_outputs=frozenset(k for k, on_host in outputs.items() if on_host),
    )


def _with_inner(op: Op) -> list[int]:
    return [op.id, *(i for region in op.regions for inner in region.ops for i in _with_inner(inner))]
