"""Groups of collectives in the step time of a plan, worked out again: what they move, what hides and what bounds them.

A collective with no matmul before it (weights) or none after it (gradients) can run beside other work, as far as the
machine's profile allows for its kind; the step waits for one between matmuls (activations).
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

from autoshard.verify.plan.cost import Pricer, Row, same
from autoshard.verify.plan.flow import COLLECTIVES
from autoshard.verify.plan.matmuls import MatmulOrder
from autoshard.verify.plan.program import Findings

_TWO_PASSES: Final = "all_reduce"


def hidden_share(pricer: Pricer, row: Row, moves: str) -> float:
    """The share of a collective's time that runs beside other work in the estimate."""
    if moves == "activations":
        return 0.0
    most = float(getattr(pricer.machine.profile.overlap, row.kind, 0.0))
    return most * min(1.0, row.behind)


def exposed_s(pricer: Pricer, rows: Sequence[Row], order: MatmulOrder) -> float:
    """Seconds of collectives that the estimate waits for."""
    collectives = [row for row in rows if row.kind in COLLECTIVES]
    return sum(row.seconds * row.times * (1 - hidden_share(pricer, row, order.moves(row))) for row in collectives)


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
        ("hidden", _hidden(pricer, rows, moves)),
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


def _hidden(pricer: Pricer, rows: Sequence[Row], moves: str) -> float:
    """The share of all seconds of a group that runs beside other work."""
    seconds = sum(row.seconds * row.times for row in rows)
    if not seconds:
        return hidden_share(pricer, rows[0], moves)
    return sum(hidden_share(pricer, row, moves) * row.seconds * row.times for row in rows) / seconds


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
