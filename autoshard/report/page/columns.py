"""Tables as columns, and texts once each: how a page holds tens of thousands of rows."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any


@dataclass
class Numbered:
    """Distinct things in the order in which they were first seen; what a column holds is their number."""

    items: list[Any] = field(default_factory=list)
    _known: dict[Hashable, int] = field(default_factory=dict)

    def number(self, item: Hashable) -> int:
        """The number of a thing, a new one where it was not seen before.

        >>> texts = Numbered()
        >>> texts.number("a"), texts.number("b"), texts.number("a"), texts.items
        (0, 1, 0, ['a', 'b'])
        """
        found = self._known.get(item)
        if found is None:
            found = self._known[item] = len(self.items)
            self.items.append(item)
        return found


@dataclass
class Ragged:
    """Lists of different lengths as one: those of row i are ``flat[starts[i]:starts[i + 1]]``."""

    flat: list[Any] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])

    def add(self, items: Iterable[Any]) -> None:
        """One more row."""
        self.flat.extend(items)
        self.starts.append(len(self.flat))


def short(number: float) -> float | int | None:
    """A number with the six digits that a page can show; None where it is none.

    >>> short(0.123456789), short(3.0), short(float("inf"))
    (0.123457, 3, None)
    """
    if not isfinite(number):
        return None
    found = float(f"{number:.6g}")
    return int(found) if found.is_integer() and abs(found) < 2**53 else found


def finite(data: Any) -> Any:
    """Plain data without infinities and NaN, which JSON has no words for: None there.

    >>> finite({"a": [float("nan"), 1.5]})
    {'a': [None, 1.5]}
    """
    if isinstance(data, dict):
        return {key: finite(item) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return [finite(item) for item in data]
    return None if isinstance(data, float) and not isfinite(data) else data
