"""Two plans side by side: what lies elsewhere, what is sent otherwise, and what that does to time and memory.

Values are matched by name and ops by their place in the program, so plans of one program on different meshes or
machines can be compared, and plans of programs that differ as far as their names agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoshard.plan_record import PlanRecord
from autoshard.program.program import Op
from autoshard.program.rule import factor_name
from autoshard.report.amounts import bytes_text, count_text, seconds_text

MOST_SHOWN = 30
"""Rows of one kind that the text shows; JSON has all."""


@dataclass(frozen=True, slots=True)
class ChangedSharding:
    """A value and its sharding in each plan; None where a plan lacks the value. kind: input, output or value."""

    name: str
    kind: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class ChangedOp:
    """An op of both plans and, for each plan, the axes on the factors of its rule (``i={"x"}``; empty: none)."""

    op: str
    source: str
    a: str
    b: str
    seconds_a: float
    seconds_b: float


@dataclass(frozen=True, slots=True)
class ChangedTraffic:
    """Collectives of one kind over the same axes at one place: times, local bytes and seconds per step in each plan."""

    where: str
    value: str
    kind: str
    axes: str
    times_a: float
    times_b: float
    bytes_a: float
    bytes_b: float
    seconds_a: float
    seconds_b: float


@dataclass(frozen=True)
class PlanDiff:
    """What differs between the plans `a` and `b`.

    setting: program, mesh, machine and what the objective counts, where they differ. cost (seconds), memory (bytes),
    status: name -> (of a, of b).
    statements: those that only `a` has, and those that only `b` has.
    """

    setting: Mapping[str, tuple[Any, Any]]
    cost: Mapping[str, tuple[float, float]]
    memory: Mapping[str, tuple[int, int]]
    status: Mapping[str, tuple[Any, Any]]
    statements: tuple[tuple[str, ...], tuple[str, ...]]
    shardings: tuple[ChangedSharding, ...]
    ops: tuple[ChangedOp, ...]
    collectives: tuple[ChangedTraffic, ...]

    @property
    def same(self) -> bool:
        """Whether both decide the same: shardings, placements and collectives."""
        return not (self.setting or self.shardings or self.ops or self.collectives or any(self.statements))

    def to_dict(self) -> dict[str, Any]:
        """The difference as plain data, for JSON; numbers with ``difference``, that of b less that of a."""

        def pairs(of: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
            return {k: {"a": a, "b": b} for k, (a, b) in of.items()}

        def numbers(of: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
            return {k: {"a": a, "b": b, "difference": b - a} for k, (a, b) in of.items()}

        return {
            "same": self.same,
            "setting": pairs(self.setting),
            "status": pairs(self.status),
            "cost": numbers(self.cost),
            "memory": numbers(self.memory),
            "statements": {"only_a": list(self.statements[0]), "only_b": list(self.statements[1])},
            "shardings": [{"value": s.name, "kind": s.kind, "a": s.a, "b": s.b} for s in self.shardings],
            "ops": [
                {
                    "op": o.op, "source": o.source, "a": o.a, "b": o.b, "seconds_a": o.seconds_a,
                    "seconds_b": o.seconds_b,
                }
                for o in self.ops
            ],
            "collectives": [
                {
                    "where": c.where, "value": c.value, "kind": c.kind, "axes": c.axes,
                    "times": {"a": c.times_a, "b": c.times_b}, "bytes": {"a": c.bytes_a, "b": c.bytes_b},
                    "seconds": {"a": c.seconds_a, "b": c.seconds_b},
                }
                for c in self.collectives
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, most: int = MOST_SHOWN) -> list[str]:
        """The difference in words, with at most `most` rows of each kind."""
        if self.same:
            return ["the plans decide the same", *self._numbers()]
        out = [f"{what}: {a} -> {b}" for what, (a, b) in self.setting.items()]
        out += self._numbers()
        for sign, statements in zip("-+", self.statements, strict=True):
            out += [f"  {sign} {text}" for text in statements]
        out += _section("shardings that differ", self.shardings, most, _sharding_line)
        out += _section("ops that run elsewhere", self.ops, most, _op_line)
        return out + _section("collectives that differ (seconds per step)", self.collectives, most, _traffic_line)

    def _numbers(self) -> list[str]:
        out = []
        for what, (a, b) in self.cost.items():
            if what == "step_s" or a != b:
                apart = "objective" in self.setting and what in ("objective_s", "bound_s")
                out.append(f"{what.removesuffix('_s').replace('_', ' ')}: {seconds_text(a)} -> {seconds_text(b)}"
                           + (", which count differently" if apart else _percent(a, b)))  # fmt: skip
        for what, (a, b) in self.memory.items():
            out.append(f"{what.removesuffix('_bytes')} memory: {bytes_text(a)} -> {bytes_text(b)}" + _percent(a, b))
        return out


def diff_plans(a: PlanRecord, b: PlanRecord) -> PlanDiff:
    """Everything that differs between two plans, in the order of the programs; from `a` to `b`."""
    return PlanDiff(
        _setting(a, b),
        {
            "step_s": (a.cost.step_s, b.cost.step_s),
            "objective_s": (a.objective_s, b.objective_s),
            "bound_s": (a.bound_s, b.bound_s),
            "compute_s": (a.cost.compute_s, b.cost.compute_s),
            "communication_s": (a.cost.communication_s, b.cost.communication_s),
            "local_copies_s": (a.cost.local_s, b.cost.local_s),
        },
        {"peak_bytes": (a.memory.peak_bytes, b.memory.peak_bytes)},
        {"status": (a.status, b.status), "gap": (a.gap, b.gap)},
        _statements(a, b),
        tuple(_shardings(a, b)),
        tuple(_ops(a, b)),
        tuple(_traffic(a, b)),
    )


def _setting(a: PlanRecord, b: PlanRecord) -> dict[str, tuple[Any, Any]]:
    def facts(plan: PlanRecord) -> dict[str, Any]:
        mesh = plan.schedule.mesh
        return {
            "program": plan.program.name,
            "mesh": str(mesh.mesh),
            "sub-axes": ", ".join(mesh.names),
            "hardware": plan.machine.profile.name,
            "objective": plan.objective,
            "layout": "; ".join(f"{k}: {v['on']}" for k, v in plan.machine.describe()["axes"].items()),
        }

    facts_a, facts_b = facts(a), facts(b)
    return {k: (facts_a[k], facts_b[k]) for k in facts_a if facts_a[k] != facts_b[k]}


def _statements(a: PlanRecord, b: PlanRecord) -> tuple[tuple[str, ...], tuple[str, ...]]:
    told_a, told_b = [s.told for s in a.stated], [s.told for s in b.stated]
    return tuple(s for s in told_a if s not in told_b), tuple(s for s in told_b if s not in told_a)


def _shardings(a: PlanRecord, b: PlanRecord) -> list[ChangedSharding]:
    out = []
    for name in dict.fromkeys((*a.shardings, *b.shardings)):
        sharding_a, sharding_b = a.shardings.get(name), b.shardings.get(name)
        if sharding_a != sharding_b:
            inputs, outputs = (*a.program.input_names, *b.program.input_names), a.program.output_names
            kind = "input" if name in inputs else "output" if name in (*outputs, *b.program.output_names) else "value"
            out.append(ChangedSharding(name, kind, sharding_a, sharding_b))
    order = {"input": 0, "output": 1, "value": 2}
    return sorted(out, key=lambda s: order[s.kind])


def _ops(a: PlanRecord, b: PlanRecord) -> list[ChangedOp]:
    out = []
    theirs = b.program.ops
    for op, _ in a.program.walk():
        other = theirs.get(op.id)
        if op.rule is None or other is None or (other.kind, other.rule) != (op.kind, op.rule):
            continue
        cut_a, cut_b = _cut(a, op), _cut(b, other)
        if cut_a != cut_b:
            out.append(
                ChangedOp(
                    f"{op.kind}:{op.id}", op.source, cut_a, cut_b, a.cost.op_seconds.get(op.id, 0.0),
                    b.cost.op_seconds.get(op.id, 0.0),
                )
            )  # fmt: skip
    return out


def _cut(plan: PlanRecord, op: Op) -> str:
    """The axes on each factor of an op, and those over which it passes partial sums on."""
    placement, mesh = plan.schedule.placements.get(op.id), plan.schedule.mesh
    if placement is None:
        return ""
    parts = [f"{factor_name(f)}={{{mesh.axes_text(atoms)}}}" for f, atoms in enumerate(placement.factors) if atoms]
    passing = [atom for atom, _ in placement.passes]
    return ", ".join(parts + ([f"unreduced={{{mesh.axes_text(passing)}}}"] if passing else []))


def _traffic(a: PlanRecord, b: PlanRecord) -> list[ChangedTraffic]:
    def rows(plan: PlanRecord) -> dict[tuple[str, str, str, str], list[float]]:
        """(place, value, kind, axes) -> times, bytes and seconds per step."""
        out: dict[tuple[str, str, str, str], list[float]] = {}
        for row in plan.cost.rows:
            if row.is_collective:
                axes = plan.schedule.mesh.axes_text(row.atoms).replace('"', "")
                total = out.setdefault((row.where, plan.program.values[row.value].name, row.kind, axes), [0.0] * 3)
                for k, amount in enumerate((1.0, row.bytes, row.seconds)):
                    total[k] += amount * row.times
        return out

    rows_a, rows_b = rows(a), rows(b)
    none = [0.0] * 3
    changed = [
        ChangedTraffic(
            *key, *(x for pair in zip(rows_a.get(key, none), rows_b.get(key, none), strict=True) for x in pair)
        )
        for key in dict.fromkeys((*rows_a, *rows_b))
        if rows_a.get(key) != rows_b.get(key)
    ]
    return sorted(changed, key=lambda c: (-abs(c.seconds_b - c.seconds_a), c.where, c.value, c.kind, c.axes))


# -- saying it ----------------------------------------------------------------------------------------


def _percent(a: float, b: float) -> str:
    return "" if a == b or not a else f" ({b / a - 1:+.2%})"


def _section(title: str, rows: Any, most: int, line: Any) -> list[str]:
    if not rows:
        return []
    shown = [f"  {line(row)}" for row in rows[:most]]
    return [f"{title}: {len(rows)}", *shown, *([f"  and {len(rows) - most} more"] if len(rows) > most else [])]


def _sharding_line(row: ChangedSharding) -> str:
    return f"{row.name}: {row.a or 'not there'} -> {row.b or 'not there'}"


def _op_line(row: ChangedOp) -> str:
    place = f" at {row.source}" if row.source else ""
    times = (
        "" if row.seconds_a == row.seconds_b else f" ({seconds_text(row.seconds_a)} -> {seconds_text(row.seconds_b)})"
    )
    return f"{row.op}{place}: {row.a or 'whole'} -> {row.b or 'whole'}{times}"


def _traffic_line(row: ChangedTraffic) -> str:
    times = f"{count_text(row.times_a)} -> {count_text(row.times_b)} times"
    return (
        f"{row.kind} over {row.axes} of {row.value}, {row.where}: {times}, "
        f"{seconds_text(row.seconds_a)} -> {seconds_text(row.seconds_b)}"
    )
