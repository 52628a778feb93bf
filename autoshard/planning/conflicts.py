"""Contradictions between statements about layouts, found before any network is built.

Values that sharding groups tie have one layout. For each class of tied values, the layouts that all statements leave
are listed. Where there is none, the error names a minimal set of statements that leaves none, in the user's words with
their places.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from autoshard.constraints import MatchedGroup, MatchedPin, Restriction, conflict
from autoshard.constraints.statement import LayoutCheck, Member, Place, name_of
from autoshard.constraints.tied_outputs import own_outputs, padded_inputs
from autoshard.errors import InfeasibleError
from autoshard.formulation.domains import Domains
from autoshard.planning.minimal import minimal_conflict
from autoshard.program.program import Program
from autoshard.program.schedule import PROGRAM, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.tensor_sharding import TensorSharding

Stated = MatchedPin | MatchedGroup | Restriction


@dataclass
class _Claims:
    """The statements about one value: pins, and checks of its layout, by the number of the statement."""

    pins: dict[int, list[TensorSharding]] = field(default_factory=dict)
    checks: dict[int, LayoutCheck] = field(default_factory=dict)


def implied_pins(restriction: Restriction, program: Program) -> list[MatchedPin]:
    """The shardings that a restriction demands of single values and outputs, as pins."""
    text, source = restriction.text, restriction.source
    return [
        MatchedPin(text, sharding, (index,) if kind == "value" else (), (index,) if kind == "output" else (), source)
        for (kind, index), sharding in restriction.claims(program)
    ]


def check_layouts(
    program: Program,
    mesh: AtomMesh,
    statements: Sequence[Stated],
    ties: dict[int, int],
    axis_orders: Sequence[Sequence[str]] = (),
    apart: Sequence[tuple[int, ...]] = (),
    later: Sequence[MatchedPin] = (),
) -> None:
    """Raise `InfeasibleError` with a minimal set of statements where they leave a value without any layout.

    ties: output slot -> donated input whose layout the output takes where it has no pin, nor one among `later`.
    """
    judge = _Judge(program, mesh, statements, ties, Domains(mesh, axis_orders, apart=apart), later)
    for members in judge.classes(range(len(statements))):
        if judge.holds(members, range(len(statements))):
            continue
        among = judge.concerning(members)
        conflict = minimal_conflict(among, partial(judge.all_hold, members))
        raise _error(program, [statements[k] for k in conflict], judge.where(members, conflict))


class _Judge:
    """Whether the values of a program have layouts under some of the statements."""

    def __init__(
        self,
        program: Program,
        mesh: AtomMesh,
        statements: Sequence[Stated],
        ties: dict[int, int],
        domains: Domains,
        later: Sequence[MatchedPin],
    ) -> None:
        self.program, self.mesh, self.ties, self.domains = program, mesh, ties, domains
        self.statements = statements
        pins = [statement for statement in statements if isinstance(statement, MatchedPin)]
        groups = [statement for statement in statements if isinstance(statement, MatchedGroup)]
        self.own, self.padded = own_outputs((*pins, *later)), padded_inputs(pins, groups, program, mesh)
        self.claims: dict[Member, _Claims] = {}
        self.groups: dict[int, list[Member]] = {}
        for number, statement in enumerate(statements):
            if statement.alike:
                self.groups[number] = [self._alias(m) for m in statement.alike]
            for member, pin in statement.claims(program):
                self._of(self._alias(member)).pins.setdefault(number, []).append(pin)
        for members in self.groups.values():
            for member in members:
                self._of(member)
        for number, statement in enumerate(statements):
            of = statement.layouts(program, mesh, ties)
            for member, claims in self.claims.items():
                check = None if of is None else of(self._place(member))
                if check is not None:
                    claims.checks[number] = check
        self._left: dict[object, frozenset[Layout]] = {}

    def _of(self, member: Member) -> _Claims:
        return self.claims.setdefault(member, _Claims())

    def _alias(self, member: Member) -> Member:
        """The member that decides the layout of another: for an output without pin, the input that it replaces.

        Where that input may be padded, it is the output itself, which is not.
        """
        kind, index = member
        if kind == "output" and index in self.ties and index not in self.own and self.ties[index] not in self.padded:
            return ("value", self.ties[index])
        return member

    def _place(self, member: Member) -> Place:
        kind, index = member
        return Place(index) if kind == "value" else Place(self.program.body.results[index], Use(PROGRAM, index))

    def classes(self, among: Iterable[int]) -> list[list[Member]]:
        """Members that the groups among these statements tie together, in the order of their first claim."""
        class_of: dict[Member, list[Member]] = {m: [m] for m in self.claims}
        for number in among:
            for member in self.groups.get(number, ())[1:]:
                mine, other = class_of[self.groups[number][0]], class_of[member]
                if mine is not other:
                    mine.extend(other)
                    for m in other:
                        class_of[m] = mine
        seen: dict[int, list[Member]] = {id(c): c for c in class_of.values()}
        return list(seen.values())

    def concerning(self, members: Sequence[Member]) -> list[int]:
        """The statements about these values, in the user's order."""
        inside = set(members)
        numbers = {n for m in members for n in (*self.claims[m].pins, *self.claims[m].checks)}
        numbers |= {n for n, tied in self.groups.items() if inside.intersection(tied)}
        return sorted(numbers)

    def all_hold(self, members: Sequence[Member], kept: Sequence[int]) -> bool:
        inside = set(members)
        return all(self.holds(c, kept) for c in self.classes(kept) if inside.intersection(c))

    def holds(self, members: Sequence[Member], kept: Iterable[int]) -> bool:
        """Whether tied values have a layout in common under the statements `kept`."""
        numbers = frozenset(kept)
        said = {p: None for m in members for n, pins in self.claims[m].pins.items() if n in numbers for p in pins}
        common: frozenset[Layout] | None = None
        for member in members:  # a claim on one member holds for all
            left = self._layouts(member, numbers, tuple(said))
            common = left if common is None else common & left
            if not common:
                return False
        return True

    def _layouts(self, member: Member, kept: frozenset[int], pins: tuple[TensorSharding, ...]) -> frozenset[Layout]:
        claims = self.claims[member]
        checks = frozenset(check for n, check in claims.checks.items() if n in kept)
        kind, index = member
        type_ = self.program.type_of(index if kind == "value" else self.program.body.results[index])
        place = "output" if kind == "output" else "input" if index in self._inputs else "form"
        key = (place, type_, pins, checks)
        if key not in self._left:
            of = {"output": self.domains.of_output, "input": self.domains.of_input, "form": self.domains.of_form}
            layouts, indices = of[place](type_, pins)
            left_layouts = (layouts[k] for k in indices.tolist())
            self._left[key] = frozenset(lay for lay in left_layouts if all(check(lay) for check in checks))
        return self._left[key]

    @property
    def _inputs(self) -> frozenset[int]:
        return frozenset(self.program.body.args)

    def where(self, members: Sequence[Member], numbers: Sequence[int]) -> list[Member]:
        """The tied values that have no layout in common under these statements."""
        for tied in self.classes(numbers):
            if set(tied) & set(members) and not self.holds(tied, numbers):
                return list(tied)
        return []


