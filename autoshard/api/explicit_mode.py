"""A plan in JAX's explicit sharding mode: the fewest annotations with which XLA keeps it, checked by compiling."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from autoshard.api.targets import TargetReport, compiled_traffic, planned_traffic
from autoshard.errors import InputError, UnsupportedError
from autoshard.lowering.annotated import RefusedError
from autoshard.lowering.explicit_call import (
    ExplicitFunction,
    check_version,
    explicit_function,
    find_annotations,
    staged,
)
from autoshard.lowering.typed_forms import Annotation, Site, form_of_layout
from autoshard.verify.runs.traffic import Traffic, moved_bytes

if TYPE_CHECKING:
    from autoshard.lowering.lower import Lowered

TIME_LIMIT_S = 120.0
"""Seconds for removing annotations, unless the caller says otherwise; a compilation that has begun is not cut short."""


WIDEST = 200
"""Most letters of a message of JAX in texts; `to_dict` has all of it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ExplicitMode:
    """Annotations of a program in explicit mode, and what XLA makes of it.

    annotations: those left, in program order. needed: for each of them what happens without it. dropped: how many more
    were found, and changed nothing. all_tested: whether each that is left was tried without. compilations: how many
    that took. notes: what of the plan explicit mode cannot say. report: planned beside compiled collectives; None where
    nothing was compiled.
    """

    lowered: Lowered
    annotations: tuple[Annotation, ...]
    needed: Mapping[Site, str]
    dropped: int
    all_tested: bool
    compilations: int
    notes: tuple[str, ...]
    report: TargetReport | None

    @property
    def mesh_axes(self) -> dict[str, int]:
        """Axes of the mesh and their sizes; parts of axes that the plan splits are axes of their own."""
        mesh = self.lowered.schedule.mesh
        return dict(zip(mesh.names, mesh.sizes, strict=True))

    @property
    def boundary(self) -> dict[str, str]:
        """The text of the `PartitionSpec` of each input and output, by path: of arguments, and for ``out_shardings``
        of `jax.jit`.
        """
        mesh, program = self.lowered.schedule.mesh, self.lowered.traced.program
        names = (*program.input_names, *program.output_names)
        layouts = (*self.lowered.input_layouts, *self.lowered.output_layouts)
        return {name: str(form_of_layout(x, mesh)) for name, x in zip(names, layouts, strict=True)}

    def jit(self, *, devices: Sequence[Any] | None = None, **options: Any) -> ExplicitFunction:
        """The program with these annotations, jitted on a mesh with explicit axes; `options` go to `jax.jit`."""
        return explicit_function(self.lowered, {a.site: a for a in self.annotations}, devices, **options)

    @cached_property
    def _by_kind(self) -> list[tuple[str, int, float, int, float]]:
        if self.report is None:
            return []
        planned, found = by_kind(self.report.planned), by_kind(self.report.found)
        return [(k, *planned.get(k, (0, 0.0)), *found.get(k, (0, 0.0))) for k in sorted({*planned, *found})]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, for ``--json``; bytes are per device and call."""
        keys = ("kind", "planned", "planned_bytes", "compiled", "compiled_bytes")
        return {
            "mesh": self.mesh_axes,
            "specs": self.boundary,
            "annotations": [{**a.to_dict(), "without": self.needed.get(a.site, "")} for a in self.annotations],
            "dropped": self.dropped,
            "all_tested": self.all_tested,
            "compilations": self.compilations,
            "notes": list(self.notes),
            "collectives": [dict(zip(keys, row, strict=True)) for row in self._by_kind],
        }

    def __str__(self) -> str:
        unsaid = [f"not said: {shorten(note, WIDEST)}" for note in self.notes]
        return "\n".join([*self._head(), *self._sites(), *self._compiled(), *unsaid])

    def _head(self) -> list[str]:
        sizes, names = tuple(self.mesh_axes.values()), tuple(self.mesh_axes)
        types = f"(jax.sharding.AxisType.Explicit,) * {len(names)}"
        lines = [f"mesh = jax.make_mesh({sizes}, {names}, axis_types={types})", "inputs and out_shardings:"]
        return [*lines, *(f"  {name}: {spec}" for name, spec in self.boundary.items())]

    def _sites(self) -> list[str]:
        count = len(self.annotations)
        tested = "not compiled" if self.report is None else "time ended before each was tried without"
        tested = ("each is needed" if count else "compiled") if self.report and self.all_tested else tested
        dropped = (
            f"; {self.dropped} more {'changes' if self.dropped == 1 else 'change'} nothing" if self.dropped else ""
        )
        backward = sum(a.in_derivative for a in self.annotations)
        where = f", {backward} of them in the backward pass" if backward else ""
        lines = [f"{count or 'no'} annotation{'' if count == 1 else 's'}{where} ({tested}{dropped}):"]
        lines = lines if count else [lines[0].rstrip(":")]
        alike: dict[tuple[str, str, str], list[Annotation]] = {}
        for a in self.annotations:
            alike.setdefault((a.source, a.op, a.text), []).append(a)
        for (source, op, text), group in alike.items():
            values = ", ".join(a.value for a in group)
            lines += [f"  {source or 'constant of the function'}", f"    {op or 'value'} {values}: {text}"]
            without = self.needed.get(group[0].site)
            lines += [f"      without: {shorten(without, WIDEST)}"] if without else []
        return lines

    def _compiled(self) -> list[str]:
        if self.report is None:
            return []
        lines = ["collectives a call, planned -> compiled; bytes that a device sends:"]
        for kind, count, sent, found, found_bytes in self._by_kind:
            lines.append(f"  {kind:<14} {count:>5} {sent:>15,.0f} -> {found:>5} {found_bytes:>15,.0f}")
        return lines


def by_kind(traffic: Counter[Traffic]) -> dict[str, tuple[int, float]]:
    """Executions and bytes that a device sends in one call, for each kind of collective."""
    out: dict[str, tuple[int, float]] = {}
    for t, times in traffic.items():
        count, sent = out.get(t.kind, (0, 0.0))
        out[t.kind] = (count + times, sent + t.moved * times)
    return out


def apart(planned: Counter[Traffic], found: Counter[Traffic]) -> float:
    """Bytes of collectives that only one of two programs has."""
    return sum(abs(planned[t] - found[t]) * t.moved for t in {*planned, *found})


def explicit_mode(
    lowered: Lowered, *, check: bool = True, devices: Sequence[Any] | None = None, time_limit_s: float = TIME_LIMIT_S
) -> ExplicitMode:
    """The annotations of a plan's program in explicit mode, as few as compiling can show to be enough.

    check: compile, and remove annotations as long as the compiled collectives stay the same or come nearer to the plan;
    otherwise all are returned that explicit mode does not infer. Raises `UnsupportedError` where the installed JAX has
    no explicit mode or refuses the program, `InputError` where there are too few devices.
    """
    check_version()
    program = lowered.traced.program
    if program.host_inputs or program.host_outputs:
        raise UnsupportedError("explicit mode does not place values in host memory, which this plan states")
    if lowered.has_other_orders:
        raise UnsupportedError(
            "explicit mode has one order of the devices; this plan states inputs or outputs in another one"
        )
    if time_limit_s <= 0:
        raise InputError(f"the time limit is a positive number of seconds, found {time_limit_s}")
    annotated = find_annotations(lowered)
    order = list(annotated.found)
    if not check:
        return ExplicitMode(
            lowered=lowered, annotations=tuple(annotated.found.values()), needed={}, dropped=0, all_tested=False,
            compilations=0, notes=tuple(annotated.notes), report=None,
        )  # fmt: skip
    planned = planned_traffic(lowered, by_xla=True)

    def compiled(sites: frozenset[Site]) -> Counter[Traffic]:
        return compiled_traffic(lowered, staged(lowered, {s: annotated.found[s] for s in order if s in sites}, devices))

    fewest = Fewest(compiled, planned, order, time.monotonic() + time_limit_s)
    fewest.remove([s for s in order if annotated.found[s].local])
    for site in [s for s in order if not annotated.found[s].local]:
        fewest.remove([site])
    fewest.confirm()
    return ExplicitMode(
        lowered=lowered, annotations=tuple(annotated.found[s] for s in order if s in fewest.kept),
        needed={s: fewest.without[s][1] for s in order if s in fewest.kept and s in fewest.without},
        dropped=len(order) - len(fewest.kept), all_tested=fewest.all_tested, compilations=fewest.compilations,
        notes=tuple(annotated.notes), report=TargetReport("explicit mode", planned, fewest.traffic),
    )  # fmt: skip


@dataclass
class Fewest:
    """Removes annotations as long as that does not lead away from the plan.

    kept: what is left, and traffic its collectives. without: for an annotation that was tried alone, what was kept
    beside it then, and what happened.
    """

    compiled: Callable[[frozenset[Site]], Counter[Traffic]]
    planned: Counter[Traffic]
    order: Sequence[Site]
    deadline: float
    kept: frozenset[Site] = field(init=False)
    traffic: Counter[Traffic] = field(init=False)
    without: dict[Site, tuple[frozenset[Site], str]] = field(default_factory=dict)
    compilations: int = 0

    def __post_init__(self) -> None:
        self.kept = frozenset(self.order)
        self.traffic = self._traffic(self.kept)

    @property
    def all_tested(self) -> bool:
        """Whether the program was tried without each annotation that is left, with all others in place."""
        return all(s in self.without and self.without[s][0] == self.kept - {s} for s in self.kept)

    def _traffic(self, sites: frozenset[Site]) -> Counter[Traffic]:
        traffic = self.compiled(sites)
        self.compilations += 1
        return traffic

    def remove(self, sites: Sequence[Site]) -> None:
        """Remove all of these sites, or as many as halving finds."""
        if not sites or time.monotonic() > self.deadline:
            return
        if self._removed(sites) or len(sites) == 1:
            return
        half = len(sites) // 2
        self.remove(sites[:half])
        self.remove(sites[half:])

    def confirm(self) -> None:
        """Try again without each annotation that is left, until none can go or the time is over."""
        while not self.all_tested and time.monotonic() <= self.deadline:
            for site in [s for s in self.order if s in self.kept]:
                if self.without.get(site, (None, ""))[0] != self.kept - {site}:
                    self.remove([site])

    def _removed(self, sites: Sequence[Site]) -> bool:
        left = self.kept.difference(sites)
        try:
            traffic, said = self._traffic(left), ""
        except RefusedError as error:
            traffic, said = None, f"refused, {error}"
        if traffic is not None and self._is_no_worse(traffic):
            self.kept, self.traffic = left, traffic
            return True
        if len(sites) == 1:
            self.without[sites[0]] = left, said if traffic is None else _differs(self.traffic, traffic)
        return False

    def _is_no_worse(self, traffic: Counter[Traffic]) -> bool:
        return traffic == self.traffic or apart(self.planned, traffic) < apart(self.planned, self.traffic)


def _differs(before: Counter[Traffic], after: Counter[Traffic]) -> str:
    """How the collectives of a program change, in a line."""
    old, new = by_kind(before), by_kind(after)
    parts = []
    for kind in sorted({*old, *new}):
        (count, sent), (then, then_sent) = old.get(kind, (0, 0.0)), new.get(kind, (0, 0.0))
        if (count, sent) != (then, then_sent):
            parts.append(f"{kind} {count} -> {then} ({then_sent - sent:+,.0f} bytes)")
    total = moved_bytes(after) - moved_bytes(before)
    return f"{'; '.join(parts) or 'other axes or sizes'}; in all {total:+,.0f} bytes"
