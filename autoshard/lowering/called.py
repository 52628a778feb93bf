"""Lowered functions with the call of the user's function: keywords, static arguments and leaves that are no arrays."""

from dataclasses import dataclass
from typing import Any

from autoshard.frontends.jax.calls import Call


@dataclass(frozen=True, eq=False)
class CalledFunction:
    """A function of arrays that is called with the arguments of the user's function.

    Its result has the static leaves that the user's function returned when it was traced.
    """

    inner: Any
    call: Call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call.given_back(self.inner(*self.call.taken(args, kwargs)))

    def lower(self, *args: Any, **kwargs: Any) -> "CalledStage":
        """Lowered for these arguments, as by the ``lower`` of a jitted function."""
        return CalledStage(self.inner.lower(*self.call.taken(args, kwargs)), self.call)


@dataclass(frozen=True, eq=False)
class CalledStage:
    """A `CalledFunction` lowered or compiled; other attributes are those of the stage in JAX."""

    stage: Any
    call: Call

    def compile(self, **options: Any) -> "CalledStage":
        """The compiled stage; `options` are those of `jax.stages.Lowered.compile`."""
        return CalledStage(self.stage.compile(**options), self.call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call.given_back(self.stage(*self.call.taken(args, kwargs)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stage, name)


def as_called(function: Any, call: Call | None) -> Any:
    """`function` takes arrays by position; the result is called as the user's function. No `call`: both are the
    same.
    """
    return function if call is None else CalledFunction(function, call)
