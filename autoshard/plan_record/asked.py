"""What a plan, or the proof that there is none, was asked for: program, mesh, machine, statements and limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from autoshard.constraints.registry import read_all
from autoshard.constraints.statement import Matched
from autoshard.costmodels.machine import Machine
from autoshard.errors import InputError
from autoshard.plan_record.parts import NamedPriorities, Part, ToldLimit, ToldOptions
from autoshard.program.as_json import mesh_to_json, plain
from autoshard.program.program import Program
from autoshard.sharding.layout import AtomMesh

if TYPE_CHECKING:
    from autoshard.costs.exposure import Objective

M = TypeVar("M", bound=Matched)
P = TypeVar("P", bound=Part)


@dataclass(frozen=True, kw_only=True)
class AskedRecord(ABC):
    """The part of a record that says what was asked for; the same keys in every file that has it.

    statements: as in plan.json; `stated` has them as values. config: its file and settings, where there was one.
    trips: assumed number of iterations of loops whose length is not known. memory_limit, options: see `PlanRecord`.
    priorities: of stages by names of strategies, those ``names``, the ``roles`` of the inputs and the ``slow`` axes.
    """

    program: Program
    machine: Machine
    statements: tuple[Mapping[str, Any], ...] = ()
    config: Mapping[str, Any] | None = None
    trips: int = 1
    memory_limit: ToldLimit | None = None
    options: ToldOptions | None = None
    priorities: NamedPriorities | None = None

    @property
    @abstractmethod
    def atoms(self) -> AtomMesh:
        """The mesh with its axes split into atoms."""

    @property
    def objective(self) -> Objective:
        """What the cost counts: ``serial`` (nothing overlaps) or ``overlap`` (what a device waits for, or what its
        busiest link works where that is longer)."""
        return (self.options and self.options.objective) or "serial"

    @cached_property
    def stated(self) -> tuple[Matched, ...]:
        """The statements, each a value of its kind. `InputError` where one of them cannot be read."""
        stated = read_all(self.statements, self.atoms.mesh)
        for statement in stated:
            _check_places(statement, self.program)
        return stated

    def stated_as(self, kind: type[M]) -> tuple[M, ...]:
        """The statements of one kind, or of several kinds by their common base."""
        return tuple(statement for statement in self.stated if isinstance(statement, kind))

    def ground_to_dict(self) -> dict[str, Any]:
        """Mesh, machine, config and trips as they stand in the file."""
        return {
            "mesh": mesh_to_json(self.atoms),
            "hardware": {
                "name": self.machine.profile.name,
                "machine": plain(self.machine.to_dict()),
                "layout": plain(self.machine.describe()),
            },
            "config": None if self.config is None else plain({key: self.config[key] for key in ("file", "settings")}),
            "trips": self.trips,
        }

    def asked_to_dict(self) -> dict[str, Any]:
        """Statements, memory limit and options as they stand in the file."""
        return {
            "statements": [plain(s) for s in self.statements],
            **told("memory_limit", self.memory_limit),
            **told("options", self.options),
        }


def _check_places(statement: Matched, program: Program) -> None:
    """`InputError` where a statement is about a value, an output or an op that the program does not have."""
    known = {"value": range(len(program.values)), "output": range(len(program.body.results))}
    ops = {op.id for op, _ in program.walk()} if getattr(statement, "ops", ()) else set()
    missing = [f"{what} {index}" for what, index in statement.members if index not in known[what]]
    missing += [f"op {index}" for index in getattr(statement, "ops", ()) if index not in ops]
    if missing:
        raise InputError(f"plan: {statement.told} is about {missing[0]}, which the program does not have")


def told(key: str, part: Part | None) -> dict[str, Any]:
    """The part under its key, or nothing where there is no such part."""
    return {} if part is None else {key: plain(part.to_dict())}


def read_part(kind: type[P], data: Mapping[str, Any], key: str) -> P | None:
    """The part under its key; None where there is no such part."""
    return None if data.get(key) is None else kind.from_dict(data[key])
