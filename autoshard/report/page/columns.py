"""Tables as columns in which each distinct text stands once, so that a page can hold tens of thousands of rows."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any


@dataclass
class Numbered:
    """Distinct items in the order in which they were first seen; a column holds their numbers."""

    items: list[Any] = field(default_factory=list)
    _known: dict[Hashable, int] = field(default_factory=dict)

    def number(self, item: Hashable) -> int:
        """The number of an item, a new one where it was not seen before.

        >>> texts = Numbered()
        >>> texts.number("a"), texts.number("b"), texts.number("a"), texts.items
        (0, 1, 0, ['a', 'b'])
        """
        number = self._known.get(item)
        if number is None:
            number = self._known[item] = len(self.items)
            self.items.append(item)
        return number


@dataclass
class Ragged:
    """Lists of different lengths joined into one: that of row i is ``flat[starts[i]:starts[i + 1]]``."""

    flat: list[Any] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])

    def add(self, items: Iterable[Any]) -> None:
        """Append the list of the next row."""
        self.flat.extend(items)
        self.starts.append(len(self.flat))


def short(number: float) -> float | int | None:
    """A number rounded to the six digits that a page shows; None where it is infinite or NaN.

    >>> short(0.123456789), short(3.0), short(float("inf"))
    (0.123457, 3, None)
    """
    if not isfinite(number):
        return None
    rounded = float(f"{number:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def finite(data: Any) -> Any:
    """Plain data with None in place of infinities and NaN, for which JSON has no words.

    >>> finite({"a": [float("nan"), 1.5]})
    {'a': [None, 1.5]}
    """
    if isinstance(data, dict):
        return {key: finite(item) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return [finite(item) for item in data]
    return None if isinstance(data, float) and not isfinite(data) else data
