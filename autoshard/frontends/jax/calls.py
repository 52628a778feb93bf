"""How a function is called: which of its arguments are arrays, which of them go by keyword, and what is static.

A program has arrays only. Everything else in a call (strings, functions, numbers of equinox modules, arguments that are
declared static) is part of the traced function, as in `equinox.filter_jit`, and later calls must have the same.
"""

import inspect
import keyword
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax import tree_util

from autoshard.errors import InputError
from autoshard.frontends.jax.held import HeldArrays
from autoshard.frontends.jax.in_place import Updates, Watch, check_apart, outside_told, put_back
from autoshard.frontends.jax.inputs import check_arrays
from autoshard.frontends.jax.keywords import check_keywords
from autoshard.frontends.jax.names import other_structure

_NUMBERS = (bool, int, float, complex)


@dataclass(frozen=True)
class Options:
    """How to take arguments, as the options of `jax.jit`; None: the options of a `jax.jit` around the function."""

    donate_argnums: int | Iterable[int] | None = None
    static_argnums: int | Iterable[int] | None = None
    static_argnames: str | Iterable[str] | None = None


@dataclass(eq=False)
class Call:
    """One way to call a function: the arguments of the call that was traced, and which parts of them are no arrays.

    names: of the arguments, positional ones first. keywords: names of the last arguments, which go by keyword. static:
    numbers of the arguments that are static as a whole. leaves: for each other argument, which leaves are static.
    result: known once the function was traced: the tree of the result, its leaves (None for arrays), and which of them
    are static. updates: what the function changes in place of its arguments, known then too. held: the arrays in static
    objects.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    names: tuple[str, ...]
    keywords: tuple[str, ...]
    static: frozenset[int]
    donated: frozenset[int]
    leaves: dict[int, tuple[bool, ...]] = field(default_factory=dict)
    result: tuple[Any, tuple[Any, ...], tuple[bool, ...]] | None = None
    updates: Updates = field(default_factory=Updates)
    held: HeldArrays = field(default_factory=lambda: HeldArrays({}))

    @property
    def plain(self) -> bool:
        """Whether the call has arrays by position only, and its result arrays only."""
        result = () if self.result is None else self.result[2]
        static = self.static or any(any(flags) for flags in (*self.leaves.values(), result))
        return not (self.keywords or static or self.updates.arguments or self.held.reads_own)

    @property
    def open(self) -> tuple[int, ...]:
        """Numbers of the arguments that are not static as a whole."""
        return tuple(k for k in range(len(self.arguments)) if k not in self.static)

    def statics(self) -> Iterator[tuple[str, Any]]:
        """Static arguments and leaves by their paths."""
        yield from ((self.names[k], self.arguments[k]) for k in sorted(self.static))
        for k, flags in self.leaves.items():
            leaves = tree_util.tree_flatten_with_path(self.arguments[k])[0]
            yield from ((self.names[k] + tree_util.keystr(p), x) for (p, x), s in zip(leaves, flags, strict=True) if s)

    def arrays(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of a call that hold arrays, with None in place of every static leaf."""
        return tuple(self._without(k, arguments[k]) for k in self.open)

    def _without(self, k: int, argument: Any) -> Any:
        leaves, tree = tree_util.tree_flatten(argument)
        return tree_util.tree_unflatten(
            tree, [None if still else x for x, still in zip(leaves, self.leaves[k], strict=True)]
        )

    def whole(self, arrays: Sequence[Any]) -> list[Any]:
        """All arguments of a call, made from those that `arrays` returns."""
        out = list(self.arguments)
        for k, argument in zip(self.open, arrays, strict=True):
            leaves, tree = tree_util.tree_flatten(self.arguments[k])
            filled = iter(tree_util.tree_leaves(argument))
            merged = [x if still else next(filled) for x, still in zip(leaves, self.leaves[k], strict=True)]
            out[k] = tree_util.tree_unflatten(tree, merged)
        return out

    def taken(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """`arrays` of a call by position and keyword; `InputError` where a static part differs from the traced call."""
        args, kwargs = bound(self.function, tuple(args), dict(kwargs))
        arguments = self._in_order(args, kwargs)
        unknown = sorted(set(kwargs) - set(self.keywords))
        if len(arguments) != len(self.arguments) or unknown:
            passed = [*(f"{len(args)} by position" for _ in [0] if args), *kwargs]
            raise InputError(
                f"the function was planned for the arguments {', '.join(self.names)}, called with {', '.join(passed)}"
            )
        for k, (was, now, name) in enumerate(zip(self.arguments, arguments, self.names, strict=True)):
            if k in self.static:
                self._same(was, now, name)
                continue
            before, tree = tree_util.tree_flatten_with_path(was)
            leaves, other = tree_util.tree_flatten(now)
            if tree != other:
                raise InputError(other_structure(name, tree, other))
            for (path, old), new, still in zip(before, leaves, self.leaves[k], strict=True):
                if still:
                    self._same(old, new, name + tree_util.keystr(path))
        self.held.check_own()
        if self.updates.arguments:
            check_apart(self.updates, arguments, self.names)
        return self.arrays(arguments)

    def _in_order(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments of a call in the order in which they were traced."""
        return [*args, *(kwargs[name] for name in self.keywords if name in kwargs)]

    def _same(self, was: Any, now: Any, name: str) -> None:
        if was is not now and not _equal(was, now):
            raise InputError(
                f"{name} is static: the function was planned with {_short(was)}, called with {_short(now)}; plan it "
                "for that value too"
            )
        self.held.check_same(name, now)

    def traced(self) -> Callable[..., Any]:
        """The function of `arrays` alone; its result has None in place of every static leaf.

        Where it changes arguments in place the result is a pair, whose second part are the new arrays (`Updates`).
        """

        def function(*arrays: Any) -> Any:
            arguments = self.whole(arrays)
            watch = Watch({k: arguments[k] for k in self.open})
            count = len(arguments) - len(self.keywords)
            with outside_told():
                result = self.function(*arguments[:count], **dict(zip(self.keywords, arguments[count:], strict=True)))
            self.held.check_unchanged()
            _check_computed(result)
            leaves, tree = tree_util.tree_flatten(result)
            still = _still(result, lambda x: not hasattr(x, "dtype"))
            self.result = (tree, tuple(x if s else None for x, s in zip(leaves, still, strict=True)), still)
            own = tree_util.tree_unflatten(tree, [None if s else x for x, s in zip(leaves, still, strict=True)])
            self.updates, new = watch.changed(tree_util.tree_leaves(own), self.names, self.donated)
            return (own, tuple(new)) if new else own

        function.__name__ = function.__qualname__ = getattr(self.function, "__name__", "function")
        _told_as(function, self.function, [self.names[k] for k in self.open])
        return function

    def given_back(self, arrays: Any, used: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The user's result, with its static leaves, from a result with arrays alone.

        used: the arrays that made it. args, kwargs: what the user called with, whose objects get their new state.
        """
        assert self.result is not None
        tree, kept, flags = self.result
        leaves = tree_util.tree_leaves(arrays)
        if self.updates.arguments:
            arguments = self._in_order(*bound(self.function, tuple(args), dict(kwargs)))
            put_back(self.updates, arguments, dict(zip(self.open, map(tree_util.tree_leaves, used))), leaves)
        filled = iter(leaves)
        return tree_util.tree_unflatten(
            tree, [x if still else next(filled) for x, still in zip(kept, flags, strict=True)]
        )


_UNREAD = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, map, filter, zip)
"""Types of values that compute nothing until they are read, and then once."""


def _check_computed(result: Any) -> None:
    """`InputError` for a result that computes nothing until it is read."""
    for leaf in tree_util.tree_leaves(result, is_leaf=lambda x: isinstance(x, _UNREAD)):
        if isinstance(leaf, _UNREAD):
            raise InputError(
                f"the function returns a {type(leaf).__name__}, which computes nothing until it is read; return "
                "arrays: those of all steps by jax.lax.scan, or plan the function of one step and loop over its calls"
            )


def read_call(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    argnames: Sequence[str] | None,
) -> Call:
    """The call of `f` with these arguments; where `options` are None, those of a `jax.jit` around `f` hold."""
    jit_options = _told_to_jit(f)
    args, kwargs = bound(f, tuple(args), dict(kwargs))
    count = len(args)
    names = [*argument_names(f, count, argnames), *kwargs]
    parameters = [*argument_names(f, count, None), *kwargs]
    arguments = (*args, *kwargs.values())

    def numbers(listed: int | Iterable[int], option: str) -> set[int]:
        chosen = set()
        for number in [listed] if isinstance(listed, int) else listed:
            if not -count <= number < count:
                raise InputError(f"{option} names argument {number}, but there are {count}: {', '.join(names)}")
            chosen.add(number % count)
        return chosen

    static_numbers, static_names = options.static_argnums, options.static_argnames
    if static_numbers is None and static_names is None:
        here = [n for n in jit_options.get("static_argnums", ()) if -count <= n < count]
        static = numbers(here, "static_argnums")
        static |= {k for k, name in enumerate(parameters) if name in jit_options.get("static_argnames", ())}
    else:
        static = numbers(() if static_numbers is None else static_numbers, "static_argnums")
        listed = [static_names] if isinstance(static_names, str) else list(static_names or ())
        unknown = [name for name in listed if name not in parameters and name not in _parameters(f)]
        if unknown:
            raise InputError(f"static_argnames names {unknown[0]!r}; the arguments are {', '.join(parameters)}")
        static |= {k for k, name in enumerate(parameters) if name in listed}
    if options.donate_argnums is None:
        donated = numbers([n for n in jit_options.get("donate_argnums", ()) if -count <= n < count], "donate_argnums")
        donated |= {k for k, name in enumerate(parameters) if name in jit_options.get("donate_argnames", ())}
    else:
        donated = numbers(options.donate_argnums, "donate_argnums")
    call = Call(f, arguments, tuple(names), tuple(kwargs), frozenset(static), frozenset(donated - static))
    for k in call.open:
        check_arrays(names[k], arguments[k])
        call.leaves[k] = _still(arguments[k], lambda x: not hasattr(x, "shape") or not hasattr(x, "dtype"))
    call.held = HeldArrays(dict(call.statics()), f)
    return call


def _told_to_jit(f: Callable[..., Any]) -> dict[str, Any]:
    """The options that `jax.jit` was given for a function that it made; empty for other functions.

    A method has those of its function, whose positions count `self` too.
    """
    info = getattr(f, "_jit_info", None)
    keys = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
    told = {key: tuple(getattr(info, key, ()) or ()) for key in keys}
    if inspect.ismethod(f):
        for key in ("static_argnums", "donate_argnums"):
            told[key] = tuple(n - (n > 0) for n in told[key] if n != 0)
    return told


def _parameters(f: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(f).parameters)
    except (TypeError, ValueError):  # builtins and some extension types have no signature
        return []


def bound(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict]:
    """Arguments by position where they can be, the others by keyword in the order of the signature."""
    if not kwargs:
        return args, {}
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return args, kwargs
    check_keywords(f, kwargs)
    try:
        found = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InputError(f"the function cannot be called with these arguments: {error}") from None
    return found.args, dict(found.kwargs)


def by_position(f: Callable[..., Any], count: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call of `f` by position, where its first `count` arguments were planned so.

    `InputError` where its signature has no such places for them.
    """
    if not kwargs:
        return args
    placed, rest = bound(f, args, kwargs)
    if rest or len(placed) != count:
        passed = [*(f"{len(args)} by position" for _ in [0] if args), *kwargs]
        advice = "call it so, or plan it as it is to be called"
        raise InputError(
            f"the function was planned for {', '.join(argument_names(f, count, None)) or 'no arguments'} by position, "
            f"called with {', '.join(passed)}; {advice}"
        )
    return placed


def told_to_planning(f: Callable[..., Any], count: int, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Notes on options that have the names of arguments of `f` which keep their defaults: either may have been meant.

    count: of the arguments by position. `InputError` where such an argument has no default.
    """
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return ()
    by_position = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    notes = []
    for p in parameters:
        value = options.get(p.name)
        if p.name in by_position or value is None or (isinstance(value, tuple) and not value):
            continue
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            way = "give it by position" if p.kind is p.POSITIONAL_OR_KEYWORD else "bind it with functools.partial"
            raise InputError(f"the argument {p.name} of the function has the name of an option of planning; {way}")
        if p.default is not p.empty and p.name not in ("mesh", "hardware"):  # these are always options
            notes.append(
                f"{p.name}={_short(value)} is the option of planning; the argument of that name of the function keeps "
                f"its default, {_short(p.default)}: to give it too, do so by position or with functools.partial"
            )
    return tuple(notes)


def argument_names(f: Callable[..., Any], count: int, given: Sequence[str] | None) -> list[str]:
    """The names of the first `count` arguments of `f`: the given ones, or those of its signature."""
    if given is not None:
        if len(given) != count or len(set(given)) != count:
            raise InputError(f"argnames {list(given)} must be {count} different names, one for each argument")
        return list(given)
    names: list[str] = []
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):  # builtins and some extension types do not tell
        parameters = ()
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            names += [f"{p.name}/{k}" for k in range(count - len(names))]
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            names.append(p.name)
    names = names[:count]
    return names + [f"arg{k}" for k in range(len(names), count)]


def _told_as(function: Any, f: Callable[..., Any], names: Sequence[str]) -> None:
    """Have JAX name `f` and its arguments in errors about tracers, in place of the function around it."""
    function.__wrapped__ = f
    words = [re.sub(r"\W", "_", name) for name in names]  # rest/0 of *rest
    if len(set(words)) == len(words) and all(w.isidentifier() and not keyword.iskeyword(w) for w in words):
        parameters = [inspect.Parameter(w, inspect.Parameter.POSITIONAL_ONLY) for w in words]
        function.__signature__ = inspect.Signature(parameters)


def _still(tree: Any, no_array: Callable[[Any], bool]) -> tuple[bool, ...]:
    """For each leaf whether it is static: no array, and no number either unless the number belongs to an equinox
    module.

    A number in any other tree is a weakly typed array, as in `jax.jit`.
    """
    flags: list[bool] = []
    for part in tree_util.tree_leaves(tree, is_leaf=_is_equinox):
        module = _is_equinox(part)
        leaves = tree_util.tree_leaves(part) if module else [part]
        flags += [no_array(leaf) and (module or type(leaf) not in _NUMBERS) for leaf in leaves]
    return tuple(flags)


def _is_equinox(node: Any) -> bool:
    return any(c.__module__.partition(".")[0] == "equinox" for c in type(node).__mro__ if isinstance(c.__module__, str))


def _equal(was: Any, now: Any) -> bool:
    try:
        return type(was) is type(now) and bool(np.all(was == now))
    except Exception:  # a class that does not compare
        return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
