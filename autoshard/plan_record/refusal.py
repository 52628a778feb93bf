"""`RefusalRecord`: the content of refusal.json, the proof that what was asked for has no plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from autoshard.costmodels.machine import Machine
from autoshard.errors import InputError
from autoshard.files import read_json, write_json
from autoshard.plan_record.asked import AskedRecord, read_part, told
from autoshard.plan_record.parts import BoundProof, NamedPriorities, ToldLimit, ToldOptions
from autoshard.program.as_json import REFUSAL as FORMAT
from autoshard.program.as_json import guarded, mesh_from_json, plain, program_from_json, program_to_json
from autoshard.sharding.layout import AtomMesh
from autoshard.trust import placed_config

VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class RefusalRecord(AskedRecord):
    """What was asked for, why no plan does it, and the proof.

    mesh: with its axes split into atoms. reason, conflict, facts: those of the `InfeasibleError`. certificate: the
    proof that the network of this problem has no assignment; None where no network could be made (statements that leave
    a value without any layout are found before).
    """

    mesh: AtomMesh
    reason: str
    conflict: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    certificate: BoundProof | None = field(default=None, repr=False)

    @property
    def atoms(self) -> AtomMesh:
        """The mesh with its axes split into atoms."""
        return self.mesh

    def to_dict(self) -> dict[str, Any]:
        """The content of refusal.json; what it shares with plan.json stands under the same keys."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "reason": self.reason,
            "conflict": list(self.conflict),
            "facts": plain(dict(self.facts)),
            **self.ground_to_dict(),
            **self.asked_to_dict(),
            **told("priorities", self.priorities),
            **told("certificate", self.certificate),
            "program": program_to_json(self.program),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write refusal.json, whole or not at all."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a refusal back. `InputError` for a file that is missing, damaged, of another version, or no refusal."""
        data = read_json(path, what="refusal")
        if not is_refusal(data):
            raise InputError(f"{path} is not a refusal of autoshard (no 'format: {FORMAT}')")
        if data.get("version") != VERSION:
            raise InputError(
                f"{path} is a refusal of version {data.get('version')!r}; this autoshard reads version {VERSION}"
            )
        placed = {**data, "config": placed_config(data.get("config"), path)}
        return guarded(lambda: cls.from_dict(placed), str(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The refusal with the content of a refusal.json."""
        made = cls(
            program=program_from_json(data["program"]),
            mesh=mesh_from_json(data["mesh"]),
            machine=Machine.from_dict(data["hardware"]["machine"]),
            reason=str(data["reason"]),
            conflict=tuple(map(str, data["conflict"])),
            facts=dict(data["facts"]),
            statements=tuple(data["statements"]),
            config=data["config"],
            trips=int(data["trips"]),
            memory_limit=read_part(ToldLimit, data, "memory_limit"),
            options=read_part(ToldOptions, data, "options"),
            priorities=read_part(NamedPriorities, data, "priorities"),
            certificate=read_part(BoundProof, data, "certificate"),
        )
        made.stated  # noqa: B018 - a damaged statement is told when the file is read
        return made


def is_refusal(data: Any) -> bool:
    """Whether the content of a JSON file says that it is a refusal."""
    return isinstance(data, dict) and data.get("format") == FORMAT
