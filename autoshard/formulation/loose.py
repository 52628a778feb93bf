"""All decisions of a program with nothing stated yet, and what each statement would leave of them.

Where statements cannot hold together, subsets of them are judged. For that the decisions are collected once, with every
state that any statement names, and each statement becomes a mask over the states of some nodes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoshard.constraints import MatchedGroup, MatchedPin, Restriction
from autoshard.constraints.statement import Member
from autoshard.formulation.collect import Collected
from autoshard.formulation.domains import Domains
from autoshard.formulation.equal import member_port
from autoshard.formulation.model import Node, NodeKind
from autoshard.formulation.restrict import state_masks
from autoshard.program.program import Program
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.tensor_sharding import TensorSharding

Stated = MatchedPin | MatchedGroup | Restriction
Masks = dict[int, np.ndarray]
"""Node -> which of its states are left; nodes without an entry keep all."""


@dataclass
class Loose:
    """The decisions of a program, and what each statement leaves of them.

    collected: the decisions without statements. statements: those that are judged; pins act on their members, every
    other statement as masks.
    """

    program: Program
    mesh: AtomMesh
    collected: Collected
    ties: Mapping[int, int]
    domains: Domains
    statements: Sequence[Stated]

    def __post_init__(self) -> None:
        self._claims: dict[Member, list[tuple[int, TensorSharding]]] = {}
        self._masks: dict[int, Masks] = {}
        self._ports = {}
        for number, statement in enumerate(self.statements):
            for member, pin in statement.claims(self.program):
                self._claims.setdefault(member, []).append((number, pin))
            if isinstance(statement, Restriction):
                self._masks[number] = state_masks(self.collected, self.program, self.mesh, statement, self.ties)
        self._known: dict[object, np.ndarray] = {}

    def masks(self, kept: Collection[int]) -> Masks:
        """The states that the statements `kept` leave together.

        The pins on any member of a sharding group count for all of its members.
        """
        out: Masks = {}
        claims = {m: tuple(pin for n, pin in said if n in kept) for m, said in self._claims.items()}
        for members in self._tied(kept):
            shared = tuple(dict.fromkeys(p for m in members for p in claims.get(m, ())))
            claims.update(dict.fromkeys(members, shared))
        for member, pins in claims.items():
            port = self._port(member)
            if port is None or not pins:
                continue
            node = self.collected.nodes[port.node]
            _and(out, port.node, self._left(node, port.layouts, pins))
        for number in sorted(set(kept) & self._masks.keys()):
            for index, mask in self._masks[number].items():
                _and(out, index, mask)
        return out

    def _tied(self, kept: Collection[int]) -> list[list[Member]]:
        classes: list[set[Member]] = []
        for number in sorted(kept):
            members = set(self.statements[number].alike)
            if members:
                for other in [c for c in classes if c & members]:
                    classes.remove(other)
                    members |= other
                classes.append(members)
        return [sorted(members) for members in classes]

    def _port(self, member: Member):
        if member not in self._ports:
            self._ports[member] = member_port(member, self.collected, self.program, self.ties)
        return self._ports[member]

    def _left(self, node: Node, layouts, pins: tuple[TensorSharding, ...]) -> np.ndarray:
        key = (id(node), pins)
        if key not in self._known:
            mask = np.zeros(node.states, bool)
            kept = self.domains.kept(layouts, pins)
            if node.kind is NodeKind.INPUT and node.value is not None:
                kept = self.domains.evenly(layouts, kept, self.program.type_of(node.value), pins)
            mask[kept] = True
            self._known[key] = mask
        return self._known[key]


def _and(masks: Masks, node: int, mask: np.ndarray) -> None:
    masks[node] = masks[node] & mask if node in masks else mask
