"""Is a plan right? Its content is worked out again from plan.json alone, by code that shares nothing with the planner.

Neither planner, solver nor lowering is imported, nor their classes for layouts, steps and schedules. Only times of
single collectives and rooflines come from `costmodels`, which knows no shardings. All checks: docs/verification.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autoshard.costmodels import Machine, ProfileError
from autoshard.errors import in_words
from autoshard.verify.plan.apart import check_apart, products_apart
from autoshard.verify.plan.as_used import check_as_used, narrowed
from autoshard.verify.plan.bound import check_bounds, taken_on_trust
from autoshard.verify.plan.calls import Calls
from autoshard.verify.plan.cost import Pricer, check_cost
from autoshard.verify.plan.flow import COLLECTIVES, Flow, check_flow, derive
from autoshard.verify.plan.form import check_form_holds
from autoshard.verify.plan.host import check_host
from autoshard.verify.plan.in_code import check_in_code
from autoshard.verify.plan.layout import Impossible, read_atoms
from autoshard.verify.plan.listed import check_collectives
from autoshard.verify.plan.lives import Lives, Sizes
from autoshard.verify.plan.machine import check_machine
from autoshard.verify.plan.manual import check_manual_computations
from autoshard.verify.plan.memory import check_memory, priced_bytes
from autoshard.verify.plan.ordered import check_order
from autoshard.verify.plan.orders import check_orders
from autoshard.verify.plan.program import PROGRAM_OP, Findings, read_graph
from autoshard.verify.plan.rivals import check_rivals
from autoshard.verify.plan.stages import check_stages
from autoshard.verify.plan.statements import check_statements, pinned_outputs, pinned_unevenly
from autoshard.verify.plan.step import check_step_time, overlapped_s
from autoshard.verify.plan.work import kept, materialised

FORMAT, VERSION = "autoshard-plan", 1
_DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, AssertionError, ProfileError)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its topic (``uses``, ``cost``, ...) and a line with the place and both sides."""

    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check: what is wrong, and lines for people on how much was looked at."""

    findings: tuple[Finding, ...]
    facts: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found."""
        return not self.findings


def check_plan(plan: Any) -> Checked:
    """Check the content of a plan.json. It raises for nothing that is wrong with the plan: damage is a finding, too."""
    findings = Findings()
    facts: list[str] = []
    if not isinstance(plan, dict) or plan.get("format") != FORMAT or plan.get("version") != VERSION:
        findings.add("file", f"this is not a plan: format and version are not {FORMAT!r} and {VERSION}")
    else:
        _guarded(findings, "the plan", lambda: _check(plan, findings, facts))
    return Checked(tuple(Finding(*f) for f in dict.fromkeys(findings)), tuple(facts))


def _guarded(findings: Findings, what: str, work: Callable[[], None]) -> None:
    try:
        work()
    except _DAMAGE as error:
        if isinstance(error, Impossible):
            findings.add("file", f"{what}: {error}")
        else:
            findings.add("file", f"{what} is damaged: {in_words(error)}")


