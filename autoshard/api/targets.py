"""Ways to hand a plan to JAX: collectives written out, or shardings stated and the rest left to XLA's partitioner.

Each target can report which of the planned collectives its compiled program has.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax
from jax import tree_util
from jax.sharding import AbstractMesh
from jax.sharding import Mesh as JaxMesh

from autoshard.errors import InputError, UnsupportedError
from autoshard.interop.jax import auto_abstract_mesh
from autoshard.lowering.called import as_called
from autoshard.lowering.collectives import PlannedCollective, sent_as
from autoshard.lowering.constrained import constrained_function
from autoshard.lowering.lower import Lowered, has_other_orders
from autoshard.lowering.sdy_text import on_logical_mesh
from autoshard.program.program import Program
from autoshard.verify.runs.collectives import UNCOMBINED
from autoshard.verify.runs.hlo import compiled_text, hlo_collectives
from autoshard.verify.runs.traffic import ON_CPU, Change, Traffic, changes, moved_bytes, of_found, of_planned

TARGETS: Mapping[str, str] = {
    "explicit": "one shard_map with the planned collectives written out",
    "constraints": "a sharding constraint on every value, also in loops; XLA's partitioner decides the collectives",
    "shardings": "shardings of inputs and outputs only; XLA's partitioner decides the rest",
    "mlir": "StableHLO text with sdy shardings on the plan's own mesh; compiled as constraints are",
}

_TOLD_TO_PLAN = frozenset({"static_argnums", "static_argnames", "donate_argnames"})
"""Options of `jax.jit` that a plan has taken from its function, or cannot take."""


@dataclass(frozen=True)
class TargetReport:
    """Which planned collectives a compiled target has; `planned` and `found` count executions by kind of traffic."""

    target: str
    planned: Counter[Traffic]
    found: Counter[Traffic]

    @cached_property
    def changes(self) -> list[Change]:
        """A `Change` for each planned and each found collective: kept, changed, dropped or added."""
        return changes(self.planned, self.found)

    def count(self, what: str) -> int:
        """Executions that are ``kept``, ``changed``, ``dropped`` or ``added``."""
        return sum(c.times for c in self.changes if c.what == what)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, for ``--json``; bytes are per device and call."""
        return {
            "target": self.target,
            **{what: self.count(what) for what in ("kept", "changed", "dropped", "added")},
            "planned_bytes": moved_bytes(self.planned),
            "compiled_bytes": moved_bytes(self.found),
            "collectives": [c.to_dict() for c in self.changes],
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(what)} {what}" for what in ("kept", "changed", "dropped", "added"))
        lines = [
            f"{self.target}: of {self.planned.total()} planned collectives {counts}; each device sends "
            f"{moved_bytes(self.found):,.0f} bytes a call, planned {moved_bytes(self.planned):,.0f}"
        ]
        for c in self.changes:
            shown = [t for t in (c.planned, c.found) if t is not None][: 1 if c.what == "kept" else 2]
            text = " -> ".join(f"{t.kind} over {{{t.axes}}} of {t.given:,} bytes{_other(t)}" for t in shown)
            lines.append(f"  {c.what:>7} {c.times:>5} x {text}")
        return "\n".join(lines)


def _other(t: Traffic) -> str:
    """The combiner of a reduction that is no sum, for texts."""
    return f" ({t.combiner})" if t.combiner not in ("", "add") else ""


def check_target(name: str, program: Program) -> None:
    """`UnsupportedError` where a target cannot say what is stated about this program."""
    if name != "explicit" and (program.host_inputs or program.host_outputs):
        raise UnsupportedError(
            f"target {name!r} does not place values in host memory, which this plan states; use 'explicit'"
        )
    if name != "explicit" and has_other_orders(program):
        raise UnsupportedError(
            f"target {name!r} has one order of the devices, as XLA's partitioner has; this plan states inputs "
            "or outputs in another one: use 'explicit'"
        )


