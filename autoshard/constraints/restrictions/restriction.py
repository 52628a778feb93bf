"""The base classes of restrictions: statements other than the sharding of a value.

The patterns of `autoshard.constraints.patterns` address what they are about; ``**`` is the whole program. All are hard:
they hold in the plan, or there is no plan.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from autoshard.constraints.axes_named import axes_named, parts_in, refs_of, whole_axis_named
from autoshard.constraints.patterns import Addresses, Match
from autoshard.constraints.statement import Matched, Member, PlacementCheck, Statement, members_of, with_place
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Op
from autoshard.program.schedule import PROGRAM, Use
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

EVERYTHING = "**"
"""The pattern of the whole program."""


class Restricting(Statement):
    """Base of the restrictions that users write. `str` gives the text that messages and plan.json have."""

    __slots__ = ()
    source: str
    written: str

    @property
    def where(self) -> str:
        """The beginning of messages about the restriction: its place where known, and its text."""
        return with_place(str(self), self.source)

    def match(self, addresses: Addresses, mesh: Mesh) -> "Restriction":
        """The restriction with the values, outputs and ops that it is about in one program.

        Raises `InputError` where a pattern addresses nothing, `ShardingError` for an axis that the mesh lacks.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a program, as patterns address it.

    values, outputs: ids and slots, ascending. ops: ids of ops, with all ops inside of them. whole: the whole program.
    """

    patterns: tuple[str, ...]
    values: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    ops: tuple[int, ...] = ()
    whole: bool = False

    def concerns(self, value: int, use: Use | None) -> bool:
        """Whether a reshard lies in the part: by its value, the op that uses it, or the output it becomes."""
        if self.whole or value in self.values:
            return True
        if use is None:
            return False
        return use.slot in self.outputs if use.op == PROGRAM else use.op in self.ops


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction(Matched):
    """Base of restrictions that are matched to one program.

    text: in the user's words. part: what the restriction is about. axes: mesh axes that it names, and parts of axes
    (``x:(1)2``).
    """

    text: str
    part: Part
    axes: tuple[str, ...] = ()
    source: str = ""
    written: str = field(default="", compare=False, repr=False)

    @property
    def cited(self) -> str:
        """The restriction with its place, for messages."""
        return with_place(self.text, self.source, self.written)

    @property
    def told(self) -> str:
        """The restriction with its place in a file, for answers."""
        return with_place(self.text, self.source)

    @property
    def values(self) -> tuple[int, ...]:
        """Ids of the values that the restriction is about, ascending."""
        return self.part.values

    @property
    def outputs(self) -> tuple[int, ...]:
        """Slots of the outputs that the restriction is about, ascending."""
        return self.part.outputs

    @property
    def ops(self) -> tuple[int, ...]:
        """Ids of the ops that the restriction is about."""
        return self.part.ops

    @property
    def members(self) -> tuple[Member, ...]:
        """The values and outputs that the restriction is about."""
        return members_of(self.values, self.outputs)

    @property
    def shardings(self) -> tuple[TensorSharding, ...]:
        """A sharding with the parts of axes that the restriction names, none where it names whole axes."""
        parts = parts_in(refs_of(self.axes))
        return (TensorSharding(None, (), parts),) if parts else ()

    def to_dict(self) -> dict[str, Any]:
        """The restriction as an entry of ``statements`` in plan.json. Every one has a limit and a direction there."""
        return {
            "kind": self.kind, "text": self.text, "patterns": list(self.part.patterns), "axes": list(self.axes),
            "values": list(self.values), "outputs": list(self.outputs), "ops": list(self.ops),
            "whole": self.part.whole, "limit": 0, "direction": "", "source": self.source,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        return cls(**Restriction.shared(data))

    @staticmethod
    def shared(data: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that all restrictions have, read from an entry of plan.json."""
        values, outputs, ops = (tuple(map(int, data[key])) for key in ("values", "outputs", "ops"))
        part = Part(tuple(data["patterns"]), values, outputs, ops, bool(data["whole"]))
        return {"text": str(data["text"]), "part": part, "axes": tuple(data["axes"]), "source": str(data["source"])}


