"""Lists with commas in the arguments of experiments: types of `argparse`, so that unknown names end in a sentence."""

from argparse import ArgumentTypeError
from collections.abc import Callable, Collection

from autoshard.costmodels import load_profile
from autoshard.costmodels.errors import ProfileError


def names_of(known: Collection[str], what: str) -> Callable[[str], list[str]]:
    """Reads names of a list, which is told where one is not on it. what: a model, a mesh, ..."""

    def names(text: str) -> list[str]:
        asked = [name.strip() for name in text.split(",")]
        if unknown := [name for name in asked if name not in known]:
            raise ArgumentTypeError(f"no {what} {unknown[0]!r}; there are {', '.join(known)}")
        return asked

    return names


def machines(text: str) -> list[str]:
    """Names of machines, or files of profiles."""
    asked = [name.strip() for name in text.split(",")]
    for name in asked:
        try:
            load_profile(name)
        except ProfileError as error:
            raise ArgumentTypeError(str(error)) from None
    return asked


def counts(text: str) -> list[int]:
    """Whole numbers from 1 on."""
    asked = [number.strip() for number in text.split(",")]
    for number in asked:
        if not (number.isdecimal() and len(number) < 10 and int(number)):
            raise ArgumentTypeError(f"{number!r} is no whole number from 1 on")
    return [int(number) for number in asked]


def grids(text: str) -> list[str]:
    """Meshes by their sizes: ``2x2,2x4``."""
    for grid in text.split(","):
        if not all(size.isdecimal() for size in grid.split("x")):
            raise ArgumentTypeError(f"no mesh {grid!r}; write sizes, such as 2x2x2")
    return text.split(",")
