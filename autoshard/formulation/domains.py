"""Which layouts a value may be stored or shared in, and which of them a statement leaves."""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from autoshard.placements.space import OpSpace, PartialSums, enumerate_placements, value_rule
from autoshard.placements.uneven import may_pad
from autoshard.program.rule import ShardingRule
from autoshard.program.types import TensorType
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.tensor_sharding import TensorSharding, satisfies


class Domains:
    """Layouts of values and placements of ops, remembered by type and rule.

    axis_orders: further orders of mesh axes within a dimension that users wrote. spaces: the memory; several `Domains`
    of the same mesh and orders may share it. apart: parts of axes that are axes of their own.
    """

    def __init__(
        self,
        mesh: AtomMesh,
        axis_orders: Sequence[Sequence[str]] = (),
        spaces: dict[object, OpSpace] | None = None,
        apart: Sequence[tuple[int, ...]] = (),
    ) -> None:
        self.mesh, self.axis_orders, self.apart = mesh, axis_orders, apart
        self._spaces: dict[object, OpSpace] = {} if spaces is None else spaces

    def space(self, rule: ShardingRule, partial: PartialSums, uneven: frozenset[int] = frozenset()) -> OpSpace:
        """The placements of ops with this rule."""
        key = (rule, partial, uneven)
        if key not in self._spaces:
            self._spaces[key] = enumerate_placements(rule, self.mesh, partial, self.axis_orders, uneven, self.apart)
        return self._spaces[key]

    def layouts(
        self, type_: TensorType, partial: frozenset[int] = frozenset(), *, padded: bool = False
    ) -> tuple[Layout, ...]:
        """All layouts in which a value of this type may be stored.

        partial: atoms over which it may be unreduced. padded: also layouts that do not divide its dimensions; arguments
        and results of a JAX program cannot be stored so.
        """
        sums = PartialSums((tuple(sorted(partial)),))
        rule = value_rule(type_.shape)
        return self.space(rule, sums, frozenset(rule.shardable) if padded else frozenset()).result_layouts[0]

    def of_input(self, type_: TensorType, pins: Sequence[TensorSharding]) -> tuple[tuple[Layout, ...], np.ndarray]:
        """Layouts of an input, and indices of those that the pins leave; uneven only along the axes of pins that are
        uneven.
        """
        layouts = self.with_stated(self.layouts(type_, padded=bool(pins)), type_, pins, padded=True)
        if not pins:
            return layouts, np.arange(len(layouts))
        left = self.evenly(layouts, self.kept(layouts, pins), type_, pins)
        if not len(left):  # all that satisfy the pins follow them with axes that cut unevenly
            layouts = (*layouts, *(x for x in self._spelled_out(type_, pins, padded=True) if x not in layouts))
            left = self.evenly(layouts, self.kept(layouts, pins), type_, pins)
        return layouts, left

    def of_output(self, type_: TensorType, pins: Sequence[TensorSharding]) -> tuple[tuple[Layout, ...], np.ndarray]:
        """Layouts of an output, and indices of those that the pins leave."""
        layouts = self.with_stated(self.layouts(type_), type_, pins)
        return layouts, self.kept(layouts, pins)

    def of_form(self, type_: TensorType, pins: Sequence[TensorSharding]) -> tuple[tuple[Layout, ...], np.ndarray]:
        """Layouts of the form that the uses of an intermediate share, and indices of those that the pins leave.

        They include partial sums where a pin states them.
        """
        sums = frozenset(a for pin in pins for ref in pin.unreduced for a in self.mesh.atoms_for(ref))
        layouts = self.with_stated(self.layouts(type_, sums, padded=True), type_, pins, padded=True, summed=True)
        return layouts, self.kept(layouts, pins)

    def kept(self, layouts: Iterable[Layout], pins: Sequence[TensorSharding]) -> np.ndarray:
        """Indices of the layouts that satisfy all pins."""
        indices = [i for i, lay in enumerate(layouts) if all(satisfies(lay, p, self.mesh) for p in pins)]
        return np.array(indices, np.int64)

    def evenly(
        self, layouts: Sequence[Layout], kept: np.ndarray, type_: TensorType, pins: Sequence[TensorSharding]
    ) -> np.ndarray:
        """Of the `kept` layouts of an input, those that are uneven only in dimensions where the axes of a pin are
        uneven too.
        """

        def stated(d: int, size: int) -> bool:
            return any(size % self.mesh.size([a for r in p.dims[d].axes for a in self.mesh.atoms_for(r)]) for p in pins)

        uneven = [d for d, size in enumerate(type_.shape) if stated(d, size)]
        shape = [1 if d in uneven else size for d, size in enumerate(type_.shape)]

        def is_even(layout: Layout) -> bool:
            dims = tuple(() if d in uneven else atoms for d, atoms in enumerate(layout.dims))
            return Layout(dims).is_even(shape, self.mesh)

        return np.array([k for k in kept.tolist() if is_even(layouts[k])], np.int64)

    def with_stated(
        self,
        layouts: tuple[Layout, ...],
        type_: TensorType,
        pins: Sequence[TensorSharding],
        *,
        padded: bool = False,
        summed: bool = False,
    ) -> tuple[Layout, ...]:
        """`layouts`, and where none of them satisfies the pins, also the layouts that the pins spell out.

        Such layouts may put the sub-axes of one axis on different dimensions. In dimensions that all pins leave open,
        unused axes may follow. summed: they may be partial sums, also over a part of an axis.
        """
        if not pins or any(all(satisfies(lay, pin, self.mesh) for pin in pins) for lay in layouts):
            return layouts
        return (*layouts, *self._spelled_out(type_, pins, padded=padded, summed=summed))

    def _spelled_out(
        self, type_: TensorType, pins: Sequence[TensorSharding], *, padded: bool, summed: bool = False
    ) -> tuple[Layout, ...]:
        """The layouts that the pins spell out, with unused axes behind them in dimensions that all pins leave open."""
        stated = self._spelled(type_.rank, pins)
        sums = {a for ref in pins[0].unreduced for a in self.mesh.atoms_for(ref)} if summed else set()
        used = {*sums, *(a for atoms in stated for a in atoms)}
        if len(used) < len(sums) + sum(map(len, stated)):
            return ()  # pins that cut two dimensions by one axis contradict each other
        unused = [atoms for atoms in self.mesh.units(self.apart) if used.isdisjoint(atoms)]
        rest = [tuple(a for a in atoms if self.mesh.sizes[a] > 1) for atoms in unused]
        free = [d for d in range(len(type_.shape)) if all(pin.dims[d].is_open for pin in pins)]
        layouts_found: dict[Layout, None] = {}
        for places in product((None, *free), repeat=len(rest)):
            dims = list(stated)
            for atoms, d in zip(rest, places, strict=True):
                if d is not None:
                    dims[d] += atoms
            layout = Layout(tuple(dims), tuple(sorted(sums)))
            if self._divides(layout, type_, padded) and all(satisfies(layout, pin, self.mesh) for pin in pins):
                layouts_found[layout] = None
        return tuple(layouts_found)

    def _spelled(self, rank: int, pins: Sequence[TensorSharding]) -> list[tuple[int, ...]]:
        """The atoms that pins put on each dimension: those of the pin that says most."""
        stated: list[tuple[int, ...]] = []
        for d in range(rank):
            said = [[a for ref in pin.dims[d].axes for a in self.mesh.atoms_for(ref)] for pin in pins]
            stated.append(tuple(a for a in max(said, key=len) if self.mesh.sizes[a] > 1))
        return stated

    def _divides(self, layout: Layout, type_: TensorType, padded: bool) -> bool:
        """Whether a layout cuts every dimension evenly, or so that it may be padded."""
        for size, atoms in zip(type_.shape, layout.dims, strict=True):
            parts = self.mesh.size(atoms)
            if size % parts and not (padded and may_pad(size, parts, self.mesh.sizes[atoms[-1]])):
                return False
        return True