# -- reading what users write --------------------------------------------------------------------------------------


def pattern_given(pattern: Any, what: str) -> str:
    """One pattern, checked; `InputError` where it is no text."""
    if not isinstance(pattern, str) or not pattern.strip():
        raise InputError(f"{what} needs a pattern such as params/**, found {pattern!r}")
    return pattern


def patterns_given(patterns: str | Sequence[str], what: str) -> tuple[str, ...]:
    """One pattern or several, checked, as a tuple; `InputError` where one is no text."""
    listed = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    if not listed or not all(isinstance(p, str) and p.strip() for p in listed):
        raise InputError(f"{what} needs a pattern such as params/** or a list of them, found {patterns!r}")
    return listed


def axis_given(axis: Any, what: str) -> str:
    """The name of a mesh axis, checked; `InputError` where it is no text."""
    if not isinstance(axis, str) or not axis.strip():
        raise InputError(f"{what} needs the name of a mesh axis, found {axis!r}")
    return axis


# -- matching them to a program ------------------------------------------------------------------------------------


def parts_of_axes(statement: Restricting, axes: Iterable[str], mesh: Mesh) -> tuple[str, ...]:
    """The axes, and parts of axes, that a statement names; `ShardingError` for those that the mesh lacks."""
    try:
        return axes_named(axes, mesh)
    except ShardingError as error:
        raise ShardingError(f"{statement.where}: {error}") from None


def known_axes(statement: Restricting, axes: Iterable[str], mesh: Mesh) -> tuple[str, ...]:
    """The whole axes that a statement names; `ShardingError` for one that the mesh lacks."""
    try:
        return tuple(whole_axis_named(axis, mesh).name for axis in axes)
    except ShardingError as error:
        raise ShardingError(f"{statement.where}: {error}") from None


def part_of(
    statement: Restricting,
    patterns: Sequence[str],
    addresses: Addresses,
    *,
    of_ops: bool = False,
    may_be_whole: bool = False,
    check: Callable[[str, Match], None] | None = None,
) -> Part:
    """The part of a program that patterns address; `InputError` where one addresses nothing.

    of_ops: patterns of places in the source are about the ops there too. may_be_whole: ``**`` is the whole program.
    check: called with each pattern and its match, to refuse it.
    """
    if may_be_whole and EVERYTHING in patterns:
        return Part(tuple(patterns), whole=True)
    values: set[int] = set()
    outputs: set[int] = set()
    ops: set[int] = set()
    for pattern in patterns:
        match = addresses.find(pattern)
        if not match:
            raise InputError(
                f"{statement.where}: {pattern!r} matches no value of {addresses.program.name}; "
                f"{addresses.hint(pattern)}"
            )
        if check is not None:
            check(pattern, match)
        values.update(match.values)
        outputs.update(match.outputs)
        if of_ops and match.any_rank:
            addressed = set(match.values)
            for op in addresses.ops:
                if addressed.intersection(op.results):
                    ops.update(_with_inner(op))
    return Part(tuple(patterns), tuple(sorted(values)), tuple(sorted(outputs)), tuple(sorted(ops)))


def _with_inner(op: Op) -> list[int]:
    return [op.id, *(i for region in op.regions for inner in region.ops for i in _with_inner(inner))]


# -- a demand that several restrictions make -----------------------------------------------------------------------


def no_combining(part: Part, axes: Iterable[str], mesh: AtomMesh) -> Callable[[Op], PlacementCheck | None]:
    """A check that ops in a part have no collectives of their own over the axes.

    These are all-reduces of results combined by max or min, and exchanges of edges.
    """
    inside = set(part.ops)
    atoms = frozenset(a for name in axes for a in mesh.atoms_named(name))

    def check(op: Op) -> PlacementCheck | None:
        rule = op.rule
        if (
            rule is None
            or not (part.whole or op.id in inside)
            or (rule.combiner == "add" and not rule.halos and not rule.ties)
        ):
            return None

        def free(placement: Any) -> bool:
            exchanged = (a for exchange in placement.exchanges(rule, mesh) for a in exchange.atoms)
            return atoms.isdisjoint((*placement.combine_atoms(rule), *exchanged))

        return free

    return check
