"""A lower bound on the memory of every plan under some statements, for every moment of the program.

Each decision counts with the least that any of its states holds at that moment, whatever the others hold; so no plan
needs less than the sum. Copies that one op alone makes are left out.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

import numpy as np

from autoshard.costs.liveness import Liveness
from autoshard.costs.memory import place_of
from autoshard.formulation.loose import Loose, Masks
from autoshard.formulation.model import Node, NodeKind
from autoshard.program.program import Origin, Program


@dataclass(frozen=True, slots=True)
class Tensor:
    """The least that one decision holds at a moment: name, bytes, and the layout with so few bytes.

    kept: the tensor was made before that moment and is read after it, so computing it again would make room.
    """

    name: str
    bytes: int
    layout: str
    kept: bool

    def to_dict(self) -> dict[str, object]:
        """The tensor as plain data, for the facts of an error."""
        return {"name": self.name, "bytes": self.bytes, "layout": self.layout, "kept_for_later": self.kept}


@dataclass(frozen=True, slots=True)
class Least:
    """A bound on the peak.

    bytes: no plan has a lower peak. time, where: the moment at which so much is held, and the op that runs then.
    """

    bytes: int
    time: int
    where: str


class LeastMemory:
    """Bounds on the peak under subsets of statements, which are masks over the states of nodes (see
    `formulation.loose`).
    """

    def __init__(self, loose: Loose, liveness: Liveness) -> None:
        self.loose, self.liveness = loose, liveness
        self.program: Program = loose.program
        self._end = max((stop for n in loose.collected.nodes for _, stop, _ in n.usages), default=1) + 1
        self._free = np.zeros(self._end + 1, np.int64)
        for node in loose.collected.nodes:
            self._add(self._free, node, None, 1)

    def _add(self, delta: np.ndarray, node: Node, mask: np.ndarray | None, sign: int) -> None:
        for start, stop, amounts in node.usages:
            if start < stop:
                left = amounts if mask is None else amounts[mask]
                least = int(np.ceil(left.min())) if len(left) else 0
                delta[start] += sign * least
                delta[stop] -= sign * least

    def _delta(self, masks: Masks) -> np.ndarray:
        delta = self._free.copy()
        for index, mask in masks.items():
            node = self.loose.collected.nodes[index]
            if node.usages:
                self._add(delta, node, None, -1)
                self._add(delta, node, mask, 1)
        return delta

    def recomputed(self, masks: Masks, limit: int) -> tuple[list[Tensor], int]:
        """Values that need not be kept between where they are made (or first read) and where they are read for the
        last time.

        The largest one at the fullest moment is given up, again and again, until the bound is within `limit` or no
        value is left. Returns them, largest first, and the bound without them.
        """
        delta = self._delta(masks)
        chosen: dict[int, Tensor] = {}
        while True:
            live = np.cumsum(delta)
            time = int(np.argmax(live))
            peak = int(live[time])
            if peak <= limit:
                break
            spans = self._kept_spans(masks, time, chosen)
            if sum(bytes_ for _, _, bytes_ in spans.values()) < peak - limit:
                break
            index = max(spans, key=lambda k: (spans[k][2], -k))
            start, stop, bytes_ = spans[index]
            delta[start] -= bytes_
            delta[stop] += bytes_
            node = self.loose.collected.nodes[index]
            left = np.flatnonzero(masks[index]) if index in masks else np.arange(node.states)
            chosen[index] = Tensor(*self._told(node, int(left[0]), bytes_), True)
        return sorted(chosen.values(), key=lambda t: (-t.bytes, t.name)), peak

    def _kept_spans(self, masks: Masks, time: int, chosen: Collection[int]) -> dict[int, tuple[int, int, int]]:
        """Node -> (start, stop, least bytes) of values that are held at a moment only for later reads."""
        out: dict[int, tuple[int, int, int]] = {}
        for index, node in enumerate(self.loose.collected.nodes):
            span = None if index in chosen else self._span(node, time)
            if span is None:
                continue
            for start, stop, amounts in node.usages:
                if start <= time < stop:
                    left = amounts[masks[index]] if index in masks else amounts
                    bytes_ = int(np.ceil(left.min())) if len(left) else 0
                    begin, end = max(start, span[0]), min(stop, span[1])
                    if bytes_ and begin <= time < end:
                        out[index] = (begin, end, bytes_)
        return out

    def _span(self, node: Node, time: int) -> tuple[int, int] | None:
        """The time around a moment in which no op reads or makes the value of a node."""
        if not self._kept(node, time):
            return None
        for value in self._values(node):
            made, (first, last) = self.liveness.made.get(value, -1), self.liveness.reads.get(value, (-1, -1))
            if made < time < first:
                return made + 1, first
            if first < time < last:
                return first + 1, last
        return None

    def under(self, masks: Masks) -> Least:
        """The bound where only the states of these masks are left."""
        live = np.cumsum(self._delta(masks))
        time = int(np.argmax(live))
        return Least(int(live[time]), time, place_of(self.program, self.liveness, time))

    def there(self, masks: Masks, time: int) -> list[Tensor]:
        """The tensors held at a moment, largest first, each in a layout that holds the least."""
        tensors: list[Tensor] = []
        for index, node in enumerate(self.loose.collected.nodes):
            amounts = np.zeros(node.states)
            for start, stop, held in node.usages:
                if start <= time < stop:
                    amounts = amounts + held
            left = np.flatnonzero(masks[index]) if index in masks else np.arange(node.states)
            if not len(left):
                continue
            lightest = left[amounts[left] == amounts[left].min()]
            state = min(lightest.tolist(), key=lambda state, node=node: self._own_elements(node, state))
            least = int(np.ceil(amounts[state]))
            if least:
                tensors.append(Tensor(*self._told(node, state, least), self._kept(node, time)))
        return sorted(tensors, key=lambda t: (-t.bytes, t.name))

    def _own_elements(self, node: Node, state: int) -> int:
        """Of what a node decides in a state, how much a device has before anything moves: a partial sum is held as what
        becomes of it, so that its state may hold as little as that of its parts.
        """
        layouts = [node.layouts[state]] if node.space is None else [lays[state] for lays in node.space.result_layouts]
        shapes = [self.program.type_of(value).shape for value in self._values(node)]
        return sum(prod(lay.local_shape(shape, self.loose.mesh)) for lay, shape in zip(layouts, shapes, strict=False))

    def _told(self, node: Node, state: int, least: int) -> tuple[str, int, str]:
        mesh = self.loose.mesh
        if node.op is not None and node.space is not None:
            results = self.program.ops[node.op].results
            names = ", ".join(self.program.values[v].name for v in results)
            return names, least, ", ".join(lays[state].text(mesh) for lays in node.space.result_layouts)
        name = node.label if node.value is None else self.program.values[node.value].name
        return name, least, node.layouts[state].text(mesh)

    def _values(self, node: Node) -> tuple[int, ...]:
        if node.op is not None:
            return self.program.ops[node.op].results
        return () if node.value is None else (node.value,)

    def _kept(self, node: Node, time: int) -> bool:
        if node.kind is NodeKind.INPUT:
            return False
        for value in self._values(node):
            made = self.liveness.made.get(value)
            read = self.liveness.reads.get(value)
            if made is not None and read is not None and made < time < read[1]:
                return self.program.values[value].origin is not Origin.INPUT
        return False
