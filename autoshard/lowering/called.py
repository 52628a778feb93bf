"""Lowered functions with the call of the user's function: keywords, static arguments and leaves that are no arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autoshard.frontends.jax.function import TracedFunction
from autoshard.interop.place import put_where_wanted, with_own_buffers
from autoshard.lowering.arguments import arrays_of, told_of_arguments


def _given(
    inner: Callable[..., Any], traced: TracedFunction, args: Any, kwargs: Any, shardings: Any = None, put: bool = False
) -> tuple[Any, tuple[Any, ...]]:
    """What a function of arrays makes of the arguments of the user's function, and the arrays among these.

    put: those of the host are put in the shardings first, and of one that is donated and another argument too a copy
    is taken.
    """
    arrays = arrays_of(traced, args, kwargs)
    with told_of_arguments(traced, arrays, shardings):
        if put:
            there = arrays if shardings is None else put_where_wanted(arrays, shardings)
            arrays = with_own_buffers(there, arrays, traced.program.donated)
        return inner(*arrays), arrays


def _called(
    inner: Callable[..., Any], traced: TracedFunction, args: Any, kwargs: Any, shardings: Any = None, put: bool = True
) -> Any:
    """The same as a result of the user's function, with its static leaves."""
    assert traced.call is not None
    results, arrays = _given(inner, traced, args, kwargs, shardings, put=put)
    return traced.call.given_back(results, arrays, args, kwargs)


@dataclass(frozen=True, eq=False)
class CalledFunction:
    """A function of arrays that is called with the arguments of the user's function.

    Its result has the static leaves that the user's function returned when it was traced. shardings, puts: see
    `as_called`.
    """

    inner: Any
    traced: TracedFunction
    shardings: Any = None
    puts: bool = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _called(self.inner, self.traced, args, kwargs, self.shardings, self.puts)

    def lower(self, *args: Any, **kwargs: Any) -> "CalledStage":
        """Lowered for these arguments, as by the ``lower`` of a jitted function."""
        return CalledStage(_given(self.inner.lower, self.traced, args, kwargs, self.shardings)[0], self.traced)


@dataclass(frozen=True, eq=False)
class CalledStage:
    """A `CalledFunction` lowered or compiled; other attributes are those of the stage in JAX."""

    stage: Any
    traced: TracedFunction

    def compile(self, **options: Any) -> "CalledStage":
        """The compiled stage; `options` are those of `jax.stages.Lowered.compile`."""
        return CalledStage(self.stage.compile(**options), self.traced)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _called(self.stage, self.traced, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stage, name)


@dataclass(frozen=True, eq=False)
class PositionalFunction:
    """A function of arrays by position that takes them by keyword too, as the user's function does.

    inner: what `jax.jit` returned, whose other attributes this has. A jitted function with shardings takes no keywords.
    shardings, puts: see `as_called`.
    """

    inner: Any
    traced: TracedFunction
    shardings: Any = None
    puts: bool = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _given(self.inner, self.traced, args, kwargs, self.shardings, put=self.puts)[0]

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lowered for these arguments, as by the ``lower`` of a jitted function."""
        return _given(self.inner.lower, self.traced, args, kwargs, self.shardings)[0]

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Traced for these arguments, as by the ``trace`` of a jitted function."""
        return _given(self.inner.trace, self.traced, args, kwargs, self.shardings)[0]

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes of the result, as by the ``eval_shape`` of a jitted function."""
        return _given(self.inner.eval_shape, self.traced, args, kwargs)[0]

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The user's function, whose signature this has."""
        return self.traced.function

    @property
    def __name__(self) -> str:
        return self.inner.__name__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)


def as_called(function: Any, traced: TracedFunction, shardings: Any = None, *, puts: bool = True) -> Any:
    """A function that takes arrays by position, to be called as the user's function was traced.

    shardings: of its arrays, in which those that lie nowhere yet are put before a call (where it `puts` them, else the
    function does); an array that lies elsewhere is named by them. None leaves arrays as they are.
    """
    if traced.call is None:
        return PositionalFunction(function, traced, shardings, puts)
    return CalledFunction(function, traced, shardings, puts)
