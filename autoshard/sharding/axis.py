"""References to mesh axes and sub-axes, ``"x"`` and ``"x":(m)k`` (S0.15 to S0.19)."""

import re
from dataclasses import dataclass

from autoshard.errors import ShardingError

MOST_DIGITS = 18
"""Longer numbers are not read: no mesh has so many devices, and Python refuses numbers of thousands of digits."""
_TEXT = re.compile(r'^"?(?P<name>[^":]+)"?(?::\((?P<pre>\d+)\)(?P<size>\d+))?$')


@dataclass(frozen=True, slots=True)
class AxisRef:
    """A whole mesh axis, or the sub-axis of `size` behind `pre_size` of it.

    An axis of size n is seen as reshaped to ``[pre_size, size, n / (pre_size * size)]``; the
    sub-axis is the middle dimension (S0.15). A whole axis has `pre_size` and `size` None.

    >>> str(AxisRef("x")), str(AxisRef("x", 2, 4))
    ('"x"', '"x":(2)4')
    """

    name: str
    pre_size: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if (self.pre_size is None) != (self.size is None):
            raise ShardingError(f"axis {self.name!r}: give both pre-size and size of a sub-axis, or neither")
        if self.pre_size is not None and self.size is not None:
            if self.pre_size < 1:
                raise ShardingError(f"sub-axis {self}: pre-size must be at least 1")
            if self.size <= 1:
                raise ShardingError(f"sub-axis {self}: size must be greater than 1")

    @property
    def is_sub_axis(self) -> bool:
        """Whether this is a part of an axis; False for a whole axis."""
        return self.pre_size is not None

    def __str__(self) -> str:
        if self.pre_size is None:
            return f'"{self.name}"'
        return f'"{self.name}":({self.pre_size}){self.size}'

    @staticmethod
    def from_text(text: str) -> "AxisRef":
        """Parse ``"x"`` or ``"x":(m)k``; the quotes may be missing.

        >>> AxisRef.from_text('"y":(1)2')
        AxisRef(name='y', pre_size=1, size=2)
        """
        match = _TEXT.match(text.strip())
        if match is None:
            raise ShardingError(f'cannot read axis {text!r}; write "x" or "x":(pre_size)size')
        if match["pre"] is None:
            return AxisRef(match["name"])
        return AxisRef(match["name"], whole_number(match["pre"]), whole_number(match["size"]))


def whole_number(text: str) -> int:
    """The number that digits make, in the text of shardings; `ShardingError` for more than `MOST_DIGITS`.

    >>> whole_number("16"), whole_number("-2")
    (16, -2)
    """
    if len(text) > MOST_DIGITS:
        raise ShardingError(f"{text[:MOST_DIGITS]}... is a number of {len(text)} digits; no mesh has so many devices")
    return int(text)