@dataclass(frozen=True, eq=False)
class Target:
    """A plan's function in one of the forms of `TARGETS`."""

    name: str
    lowered: Lowered

    def __post_init__(self) -> None:
        if self.name not in TARGETS:
            raise InputError(f"no target {self.name!r}; there are {', '.join(TARGETS)}")
        check_target(self.name, self.lowered.traced.program)

    def jax_mesh(self, devices: Sequence[Any] | None = None) -> JaxMesh:
        """The refined mesh on `devices` (all of JAX by default); `InputError` where there are too few."""
        return self.lowered.jax_mesh(devices)

    def function(self, mesh: JaxMesh | AbstractMesh) -> Callable[..., Any]:
        """The function of global arrays on a mesh (from `jax_mesh`), to be jitted with the plan's shardings."""
        if self.name == "explicit":
            return self.lowered.function(mesh)
        return constrained_function(self.lowered, mesh, inside=self.name != "shardings")

    @cached_property
    def fn(self) -> Callable[..., Any]:
        """The function on the mesh of all devices, called as the user's function; may be jitted."""
        return as_called(self.function(self.jax_mesh()), self.lowered.traced)

    @property
    def in_shardings(self) -> Any:
        """`NamedSharding` of every input leaf, as a tuple of pytrees, one for each argument."""
        return self.lowered.in_shardings

    @property
    def out_shardings(self) -> Any:
        """`NamedSharding` of every output leaf, in the pytree of the result."""
        return self.lowered.out_shardings

    def jit(self, *, devices: Sequence[Any] | None = None, **options: Any) -> Any:
        """`jax.jit` of the function with its shardings and donations; `options` replace them.

        Arrays of the host are put into its shardings before a call, so that a loop compiles it once. What is static was
        told to the plan: `InputError` where `options` say it, or name donated arguments.
        """
        if told := sorted(_TOLD_TO_PLAN.intersection(options)):
            raise InputError(
                f"jit of a plan got {', '.join(told)}: which arguments are static is part of the plan, so give it to "
                "autoshard.plan or on a jax.jit of the function; donations by position are donate_argnums"
            )
        shardings = None if "in_shardings" in options else self.lowered.in_shardings_of_calls(devices)
        puts = not self.lowered.has_other_orders
        return as_called(self.jit_of_arrays(devices, options), self.lowered.traced, shardings, puts=puts)

    def jit_of_arrays(
        self, devices: Sequence[Any] | None = None, options: Mapping[str, Any] = MappingProxyType({})
    ) -> Any:
        """`jit` for the function that takes its arrays by position."""
        if self.name == "explicit":
            return self.lowered.jit(devices=devices, **options)
        mesh = self.jax_mesh(devices)
        return jax.jit(self.function(mesh), **{**self._jit_options(mesh), **options})

    def _jit_options(self, mesh: Any) -> dict[str, Any]:
        return {
            "in_shardings": self.lowered.in_shardings_on(mesh),
            "out_shardings": self.lowered.out_shardings_on(mesh),
            "donate_argnums": self.lowered.donate_argnums,
        }

    def stablehlo(self, platform: str = "cpu") -> str:
        """StableHLO text; needs no devices of the mesh.

        The target ``mlir`` has shardings as sdy attributes and constraints on the plan's own mesh, where parts of axes
        are sub-axes. The other targets have the parts of split axes as axes of their own.
        """
        mesh = self.lowered.schedule.mesh
        abstract = auto_abstract_mesh(mesh.sizes, mesh.names)
        specs = tree_util.tree_unflatten(self.lowered.traced.in_tree, self.lowered.traced.in_types)
        explicit = self.name == "explicit"
        there = None if platform == "cpu" else platform  # the text has collectives that XLA for CPU puts in order
        function = self.lowered.function(abstract, there, as_they_lie=True) if explicit else self.function(abstract)
        staged = jax.jit(function, **self._jit_options(abstract)).trace(*specs)
        text = str(staged.lower(lowering_platforms=(platform,)).as_text())
        return on_logical_mesh(text, mesh) if self.name == "mlir" else text

    def __str__(self) -> str:
        return self.stablehlo()

    def staged(self, devices: Sequence[Any] | None = None) -> Any:
        """The jitted function lowered for its own argument types on `devices`, ready to be compiled."""
        traced = self.lowered.traced
        return self.jit_of_arrays(devices).lower(*tree_util.tree_unflatten(traced.in_tree, traced.in_types))

    def report(self, devices: Sequence[Any] | None = None) -> TargetReport:
        """Compile the function, and compare its collectives with the planned ones by kind, axes, bytes and count.

        `InputError` where JAX has too few devices for the mesh.
        """
        # XLA merges collectives that are written out later on; the report counts them before that
        options = dict(UNCOMBINED) if self.name == "explicit" and _on_cpu() else None
        compiled = compiled_traffic(self.lowered, self.staged(devices), options)
        return TargetReport(self.name, planned_traffic(self.lowered, by_xla=self.name != "explicit"), compiled)


def planned_traffic(lowered: Lowered, *, by_xla: bool) -> Counter[Traffic]:
    """The planned collectives, in the element types in which this machine computes them.

    by_xla: where XLA places them, which sends maxima and minima in their own element type.
    """
    platform = "tpu" if by_xla else jax.default_backend()

    def sent(c: PlannedCollective) -> PlannedCollective:
        own = lowered.traced.program.type_of(c.value).dtype
        in_words = c.combiner in ("max", "min") and c.dtype == sent_as(own, None)  # a user's own pmax is not
        return replace(c, dtype=sent_as(own, platform)) if in_words else c

    planned = map(sent, lowered.planned)
    return of_planned(planned, lowered.schedule.mesh, _computed_as())


def compiled_traffic(lowered: Lowered, staged: Any, options: Mapping[str, Any] | None = None) -> Counter[Traffic]:
    """The collectives of a staged program, which is compiled for that; `options` go to the compiler."""
    return of_found(hlo_collectives(compiled_text(staged, options)), lowered.schedule.mesh, _computed_as())


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _computed_as() -> Mapping[str, str] | None:
    return ON_CPU if _on_cpu() else None
