"""Groups of collectives in the step time of a plan, worked out again: what they move, what hides and what bounds them.

A collective with no matmul before it (weights) or none after it (gradients) can run beside other work, as far as the
machine's profile allows for its kind; the step waits for one between matmuls (activations).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from autoshard.verify.plan.cost import Pricer, Row, same
from autoshard.verify.plan.flow import COLLECTIVES
from autoshard.verify.plan.program import PROGRAM_OP, Body, Findings, Graph, Node
from autoshard.verify.plan.work import is_matrix

_TWO_PASSES: Final = "all_reduce"


@dataclass(frozen=True, slots=True)
class MatmulOrder:
    """Which values come before and after matmuls.

    before: values that a matmul's result leads to. leading: values that lead to a matmul. leading_ops: ops that lead to
    a matmul, are one, or have one inside.
    """

    before: frozenset[int]
    leading: frozenset[int]
    leading_ops: frozenset[int]

    @staticmethod
    def of(graph: Graph) -> "MatmulOrder":
        """Worked out by reachability from value to value, around loops too."""
        ops = list(_ops(graph.body))
        after: dict[int, list[int]] = {}
        toward: dict[int, list[int]] = {}
        for op in ops:
            for source, target in _edges(op):
                after.setdefault(source, []).append(target)
                toward.setdefault(target, []).append(source)
        matmuls = [op for op in ops if is_matrix(op) and not op.regions]
        before = _reached([v for op in matmuls for v in op.results], after)
        leading = _reached([v for op in matmuls for v in op.operands], toward)
        holding = {op.id for op in ops if is_matrix(op) or any(is_matrix(o) for o in _below(op))}
        leads = holding | {op.id for op in ops if leading.intersection(op.results)}
        return MatmulOrder(before, leading, frozenset(leads))

    def moves(self, row: Row) -> str:
        """What a collective moves: ``weights``, ``activations`` or ``gradients``."""
        if row.value not in self.before:
            return "weights"
        later = row.value in self.leading if row.op == PROGRAM_OP else row.op in self.leading_ops
        return "activations" if later else "gradients"


def _ops(body: Body) -> Iterator[Node]:
    for op in body.ops:
        yield op
        yield from _below(op)


def _below(op: Node) -> Iterator[Node]:
    for body in op.regions:
        yield from _ops(body)


def _edges(op: Node) -> Iterator[tuple[int, int]]:
    """(value, value that is made of it or stands for it) at one op; conditions of branches and loops lead nowhere."""
    if not op.regions:
        for source in op.operands:
            for target in op.results:
                yield source, target
        return
    if op.kind == "while":
        cond, body = op.regions
        tested, carried = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        consts, start = op.operands[tested : tested + carried], op.operands[tested + carried :]
        yield from zip([*op.operands[:tested], *start], cond.args, strict=False)
        yield from zip([*consts, *start], body.args, strict=False)
        yield from zip(body.results, body.args[carried:], strict=False)
        yield from zip(body.results, op.results, strict=False)
        return
    for body in op.regions:
        yield from zip(op.operands[1 if op.kind == "cond" else 0 :], body.args, strict=False)
        yield from zip(body.results, op.results, strict=False)
    if op.kind == "scan":
        (body,), first = op.regions, op.attrs["num_consts"]
        yield from zip(body.results[: op.attrs["num_carry"]], body.args[first:], strict=False)


def _reached(seeds: Sequence[int], edges: dict[int, list[int]]) -> frozenset[int]:
    reached, stack = set(seeds), list(seeds)
    while stack:
        for value in edges.get(stack.pop(), ()):
            if value not in reached:
                reached.add(value)
                stack.append(value)
    return frozenset(reached)


def hidden_share(pricer: Pricer, kind: str, moves: str) -> float:
    """The share of a collective's time that runs beside other work in the estimate."""
    return 0.0 if moves == "activations" else float(getattr(pricer.machine.profile.overlap, kind, 0.0))


def exposed_s(pricer: Pricer, rows: Sequence[Row], order: MatmulOrder) -> float:
    """Seconds of collectives that the estimate waits for."""
    collectives = [row for row in rows if row.kind in COLLECTIVES]
    return sum(row.seconds * row.times * (1 - hidden_share(pricer, row.kind, order.moves(row))) for row in collectives)


