"""Running a function under a schedule on simulated devices, once per compilation, and judging all of it."""

from collections.abc import Callable
from typing import Any

import jax

from autoshard.frontends.jax_function import TracedFunction, trace
from autoshard.lowering.lower import Lowered, lower
from autoshard.schedule import Schedule
from autoshard.verify.collectives import UNCOMBINED, compare
from autoshard.verify.hlo import hlo_collectives
from autoshard.verify.numeric import NumericReport, compare_outputs, program_tolerances
from autoshard.verify.stablehlo import stablehlo_collectives

FAST: dict[str, Any] = {**UNCOMBINED, "xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""The collectives as written, and code that need not be fast."""


class Original:
    """A function, traced once and run once unsharded."""

    def __init__(self, f: Callable[..., Any], *args: Any) -> None:
        self.args = args
        self.traced: TracedFunction = trace(f, *args)
        self.expected = jax.jit(f).lower(*args).compile(compiler_options={"xla_backend_optimization_level": 0})(*args)

    def lower(self, schedule: Schedule) -> Lowered:
        return lower(self.traced, schedule)


def run_and_compare(original: Original, schedule: Schedule, *, compiled: bool = True) -> NumericReport:
    """Outputs against the unsharded ones, after planned = lowered = compiled collectives was asserted.

    compiled=False leaves the compiled text out of it. Of a program with empty arrays XLA drops whatever leads to
    nothing else: there the compiled program may do less than planned, never more.
    """
    lowered = original.lower(schedule)
    staged = lowered.jit(donate_argnums=()).lower(*original.args)
    assert compare(lowered.planned, stablehlo_collectives(staged.as_text()), schedule.mesh) == []
    program = staged.compile(compiler_options=FAST)
    if compiled:  # bf16 collectives are f32 on the CPU
        found = compare(lowered.planned, hlo_collectives(program.as_text()), schedule.mesh, dtypes=False)
        has_empty = any(0 in v.type.shape for v in original.traced.program.values)
        assert [d for d in found if not (has_empty and d.found <= d.planned)] == []
    placed = jax.tree.map(jax.device_put, original.args, lowered.in_shardings)
    return compare_outputs(program(*placed), original.expected, tolerances=program_tolerances(original.traced.program))
