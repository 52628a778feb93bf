"""The plan: its record, the questions that it answers, and ways to run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from autoshard.constraints import MatchedKernel
from autoshard.constraints.kernels_of import called_in, with_kernels
from autoshard.errors import InputError, listing
from autoshard.interrupts import heeded
from autoshard.plan_record import PlanRecord
from autoshard.program.as_json import plain, program_to_json, without_places
from autoshard.program.differing import program_difference
from autoshard.trust import Trust

if TYPE_CHECKING:
    from autoshard.api.explicit_mode import ExplicitMode
    from autoshard.api.logical_rules import LogicalRules
    from autoshard.api.targets import Target
    from autoshard.frontends.jax.function import TracedFunction
    from autoshard.lowering.lower import Lowered
    from autoshard.questions.break_even import BreakEven
    from autoshard.questions.diff import PlanDiff
    from autoshard.questions.explain import ExplainedValue
    from autoshard.questions.instead import Instead
    from autoshard.questions.objectives import Objectives
    from autoshard.verify.report import Verification

STATE_NOTHING = {
    "time_limit", "progress", "effects", "form", "price_sharing", "solver_memory", "loop_parts"
}  # fmt: skip
"""Keywords of `autoshard.plan` that leave nothing to verify."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(PlanRecord):
    """A `PlanRecord` that answers questions, runs, and has itself verified; the work is done in other rooms."""

    def summary(self, width: int = 100) -> str:
        """The plan as a table a person can read."""
        from autoshard.report import summary

        return summary(self.to_dict(), width=width)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its file is: without the function and what differs from run to run."""
        return type(self).from_dict, ({**self.to_dict(), "config": self.config},)

    def __copy__(self) -> Self:
        """The plan itself: it does not change."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The plan itself: it does not change."""
        return self

    def _repr_html_(self) -> str:
        """In notebooks: the verdict, baselines and the largest inputs."""
        from autoshard.report.notebook import notebook_html

        return notebook_html(self)

    @heeded()
    def report(self, path: str | os.PathLike[str], *, alternatives: int = 0) -> None:
        """Write the page of ``autoshard report``: everything about the plan in one HTML file.

        alternatives: of so many of the largest inputs it has the prices of other shardings.
        """
        from autoshard.api.pages import largest, page
        from autoshard.files import write_text
        from autoshard.report.view.search import search_points

        searches = [search_points(self.run)]
        write_text(path, page([self], [self.program.name], searches, [largest(self, alternatives)]))

    # -- asking it -----------------------------------------------------------------------------------

    @heeded()
    def explain(self, value: str) -> list[ExplainedValue]:
        """Why the values that a name or a pattern addresses have their shardings; `autoshard.questions.explain`."""
        from autoshard.questions.explain import explain_plan

        return explain_plan(self, value)

    @heeded()
    def instead(
        self,
        value: str,
        sharding: str,
        *,
        time_limit: float | None = None,
        effort: float | None = None,
        seed: int | None = None,
        accepted_gap: float | None = None,
    ) -> Instead:
        """What another sharding of a value would cost, and where: the plan is solved again;
        `autoshard.questions.instead`.

        time_limit: seconds of wall clock, a guard. effort, seed, accepted_gap: by default those of the plan.
        """
        from autoshard.questions.again import options_of
        from autoshard.questions.instead import instead

        options = options_of(self).but(effort=effort, seed=seed, accepted_gap=accepted_gap)
        return instead(self, value, sharding, options.within(time_limit))

    @heeded()
    def break_even(
        self,
        value: str,
        by: str,
        *,
        instead: str | None = None,
        time_limit: float | None = None,
        effort: float | None = None,
        seed: int | None = None,
        accepted_gap: float | None = None,
    ) -> BreakEven:
        """At which link bandwidth, batch size or memory limit (`by`) the sharding of a value flips.

        It flips by itself or, where `instead` is given, to that sharding; `autoshard.questions.break_even`. effort: of
        each of the many searches, by default a tenth of the plan's. seed, accepted_gap: by default the plan's.
        """
        from autoshard.questions.break_even import break_even, quick_options

        options = quick_options(self).but(effort=effort, seed=seed, accepted_gap=accepted_gap)
        return break_even(self, value, by, instead=instead, options=options, each_s=time_limit)

    @heeded()
    def objectives(self, *, search: bool = False, time_limit: float | None = None) -> Objectives:
        """Seconds under both objectives; with `search` also the optimum of the one that this plan does not minimise;
        `autoshard.questions.objectives`. time_limit: seconds of wall clock of that search, a guard.
        """
        from autoshard.questions.again import options_of
        from autoshard.questions.objectives import price_objectives

        return price_objectives(self, search=search, options=options_of(self).within(time_limit))

    def diff(self, other: Plan) -> PlanDiff:
        """What differs between this plan (a) and another one (b); `autoshard.questions.diff`."""
        from autoshard.questions.diff import diff_plans

        return diff_plans(self, other)

    # -- taking its shardings away -------------------------------------------------------------------

    def partition_specs(self, argument: str | None = None, *, like: Any = None) -> Any:
        """`PartitionSpec`s of inputs and outputs, from the file alone; `autoshard.api.specs.partition_specs`.

        argument: of one argument (``out``: of the result). like: a pytree whose structure they are given in.
        """
        from autoshard.api.specs import partition_specs

        return partition_specs(self, argument, like=like)

    def named_shardings(self, mesh: Any = None, argument: str | None = None, *, like: Any = None) -> Any:
        """The same as `NamedSharding`s, on a `jax.sharding.Mesh` with the plan's axes (that of all devices if none is
        given)."""
        from autoshard.api.specs import named_shardings

        return named_shardings(self, mesh, argument, like=like)

    def logical_axis_rules(self, roles: Mapping[str, Any] | None = None) -> LogicalRules:
        """Rules from logical names to mesh axes that hold most of the plan, for MaxText and flax, and what they cannot
        say; `autoshard.api.logical_rules`. roles: logical names by path; by default those of the plan's config.
        """
        from autoshard.api.logical_rules import logical_rules

        return logical_rules(self, roles)

    # -- running it ----------------------------------------------------------------------------------

    @cached_property
    def lowered(self) -> Lowered:
        """The program lowered to one `shard_map` with the planned collectives."""
        if self.traced is None:
            raise InputError(
                "this plan was loaded from a file and does not hold the function; call plan.attach(f, *specs) first"
            )
        from autoshard.lowering.lower import lower

        return lower(self.traced, self.schedule, self.order, self.apart)

    def lower(self, target: str = "explicit") -> Target:
        """The program for JAX in one of the forms of `autoshard.api.targets.TARGETS`.

        ``explicit`` (the planned collectives written out), ``constraints`` (a sharding constraint on every value),
        ``shardings`` (inputs and outputs only), ``mlir`` (StableHLO text with sdy shardings). Each has `jit()`, `fn`,
        `in_shardings`, `out_shardings`, `stablehlo()` and `report()`: which planned collectives XLA keeps.
        """
        from autoshard.api.targets import Target

        return Target(target, self.lowered)

    @heeded()
    def explicit_mode(
        self, *, check: bool = True, devices: Sequence[Any] | None = None, time_limit: float | None = None
    ) -> ExplicitMode:
        """The fewest annotations with which the program keeps the plan in JAX's explicit sharding mode, and the program
        with them; `autoshard.api.explicit_mode`.

        check: compile for `devices` (all of JAX by default) and try without each annotation, for `time_limit` seconds.
        """
        from autoshard.api.explicit_mode import TIME_LIMIT_S, explicit_mode

        limit = TIME_LIMIT_S if time_limit is None else time_limit
        return explicit_mode(self.lowered, check=check, devices=devices, time_limit_s=limit)

    @heeded()
    def attach(
        self,
        f: Any,
        *specs: Any,
        donate_argnums: int | Sequence[int] | None = None,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Sequence[str] | None = None,
        argnames: Sequence[str] | None = None,
        kernels: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Plan:
        """A copy of the plan that can run `f`; `InputError` unless `f` traces to the program that was planned.

        The lines of the file on which `f` stands may have changed. donate_argnums: by default those of the plan, and
        no others, as donation is part of what was planned.
        kernels: by the name of a kernel, the function that a device runs in its place, where the plan was made with
        one; those that a plan names are imported only from configs that may be imported from (`autoshard.trust`).
        """
        from autoshard.frontends.jax.effects import effects_of
        from autoshard.frontends.jax.function import trace
        from autoshard.request.arguments import stated_devices

        traced = trace(
            f, *specs, donate_argnums=() if donate_argnums is None else donate_argnums, static_argnums=static_argnums,
            static_argnames=static_argnames, argnames=argnames, keywords=keywords, name=self.program.name,
            effects=effects_of(self.program), kernels=called_in(self.program), loop_parts=self.program.loop_parts,
        )  # fmt: skip
        if donate_argnums is None:
            traced = replace(traced, program=replace(traced.program, donated=self.program.donated))
        own = None if self.traced is None else self.traced.devices
        devices = stated_devices(traced, (), self.schedule.mesh.mesh.size, own)
        return self.holding(replace(traced, devices=devices), kernels)

    def holding(self, traced: TracedFunction, kernels: Mapping[str, Any] | None = None) -> Plan:
        """A copy of the plan with its function, which is traced already; `InputError` where its program is not the
        plan's.
        """
        from autoshard.frontends.jax.function import with_locals

        own = self.program
        traced = replace(
            traced,
            program=replace(
                traced.program,
                host_inputs=own.host_inputs,
                host_outputs=own.host_outputs,
                orders=own.orders,
                carried=own.carried,
                in_code=own.in_code,
            ),
        )
        stated = [s for s in self.stated if isinstance(s, MatchedKernel)]
        whole = replace(traced, program=with_kernels(traced.program, stated))
        traced = with_locals(whole, self._locals(stated, kernels or {}))
        traced_json, planned_json = (without_places(program_to_json(p)) for p in (traced.program, self.program))
        if change := program_difference(plain(traced_json), plain(planned_json)):
            raise InputError(
                f"the function does not trace to the program of this plan: {change}; it, its argument types, what is "
                "donated or the jax version have changed since: solve again"
            )
        return replace(self, traced=traced)

    def _locals(self, stated: Sequence[MatchedKernel], given: Mapping[str, Any]) -> dict[int, Any]:
        """What a device runs in the place of kernels, by op: what is given, else what a trusted plan names."""
        from autoshard.config.problem import imported_locals

        unknown = sorted(set(given) - {s.name for s in stated})
        if unknown:
            raise InputError(f"kernels: {listing(unknown[0], sorted({s.name for s in stated}))}")
        config = self.config or {}
        trusted = config.get("trusted") is Trust.GIVEN
        named = {s.op: s.local for s in stated if trusted and s.local not in (None, "?")}
        functions = {s.op: given[s.name] for s in stated if s.name in given}
        return imported_locals({**named, **functions}, Path(config.get("folder") or "."))

    @heeded()
    def verify(
        self,
        f: Any,
        *specs: Any,
        donate_argnums: int | Sequence[int] | None = None,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Sequence[str] | None = None,
        argnames: Sequence[str] | None = None,
        **asked: Any,
    ) -> Verification:
        """The checks of ``autoshard verify``, against the request in the words of `autoshard.plan`.

        asked: those of its keywords that state something: mesh, hardware, constraints, memory_limit, priorities, roles,
        strategy (`autoshard.verify.Asked`). Statements, limits, mesh and machine are derived from them again. Those
        that state nothing (`time_limit`, `loop_parts`) are passed over; other keywords are arguments of `f`.
        """
        from autoshard.api.bound import with_bound
        from autoshard.frontends.jax.effects import effects_of
        from autoshard.verify import Asked, verify_plan
        from autoshard.verify.runs.checks import runnable_from

        words = {field.name for field in fields(Asked)}
        if missing := [name for name in ("mesh", "hardware") if name not in asked]:
            raise InputError(
                f"verify compares the plan with what was asked for: give {' and '.join(missing)} as to autoshard.plan, "
                "and constraints and limits likewise"
            )
        runnable = runnable_from(
            f, specs, name=self.program.name, donate_argnums=donate_argnums, static_argnums=static_argnums,
            static_argnames=static_argnames, argnames=argnames, effects=effects_of(self.program),
            kernels=called_in(self.program), loop_parts=self.program.loop_parts,
            keywords={name: given for name, given in asked.items() if name not in words | STATE_NOTHING},
        )  # fmt: skip
        asked = {name: given for name, given in asked.items() if name in words}
        data = self.to_dict()
        return with_bound(
            verify_plan(data, runnable, asked=Asked(**asked), name=f"the plan of {self.program.name}"), data
        )

    def jit(self, *, form: str | None = None, **options: Any) -> Any:
        """The jitted function: arrays in and out as before, sharded as planned. `options` go to `jax.jit`.

        It is called as `f` is, by position or keyword, static leaves included. form: see `with_form`; by default the
        one that the plan was asked for.
        """
        plan = self if form is None else self.with_form(form)
        return plan.lower(plan.runs_as).jit(**options)

    @property
    def runs_as(self) -> str:
        """The form in which `jit` hands the plan to XLA: ``explicit``, ``constraints`` or ``shardings``."""
        return "explicit" if self.form is None else self.form.form

    @heeded()
    def with_form(self, form: str, *, compiler: str = "auto", progress: Callable[[str], None] | None = None) -> Plan:
        """The plan, to be run in a form: ``explicit``, ``constraints``, ``shardings``, or in the one in which a step is
        quickest by simulation, of the first two (``auto``) or of all (``all``), which `Plan.form` then tells.

        compiler: who judges (`tpu`, `own`). `UnsupportedError` where a form leaves to XLA what is stated.
        """
        from autoshard.api.forms import choose_form

        return self.run_as(choose_form(self, form, compiler=compiler, progress=progress))

    def place(self, *arguments: Any, **keywords: Any) -> tuple[Any, ...]:
        """Arguments from the host as global arrays, sharded as planned; each process copies its own shards.

        Arguments by keyword come after those by position, in the order of the function. Static arguments stay as they
        are.
        """
        from autoshard.interop.place import place_tree
        from autoshard.lowering.arguments import arrays_of, told_of_arguments

        traced = self.lowered.traced
        arrays = arrays_of(traced, arguments, keywords)
        with told_of_arguments(traced, arrays):
            placed = place_tree(arrays, self.in_shardings)
        return placed if traced.call is None else tuple(traced.call.whole(placed))

    @property
    def in_shardings(self) -> Any:
        """`NamedSharding` of every argument that is an array, as a pytree like the arguments."""
        return self.lowered.in_shardings

    @property
    def out_shardings(self) -> Any:
        """`NamedSharding` of every result, as a pytree like the result."""
        return self.lowered.out_shardings
