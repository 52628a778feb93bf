"""Prices of single steps of reshards: seconds of one collective or local copy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from autoshard.costmodels.compiled import WorkKind
from autoshard.costmodels.machine import AxisPart, Machine
from autoshard.costs.copied import copies_of_inputs
from autoshard.costs.fusion import Fusion
from autoshard.costs.kinds import work_kinds
from autoshard.costs.through import read_through
from autoshard.costs.tiles import scatters_tiles
from autoshard.costs.travel import Travel, Travels
from autoshard.program.program import Op, Program
from autoshard.program.types import TensorType, dtype_bytes
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Step, StepKind

_LOCAL = (StepKind.SLICE, StepKind.MASK)


@dataclass
class StepPrices:
    """Seconds of steps on one machine and mesh; remembers the two constants of each collective group.

    A collective costs ``alpha + beta * V``, where V is the bytes of the whole array as seen inside one group
    (see `autoshard.costmodels`). Slices and masks read and write their local result once.
    """

    machine: Machine
    mesh: AtomMesh
    _constants: dict[tuple[str, tuple[int, ...]], tuple[float, float]] = field(default_factory=dict)
    _links: dict[tuple[str, tuple[int, ...]], dict[str, float]] = field(default_factory=dict)
    _kinds: tuple[Program, Mapping[int, WorkKind]] | None = None  # of the ops of a program
    _travels: Travels | None = None  # of the values of a program
    _updated: tuple[Program, frozenset[int]] | None = None  # values of a program that are written in place
    _copied: tuple[Program, Mapping[int, float]] | None = None  # of inputs that a program writes in part
    _through: tuple[Program, Fusion, Mapping[int, float]] | None = None  # of values of a program that matmuls take
    _bodies: dict[tuple[int, int], tuple[Op, float]] = field(default_factory=dict)

    def of_body(self, op: Op, trips: int, work_out: Callable[[], float]) -> float:
        """Seconds of the body of a user's `shard_map`, which no placement changes: worked out once for each op."""
        known = self._bodies.get((id(op), trips))
        if known is None or known[0] is not op:
            known = self._bodies[id(op), trips] = (op, work_out())
        return known[1]

    def kind_of(self, op: Op, program: Program) -> WorkKind:
        """What an op does, as far as the machine's prices tell kinds of work apart."""
        if self.machine.profile.compiled_work is None:
            return WorkKind.KERNEL  # they do not
        if self._kinds is None or self._kinds[0] is not program:
            self._kinds = (program, work_kinds(program))
        return self._kinds[1][op.id]

    def updated(self, program: Program) -> frozenset[int]:
        """Values that are an array of which a part was written."""
        if self._updated is None or self._updated[0] is not program:
            made = (op.results for op, _ in program.walk() if op.kind == "dynamic_update_slice")
            self._updated = (program, frozenset(v for results in made for v in results))
        return self._updated[1]

    def copied(self, program: Program) -> Mapping[int, float]:
        """Op -> the copies of an input for which an execution of it stands (`costs.copied`)."""
        if self._copied is None or self._copied[0] is not program:
            self._copied = (program, copies_of_inputs(program))
        return self._copied[1]

    def through(self, program: Program, fusion: Fusion) -> Mapping[int, float]:
        """Value that is not in memory -> bytes that are read for an element of it (`costs.through`); empty where prices
        do not tell matmuls apart from what fuses with them.
        """
        if self.machine.profile.compiled_work is None:
            return {}
        if self._through is None or self._through[0] is not program or self._through[1] is not fusion:
            self._through = (program, fusion, read_through(program, fusion))
        return self._through[2]

    def travel(self, value: int, op: int, program: Program, as_used: bool = False) -> Travel:
        """What steps carry of a value around an op (the op's id, or `PROGRAM` for all its uses); see `Travels.of`."""
        if self._travels is None or self._travels.program is not program:
            self._travels = Travels(program, self.machine)
        return self._travels.of(value, op, as_used)

    def parts(self, atoms: Sequence[int]) -> tuple[AxisPart, ...]:
        """The (sub-)axes of a group, as the cost models take them."""
        return tuple(
            AxisPart(ref.name, ref.pre_size or 1, self.mesh.sizes[atom])
            for atom, ref in ((a, self.mesh.atoms[a]) for a in atoms)
        )

    def constants(self, kind: str, atoms: Sequence[int]) -> tuple[float, float]:
        """(alpha seconds, beta seconds per byte of the *local* operand or result named in `step_s`)."""
        key = (kind, tuple(sorted(atoms)))
        if key not in self._constants:
            if kind in _LOCAL:
                self._constants[key] = (0.0, float(self.machine.compute_s(0.0, 2.0, "float32", "vector")))
            else:
                alpha, beta = self.machine.alpha_beta(kind, self.parts(key[1]))
                if kind == StepKind.ALL_TO_ALL:  # V is n times what one device holds
                    beta *= self.mesh.size(atoms)
                self._constants[key] = (float(alpha), float(beta))
        return self._constants[key]

    def link_seconds(self, kind: str, atoms: Sequence[int]) -> dict[str, float]:
        """Seconds that each link works per byte of the *local* operand or result named in `step_s`; none locally."""
        if kind in _LOCAL:
            return {}
        key = (kind, tuple(sorted(atoms)))
        if key not in self._links:
            whole = self.mesh.size(atoms) if kind == StepKind.ALL_TO_ALL else 1
            busy = self.machine.link_seconds(kind, self.parts(key[1]))
            self._links[key] = {link: per_byte * whole for link, per_byte in busy.items()}
        return self._links[key]

    @property
    def scatters_tiles(self) -> bool:
        """Whether the machine's compiler scatters whole tiles only (`tiles`)."""
        compiled = self.machine.profile.compiled_work
        return compiled is not None and compiled.scatters_tiles

    @property
    def pads_channels(self) -> bool:
        """Whether convolutions of the machine's compiler fill channels up to whole tiles (`channels`)."""
        compiled = self.machine.profile.compiled_work
        return compiled is not None and compiled.pads_channels

    def compiled(self, step: Step, type_: TensorType, after: Layout) -> StepKind:
        """The collective that a step of a reshard is compiled to, given the layout that it leads to."""
        if step.kind is not StepKind.REDUCE_SCATTER or not self.scatters_tiles:
            return step.kind
        part = np.array([after.local_shape(type_.shape, self.mesh)])
        kept = scatters_tiles(part, np.array([step.dim]), dtype_bytes(type_.dtype))[0]
        return StepKind.REDUCE_SCATTER if kept else StepKind.ALL_REDUCE

    def step_s(
        self, kind: str, atoms: Sequence[int], before_bytes: float, after_bytes: float, latency: float = 1.0
    ) -> float:
        """Seconds of one step, given the local bytes before and after it. latency: the share of it that counts."""
        alpha, beta = self.constants(kind, atoms)
        return alpha * latency + beta * float(step_bytes(kind, before_bytes, after_bytes, self.mesh.size(atoms)))