_DIVISIBLE = (
    "no layout that autoshard considers does it; a dimension should be divisible by the product of the axes on it "
    "(inputs and intermediates may be padded by up to a quarter, outputs not at all)"
)
_PARTIAL = (
    "arguments and results of a program are no partial sums; state `unreduced` of a value inside, such as one named "
    "with checkpoint_name"
)


def _error(program: Program, stated: Sequence[Stated], members: Sequence[Member]) -> InfeasibleError:
    names = [name_of(m, program) for m in members]
    cited = [statement.cited for statement in stated]
    pins = [s for s in stated if isinstance(s, MatchedPin)]
    place = names[0] if names else "a value"
    if len(pins) == 2 and len(stated) == 2:
        reason = conflict(pins[0].sharding, pins[1].sharding)
        head = f"two pins contradict each other on {place}" + (f": {reason}" if reason else "")
    elif len(pins) == 2 and all(isinstance(s, MatchedPin | MatchedGroup) for s in stated):
        head = f"two pins contradict each other on values that must have one sharding ({_some(names)})"
    elif len(stated) == 1:
        held = f"cannot be held in {pins[0].sharding}" if pins else "cannot be held so"
        role = _role(program, members)
        why = _PARTIAL if pins and pins[0].sharding.unreduced and role in ("input ", "output ") else _DIVISIBLE
        head = f"{role}{place} {held}: {why}"
    else:
        head = f"these {len(stated)} statements cannot hold together on {_some(names)}: no layout satisfies them all"
    advice = "change it" if len(stated) == 1 else "drop or change one of them"
    return InfeasibleError("\n".join([head, *(f"  {c}" for c in cited), advice]), conflict=cited)


def _role(program: Program, members: Sequence[Member]) -> str:
    if not members:
        return ""
    kind, index = members[0]
    return "output " if kind == "output" else "input " if index in program.body.args else "value "


def _some(names: Sequence[str], most: int = 4) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
