"""Steps that change a layout: what they do to it, and what one device holds before and after.

A reshard is a sequence of steps. The planner prices steps, the lowering emits exactly one
collective for each step that is one, and the verifier replays them; this file is their meaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from autoshard.sharding.layout import AtomMesh, Layout


class StepKind(StrEnum):
    """What a step does to a layout."""

    SLICE = "slice"  # local: cut `dim` by atoms (appended at its minor end); each device keeps its block
    MASK = "mask"  # local: replicated -> unreduced over atoms (device 0 of the group keeps it, others hold zeros)
    ALL_GATHER = "all_gather"  # atoms leave the minor end of `dim`
    ALL_REDUCE = "all_reduce"  # atoms leave `unreduced`
    REDUCE_SCATTER = "reduce_scatter"  # atoms leave `unreduced` and are appended at the minor end of `dim`
    ALL_TO_ALL = "all_to_all"  # atoms leave the minor end of `dim` and are appended at the minor end of `to_dim`
    PERMUTE = "permute"  # the atoms of `dim` take the order `atoms` (a permutation of those present)


COLLECTIVES = frozenset(
    {
        StepKind.ALL_GATHER,
        StepKind.ALL_REDUCE,
        StepKind.REDUCE_SCATTER,
        StepKind.ALL_TO_ALL,
        StepKind.PERMUTE,
    }
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a reshard.

    atoms: those that the step moves, major to minor. dim, to_dim: dimensions of the tensor, -1 where the kind has none.
    """

    kind: StepKind
    atoms: tuple[int, ...]
    dim: int = -1
    to_dim: int = -1

    @property
    def is_collective(self) -> bool:
        """Whether devices exchange data in this step; False for the local steps `SLICE` and `MASK`."""
        return self.kind in COLLECTIVES

    def apply(self, layout: Layout) -> Layout:
        """The layout after this step; `ValueError` where the step does not fit the layout."""
        dims = [list(d) for d in layout.dims]
        unreduced = set(layout.unreduced)
        used = {a for d in dims for a in d} | unreduced
        atoms = list(self.atoms)
        n = len(atoms)
        if n == 0 or len(set(atoms)) != n:
            raise ValueError(f"{self} names no atom, or one twice")
        match self.kind:
            case StepKind.SLICE:
                if used & set(atoms):
                    raise ValueError(f"{self} slices over atoms already used in {layout}")
                dims[self.dim] += atoms
            case StepKind.MASK:
                if used & set(atoms):
                    raise ValueError(f"{self} masks over atoms already used in {layout}")
                unreduced |= set(atoms)
            case StepKind.ALL_GATHER:
                if dims[self.dim][-n:] != atoms:
                    raise ValueError(
                        f"{self} gathers atoms that are not the minor end of dimension {self.dim} in {layout}"
                    )
                del dims[self.dim][-n:]
            case StepKind.ALL_REDUCE:
                if not set(atoms) <= unreduced:
                    raise ValueError(f"{self} reduces atoms that are not unreduced in {layout}")
                unreduced -= set(atoms)
            case StepKind.REDUCE_SCATTER:
                if not set(atoms) <= unreduced:
                    raise ValueError(f"{self} reduces atoms that are not unreduced in {layout}")
                unreduced -= set(atoms)
                dims[self.dim] += atoms
            case StepKind.ALL_TO_ALL:
                if self.dim == self.to_dim or dims[self.dim][-n:] != atoms:
                    raise ValueError(
                        f"{self} moves atoms that are not the minor end of dimension {self.dim} in {layout}"
                    )
                del dims[self.dim][-n:]
                dims[self.to_dim] += atoms
            case StepKind.PERMUTE:
                if sorted(dims[self.dim]) != sorted(atoms) or dims[self.dim] == atoms:
                    raise ValueError(f"{self} does not permute the atoms of dimension {self.dim} in {layout}")
                dims[self.dim] = atoms
        return Layout(tuple(tuple(d) for d in dims), tuple(sorted(unreduced)))

    def text(self, mesh: AtomMesh) -> str:
        """The step with the names of its axes: ``all_to_all("x") dim 0 -> 1``."""
        where = "" if self.dim < 0 else f" dim {self.dim}" + ("" if self.to_dim < 0 else f" -> {self.to_dim}")
        return f"{self.kind.value}({mesh.axes_text(self.atoms)}){where}"


@dataclass(frozen=True, slots=True)
class Reshard:
    """A sequence of steps from `source` to `target`; no steps where they are equal."""

    source: Layout
    target: Layout
    steps: tuple[Step, ...] = ()

    @staticmethod
    def identity(layout: Layout) -> "Reshard":
        """The reshard that leaves a layout as it is."""
        return Reshard(layout, layout)

    def check(self) -> None:
        """Replay the steps; `ValueError` unless they lead from `source` to `target`."""
        if replay(self.source, self.steps) != self.target:
            raise ValueError(f"steps {self.steps} lead from {self.source} to elsewhere than {self.target}")


def sliced(source: Layout, target: Layout) -> Reshard:
    """The reshard to a layout with more minor atoms on some dimensions: one slice for each of these dimensions.

    >>> sliced(Layout(((0,), ())), Layout(((0, 1), (2,)))).steps[0].atoms
    (1,)
    """
    dims = enumerate(zip(source.dims, target.dims, strict=True))
    steps = (Step(StepKind.SLICE, more[len(have) :], dim) for dim, (have, more) in dims if len(more) > len(have))
    return Reshard(source, target, tuple(steps))


def replay(layout: Layout, steps: Sequence[Step]) -> Layout:
    """The layout after all steps; `ValueError` where one of them does not fit the layout before it."""
    for step in steps:
        layout = step.apply(layout)
    return layout
