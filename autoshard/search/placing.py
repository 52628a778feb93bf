"""From shardings of tensors to the states that are left at every node of a network.

Tensors of one op may disagree about an axis: one has it on one factor, another one on another factor. A *conflict rule*
says which factor such an axis cuts, if any.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoshard.errors import ShardingError
from autoshard.formulation.model import NodeKind
from autoshard.placements.space import OpSpace
from autoshard.planning import Model
from autoshard.program.program import Op, Program
from autoshard.program.rule import ShardingRule
from autoshard.propagation.projection import project
from autoshard.propagation.spec import Spec, axis_ref, to_spec
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.strategies.choice import Conflicts

_SUM_OF_GRADIENTS: Final = "add_any"
"""What JAX adds the gradients of a value with several uses by."""

Factors = list[list[int]]
"""Atoms on every factor of an op, major to minor."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """An atom on a factor, as one tensor of an op has it."""

    atom: int
    factor: int
    tensor: int


class Placing:
    """Placements of ops that follow from the shardings of their tensors, remembered by op.

    contested: atoms that a strategy moves on purpose in the middle of a layer. Where tensors have them on different
    factors, the move happens at that op, and the solver decides.
    """

    def __init__(
        self,
        program: Program,
        mesh: AtomMesh,
        values: Mapping[int, TensorSharding],
        rule: Conflicts = Conflicts.MAJORITY,
        contested: frozenset[int] = frozenset(),
    ) -> None:
        self._program, self._mesh, self._rule, self._contested = program, mesh, rule, contested
        self._specs = {v: to_spec(s, mesh.mesh, 0) for v, s in values.items()}
        self._known: dict[object, tuple[Factors, frozenset[int]]] = {}

    def of(self, op: Op) -> tuple[Factors, frozenset[int]]:
        """(atoms per factor of the op, atoms that the solver may put anywhere)."""
        assert op.rule is not None
        tensors = (*op.operands, *op.results)
        specs = tuple(self._specs.get(v) for v in tensors)
        sizes = tuple(self._program.type_of(v).bytes if v < len(self._program.values) else 0 for v in tensors)
        key = (op.rule, specs, sizes)
        if key not in self._known:
            self._known[key] = self._decide(op.rule, specs, sizes)
        return self._known[key]

    def _decide(
        self, rule: ShardingRule, specs: Sequence[Spec | None], sizes: Sequence[float]
    ) -> tuple[Factors, frozenset[int]]:
        having = [0] * len(rule.factor_sizes)
        orders: Factors = [[] for _ in rule.factor_sizes]
        claims: list[_Claim] = []
        for tensor, (mapping, spec) in enumerate(zip((*rule.operands, *rule.results), specs, strict=True)):
            if spec is None:
                continue
            for factor, sharding in project(mapping, spec, rule.factor_sizes).factors.items():
                having[factor] += 1
                atoms = atoms_of(self._mesh, (axis_ref(r, self._mesh.mesh) for r in sharding.axes))
                orders[factor] += [a for a in atoms if a not in orders[factor]]
                claims += [_Claim(a, factor, tensor) for a in atoms]
        chosen = self._choose(rule, having, claims, sizes)
        placed = [[a for a in order if chosen.get(a) == f] for f, order in enumerate(orders)]
        if self._rule in (Conflicts.COST, Conflicts.MAJORITY):
            return placed, frozenset(c.atom for c in claims) - frozenset(chosen)
        return placed, frozenset()

    def _choose(
        self, rule: ShardingRule, having: Sequence[int], claims: Sequence[_Claim], sizes: Sequence[float]
    ) -> dict[int, int]:
        """Atom -> its factor."""
        votes: dict[tuple[int, int], int] = {}
        for claim in claims:
            votes[claim.atom, claim.factor] = votes.get((claim.atom, claim.factor), 0) + 1
        factors_of: dict[int, list[int]] = {}
        for atom, factor in sorted(votes):
            factors_of.setdefault(atom, []).append(factor)
        chosen: dict[int, int] = {}
        for atom, factors in sorted(factors_of.items()):
            fits = [f for f in factors if f in rule.shardable]
            agreed = len(factors) == 1 and votes[atom, factors[0]] == having[factors[0]]
            if fits and (agreed or self._rule is Conflicts.FIRST_FACTOR):
                chosen[atom] = fits[0]
            elif fits and self._rule is Conflicts.BIGGEST_TENSOR:
                best = max(
                    (c for c in claims if c.atom == atom and c.factor in fits),
                    key=lambda c: (sizes[c.tensor], -c.tensor),
                )
                chosen[atom] = best.factor
            elif fits and self._rule is Conflicts.BATCH_FIRST:
                chosen[atom] = min(fits, key=lambda f: (_rank(rule, f), f))
            elif fits and self._rule is Conflicts.MAJORITY:
                won = [f for f in fits if 2 * votes[atom, f] > having[f]]
                if won and not (atom in self._contested and len(factors) > 1):
                    chosen[atom] = max(won, key=lambda f: (votes[atom, f] / having[f], -f))
        return chosen


def _rank(rule: ShardingRule, factor: int) -> int:
    """Preference of a factor: 0 where it is in every tensor that has dimensions, 1 in some, 2 where it is summed
    over.
    """
    if factor in rule.reduction:
        return 2
    tensors = [t for t in (*rule.operands, *rule.results) if any(t)]
    return int(not all(any(factor in dim for dim in tensor) for tensor in tensors))


def atoms_of(mesh: AtomMesh, axes: "Sequence[AxisRef] | object") -> list[int]:
    """Atoms of axes, major to minor, up to the first axis that is finer than the atoms of this program."""
    atoms: list[int] = []
    for axis in axes:  # type: ignore[union-attr]
        try:
            atoms += [a for a in mesh.atoms_for(axis) if mesh.sizes[a] > 1]
        except ShardingError:
            break
    return atoms


# -- the states that are left ---------------------------------------------------------------------------

Wanted = Callable[[int], np.ndarray | None]
"""Index of a node of the whole network -> the states to keep, as positions among its encoded ones; None for all."""


def allowed_states(model: Model, wanted: Wanted) -> list[np.ndarray]:
    """Per node of the model's network, the wanted states; of repeated layers, those of the first one."""
    classes: list[np.ndarray | None] = [None] * model.repeats.network.n_nodes
    for index in range(len(model.collected.nodes)):
        cls = int(model.repeats.class_of[index])
        states = wanted(index)
        keep = np.arange(len(model.encoded.states[index])) if states is None else states
        held = classes[cls]
        both = keep if held is None else np.intersect1d(held, keep)
        classes[cls] = both if held is None or len(both) else held
    return [c if c is not None else np.zeros(0, np.int64) for c in classes]


