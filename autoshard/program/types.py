"""Tensor types: shape and dtype, and the bytes of one element."""

import re
from dataclasses import dataclass
from math import prod

from autoshard.errors import InputError

_BITS = re.compile(r"(\d+)")


def dtype_bytes(dtype: str) -> float:
    """Bytes of one element; half a byte for 4-bit types.

    >>> dtype_bytes("bfloat16"), dtype_bytes("int4"), dtype_bytes("bool")
    (2.0, 0.5, 1.0)
    """
    if dtype == "bool":
        return 1.0
    if dtype.startswith("key<"):
        return 16.0 if "rbg" in dtype else 8.0
    if dtype == "float0":
        return 0.0
    match = _BITS.search(dtype)
    if match is None:
        raise InputError(f"unknown element type {dtype!r}")
    return int(match[1]) / 8


@dataclass(frozen=True, slots=True)
class TensorType:
    """A shape and the name of a dtype, as numpy and ml_dtypes spell it (``bfloat16``, ``key<fry>``)."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements of the whole tensor; 1 for a scalar."""
        return prod(self.shape)

    @property
    def bytes(self) -> float:
        """Bytes of the whole tensor; 4-bit types count half a byte per element."""
        return self.elements * dtype_bytes(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"
