"""The program of a plan with another batch size: the function is found by the plan's config, and traced again."""

from dataclasses import replace
from typing import Any

from autoshard.config.load import Config
from autoshard.config.problem import build_problem
from autoshard.config.workload import Workload
from autoshard.constraints import Kernel
from autoshard.constraints.kernels_of import called_in, match_kernels, with_kernels
from autoshard.errors import AutoshardError, InputError, UnsupportedError
from autoshard.frontends.jax.batch import resized
from autoshard.frontends.jax.effects import effects_of
from autoshard.frontends.jax.function import trace
from autoshard.plan_record import PlanRecord
from autoshard.program.program import Origin, Program
from autoshard.strategies.named import BATCH, roles_of


def batch_rows(plan: PlanRecord) -> int:
    """Rows of the batch: the size of the dimension that is called ``batch``."""
    _, dims = _workload(plan)
    sizes = {size for _, size in dims.values()}
    if len(sizes) != 1:
        raise UnsupportedError(f"the inputs have batches of different sizes: {', '.join(map(str, sorted(sizes)))}")
    return sizes.pop()


def with_rows(plan: PlanRecord, rows: int) -> Program:
    """The plan's program, traced for a batch of `rows` rows; its values have the same ids as in the plan.

    Raises `UnsupportedError` where the program becomes another one, `InputError` where it cannot be traced.
    """
    workload, dims = _workload(plan)
    old = batch_rows(plan)
    specs = resized(workload.specs, {index: (dim, size * rows // old) for index, (dim, size) in dims.items()})
    try:
        program = trace(
            workload.function, *specs, donate_argnums=workload.donate_argnums, argnames=workload.argnames,
            name=workload.name, effects=effects_of(plan.program), kernels=called_in(plan.program),
            loop_parts=plan.program.loop_parts,
        ).program  # fmt: skip
    except AutoshardError:
        raise
    except Exception as error:  # what the user's function does with other shapes
        raise InputError(
            f"{workload.name} cannot be traced with a batch of {rows} rows: {type(error).__name__}: {error}"
        ) from error
    if _names(program) != _names(plan.program):
        raise UnsupportedError(f"{workload.name} is another program with a batch of {rows} rows: its values differ")
    stated = [s for s in Config.from_dict(plan.config or {}).statements if isinstance(s, Kernel)]
    program = with_kernels(program, match_kernels(stated, program).statements)
    return replace(program, carried=plan.program.carried, in_code=plan.program.in_code)


def _names(program: Program) -> list[str]:
    """The names of all values, "" for literals: these change with the rows, as the divisor of a mean does."""
    return ["" if v.origin is Origin.LITERAL else v.name for v in program.values]


def _workload(plan: PlanRecord) -> tuple[Workload, dict[int, tuple[int, int]]]:
    """The workload of the plan's config, and input leaf -> (its batch dimension, the size of that)."""
    if plan.config is None:
        raise UnsupportedError(
            "the plan does not say where its function comes from, so it cannot be traced with another batch; plan it "
            "from a config (autoshard solve)"
        )
    config = Config.from_dict(plan.config)
    workload = build_problem(config)
    roles: Any = config.settings.logical_axes if workload.model is None else workload.model.logical_axes
    if not roles:
        raise UnsupportedError("which dimension is the batch is not known; give logical_axes in the config")
    program = plan.program
    named = roles_of(program, roles)
    dims = {}
    for index, value in enumerate(program.body.args[: len(program.input_names)]):
        names = named.get(value, ())
        if BATCH in names:
            dim = names.index(BATCH)
            dims[index] = (dim, program.type_of(value).shape[dim])
    if not dims:
        raise UnsupportedError(f"no input has a dimension called {BATCH!r} in logical_axes")
    return workload, dims
