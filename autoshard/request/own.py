"""Strategies of one's own: functions that look at a task and say how some of its values are split."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoshard.constraints import MatchedPin, Pin, match_pins
from autoshard.costmodels import Machine
from autoshard.errors import AutoshardError, InputError
from autoshard.planning import Problem
from autoshard.program.program import Program
from autoshard.program.types import TensorType
from autoshard.request.arguments import match_jax_pins
from autoshard.request.specs import is_stated, read_stated
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.strategies.named import roles_of
from autoshard.strategies.stated import StatedShardings

if TYPE_CHECKING:
    from autoshard.frontends.jax.function import TracedFunction

WANTED = (
    "a mapping from names or patterns of values to shardings, a list of Pins, or PartitionSpecs as "
    "{'in_shardings': ..., 'out_shardings': ...} or as a tuple with a tree for each argument"
)


@dataclass(frozen=True)
class Task:
    """What a strategy of one's own is asked about: a program on a mesh of a machine.

    program: values, ops and their sharding rules (docs/architecture.md). arguments: those of the function, as trees of
    `jax.ShapeDtypeStruct`; empty for ONNX models. logical_axes: names of the dimensions of inputs, where they are known
    (``roles`` in Python). memory_limit: bytes of a device, None for no limit.
    """

    program: Program
    mesh: Mesh
    machine: Machine
    memory_limit: int | None
    arguments: tuple[Any, ...]
    logical_axes: Mapping[str, tuple[str | None, ...]]

    @property
    def axes(self) -> dict[str, int]:
        """Sizes of the mesh axes by name."""
        return dict(zip(self.mesh.axis_names, self.mesh.axis_sizes, strict=True))

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Shape and dtype of every input, by its path (``params/w1``)."""
        return {
            name: self.program.type_of(value)
            for name, value in zip(self.program.input_names, self.program.body.args, strict=False)
        }

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Shape and dtype of every output, by its path (``out/0``)."""
        return {
            name: self.program.type_of(value)
            for name, value in zip(self.program.output_names, self.program.body.results, strict=True)
        }


OwnStrategy = Callable[[Task], Any]
"""A function of a `Task` that returns shardings (`WANTED`); what they leave open follows by propagation."""


def task_of(problem: Problem, traced: TracedFunction | Program, roles: Mapping[str, Any] | None) -> Task:
    """The task that a problem sets."""
    program = problem.program
    names = dict(zip(program.body.args, program.input_names, strict=False))
    axes = {names[value]: roles_here for value, roles_here in roles_of(program, roles or {}).items()}
    arguments = () if isinstance(traced, Program) else traced.arguments
    return Task(program, problem.mesh.mesh, problem.machine, problem.memory_limit, arguments, axes)


def stated_by(name: str, strategy: OwnStrategy, task: Task, traced: TracedFunction | Program) -> StatedShardings:
    """The shardings that a strategy of one's own states; `InputError` where it fails, or states none that fit."""
    if not callable(strategy):
        raise InputError(f"strategy {name!r}: expected a function of a task, found {strategy!r}")
    try:
        return _read(name, strategy(task), task, traced)
    except AutoshardError as error:
        text = str(error)
        raise InputError(text if text.startswith(f"strategy {name}:") else f"strategy {name}: {text}") from error
    except (Exception, SystemExit) as error:  # whatever the user's function does
        raise InputError(f"strategy {name}: it failed: {type(error).__name__}: {error}") from error


def _read(name: str, said: Any, task: Task, traced: TracedFunction | Program) -> StatedShardings:
    """What a strategy said, in any of its forms."""
    program, mesh = task.program, task.mesh
    if said is None:
        raise InputError(f"it returned nothing; return {WANTED}")
    if isinstance(said, Pin):
        said = [said]
    if isinstance(said, Mapping) and not is_stated(said):
        said = [Pin(pattern, sharding) for pattern, sharding in said.items()]
    if isinstance(said, Sequence) and not isinstance(said, str) and said and all(isinstance(s, Pin) for s in said):
        return StatedShardings(name, _matched(said, program, mesh))
    if isinstance(traced, Program):
        raise InputError("an ONNX model has no arguments; return a mapping or a list of Pins")
    if not isinstance(said, Mapping):
        if not isinstance(said, tuple | list):
            raise InputError(f"it returned {_short(said)}; return {WANTED}")
        said = {"in_shardings": tuple(said)}
    return read_stated({**said, "name": name}, traced, program, mesh, "strategy")


def named_own(strategies: Any) -> list[tuple[str, str | OwnStrategy]]:
    """Strategies by the names of their rows: a list of names and functions, or a mapping of these."""
    if isinstance(strategies, str) or callable(strategies):
        strategies = [strategies]
    if not isinstance(strategies, Mapping | Sequence):
        raise InputError(
            f"strategies: expected names or functions, in a list or by the name of the row, found {_short(strategies)}"
        )
    pairs = strategies.items() if isinstance(strategies, Mapping) else ((_name(s), s) for s in strategies)
    named: dict[str, str | OwnStrategy] = {}
    for name, strategy in pairs:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"strategies: a row has a name, found {name!r}")
        if not isinstance(strategy, str) and not callable(strategy):
            raise InputError(
                f"strategies: {name!r}: expected the name of a strategy or a function, found {_short(strategy)}"
            )
        if name in named:
            raise InputError(f"strategies: {name!r} is named twice")
        named[name] = strategy
    if not named:
        raise InputError("strategies: name at least one, such as 'joint'")
    return list(named.items())


def _name(strategy: Any) -> str:
    if isinstance(strategy, functools.partial):
        strategy = strategy.func
    return strategy if isinstance(strategy, str) else getattr(strategy, "__name__", type(strategy).__name__)


def _matched(pins: Sequence[Pin], program: Program, mesh: Mesh) -> tuple[MatchedPin, ...]:
    ours = [pin for pin in pins if isinstance(pin.sharding, TensorSharding)]
    of_jax = [pin for pin in pins if not isinstance(pin.sharding, TensorSharding)]
    return (*match_pins(ours, program, mesh, compare=False), *match_jax_pins(of_jax, program, mesh))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
