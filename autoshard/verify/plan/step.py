"""The step time that a plan claims, worked out again: busy resources, bounds, estimate, utilisation and groups."""

from math import prod
from typing import Any, Final

from autoshard.verify.plan.cost import Pricer, Row, same
from autoshard.verify.plan.flow import COLLECTIVES
from autoshard.verify.plan.groups import check_groups, exposed_s
from autoshard.verify.plan.host import TO_DEVICE, TO_HOST
from autoshard.verify.plan.matmuls import MatmulOrder, common_dimensions
from autoshard.verify.plan.placed import uncut
from autoshard.verify.plan.program import Findings, Node, manual_ops
from autoshard.verify.plan.work import computes_with, flop, is_matrix, moved_bytes, vector_flop_of_kernel

_BOUNDS: Final = ("lower", "estimate", "upper", "likely")


def reached(machine: Any) -> tuple[float, float]:
    """Shares of the peak that the machine's profile states for matmuls and for attention; 1 where it states none."""
    matmuls, attention = machine.profile.matmul_efficiency, machine.profile.attention_efficiency
    if machine.profile.compiled_work is not None:  # prices have such shares already
        return 1.0, 1.0
    share = 1.0 if matmuls is None else float(matmuls.value)
    return share, share if matmuls is None or attention is None else float(attention.value)


def check_step_time(
    plan: Any, pricer: Pricer, rows: list[Row], exists: set[int], compute_s: float, findings: Findings
) -> None:
    """Compare ``cost.step_time`` and ``cost.everything_overlaps_s`` with what the layouts give."""
    step, flow, machine = plan["cost"]["step_time"], pricer.flow, pricer.machine
    order = MatmulOrder.of(flow.graph)

    def expect(name: str, told: Any, derived: float) -> None:
        if not same(told, derived):
            findings.add("cost", f"cost.step_time.{name} is {told} in the plan, the layouts give {derived}")

    matmul: dict[str, float] = {}
    shares = reached(machine)
    longer_s = 0.0  # by the shares of the peak that matmuls reach
    whole, vector, moved = 0.0, 0.0, 0.0
    apart = {op.id: _apart(node) for node in flow.graph.nodes.values() for op, _ in _in_body(node)}
    for op, placed, there, times in pricer.executions(exists):
        work = flop(op, placed, flow.graph) * times
        moved += moved_bytes(op, placed, flow.graph, there) * times * pricer.crossing(op, placed)
        moved += pricer.copies.bytes(op, placed) * times
        vector += vector_flop_of_kernel(op, placed) * times
        if is_matrix(op):
            dtype = computes_with(op, flow.graph)
            matmul[dtype] = matmul.get(dtype, 0.0) + work
            share = shares[1] if common_dimensions(placed.rule) > 1 else shares[0]
            longer_s += work / machine.flops_per_s(dtype) * (1 - share) / share
            whole += flop(op, uncut(placed.rule), flow.graph) * times * apart.get(op.id, 1)
        else:
            vector += work
    over_link = (TO_DEVICE, TO_HOST)
    moved += sum(2 * row.bytes * row.times for row in rows if row.kind not in (*COLLECTIVES, *over_link))
    hosted = sum(row.seconds * row.times for row in rows if row.kind in over_link)
    busy = {
        "matrix unit": sum(work / machine.flops_per_s(dtype) for dtype, work in matmul.items()),
        "vector unit": vector / machine.flops_per_s("float32", "vector"),
        "memory": moved / machine.profile.memory.bandwidth.value,
        **({"host link": hosted} if hosted else {}),
    }
    busy |= links_s(pricer, rows)
    collective_s = sum(row.seconds * row.times for row in rows if row.kind in COLLECTIVES)
    for name in sorted(busy.keys() | step["resources_s"].keys()):
        expect(f"resources_s[{name}]", step["resources_s"].get(name, 0.0), busy.get(name, 0.0))
    copies_s = sum(row.seconds * row.times for row in rows if row.kind not in COLLECTIVES)
    upper = compute_s + collective_s + copies_s
    lower = min(max(busy.values()), upper)
    expect("upper_s", step["upper_s"], upper)
    expect("lower_s", step["lower_s"], lower)
    if not same(plan["cost"]["everything_overlaps_s"], lower):
        told = plan["cost"]["everything_overlaps_s"]
        findings.add("cost", f"cost.everything_overlaps_s is {told} in the plan, the layouts give {lower}")
    if not same(busy.get(step["bound"]), max(busy.values())):
        findings.add("cost", f"cost.step_time.bound is {step['bound']!r}, which is not the busiest resource")
    # the estimate is at least all work one after the other, and at most that with all collectives exposed
    if not max(lower, compute_s + copies_s) * (1 - 1e-9) <= step["estimate_s"] <= upper * (1 + 1e-9):
        findings.add("cost", f"cost.step_time.estimate_s {step['estimate_s']} lies outside of {lower} to {upper}")
    waited = compute_s + copies_s + exposed_s(pricer, rows, order)
    estimate = max(lower, waited)
    if "waited_s" in step:  # plans of earlier versions do not say
        expect("waited_s", step["waited_s"], waited)
    expect("estimate_s", step["estimate_s"], estimate)
    expect("likely_s", step["likely_s"], estimate + longer_s)
    local = sum(matmul.values())
    expect("matmul_flop_per_device", step["matmul_flop_per_device"], local)
    expect("hardware_flop", step["hardware_flop"], local * machine.num_devices)
    expect("model_flop", step["model_flop"], whole if plan["model_flop"] is None else plan["model_flop"])
    peak = machine.flops_per_s(step["peak_dtype"])
    if matmul and not same(matmul.get(step["peak_dtype"]), max(matmul.values())):
        findings.add("cost", f"cost.step_time.peak_dtype is {step['peak_dtype']!r}; most FLOP are of another type")
    expect("peak_flop_per_s", step["peak_flop_per_s"], peak)
    for share, work in (("mfu", step["model_flop"]), ("hfu", step["hardware_flop"])):
        for name in _BOUNDS:
            possible = peak * machine.num_devices * step[f"{name}_s"]
            expect(f"{share}.{name}", step[share][name], work / possible if possible else 0.0)
    check_groups(plan, pricer, rows, order, local, findings)


