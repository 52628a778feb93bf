"""Lowered functions with the call of the user's function: keywords, static arguments and leaves that are no arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autoshard.frontends.jax.calls import Call, by_position
from autoshard.frontends.jax.function import TracedFunction
from autoshard.lowering.arguments import told_of_arguments


@dataclass(frozen=True, eq=False)
class CalledFunction:
    """A function of arrays that is called with the arguments of the user's function.

    Its result has the static leaves that the user's function returned when it was traced.
    """

    inner: Any
    call: Call
    traced: TracedFunction

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays = self.call.taken(args, kwargs)
        with told_of_arguments(self.traced, arrays):
            results = self.inner(*arrays)
        return self.call.given_back(results, arrays, args, kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> "CalledStage":
        """Lowered for these arguments, as by the ``lower`` of a jitted function."""
        arrays = self.call.taken(args, kwargs)
        with told_of_arguments(self.traced, arrays):
            return CalledStage(self.inner.lower(*arrays), self.call, self.traced)


@dataclass(frozen=True, eq=False)
class CalledStage:
    """A `CalledFunction` lowered or compiled; other attributes are those of the stage in JAX."""

    stage: Any
    call: Call
    traced: TracedFunction

    def compile(self, **options: Any) -> "CalledStage":
        """The compiled stage; `options` are those of `jax.stages.Lowered.compile`."""
        return CalledStage(self.stage.compile(**options), self.call, self.traced)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays = self.call.taken(args, kwargs)
        with told_of_arguments(self.traced, arrays):
            results = self.stage(*arrays)
        return self.call.given_back(results, arrays, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stage, name)


@dataclass(frozen=True, eq=False)
class PositionalFunction:
    """A function of arrays by position that takes them by keyword too, as the user's function does.

    inner: what `jax.jit` returned, whose other attributes this has. A jitted function with shardings takes no keywords.
    """

    inner: Any
    function: Callable[..., Any]
    count: int
    traced: TracedFunction

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        placed = self._placed(args, kwargs)
        with told_of_arguments(self.traced, placed):
            return self.inner(*placed)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lowered for these arguments, as by the ``lower`` of a jitted function."""
        placed = self._placed(args, kwargs)
        with told_of_arguments(self.traced, placed):
            return self.inner.lower(*placed)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Traced for these arguments, as by the ``trace`` of a jitted function."""
        placed = self._placed(args, kwargs)
        with told_of_arguments(self.traced, placed):
            return self.inner.trace(*placed)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes of the result, as by the ``eval_shape`` of a jitted function."""
        placed = self._placed(args, kwargs)
        with told_of_arguments(self.traced, placed):
            return self.inner.eval_shape(*placed)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The user's function, whose signature this has."""
        return self.function

    @property
    def __name__(self) -> str:
        return self.inner.__name__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def _placed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return by_position(self.function, self.count, args, kwargs)


def as_called(function: Any, traced: TracedFunction) -> Any:
    """A function that takes arrays by position, to be called as the user's function was traced."""
    if traced.call is None:
        return PositionalFunction(function, traced.function, len(traced.in_tree.children()), traced)
    return CalledFunction(function, traced.call, traced)
