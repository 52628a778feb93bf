"""Arguments of a config by name: a mapping says which parameter of the function each of them is."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from autoshard.errors import InputError, listing


def by_name(
    function: Callable[..., Any], names: tuple[str, ...], told: Callable[..., str]
) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """A function of positional arguments, and the names that a config gives them in the order that it takes them.

    Arguments go to the parameters of their names, in the order of the signature; keyword-only parameters get theirs by
    keyword. A function whose parameters are not known, or that takes any number of them (``*args``), gets them in the
    order of the file. told: what a message about all names, or about one of them, begins with. Raises `InputError`
    where a name is no parameter, and where a required argument is missing.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins and some extension types have no signature
        return function, names
    kinds = {p.kind for p in parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return function, names
    takes = [n for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD]
    unknown = [name for name in names if name not in takes]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise InputError(
            f"{told(unknown[0])}: {unknown[0]!r} is no parameter of the function; "
            f"{listing(unknown[0], takes)} (a list gives arguments by position)"
        )
    missing = [n for n in takes if n not in names and parameters[n].default is inspect.Parameter.empty]
    if missing:
        raise InputError(f"{told()}: the function also needs {', '.join(map(repr, missing))}; found {', '.join(names)}")
    ordered = (*(n for n in takes if n in names), *unknown)
    positional = [n for n in takes if parameters[n].kind is not inspect.Parameter.KEYWORD_ONLY]
    if list(ordered) == positional[: len(ordered)]:
        return function, ordered
    fixed = [n for n in positional if parameters[n].kind is inspect.Parameter.POSITIONAL_ONLY and n in names]
    if fixed != positional[: len(fixed)]:
        raise InputError(f"{told()}: {fixed[-1]!r} goes by position only; give those before it too")

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        split = len(fixed)
        return function(*arguments[:split], **dict(zip(ordered[split:], arguments[split:], strict=True)))

    return called, ordered