def _in_body(node: Node) -> list[tuple[Node, float]]:
    return list(manual_ops(node, 1)) if node.is_manual else []


def _apart(manual: Node) -> int:
    """Devices whose work in a user's shard_map is not that of others: by its specs, and by what is sent inside."""
    axes = {axis for op, _ in _in_body(manual) for axis in op.attrs.get("axes", ())}
    for names in (*manual.attrs["in_names"], *manual.attrs["out_names"]):
        axes.update(axis for dim in names for axis in dim)
    return prod(size for axis, size in manual.attrs["mesh_axes"] if axis in axes)


def links_s(pricer: Pricer, rows: list[Row]) -> dict[str, float]:
    """Seconds of a step for which each link is busy."""
    busy: dict[str, float] = {}
    for row in rows:
        if row.kind not in COLLECTIVES:
            continue
        size = row.bytes * row.times * (pricer.flow.mesh.group(row.atoms) if row.kind == "all_to_all" else 1)
        for link, seconds in pricer.machine.link_seconds(row.kind, pricer.parts(row.atoms)).items():
            busy[link] = busy.get(link, 0.0) + seconds * size
    return busy


def overlapped_s(plan: Any, pricer: Pricer, rows: list[Row], compute_s: float, findings: Findings) -> float | None:
    """Seconds that the objective counts where it is *overlap*: what a device waits for, or the busiest link; else
    None.
    """
    objective = (plan.get("options") or {}).get("objective") or "serial"
    if objective == "serial":
        return None
    if objective != "overlap":
        findings.add("options", f"the plan's objective is {objective!r}; there are serial and overlap")
        return None
    copies_s = sum(row.seconds * row.times for row in rows if row.kind not in COLLECTIVES)
    waited_s = compute_s + copies_s + exposed_s(pricer, rows, MatmulOrder.of(pricer.flow.graph))
    return max(waited_s, *links_s(pricer, rows).values(), 0.0)
