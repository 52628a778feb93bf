"""`PlanRecord`: the content of plan.json, read and written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from autoshard.costmodels.machine import Machine
from autoshard.costs.memory import MemoryProfile, headroom, room, verdict
from autoshard.costs.price import CommRow, PlanCost
from autoshard.errors import InputError
from autoshard.files import read_json, write_json
from autoshard.garbage import uncollected
from autoshard.plan_record.asked import AskedRecord, read_part, told
from autoshard.plan_record.parts import (
    BaselineCost,
    BoundProof,
    ChosenForm,
    JointOptimum,
    JudgedRivals,
    MeshSearched,
    NamedPriorities,
    SharingPrice,
    StageRecord,
    ToldChange,
    ToldLimit,
    ToldOptions,
)
from autoshard.program.as_json import (
    FORMAT,
    VERSION,
    check_claims,
    check_header,
    guarded,
    mesh_from_json,
    plain,
    program_from_json,
    program_on_host,
    program_to_json,
    schedule_from_json,
    schedule_to_json,
)
from autoshard.program.order import Order
from autoshard.program.program import Origin
from autoshard.program.schedule import Schedule
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.trust import placed_config

if TYPE_CHECKING:
    import pandas as pd

    from autoshard.costs.steptime import StepTime
    from autoshard.frontends.jax.function import TracedFunction


@dataclass(frozen=True, kw_only=True)
class PlanRecord(AskedRecord):
    """Shardings of every value, the collectives that follow, their cost and memory, and the proven gap.

    status: ``optimal`` or ``feasible``. objective_s: seconds of one step as the `objective` counts them, plus the
    minute price on memory that breaks ties (`memory_price_s`). bound_s: no plan under the same statements costs less.
    gap: (objective_s - bound_s) / objective_s. memory: the peak of one device, where, and what is held there.
    model_flop, batch: useful FLOP of a step, its tokens or rows, where known. traced: the function, if the plan holds
    it. statements: as in plan.json; `stated` has them as values. run: timings and solver reports; not in plan.json.
    stages: where statements have priorities, what each stage placed, its cost and its bound, and its price; bound and
    gap of the plan are then those of the last stage, and `joint` is the optimum all at once beside them.
    strategy: by which the plan was decided, where that is not by cost alone (``greedy``, ``staged:first-factor``).
    sharing: where repeated layers share decisions, how many, and what that costs at most.
    mesh_search: where the sizes of the mesh were searched too, what was tried and the frontier of time against memory.
    memory_limit: its ``bytes`` per device (None: lifted), and ``from`` where: ``stated`` by the user (then it is one of
    the statements too), or what the ``device`` has room for. None in plans of earlier versions.
    options: with which the plan was made, and with which questions are answered. None in plans of earlier versions.
    certificate: the proof ``of`` the ``plan``'s bound, or of that of the ``joint`` optimum where there are stages, and
    what its network knew (`planning.certified`). None where nothing is proved but by the word of a strategy.
    form: how the plan is handed to XLA; None where its collectives are written out.
    rivals: where simulation chose the plan among several of its problem; it need not be that of the least cost.
    changed: where the plan answers a question put to another plan, what each question asked otherwise, in order.
    """

    schedule: Schedule
    cost: PlanCost
    memory: MemoryProfile
    status: str
    objective_s: float
    bound_s: float
    gap: float
    memory_price_s: float = 0.0
    rounding_s: float = 0.0
    baselines: tuple[BaselineCost, ...] = ()
    notes: tuple[str, ...] = ()
    model_flop: float | None = None
    batch: float | None = None
    run: Mapping[str, Any] = field(default_factory=dict, compare=False)
    traced: TracedFunction | None = field(default=None, compare=False, repr=False)
    stages: tuple[StageRecord, ...] = ()
    joint: JointOptimum | None = None
    sharing: SharingPrice | None = None
    mesh_search: MeshSearched | None = None
    strategy: str | None = None
    certificate: BoundProof | None = field(default=None, repr=False)
    form: ChosenForm | None = None
    rivals: JudgedRivals | None = None
    changed: tuple[ToldChange, ...] = ()

    @property
    def atoms(self) -> AtomMesh:
        """The mesh of the schedule, its axes split into atoms."""
        return self.schedule.mesh

    @cached_property
    def order(self) -> Order:
        """What the compiler must not reorder, so that what was planned fits within the memory limit or the device."""
        from autoshard.costs import liveness
        from autoshard.costs.apart import fusion_on
        from autoshard.costs.ordering import order_to_keep

        limit = None if self.memory_limit is None else self.memory_limit.bytes
        allowed = room(self.machine.usable_bytes, headroom(self.machine)) if limit is None else limit
        live = liveness.analyse(self.program, fusion_on(self.program, self.machine.profile))
        return order_to_keep(self.program, self.schedule, live, self.machine.profile.memory_tile, allowed)

    @cached_property
    def apart(self) -> frozenset[int]:
        """Values, gradients mostly, that lowering keeps the compiler from fusing with the update that reads them."""
        from autoshard.costs.apart import barriers

        return barriers(self.program, self.schedule, self.machine.profile)

    def __repr__(self) -> str:
        name = f"{type(self).__name__}({self.program.name} on {self.machine.profile.name}"
        price = f"{self.objective_s:.6g} s, no plan under {self.bound_s:.6g} s, gap {self.gap:.2%}, peak"
        where = f"mesh {self.schedule.mesh.mesh}, {self.status}"
        return f"{name}, {where}: {price} {self.memory.peak_bytes} bytes; summary() tells more)"

    # -- reading it ----------------------------------------------------------------------------------

    @cached_property
    def shardings(self) -> dict[str, str]:
        """Sharding text of every named value: inputs, outputs (``out/...``) and intermediates.

        Inputs as they are stored, outputs as they are returned, intermediates in the form that their uses share
        (which is the pinned one where there is a pin, else often the form they are defined in, which may be unreduced).
        """
        mesh, out = self.schedule.mesh, {}
        stored = set(self.program.body.args)
        for value in self.program.values:
            if value.origin is not Origin.LITERAL and value.id in self.schedule.definitions:
                defined = self.schedule.definitions[value.id]
                layout = defined if value.id in stored else self.schedule.form_before_use(value.id)
                out[value.name] = layout.text(mesh)
        for name, layout in zip(self.program.output_names, self.output_layouts, strict=True):
            out[name] = layout.text(mesh)
        return out

    @cached_property
    def _tagged(self) -> dict[str, tuple[str, ...]]:
        """Names of the values with each tag."""
        names: dict[str, tuple[str, ...]] = {}
        for value in self.program.values:
            for tag in value.tags:
                names[tag] = (*names.get(tag, ()), value.name)
        return names

    @cached_property
    def output_layouts(self) -> tuple[Layout, ...]:
        """The layout in which each output of the program leaves, in their order; unused literals count as
        replicated.
        """
        from autoshard.program.schedule import PROGRAM, Use

        layouts = []
        for slot, value in enumerate(self.program.body.results):
            use = self.schedule.uses.get(Use(PROGRAM, slot))
            layouts.append(Layout.replicated(self.program.type_of(value).rank) if use is None else use.target)
        return tuple(layouts)

    def __getitem__(self, path: str) -> str:
        """The sharding of one value by its path, or by its tag: ``plan["@attn_out"]``.

        For a value inside of a loop it is the sharding in one iteration, without the stacked dimension. `InputError`
        with similar names if there is no such value, and where a tag is on values that are sharded in different ways.
        """
        if path in self.shardings:
            return self.shardings[path]
        import difflib

        names = self._tagged.get(path[1:], ()) if path.startswith("@") else ()
        shardings = {name: self.shardings[name] for name in names if name in self.shardings}
        if len(set(shardings.values())) > 1:
            listed = "; ".join(f"{name} {text}" for name, text in list(shardings.items())[:4])
            rest = f" and {len(shardings) - 4} more" if len(shardings) > 4 else ""
            raise InputError(
                f"the tag {path!r} is on {len(shardings)} values that are sharded in different ways: {listed}{rest}"
            )
        if shardings:
            return next(iter(shardings.values()))
        known = [f"@{tag}" for tag in self._tagged] if path.startswith("@") else list(self.shardings)
        near = difflib.get_close_matches(path, known, n=3, cutoff=0.5)
        raise InputError(f"the plan has no value {path!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """One row per planned collective: where, kind, axes, bytes, seconds, times, total_s, value, source.

        bytes: of the array one device holds on the gathered side (what all-gather returns, what reduce-scatter and
        all-reduce take, what all-to-all and permute send), in whole blocks where axes do not divide it. seconds: of
        one execution; times: executions per step.
        """
        import pandas as pd

        rows = [self._collective(row) for row in self.cost.rows if row.is_collective]
        columns = ["where", "kind", "axes", "bytes", "seconds", "times", "total_s", "value", "source"]
        return pd.DataFrame(rows, columns=columns)

    def _collective(self, row: CommRow) -> dict[str, Any]:
        source = self.program.ops[row.op].source if row.op in self.program.ops else ""
        return {
            "where": row.where, "kind": row.kind, "axes": self.schedule.mesh.axes_text(row.atoms).replace('"', ""),
            "bytes": row.bytes, "seconds": row.seconds, "times": row.times, "total_s": row.seconds * row.times,
            "value": self.program.values[row.value].name, "source": source,
        }  # fmt: skip

    @cached_property
    def step_time(self) -> StepTime:
        """Lower bound, estimate and upper bound of a step, MFU and HFU, and how intense its collectives are."""
        from autoshard.costs import fusion
        from autoshard.costs.steptime import step_time

        return step_time(
            self.program, self.schedule, self.machine, self.cost, fusion.analyse(self.program),
            trips=self.trips, model_flop=self.model_flop, batch=self.batch,
        )  # fmt: skip

    def cost_parts(self) -> dict[str, Any]:
        """Seconds per step: compute, communication by kind and by mesh axes, local copies, and both step-time bounds.

        everything_overlaps_s is the busiest part of the machine, nothing_overlaps_s the sum of all.
        step_time: see `autoshard.costs.steptime`; by_axes_and_kind_s: one row for each pair of axes and kind.
        """
        by_kind: dict[str, float] = {}
        by_axes: dict[str, float] = {}
        both: dict[str, dict[str, float]] = {}
        for row in self.cost.rows:
            if row.is_collective:
                axes = self.schedule.mesh.axes_text(row.atoms).replace('"', "")
                by_kind[row.kind] = by_kind.get(row.kind, 0.0) + row.seconds * row.times
                by_axes[axes] = by_axes.get(axes, 0.0) + row.seconds * row.times
                kinds = both.setdefault(axes, {})
                kinds[row.kind] = kinds.get(row.kind, 0.0) + row.seconds * row.times
        cost = self.cost
        return {
            "compute_s": cost.compute_s,
            "communication_s": cost.communication_s,
            "local_copies_s": cost.local_s,
            "step_s": cost.step_s,
            "memory_price_s": self.memory_price_s,
            "rounding_s": self.rounding_s,
            "everything_overlaps_s": self.step_time.lower_s,
            "nothing_overlaps_s": cost.step_s,
            "by_kind_s": dict(sorted(by_kind.items())),
            "by_axes_s": dict(sorted(by_axes.items())),
            "by_axes_and_kind_s": {axes: dict(sorted(kinds.items())) for axes, kinds in sorted(both.items())},
            "step_time": self.step_time.to_dict(),
        }

    def with_seconds(self, stage: str, seconds: float) -> Self:
        """The plan with the wall-clock time of one more stage in its `run`."""
        known = {**self.run.get("seconds", {}), stage: round(seconds, 3)}
        return replace(self, run={**self.run, "seconds": known})

    def run_as(self, form: ChosenForm | None) -> Self:
        """The plan, to be run in a form. `rivals` stays where it chose that form: to judge again is another choice."""
        ran, runs = (("explicit" if chosen is None else chosen.form) for chosen in (self.form, form))
        stays = form == self.form or (runs == ran and (form is None or not form.seconds))
        return replace(self, form=form, rivals=self.rivals if stays else None)

    # -- keeping it ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The content of plan.json (docs/architecture.md): the same for the same input, byte for byte."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "status": self.status,
            "objective_s": self.objective_s,
            "bound_s": self.bound_s,
            "gap": self.gap,
            "notes": list(self.notes),
            **self.ground_to_dict(),
            "model_flop": self.model_flop,
            "batch": self.batch,
            **self.asked_to_dict(),
            "cost": self.cost_parts(),
            "memory": {
                "peak_bytes": self.memory.peak_bytes,
                "where": self.memory.where,
                "time": self.memory.time,
                **verdict(self.memory, self.machine.hbm_bytes, self.machine.usable_bytes),
                **({"host_bytes": self.memory.host_bytes} if program_on_host(self.program) else {}),
                "held": [
                    {"what": h.what, "bytes": h.bytes, "start": h.start, "stop": h.stop} for h in self.memory.held
                ],
            },
            **({"order": self.order.to_dict()} if self.order else {}),
            **({"apart": sorted(self.apart)} if self.apart else {}),
            "stages": [plain(stage.to_dict()) for stage in self.stages],
            "joint": None if self.joint is None else plain(self.joint.to_dict()),
            "sharing": None if self.sharing is None else plain(self.sharing.to_dict()),
            **told("certificate", self.certificate),
            **({} if not self.changed else {"changed": [plain(change.to_dict()) for change in self.changed]}),
            **told("mesh_search", self.mesh_search),
            **told("priorities", self.priorities),
            **({} if self.strategy is None else {"strategy": self.strategy}),
            **told("form", self.form),
            **told("rivals", self.rivals),
            "baselines": [baseline.to_dict() for baseline in self.baselines],
            "shardings": self._boundary_shardings(),
            "collectives": [self._collective(row) for row in self.cost.rows if row.is_collective],
            "program": program_to_json(self.program),
            "schedule": schedule_to_json(self.schedule),
        }

    def _boundary_shardings(self) -> dict[str, str]:
        return {name: self.shardings[name] for name in (*self.program.input_names, *self.program.output_names)}

    @uncollected()
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write plan.json, whole or not at all."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan back; costs and memory are computed again from its schedule. `InputError` for a file that is
        missing, damaged, of another version, or not a plan."""
        return cls.of_file(path, read_json(path, what="plan"))

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], data: Any) -> Self:
        """The plan of a file that was read already; errors as of `load`."""
        data = check_header(data, str(path))
        placed = {**data, "config": placed_config(data.get("config"), path)}
        return guarded(lambda: cls.from_dict(placed).readable(), str(path))

    def readable(self) -> Self:
        """This plan, after computing what its answers need, so that a damaged file is reported when it is read."""
        self.to_dict()
        self.stated  # noqa: B018
        return self

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The plan with the content of a plan.json; costs and memory are computed again."""
        from autoshard.costs import liveness
        from autoshard.costs.apart import fusion_on
        from autoshard.costs.memory import simulate
        from autoshard.costs.price import price
        from autoshard.costs.pricing import StepPrices

        check_claims(data)
        mesh = mesh_from_json(data["mesh"])
        program = program_from_json(data["program"])
        schedule = schedule_from_json(data["schedule"], mesh, program)
        machine = Machine.from_dict(data["hardware"]["machine"])
        fused = fusion_on(program, machine.profile)
        return cls(
            program=program,
            schedule=schedule,
            machine=machine,
            cost=price(program, schedule, fused, StepPrices(machine, mesh), data["trips"]),
            memory=simulate(program, schedule, liveness.analyse(program, fused), machine.profile.memory_tile),
            status=data["status"],
            objective_s=data["objective_s"],
            bound_s=data["bound_s"],
            gap=data["gap"],
            memory_price_s=data["cost"]["memory_price_s"],
            rounding_s=data["cost"]["rounding_s"],
            statements=tuple(data["statements"]),
            baselines=tuple(BaselineCost.from_dict(baseline) for baseline in data["baselines"]),
            notes=tuple(data["notes"]),
            config=data["config"],
            trips=data["trips"],
            model_flop=data.get("model_flop"),
            batch=data.get("batch"),
            stages=tuple(StageRecord.from_dict(stage) for stage in data.get("stages", ())),
            joint=read_part(JointOptimum, data, "joint"),
            sharing=read_part(SharingPrice, data, "sharing"),
            mesh_search=read_part(MeshSearched, data, "mesh_search"),
            priorities=read_part(NamedPriorities, data, "priorities"),
            strategy=data.get("strategy"),
            memory_limit=read_part(ToldLimit, data, "memory_limit"),
            options=read_part(ToldOptions, data, "options"),
            certificate=read_part(BoundProof, data, "certificate"),
            form=read_part(ChosenForm, data, "form"),
            rivals=read_part(JudgedRivals, data, "rivals"),
            changed=tuple(ToldChange.from_dict(change) for change in data.get("changed", ())),
        )
