"""Why a value of a plan is where it is: its statements, the ops around it, what moving it costs, and what else it
could have been.

All of it is read off the plan, except the alternatives, which are priced. The solver's reasons are not guessed at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autoshard.constraints.patterns import Addresses
from autoshard.constraints.statement import Member
from autoshard.costs.border import stored_layout
from autoshard.plan_record import PlanRecord
from autoshard.program.program import Op, Origin
from autoshard.program.rule import factor_name
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.report.amounts import bytes_text, seconds_text
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard

if TYPE_CHECKING:
    from autoshard.questions.alternatives import Alternative

MOST_PRICED = 8
"""Values of a pattern whose alternatives are priced."""
MOST_SHOWN = 6
"""Alternatives of a value that the text shows."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step on the way of a value to a use: its axes, local bytes, seconds of one execution, executions per step."""

    where: str
    kind: str
    axes: str
    bytes: float
    seconds: float
    times: float


@dataclass(frozen=True, slots=True)
class Reader:
    """An op or output that uses a value, and the sharding in which it takes the value."""

    op: str
    source: str
    sharding: str


@dataclass(frozen=True)
class ExplainedValue:
    """What the plan says about one value.

    name: of an input, an output (``out/...``) or an intermediate. sharding: the one that `PlanRecord.shardings` gives.
    defined: the sharding it is made in (`sharding` where its uses share no other form). statements: those that pin it.
    origin: the op that makes it, with its place in the source; else input or constant. bytes: on one device, in
    `sharding`. readers: what uses it. moves: the steps on its way to its uses.
    stage: what fixed it, in words. alternatives: other shardings that the statements leave, cheapest first. as_used:
    whether it is gathered in the type that some of its uses take (`Schedule.as_used`).
    """

    name: str
    type: str
    sharding: str
    defined: str
    bytes: int
    statements: tuple[str, ...]
    origin: str
    readers: tuple[Reader, ...]
    moves: tuple[Move, ...]
    stage: str = ""
    alternatives: tuple[Alternative, ...] = ()
    as_used: bool = False

    @property
    def seconds(self) -> float:
        """Seconds per step that its moves take."""
        return sum(m.seconds * m.times for m in self.moves)

    def to_dict(self) -> dict[str, Any]:
        """What is known about the value as plain data, for JSON."""
        return {
            "name": self.name, "type": self.type, "sharding": self.sharding, "defined": self.defined,
            "bytes": self.bytes, "statements": list(self.statements), "origin": self.origin,
            "uses": [{"op": r.op, "source": r.source, "sharding": r.sharding} for r in self.readers],
            "reshards": [
                {
                    "where": m.where, "kind": m.kind, "axes": m.axes, "bytes": m.bytes, "seconds": m.seconds,
                    "times": m.times,
                }
                for m in self.moves
            ],
            "reshard_s": self.seconds, "stage": self.stage,
            "alternatives": [a.to_dict() for a in self.alternatives],
            **({"as_used": True} if self.as_used else {}),
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.sharding}", f"  {self.type}, {self.bytes} bytes on a device"]
        if self.defined != self.sharding:
            for_whom = "the ops that convert it; all else has it as it is made" if self.as_used else "all its uses"
            lines.append(f"  made in {self.defined}, resharded once for {for_whom}")
        lines += [f"  stated by {s}" for s in self.statements] or ["  no statement says so: the solver chose it"]
        lines += [f"  {self.stage}"] if self.stage else []
        lines.append(f"  {self.origin}")
        lines += [f"  used by {_at(r.op, r.source)} in {r.sharding}" for r in self.readers]
        for m in self.moves:
            often = "" if m.times == 1 else f", {m.times:g} times a step"
            over = f" over {m.axes}" if m.axes else ""
            lines.append(f"  {m.kind}{over}, {m.bytes:.0f} bytes, {m.seconds:.3e} s{often}: {m.where}")
        lines += [f"  {_instead(a)}" for a in self.alternatives[:MOST_SHOWN]]
        if len(self.alternatives) > MOST_SHOWN:
            lines.append(f"  and {len(self.alternatives) - MOST_SHOWN} other shardings that cost more")
        return "\n".join(lines)