def placed_states(model: Model, index: int, wanted: Factors, open_atoms: frozenset[int]) -> np.ndarray:
    """States of an op with these atoms on its factors, and open atoms anywhere; atoms that no state has so are
    dropped. A sum of gradients may pass partial sums on in the place of its atoms: they are added before they are
    scattered, as XLA does it.
    """
    node = model.collected.nodes[index]
    space = node.space
    assert space is not None and node.op is not None
    adds = model.problem.program.ops[node.op].kind == _SUM_OF_GRADIENTS
    kept = {int(s): k for k, s in enumerate(model.encoded.states[index])}
    wanted = [list(atoms) for atoms in wanted]
    while True:
        if open_atoms:
            goal = tuple(map(tuple, wanted))
            states = [
                s
                for factors, of in space.by_factors.items()
                if tuple(tuple(a for a in f if a not in open_atoms) for f in factors) == goal
                for s in of
            ]
        else:
            states = space.by_factors.get(tuple(map(tuple, wanted)), [])
            if adds and any(s in kept for s in states):
                states = [*states, *_passing_on(space, wanted)]
        states_left = sorted(kept[s] for s in states if s in kept)
        if states_left or not any(wanted):
            return np.array(states_left, np.int64)
        longest = max(range(len(wanted)), key=lambda f: (len(wanted[f]), f))
        wanted[longest].pop()


def _passing_on(space: OpSpace, wanted: Factors) -> list[int]:
    """Placements that pass partial sums over some of the wanted atoms on, and have the others where they are wanted."""
    atoms, found = {a for on in wanted for a in on}, []
    for state, placement in enumerate(space.placements):
        passed = {a for a, _ in placement.passes} & atoms
        if passed and placement.factors == tuple(tuple(a for a in on if a not in passed) for on in wanted):
            found.append(state)
    return found


def stored_states(model: Model, index: int, sharding: TensorSharding) -> np.ndarray | None:
    """States of a node that is no op whose layout is this sharding, or shares as much of it as any state does.

    None where statements leave none of them; then all states that statements leave count.
    """
    node, mesh = model.collected.nodes[index], model.problem.mesh
    wanted = [atoms_of(mesh, dim.axes) for dim in sharding.dims]
    kept = model.encoded.states[index].tolist()
    while True:
        goal = tuple(map(tuple, wanted))
        states = [
            k
            for k, s in enumerate(kept)
            if node.layouts[s].dims == goal and (node.kind is NodeKind.BOUNDARY or not node.layouts[s].unreduced)
        ]
        if states:
            return np.array(states, np.int64)
        if not any(wanted):
            return None
        longest = max(range(len(wanted)), key=lambda d: (len(wanted[d]), d))
        wanted[longest].pop()
