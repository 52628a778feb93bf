"""The workload that a config names: a function to plan, with its arguments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoshard.models.model import ModelProgram


@dataclass(frozen=True)
class Workload:
    """A function to plan.

    specs: one pytree of abstract arrays for each argument. model: set where the function is a model's train
    step; it brings initial state and batches to run with. arguments: of a program that brings its weights: from a seed
    to arguments on the host. notes: what is to be told of the program, once it is traced.
    """

    name: str
    function: Callable[..., Any]
    specs: tuple[Any, ...]
    argnames: tuple[str, ...] | None
    donate_argnums: tuple[int, ...] | None
    model: "ModelProgram | None" = None
    arguments: Callable[[int], tuple[Any, ...]] | None = None
    notes: Callable[[], Sequence[str]] = tuple