def _instead(a: Alternative) -> str:
    if abs(a.extra_s) <= a.rounding_s:
        costs = "costs the same"
    elif a.extra_s > 0:
        costs = f"costs at most {seconds_text(a.extra_s)} more"
    else:
        costs = f"costs at least {seconds_text(-a.extra_s)} less"
    beside = " all at once, without the stages" if a.all_at_once else ""
    over = "" if a.fits else f", and exceeds the memory limit ({bytes_text(a.peak_bytes)})"
    return f"instead {a.sharding}: {costs}{beside}{over}"


def explain_plan(plan: PlanRecord, pattern: str, *, alternatives: bool = True) -> list[ExplainedValue]:
    """Everything the plan says about the values that a name or a pattern addresses, in the order of the program.

    alternatives: also price the other shardings of the first `MOST_PRICED` values, which builds the network again.

    pattern: a name (``state/params/wq``, ``out/0/w``, ``dot_general:12``) or a pin's pattern (``state/*/wq``,
        ``@attn_out``, ``model.py:12``). Raises `InputError` with similar names where nothing has this one.
    """
    program = plan.program
    values, slots = addressed(plan, pattern)
    defining = {v: op for op, _ in program.walk() for v in op.results}
    explained = [_value(plan, v, defining.get(v)) for v in values] + [_output(plan, k) for k in slots]
    if not alternatives:
        return explained
    from autoshard.questions.alternatives import Alternatives

    others = Alternatives(plan)
    priced = [others.of(v) for v in values[:MOST_PRICED]]
    priced += [()] * (len(values) - len(priced))
    priced += [others.output(k) for k in slots[: max(0, MOST_PRICED - len(values))]]
    return [
        replace(value, alternatives=options) for value, options in zip(explained, priced, strict=False)
    ] + explained[len(priced) :]


def addressed(plan: PlanRecord, pattern: str) -> tuple[list[int], list[int]]:
    """Ids of the values, slots of the outputs that a name or pattern addresses; `InputError` where there are none."""
    program = plan.program
    slots = [k for k, name in enumerate(program.output_names) if name == pattern]
    values = [v.id for v in program.values if v.name == pattern and v.id in plan.schedule.definitions]
    if not slots and not values:
        match = Addresses(program).find(pattern)
        slots = list(match.outputs)
        values = [v for v in match.values if v in plan.schedule.definitions]
    if not slots and not values:
        plan[pattern]  # raises InputError with similar names
    return values, slots


def _value(plan: PlanRecord, value: int, maker: Op | None) -> ExplainedValue:
    program, schedule = plan.program, plan.schedule
    what = program.values[value]
    stored = value in program.body.args
    defined = schedule.definitions[value]
    layout = defined if stored else schedule.form_before_use(value)
    readers = [
        Reader(_user(plan, use), _source(plan, use), reshard.target.text(schedule.mesh))
        for use, reshard in _uses(plan, value)
    ]
    return ExplainedValue(
        what.name, str(what.type), layout.text(schedule.mesh), defined.text(schedule.mesh), _bytes(plan, value, layout),
        _statements(plan, ("value", value)), _origin(plan, value, maker), tuple(readers),
        tuple(_moves(plan, value, None)), _stage(plan, "values", value, maker), as_used=value in schedule.as_used,
    )  # fmt: skip


def _output(plan: PlanRecord, slot: int) -> ExplainedValue:
    """An output as it is returned; of the moves of its value only those on the way there."""
    program, mesh = plan.program, plan.schedule.mesh
    value = program.body.results[slot]
    layout = plan.output_layouts[slot]
    text = layout.text(mesh)
    return ExplainedValue(
        program.output_names[slot], str(program.type_of(value)), text, text, _bytes(plan, value, layout),
        _statements(plan, ("output", slot)), f"it is {program.values[value].name}, handed back", (),
        tuple(_moves(plan, value, f"output {program.output_names[slot]}")), _stage(plan, "outputs", slot, None),
    )  # fmt: skip