def _check(plan: dict[str, Any], findings: Findings, facts: list[str]) -> None:
    mesh, faults = read_atoms(plan["mesh"])
    for fault in faults:
        findings.add("mesh", fault)
    machine = Machine.from_dict(plan["hardware"]["machine"])
    check_machine(plan, machine, dict(mesh.whole), findings)
    if isinstance(plan["trips"], bool) or not isinstance(plan["trips"], int) or plan["trips"] < 1:
        findings.add("program", f"trips is {plan['trips']!r}; loops of unknown length run at least once")
    graph = read_graph(plan, findings)
    if findings:
        return  # without a valid program and mesh there is nothing to judge layouts by
    flow = derive(plan, graph, mesh, findings)
    check_flow(flow, pinned_outputs(plan), pinned_unevenly(plan, flow), findings)
    facts.append(
        f"{len(graph.nodes)} ops, {len(flow.defined)} layouts, {len(flow.uses)} uses; "
        f"{len(flow.replaced)} outputs take the place of donated inputs"
        + (f", {len(graph.carried)} keep the layouts of theirs" if graph.carried else "")
    )
    complete = not findings
    rules = {op: placed.rule for op, placed in flow.placed.items()}
    exists = materialised(graph, rules)
    calls = None if machine.profile.memory_rules is None else Calls.of(graph, rules, exists)
    own = kept(graph, rules, exists) if calls is None else set(calls.kept)
    doubled = frozenset() if calls is None else calls.two_orders
    size = Sizes(graph, rules, machine.profile.memory_tile, doubled)
    peaks: list[int] = []
    pricer = Pricer(flow, machine)

    def memory() -> int:
        apart = products_apart(flow, machine.profile)
        lives = Lives.of(flow, rules, exists, own, size, calls, apart, narrowed(flow, pricer.loads))
        peak = check_memory(plan, lives, findings)
        check_order(plan, lives, peak, findings)
        check_apart(plan, flow, apart, findings)
        return peak

    _guarded(findings, "memory", lambda: peaks.append(memory()))
    peak = peaks[0] if peaks else 0

    def statements() -> None:
        count = check_statements(plan, flow, peak, findings)
        check_in_code(plan, flow, findings)
        check_orders(plan, flow, findings)
        check_manual_computations(plan, flow, findings)
        check_host(plan, flow, findings)
        check_form_holds(plan, flow, findings)
        facts.append(f"{count} statements; peak memory {peak} bytes at {plan['memory']['where']}")

    _guarded(findings, "statements", statements)
    _guarded(findings, "reshards", lambda: check_as_used(flow, pricer.loads, findings))
    rows = list(pricer.rows())
    _guarded(findings, "collectives", lambda: check_collectives(plan, flow, rows, findings))
    facts.append(f"{sum(row.kind in COLLECTIVES for row in rows)} collectives with their bytes, seconds and executions")
    compute_s = pricer.compute_s(exists)
    priced = priced_bytes(flow, own, size)
    overlapped = overlapped_s(plan, pricer, rows, compute_s, findings)
    _guarded(findings, "cost", lambda: check_cost(plan, flow, rows, compute_s, priced, overlapped, findings))
    _guarded(findings, "cost", lambda: check_step_time(plan, pricer, rows, exists, compute_s, findings))
    facts.append(f"objective {plan['objective_s']} s, bound {plan['bound_s']} s, gap {plan['gap']}{_estimate(plan)}")
    _guarded(findings, "shardings", lambda: _check_shardings(plan, flow, findings))
    _guarded(findings, "bound", lambda: check_bounds(plan, findings))
    _guarded(findings, "stages", lambda: _told_stages(check_stages(plan, flow, findings), facts))
    _guarded(findings, "rivals", lambda: check_rivals(plan, findings))
    _guarded(findings, "claims", lambda: facts.append(taken_on_trust(plan)))
    if not complete:
        facts.append("as layouts contradict each other, differences in memory and cost may follow from that")


def _estimate(plan: Mapping[str, Any]) -> str:
    """How long a step is estimated to take, where that is not what the objective counts."""
    step, counts = plan["cost"].get("step_time"), (plan.get("options") or {}).get("objective") or "serial"
    if step is None or abs(step["estimate_s"] - plan["objective_s"]) <= 5e-3 * plan["objective_s"]:
        return ""
    how = "nothing overlapped" if counts == "serial" else "the overlap of its calibration"
    return f"; both count {how}: a step is estimated to take {step['estimate_s']} s"


def _told_stages(count: int, facts: list[str]) -> None:
    if count:
        facts.append(f"{count} stages, each of which kept what was placed before it")


def _check_shardings(plan: dict[str, Any], flow: Flow, findings: Findings) -> None:
    """The shardings printed for inputs and outputs are those of the schedule."""
    graph, mesh = flow.graph, flow.mesh
    expected: dict[str, str] = {}
    for name, value in zip(graph.input_names, graph.body.args, strict=False):
        if value in flow.defined:
            expected[name] = flow.defined[value].text(mesh)
    for slot, (name, value) in enumerate(zip(graph.output_names, graph.body.results, strict=True)):
        way = flow.uses.get((PROGRAM_OP, slot, -1))
        if way is not None:
            expected[name] = way.end.text(mesh)
        elif graph.values[value].is_literal:
            expected[name] = "[" + ", ".join("{}" for _ in graph.values[value].shape) + "]"
    told = plan["shardings"]
    for name in sorted(expected.keys() | told.keys()):
        if told.get(name) != expected.get(name):
            findings.add(
                "layouts",
                f"shardings[{name}] is {told.get(name)} in the plan, the schedule gives {expected.get(name)}",
            )
