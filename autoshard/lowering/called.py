"""Lowered functions called as the user's are: with keywords, static arguments and leaves that are no arrays."""

from dataclasses import dataclass
from typing import Any

from autoshard.frontends.jax.calls import Call


@dataclass(frozen=True, eq=False)
class CalledFunction:
    """A function of arrays, called as `call` says. Its result has the static leaves of the planned one."""

    inner: Any
    call: Call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call.given_back(self.inner(*self.call.taken(args, kwargs)))

    def lower(self, *args: Any, **kwargs: Any) -> "CalledStage":
        """As of a jitted function, `jax.stages.Lowered` of the arrays."""
        return CalledStage(self.inner.lower(*self.call.taken(args, kwargs)), self.call)


@dataclass(frozen=True, eq=False)
class CalledStage:
    """A `CalledFunction` lowered or compiled; other attributes are those of the stage in JAX."""

    stage: Any
    call: Call

    def compile(self, **options: Any) -> "CalledStage":
        return CalledStage(self.stage.compile(**options), self.call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call.given_back(self.stage(*self.call.taken(args, kwargs)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stage, name)


def as_called(function: Any, call: Call | None) -> Any:
    """`function` (jitted or not) of arrays by position, as the user calls it."""
    return function if call is None else CalledFunction(function, call)
