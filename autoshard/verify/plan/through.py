"""What matmuls read of arrays that other ops, fused into their operands, are made of."""

from collections.abc import Collection
from typing import Final

from autoshard.costmodels.compiled import WorkKind
from autoshard.verify.plan.placed import Placed
from autoshard.verify.plan.program import Graph, Node, element_bytes
from autoshard.verify.plan.work import block_elements, local_sizes

READING: Final = ("matmul", "sliced", "updated", "spilled", "cached")
_INDEXED: Final = ("slice", "dynamic_slice", "gather")


class Reads:
    """Of one program."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._maker = {v: op for op in graph.nodes.values() if not op.regions for v in op.results}
        self._behind: dict[int, set[int]] = {}

    def bytes(self, op: Node, placed: Placed, kind: WorkKind, exists: Collection[int]) -> float:
        """Bytes that an op of a kind of work reads on one device for operands that are not in memory. exists: values
        that are.
        """
        if kind.value not in READING:
            return 0.0
        sizes, total = local_sizes(placed.rule, placed), 0.0
        for value, factors in dict(zip(op.operands, placed.rule.operands, strict=False)).items():
            if value in exists:
                continue
            total += block_elements(factors, sizes) * sum(
                element_bytes(self.graph.values[v].dtype) for v in self._sources(value, exists)
            )
        return total

    def _sources(self, value: int, exists: Collection[int]) -> set[int]:
        """Arrays in memory that an element of a value is computed from, each by one of its elements."""
        found: set[int] = set()
        seen, waiting = {value}, [value]
        while waiting:
            for v in self._before(waiting.pop()):
                if v in exists:
                    found.add(v)
                elif v not in seen:
                    seen.add(v)
                    waiting.append(v)
        return found

    def _before(self, value: int) -> set[int]:
        if value not in self._behind:
            op, values = self._maker.get(value), self.graph.values
            if op is None:
                read = []
            elif op.kind in _INDEXED:
                read = op.operands[:1]
            else:
                read = [v for v in op.operands if values[v].elements == values[value].elements]
            self._behind[value] = set(read)
        return self._behind[value]
