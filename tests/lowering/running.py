"""Running a function under a schedule on simulated devices, once per compilation, and judging all of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from collective_order import unordered_collectives

from autoshard.api.targets import Target
from autoshard.costs.fusion import analyse as fuse
from autoshard.costs.liveness import analyse
from autoshard.costs.ordering import order_to_keep
from autoshard.frontends.jax.function import TracedFunction, trace
from autoshard.lowering.lower import Lowered, lower
from autoshard.program.order import NOTHING, Order
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule
from autoshard.verify.runs.collectives import UNCOMBINED, compare
from autoshard.verify.runs.hlo import hlo_collectives
from autoshard.verify.runs.numeric import NumericReport, compare_outputs, program_tolerances
from autoshard.verify.runs.stablehlo import stablehlo_collectives


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that this version of XLA has."""
    staged = jax.jit(lambda x: x).lower(0)
    found: dict[str, Any] = {}
    for name, value in options.items():
        try:
            staged.compile(compiler_options={name: value})
        except jax.errors.JaxRuntimeError:
            continue
        found[name] = value
    return found


FAST: dict[str, Any] = {
    **UNCOMBINED,
    **_known({"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}),
}
"""The collectives as written, and code that need not be fast."""

PLAIN: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_disable_hlo_passes": "fusion",
    **_known({"xla_cpu_use_fusion_emitters": True}),
}
"""For a program on one device. Fused, XLA for CPU writes an update that is computed from a reshaped array into that
array while it still reads it: ``y = x.reshape(4, 4); y.at[1:].set(2 * y[:-1])``. Not fused, its older emitters get
contractions over two dimensions wrong (``einsum("bij,bjk->ik")``)."""


def order_of(program: Program, schedule: Schedule) -> Order:
    """All that can be kept in order, as on a device without memory, for every other program; nothing for the others."""
    if len(program.ops) % 2:
        return NOTHING
    return order_to_keep(program, schedule, analyse(program, fuse(program)), None, 0)


class Original:
    """A function, traced once and run once unsharded."""

    def __init__(self, f: Callable[..., Any], *args: Any) -> None:
        self.args = args
        self.traced: TracedFunction = trace(f, *args)
        self.expected = jax.jit(f).lower(*args).compile(compiler_options=PLAIN)(*args)

    def lower(self, schedule: Schedule) -> Lowered:
        return lower(self.traced, schedule, order_of(self.traced.program, schedule))


@dataclass(frozen=True)
class Judged:
    """What one run showed. dropped: planned collectives that the compiled program lacks; it never has others."""

    numbers: NumericReport
    planned: int
    dropped: int


def run_and_judge(original: Original, schedule: Schedule, *, compiled: bool = True) -> Judged:
    """Values, after planned = lowered collectives was asserted, compiled ones within the planned, and all in order.

    Even with the passes left out that merge and move collectives, XLA drops what leads to nothing (empty arrays,
    results of a sort or loop that nobody uses) and what it knows (a predicate that is constant): the compiled program
    may do less than planned, never anything else.
    """
    lowered = original.lower(schedule)
    staged = lowered.jit(donate_argnums=()).lower(*original.args)
    assert compare(lowered.planned, stablehlo_collectives(staged.as_text()), schedule.mesh) == []
    program = staged.compile(compiler_options=FAST)
    different = []
    if compiled:  # bf16 collectives are f32 on the CPU
        different = compare(lowered.planned, hlo_collectives(program.as_text()), schedule.mesh, dtypes=False)
        assert [d for d in different if d.found >= d.planned] == []
    assert unordered_collectives(program.as_text()) == []
    placed = jax.tree.map(jax.device_put, original.args, lowered.in_shardings)
    allowed = program_tolerances(original.traced.program)
    numbers = compare_outputs(program(*placed), original.expected, tolerances=allowed)
    return Judged(numbers, len(lowered.planned), sum(d.planned - d.found for d in different))


def run_as_users_do(original: Original, schedule: Schedule, form: str) -> NumericReport:
    """Outputs against the unsharded ones, of a form compiled with all that XLA does by default.

    `FAST` leaves out passes that may do wrong to what is lowered, as algebraic simplification did.
    """
    target = Target(form, original.lower(schedule))
    placed = jax.tree.map(jax.device_put, original.args, target.in_shardings)
    found = target.jit(donate_argnums=())(*placed)
    return compare_outputs(found, original.expected, tolerances=program_tolerances(original.traced.program))


def run_and_compare(original: Original, schedule: Schedule, *, compiled: bool = True) -> NumericReport:
    """Outputs against the unsharded ones, after planned = lowered = compiled collectives was asserted.

    compiled=False leaves the compiled text out of it.
    """
    judged = run_and_judge(original, schedule, compiled=compiled)
    assert judged.dropped == 0
    return judged.numbers