def _stage(plan: PlanRecord, kind: str, index: int, maker: Op | None) -> str:
    """In words, the stage that placed a value, an output or the op that makes it, and what that stage cost."""
    kinds = ("outputs",) if kind == "outputs" else ("inputs", "shared", "boundaries")
    for number, stage in enumerate(plan.stages):
        placed = stage.placed
        by_value = any(any(map(bool, placed.get(k, {}).get(str(index), ()))) for k in kinds)
        by_op = maker is not None and any(map(bool, placed.get("ops", {}).get(str(maker.id), ())))
        if by_value or by_op:
            name = stage.name or f"priority {stage.priority}"
            through = "" if by_value else " by the op that makes it"
            return (
                f"fixed{through} in stage {number + 1} of {len(plan.stages)} ({name}): all up to it costs "
                f"{seconds_text(stage.cost_s)}, {seconds_text(stage.price_s)} of that is its price"
            )
    return "decided by cost, when all stages were fixed" if len(plan.stages) > 1 else ""


def _uses(plan: PlanRecord, value: int) -> Iterator[tuple[Use, Reshard]]:
    """The uses of a value, with the reshard before each."""
    for use, reshard in sorted(plan.schedule.uses.items()):
        if use.value_in(plan.program) == value:
            yield use, reshard


def _moves(plan: PlanRecord, value: int, only: str | None) -> Iterator[Move]:
    """The priced steps of a value; `only`: those on the way to one place."""
    for row in plan.cost.rows:
        if row.value == value and only in (None, row.where):
            axes = plan.schedule.mesh.axes_text(row.atoms)
            yield Move(row.where, row.kind, axes, row.bytes, row.seconds, row.times)


def _statements(plan: PlanRecord, member: Member) -> tuple[str, ...]:
    return tuple(text for statement in plan.stated for text in statement.told_of(member))


def _origin(plan: PlanRecord, value: int, maker: Op | None) -> str:
    program = plan.program
    if maker is not None:
        return f"made by {_at(f'{maker.kind}:{maker.id}', maker.source)}{_placed(plan.schedule, maker)}"
    if value in program.body.args:
        names = program.input_names
        at = program.body.args.index(value)
        if program.values[value].origin is Origin.CONST or at >= len(names):
            return "a constant of the program"
        return "an input of the program" + (", donated" if at in program.donated else "") + _stored(plan, value)
    return "comes into the body of a loop or branch"


def _stored(plan: PlanRecord, value: int) -> str:
    """How JAX has an input that is cut unevenly; nothing for others."""
    mesh, planned = plan.schedule.mesh, plan.schedule.definitions[value]
    stored = stored_layout(plan.program, mesh, value, planned)
    told = f"; JAX has it in {stored.text(mesh)}, {_bytes(plan, value, stored)} bytes on a device"
    return "" if stored == planned else told


def _placed(schedule: Schedule, op: Op) -> str:
    """The factors of an op's rule that are cut, and by what."""
    placement = schedule.placements.get(op.id)
    if placement is None or op.rule is None:
        return ""
    mesh = schedule.mesh
    cut = [f"{factor_name(f)}={mesh.axes_text(atoms)}" for f, atoms in enumerate(placement.factors) if atoms]
    return f", cut along {', '.join(cut)} of {op.rule.to_text()}" if cut else ", on every device alike"


def _user(plan: PlanRecord, use: Use) -> str:
    if use.op == PROGRAM:
        return f"output {plan.program.output_names[use.slot]}"
    op = plan.program.ops[use.op]
    return f"{op.kind}:{op.id}" + ("" if use.region < 0 else " (what its body hands back)")


def _source(plan: PlanRecord, use: Use) -> str:
    return "" if use.op == PROGRAM else plan.program.ops[use.op].source


def _bytes(plan: PlanRecord, value: int, layout: Layout) -> int:
    """Bytes of a value on one device."""
    type_ = plan.program.type_of(value)
    count = 1
    for n in layout.local_shape(type_.shape, plan.schedule.mesh):
        count *= n
    return round(count * type_.bytes / max(1, type_.elements))


def _at(what: str, source: str) -> str:
    return f"{what} at {source}" if source else what