def check_groups(
    plan: Any, pricer: Pricer, rows: Sequence[Row], order: MatmulOrder, local_flop: float, findings: Findings
) -> None:
    """Check ``cost.step_time.groups`` against the collectives of the layouts. local_flop: of matmuls on one device."""
    mesh = pricer.flow.mesh
    due: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.kind in COLLECTIVES:
            due.setdefault((mesh.text(row.atoms, quote=""), row.kind, order.moves(row)), []).append(row)
    listed = {(g["axes"], g["kind"], g["moves"]): g for g in plan["cost"]["step_time"]["groups"]}
    if len(listed) != len(plan["cost"]["step_time"]["groups"]):
        findings.add("cost", "cost.step_time.groups lists a group twice")
    for key in sorted(due.keys() | listed.keys()):
        where = f"cost.step_time.groups: {key[1]} over {key[0]} of {key[2]}"
        group, own = listed.get(key), due.get(key, [])
        amount = _amount(pricer, own)
        if group is None or not own or not same(group["bytes"], amount):
            told = 0.0 if group is None else group["bytes"]
            findings.add("cost", f"{where} adds up to {told} bytes, the layouts give {amount}")
            continue
        _check_group(where, group, own, plan, pricer, local_flop, findings)


def _amount(pricer: Pricer, rows: Sequence[Row]) -> float:
    """Bytes of the arrays that collectives move in a step, as seen inside of one group of devices."""
    mesh = pricer.flow.mesh
    return sum(row.bytes * row.times * (mesh.group(row.atoms) if row.kind == "all_to_all" else 1) for row in rows)


def _check_group(
    where: str, group: Any, rows: Sequence[Row], plan: Any, pricer: Pricer, local_flop: float, findings: Findings
) -> None:
    kind, moves = group["kind"], group["moves"]
    passes = 2 if kind == _TWO_PASSES else 1
    step = plan["cost"]["step_time"]
    beta = pricer.machine.alpha_beta(kind, pricer.parts(rows[0].atoms))[1]
    ratio = local_flop / (passes * group["bytes"]) if group["bytes"] else 0.0
    needed = step["peak_flop_per_s"] * beta / passes
    for key, found in (
        ("times", sum(row.times for row in rows)),
        ("seconds", sum(row.seconds * row.times for row in rows)),
        ("hidden", hidden_share(pricer, kind, moves)),
        ("flops_per_byte", ratio),
        ("machine_flops_per_byte", needed),
    ):
        if not same(group[key], found):
            findings.add("cost", f"{where} has {key} {group[key]}, layouts and machine give {found}")
    if ratio and group["verdict"] != ("compute" if ratio > needed else "communication"):
        findings.add("cost", f"{where} is called {group['verdict']} bound against its own figures")
    flip = _flip(group, ratio, needed, pricer.flow.mesh.group(rows[0].atoms), plan["batch"])
    told = group["flip"]
    if (told is None) != (flip is None) or (told is not None and flip is not None and not _same_flip(told, flip)):
        findings.add("cost", f"{where} turns at {told}, its figures give {flip}")


def _flip(group: Any, ratio: float, needed: float, devices: int, batch: float | None) -> dict[str, Any] | None:
    """Where the verdict turns, as the plan is to tell it.

    Activations grow with the batch as the work does, so theirs turns with the number of devices; that of weights and
    gradients turns with the batch.
    """
    if not ratio or not isfinite(ratio) or needed <= 0:
        return None
    factor = needed / ratio
    if group["moves"] == "activations":
        return {
            "quantity": f"devices on {group['axes']}", "now": float(devices), "at": devices / factor,
            "factor": 1 / factor, "more_is_compute": False,
        }  # fmt: skip
    at = None if batch is None else batch * factor
    return {"quantity": "batch", "now": batch, "at": at, "factor": factor, "more_is_compute": True}


def _same_flip(told: Any, flip: dict[str, Any]) -> bool:
    return all(told[key] == value or same(told[key], value) for key, value in flip.items())