def step_bytes(kind: str, before: ArrayLike, after: ArrayLike, devices: ArrayLike) -> np.ndarray:
    """The local bytes that a step's price is proportional to: those on its larger, gathered side, with what fills
    blocks of a dimension that the axes do not divide.

    before, after: local bytes; for an all-to-all before is what a device gives to it (`given_bytes`). devices: how many
    a group of the step has.
    """
    if kind in (StepKind.SLICE, StepKind.MASK):
        return np.asarray(after)
    if kind == StepKind.ALL_GATHER:
        return np.multiply(before, devices)
    if kind == StepKind.REDUCE_SCATTER:
        return np.maximum(before, np.multiply(after, devices))
    return np.maximum(before, after) if kind == StepKind.ALL_TO_ALL else np.asarray(before)


def given_bytes(before: ArrayLike, whole: ArrayLike, piece: ArrayLike, devices: ArrayLike) -> np.ndarray:
    """The local bytes that a device gives to an all-to-all, with what fills the dimension that it splits.

    before: local bytes before it. whole, piece: local elements of that dimension before and after it. devices: of a
    group, each of which takes a piece.

    >>> int(given_bytes(32.0, 8, 3, 3))  # 8 rows of 4 bytes, for three devices
    36
    """
    return np.multiply(before, np.multiply(piece, devices)) / np.maximum(whole, 1)
