"""Which ops convert a value to a smaller type as they take it, and what share of its bytes that leaves."""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final

from autoshard.program.program import Block, Op, Program
from autoshard.program.schedule import Schedule
from autoshard.program.types import dtype_bytes

_UNIT_TAKES: Final = "bfloat16"
"""What the matrix unit takes float32 operands as, unless an op asks for their full precision."""


class Conversions:
    """Conversions of the values of a program as compilers for TPUs make them.

    readers: value -> the ops that read it, each once. handed: values that the program or a region of it hands back.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.readers: dict[int, list[Op]] = {}
        self.handed: set[int] = set()
        self._enter(program.body)

    def _enter(self, block: Block) -> None:
        self.handed.update(block.results)
        for op in block.ops:
            for value in dict.fromkeys(op.operands):
                self.readers.setdefault(value, []).append(op)
            for region in op.regions:
                self._enter(region)

    def converting(self, value: int) -> frozenset[int]:
        """The ops that convert a value to a smaller type as they take it, where several do and something else takes it
        as it is; else none. The compiler gathers it once for these, converted, and the rest reads what it was made of.
        """
        own, uses = dtype_bytes(self.program.type_of(value).dtype), self.readers.get(value, ())
        those = frozenset(op.id for op in uses if self._used_bytes(value, op) < own)
        whole = value in self.handed or len(those) < len(uses)
        return those if len(those) > 1 and whole else frozenset()

    def share(self, value: int, ops: Iterable[Op]) -> float:
        """The share of a value's bytes that is left as these ops take it; all of them where there are none."""
        own = dtype_bytes(self.program.type_of(value).dtype)
        return max((self._used_bytes(value, op) for op in ops), default=own) / max(own, 1e-9)

    def _used_bytes(self, value: int, op: Op, deep: bool = True) -> float:
        """Bytes of an element as an op takes it."""
        dtype = self.program.type_of(value).dtype
        own = dtype_bytes(dtype)
        if op.kind in ("dot_general", "conv_general_dilated") and dtype == "float32":
            return own if op.attrs.get("full_precision") else dtype_bytes(_UNIT_TAKES)
        if op.kind == "convert_element_type":
            return min(own, dtype_bytes(self.program.type_of(op.results[0]).dtype))
        if deep and op.kind == "gather" and op.operands[0] == value and op.results[0] not in self.handed:
            later = self.readers.get(op.results[0], ())
            return max((self._used_bytes(op.results[0], o, deep=False) for o in later), default=own)
        return own


def narrowed(program: Program) -> Mapping[int, float]:
    """Value -> the share of its bytes as several ops take it that convert it, beside others that do not."""
    conversions = Conversions(program)
    return {
        value: conversions.share(value, (op for op in readers if op.id in those))
        for value, readers in conversions.readers.items()
        if (those := conversions.converting(value))
    }


def narrowed_bytes(size_bytes: float, share: float) -> int:
    """Bytes of an array of which a share is left."""
    return ceil(size_bytes * share)


def share_of_form(schedule: Schedule, value: int, shares: Mapping[int, float]) -> float:
    """The share of its bytes that the form which uses of a value share has: it may be gathered as they take it."""
    return shares.get(value, 1.0) if value in schedule.as_used else 1.0


__all__ = ["Conversions", "narrowed", "narrowed_bytes", "share_of_form"]
