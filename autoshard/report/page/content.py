"""What a page shows of one plan: its record and what follows from it, as columns of plain data."""

from collections.abc import Sequence
from typing import Any

from autoshard.constraints import HostMemoryLimit
from autoshard.costs.apart import fusion_on
from autoshard.costs.memory import verdict
from autoshard.costs.steptime import PASSES
from autoshard.plan_record import PlanRecord
from autoshard.program.program import Op, Origin
from autoshard.program.rule import factor_name
from autoshard.program.schedule import PROGRAM, Use
from autoshard.report.amounts import units_text
from autoshard.report.page.columns import Numbered, Ragged, finite, short
from autoshard.report.view.memory import memory_view
from autoshard.report.view.outline import outline
from autoshard.report.view.search import SearchPoint
from autoshard.report.view.source import place_of
from autoshard.report.view.timeline import events
from autoshard.report.view.work import work_of
from autoshard.sharding.layout import Layout

VERSION = 1


def plan_content(plan: PlanRecord, *, name: str, search: Sequence[SearchPoint] = ()) -> dict[str, Any]:
    """Everything that the page shows of a plan. name: what the page calls it. search: how the gap closed, if known."""
    return _Content(plan, name, search).made()


class _Content:
    """The tables of one plan, filled together; they hold numbers of texts and layouts, which are listed once."""

    def __init__(self, plan: PlanRecord, name: str, search: Sequence[SearchPoint]) -> None:
        self.plan, self.name, self.search = plan, name, search
        self.program, self.mesh = plan.program, plan.schedule.mesh
        self.fusion = fusion_on(plan.program, plan.machine.profile)
        self.work = work_of(plan, self.fusion)
        self.texts, self.layouts = Numbered(), Numbered()
        self.ops: list[Op] = [op for op, _ in self.program.walk()]
        self.position = {op.id: k for k, op in enumerate(self.ops)}
        self.maker = {value: op.id for op in self.ops for value in op.results}
        self.axes = {axis: k for k, axis in enumerate(self.mesh.mesh.axis_names)}

    def made(self) -> dict[str, Any]:
        """All tables, by the names that the page's scripts know."""
        data = {
            "version": VERSION,
            "name": self.name,
            "verdict": finite(self._verdict()),
            "step": finite(self._step()),
            "machine": finite(self._machine()),
            "ops": self._ops(),
            "values": self._values(),
            "moves": self._moves(),
            "events": self._events(),
            "memory": self._memory(),
            "rows": self._rows(),
            "inputs": self._inputs(),
            "outputs": self._outputs(),
            "stated": self._stated(),
            "search": [
                [short(p.seconds), short(p.cost_s), None if p.bound_s is None else short(p.bound_s), p.search]
                for p in self.search
            ],
        }
        data["layouts"] = [self._layout(layout) for layout in self.layouts.items]
        data["texts"] = self.texts.items
        return data

    # -- the answer ----------------------------------------------------------------------------------

    def _verdict(self) -> dict[str, Any]:
        plan, step = self.plan, self.plan.step_time
        limit = plan.memory_limit
        memory = {
            "peak_bytes": plan.memory.peak_bytes, "where": plan.memory.where, "time": plan.memory.time,
            "host_bytes": plan.memory.host_bytes,
            **verdict(plan.memory, plan.machine.hbm_bytes, plan.machine.usable_bytes),
        }  # fmt: skip
        return {
            "program": self.program.name,
            "hardware": plan.machine.profile.name,
            "title": plan.machine.profile.title,
            "mesh": [[axis, size] for axis, size in zip(self.axes, self.mesh.mesh.axis_sizes, strict=True)],
            "status": plan.status,
            "objective_s": plan.objective_s,
            "counted": "of waiting" if plan.options and plan.options.objective == "overlap" else "nothing overlaps",
            "bound_s": plan.bound_s,
            "gap": plan.gap,
            "certificate": None if plan.certificate is None else plan.certificate.of,
            "strategy": plan.strategy,
            "stages": [
                {"name": s.name or f"priority {s.priority}", "cost_s": s.cost_s, "bound_s": s.bound_s,
                 "gap": s.gap, "price_s": s.price_s, "statements": len(s.statements)}
                for s in plan.stages
            ],
            "seconds": {"lower": step.lower_s, "estimate": step.estimate_s, "upper": step.upper_s},
            "mfu": step.mfu, "hfu": step.hfu, "bound_by": step.bound, "batch": plan.batch,
            "flop": step.model_flop,
            "memory": memory,
            "limit_bytes": None if limit is None else limit.bytes,
            "limit_from": None if limit is None else limit.source,
            "host_limit_bytes": next((limit_on_host.bytes for limit_on_host in plan.stated_as(HostMemoryLimit)), None),
            "baselines": [
                {"name": b.name, "objective_s": b.objective_s, "peak_bytes": b.peak_bytes,
                 "reason": units_text(b.reason)}
                for b in plan.baselines
            ],
            "notes": list(plan.notes),
            "ops": len(self.ops), "values": len(self.program.values),
        }  # fmt: skip

    def _step(self) -> dict[str, Any]:
        plan, step = self.plan, self.plan.step_time
        return {
            "compute_s": plan.cost.compute_s, "communication_s": plan.cost.communication_s,
            "local_s": plan.cost.local_s,
            "resources_s": step.resources_s,
            "groups": [
                {"kind": g.kind, "axes": g.axes, "moves": g.moves, "times": g.times, "bytes": g.bytes,
                 "seconds": g.seconds, "hidden": g.hidden, "passes": PASSES.get(g.kind, 1),
                 "intensity": g.flops_per_byte, "machine": g.machine_flops_per_byte, "verdict": g.verdict}
                for g in step.groups
            ],
        }  # fmt: skip

    def _machine(self) -> dict[str, Any]:
        machine = self.plan.machine
        dtypes = sorted({w.dtype for w in self.work.values() if w.unit == "matmul"})
        return {
            "bandwidth": machine.profile.memory.bandwidth.value,
            "vector": machine.flops_per_s("float32", "vector"),
            "matmul": {dtype: machine.flops_per_s(dtype) for dtype in dtypes},
            "layout": {axis: str(placed["on"]) for axis, placed in machine.describe()["axes"].items()},
        }

    # -- tables --------------------------------------------------------------------------------------

    def _ops(self) -> dict[str, Any]:
        """The ops in the order of the program; flop, bytes and seconds as `work_of` counts them."""
        columns: dict[str, list[Any]] = {
            key: [] for key in ("id", "kind", "source", "phase", "flop", "bytes", "times", "seconds", "unit", "dtype",
                                "rule", "cut")
        }  # fmt: skip
        operands, wants, results = Ragged(), Ragged(), Ragged()
        for op in self.ops:
            work, text = self.work.get(op.id), self.texts.number
            columns["id"].append(op.id)
            columns["kind"].append(text(op.kind))
            columns["source"].append(text(op.source))
            columns["phase"].append(text(place_of(op.source).phase))
            columns["flop"].append(short(work.flop) if work else 0)
            columns["bytes"].append(short(work.bytes) if work else 0)
            columns["times"].append(short(work.times) if work else 0)
            columns["seconds"].append(short(self.plan.cost.op_seconds.get(op.id, 0.0)))
            columns["unit"].append(text(work.unit if work else ""))
            columns["dtype"].append(text(work.dtype if work else ""))
            columns["rule"].append(text(op.rule.to_text() if op.rule else self._region(op)))
            columns["cut"].append(text(self._cut(op)))
            operands.add(op.operands)
            results.add(op.results)
            wants.add(self._wanted(op.id, k) for k in range(len(op.operands)))
        return {**columns, "operands": operands.flat, "operands_at": operands.starts, "wants": wants.flat,
                "results": results.flat, "results_at": results.starts}  # fmt: skip

    def _region(self, op: Op) -> str:
        trips = {"scan": op.attrs.get("length"), "while": op.attrs.get("trips")}.get(op.kind)
        return "" if trips is None else f"{trips} trips"

    def _cut(self, op: Op) -> str:
        placement = self.plan.schedule.placements.get(op.id)
        if placement is None or op.rule is None:
            return ""
        axes = self.mesh.axes_text
        return ", ".join(f"{factor_name(f)}={axes(atoms)}" for f, atoms in enumerate(placement.factors) if atoms)

    def _wanted(self, op: int, slot: int) -> int:
        reshard = self.plan.schedule.uses.get(Use(op, slot))
        return -1 if reshard is None else self.layouts.number(reshard.target)

    def _values(self) -> dict[str, Any]:
        columns: dict[str, list[Any]] = {key: [] for key in ("name", "type", "origin", "maker", "made", "form", "tags")}
        item: list[Any] = []
        schedule = self.plan.schedule
        for value in self.program.values:
            made = schedule.definitions.get(value.id)
            shared = schedule.shared.get(value.id)
            columns["name"].append(self.texts.number(value.name))
            columns["type"].append(self.texts.number(str(value.type)))
            columns["origin"].append(self.texts.number(value.origin.value))
            columns["maker"].append(self.position[self.maker[value.id]] if value.id in self.maker else -1)
            columns["made"].append(-1 if made is None else self.layouts.number(made))
            columns["form"].append(-1 if shared is None or not shared.steps else self.layouts.number(shared.target))
            columns["tags"].append(self.texts.number(" ".join(f"@{tag}" for tag in value.tags)))
            item.append(short(value.type.bytes / max(1, value.type.elements)))
        literals = {v.id: str(v.literal)[:80] for v in self.program.values if v.origin is Origin.LITERAL}
        return {**columns, "item_bytes": item, "literals": literals}

    def _layout(self, layout: Layout) -> dict[str, Any]:
        """A layout: its text, and for each dimension its number of parts and the axes that cut it."""
        mesh = self.mesh

        def axis_numbers(atoms: Sequence[int]) -> list[int]:
            return [self.axes[name] for name in dict.fromkeys(mesh.atoms[a].name for a in atoms)]

        return {
            "text": layout.text(mesh),
            "dims": [[mesh.size(atoms), axis_numbers(atoms)] for atoms in layout.dims],
            "sum": axis_numbers(layout.unreduced),
        }

    def _moves(self) -> dict[str, Any]:
        """The rows of the price: collectives and local copies. wire: 1 for collectives."""
        columns: dict[str, list[Any]] = {
            key: [] for key in ("where", "value", "kind", "axes", "axis", "bytes", "seconds", "times", "op", "wire")
        }
        for row in self.plan.cost.rows:
            columns["where"].append(self.texts.number(row.where))
            columns["value"].append(row.value)
            columns["kind"].append(self.texts.number(str(row.kind)))
            columns["axes"].append(self.texts.number(self.mesh.axes_text(row.atoms).replace('"', "")))
            columns["axis"].append(self.axes[self.mesh.atoms[row.atoms[0]].name] if row.atoms else -1)
            columns["bytes"].append(short(row.bytes))
            columns["seconds"].append(short(row.seconds))
            columns["times"].append(short(row.times))
            columns["op"].append(self.position.get(row.op, -1))
            columns["wire"].append(int(row.is_collective))
        return columns

    def _events(self) -> dict[str, Any]:
        columns: dict[str, list[Any]] = {key: [] for key in ("op", "move", "seconds", "hidden", "role")}
        for event in events(self.plan):
            columns["op"].append(self.position.get(event.op, -1))
            columns["move"].append(event.row)
            columns["seconds"].append(short(event.seconds))
            columns["hidden"].append(short(event.hidden))
            columns["role"].append(self.texts.number(event.role))
        return columns

    def _memory(self) -> dict[str, Any]:
        view = memory_view(self.plan, self.fusion)
        columns = {
            "what": [self.texts.number(h.what) for h in view.held],
            "value": [h.value for h in view.held],
            "start": [h.start for h in view.held],
            "stop": [h.stop for h in view.held],
            "bytes": [h.bytes for h in view.held],
            "group": [self.texts.number(group) for group in view.groups],
        }
        at = [-1] * view.points
        for op_id, point in view.time.items():
            at[point] = self.position[op_id]
        return {**columns, "points": view.points, "op_at": at}

    def _rows(self) -> dict[str, Any]:
        rows = outline(self.program)
        return {
            "depth": [row.depth for row in rows],
            "label": [self.texts.number(row.label) for row in rows],
            "phase": [self.texts.number(row.phase) for row in rows],
            "op": [self.position.get(row.op, -1) for row in rows],
        }

    def _inputs(self) -> dict[str, Any]:
        names, args = self.program.input_names, self.program.body.args
        return {
            "value": list(args[: len(names)]),
            "donated": sorted(self.program.donated),
            "host": sorted(self.program.host_inputs),
        }

    def _outputs(self) -> dict[str, Any]:
        uses = self.plan.schedule.uses
        return {
            "name": [self.texts.number(name) for name in self.program.output_names],
            "value": list(self.program.body.results),
            "layout": [
                self.layouts.number(uses[Use(PROGRAM, k)].target) if Use(PROGRAM, k) in uses else -1
                for k in range(len(self.program.output_names))
            ],
        }

    def _stated(self) -> dict[str, Any]:
        """Statements in words, and which values (ids) and outputs (-1, -2, ...) each of them speaks of."""
        sentences: list[str] = []
        member, text = [], []
        for statement in self.plan.stated:
            sentences.append(statement.told)
            for kind, index in statement.members:
                for words in statement.told_of((kind, index)):
                    member.append(index if kind == "value" else -1 - index)
                    text.append(self.texts.number(words))
        return {"told": sentences, "member": member, "text": text}
