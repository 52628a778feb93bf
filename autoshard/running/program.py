"""A plan run in this process, alone or as one of many: its train steps, or calls of the user's own function."""

import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoshard.errors import AutoshardError, InputError, UnsupportedError

if TYPE_CHECKING:
    from autoshard.api.plans import Plan
    from autoshard.config.workload import Workload

Report = Callable[[Mapping[str, Any]], None]
"""Called with each record as soon as it is known; `run` describes the records."""

DEFAULT_TRAIN_STEPS = 5
"""Train steps of a model whose config has no `run`; a function is called once."""


@dataclass(frozen=True)
class Job:
    """A plan file to run.

    steps, seed: None for those in the plan's config (`run`), or else 5 train steps (of a function 1 call) and seed 0.
    """

    plan_file: str
    steps: int | None = None
    seed: int | None = None


def load(plan_file: str) -> "tuple[Plan, Workload]":
    """A plan from its file, attached to the function that its config names. Imports JAX and the user's code."""
    from autoshard.api.plans import Plan

    plan = Plan.load(plan_file)
    if plan.config is None:
        raise InputError(
            f"{plan_file} was made by autoshard.plan(...) and does not say where its function is; only plans of a "
            "config (autoshard solve) can be run from the command line. In Python: "
            "autoshard.Plan.load(file).attach(f, *specs).jit()"
        )
    from autoshard.config.load import Config
    from autoshard.config.problem import build_problem, told_of_tracing

    config = Config.from_dict(plan.config)
    problem = build_problem(config)
    with told_of_tracing(config, problem.name):
        attached = plan.attach(
            problem.function, *problem.specs, donate_argnums=problem.donate_argnums, argnames=problem.argnames
        )
    return attached, problem


def run(job: Job, report: Report) -> None:
    """Run on all devices that JAX sees, which may belong to many processes; each calls this with the same job.

    Records, in order: ``{"program", "mesh", "steps", "seed", "trains"}``; ``{"compiled": seconds, "held_bytes",
    "whole_bytes"}`` (inputs: what this process holds, and their size); for each step ``{"step", "seconds", "loss"}``
    (loss only of models); ``{"outputs": [{"name", "shape", "dtype", "parts"}]}`` of the last step (see
    `arrays.own_sums`).
    """
    import jax

    from autoshard.constraints.kernels_of import kernels_in
    from autoshard.running.arrays import held_bytes, own_sums

    plan, problem = load(job.plan_file)
    steps, seed = _amounts(job, plan, problem)
    mesh = dict(zip(plan.schedule.mesh.mesh.axis_names, plan.schedule.mesh.mesh.axis_sizes, strict=True))
    report(
        {
            "program": plan.program.name, "mesh": mesh, "steps": steps, "seed": seed,
            "trains": problem.model is not None,
        }
    )  # fmt: skip
    _check_memory(plan)
    inputs = _inputs(plan, problem, seed)
    began = time.monotonic()
    jitted = plan.jit()
    try:
        function = jitted.lower(*problem.specs).compile()
    except Exception as error:  # what JAX and XLA say of a kernel depends on the kernel
        names = kernels_in(plan.program)
        if not names or isinstance(error, AutoshardError):
            raise
        first = str(error).strip().partition("\n")[0]
        raise UnsupportedError(
            f"the kernels {', '.join(names)} are not for the devices of this machine: {first}; run the plan on the "
            "machine that it is for"
        ) from None
    arguments = inputs(None)
    leaves = jax.tree.leaves(arguments)
    report(
        {
            "compiled": time.monotonic() - began,
            "held_bytes": held_bytes(leaves),
            "whole_bytes": int(sum(plan.program.type_of(v).bytes for v in plan.program.body.args[: len(leaves)])),
        }
    )
    result: Any = None
    for step in range(steps):
        if step:
            arguments = inputs(result)
        began = time.monotonic()
        result = jax.block_until_ready(function(*arguments))
        record = {"step": step, "seconds": time.monotonic() - began}
        if problem.model is not None:
            record["loss"] = _scalar(result[1]["loss"])
        report(record)
    outputs = [leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)]  # others are static
    report(
        {
            "outputs": [
                {"name": name, "shape": list(x.shape), "dtype": str(x.dtype), "parts": own_sums(x)}
                for name, x in zip(plan.program.output_names, outputs, strict=False)  # changed arguments come behind
            ]
        }
    )


def _check_memory(plan: "Plan") -> None:
    """`InputError` where simulated devices together would take more memory than the machine has."""
    import jax

    if jax.default_backend() != "cpu" or not hasattr(os, "sysconf"):
        return
    wanted = plan.memory.peak_bytes * plan.schedule.mesh.mesh.size
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if wanted > have:
        raise InputError(
            f"the plan holds {wanted / 1e9:.3g} GB at its peak on all devices together, and this machine, which would "
            f"simulate them, has {have / 1e9:.3g} GB; plan a smaller program, or run it on the devices it is meant for"
        )


def _amounts(job: Job, plan: "Plan", problem: "Workload") -> tuple[int, int]:
    from autoshard.config.load import Config

    assert plan.config is not None
    section = Config.from_dict(plan.config).run
    usual = DEFAULT_TRAIN_STEPS if problem.model is not None else 1
    steps = job.steps if job.steps is not None else usual if section is None else section.steps
    seed = job.seed if job.seed is not None else 0 if section is None else section.seed
    return steps, seed


Inputs = Callable[[Any], tuple[Any, ...]]
"""From the result of the last step (None before the first) to the arguments of the next."""


def _train_inputs(plan: "Plan", problem: "Workload", seed: int) -> Inputs:
    """State and batch of each train step: the initial state, made shard by shard, then that of the last step; new
    batches.
    """
    import jax

    from autoshard.interop.place import place, place_tree

    model = problem.model
    assert model is not None
    by_name = dict(zip(plan.program.input_names, jax.tree.leaves(plan.in_shardings), strict=True))
    state_name, batch_shardings = model.argnames[0], plan.in_shardings[1]
    batches = model.batches(seed)

    def arguments(result: Any) -> tuple[Any, ...]:
        if result is None:
            state = model.init(seed, lambda path, host: place(host, by_name[f"{state_name}/{path}"]))
        else:
            state = result[0]
        return state, place_tree(next(batches), batch_shardings)

    return arguments


def _inputs(plan: "Plan", problem: "Workload", seed: int) -> Inputs:
    if problem.model is not None:
        return _train_inputs(plan, problem, seed)
    own = problem.arguments
    if own is None:
        return _call_inputs(plan, seed)
    seeds = itertools.count(seed)
    return lambda result: plan.place(*own(next(seeds)))


def _call_inputs(plan: "Plan", seed: int) -> Inputs:
    """Random arguments, other ones for every call."""
    import jax

    from autoshard.running.arrays import generated

    traced, seeds = plan.traced, itertools.count(seed)
    assert traced is not None
    shardings = jax.tree.leaves(plan.in_shardings)

    def arguments(result: Any) -> tuple[Any, ...]:
        return jax.tree.unflatten(traced.in_tree, generated(traced.in_types, shardings, next(seeds)))

    return arguments


def _scalar(x: Any) -> float:
    """The number in a scalar array that every device holds."""
    return float(x.addressable_shards[0].data)
