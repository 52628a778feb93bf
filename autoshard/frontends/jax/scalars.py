"""Scalars that follow from numbers written in the program, as compilers work them out before anything else."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autoshard.frontends.draft import DraftValue, Scalar

_EXACT: Mapping[str, Callable[..., Any]] = {
    "and": operator.and_, "or": operator.or_, "min": min, "max": max,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "clamp": lambda low, x, high: min(max(x, low), high),
}  # fmt: skip
"""Primitives of booleans and integers whose results are no wider than their operands."""


def known_scalar(kind: str, operands: Sequence[DraftValue], dtype: str) -> Scalar | None:
    """What a primitive gives whose operands are all scalars written in the program; None where that is not known.

    Only where it is exact: comparisons, choices and conversions of booleans and integers. dtype: of the result.
    """
    numbers = [v.literal for v in operands]
    if not all(isinstance(n, bool | int) for n in numbers) or not dtype.startswith(("bool", "int", "uint")):
        return None
    if kind in _EXACT:
        return _EXACT[kind](*numbers)
    if kind == "not" and dtype == "bool":
        return not numbers[0]
    if kind == "convert_element_type" and (operands[0].type.dtype == "bool" or dtype == "bool"):
        return bool(numbers[0]) if dtype == "bool" else int(numbers[0])  # type: ignore[arg-type]
    return None
