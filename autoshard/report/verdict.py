"""The verdict on a plan in a few lines: how long a step takes, what memory holds, what is proved, what to do next."""

from collections.abc import Mapping, Sequence
from typing import Any

from autoshard.report.amounts import bytes_text, seconds_text
from autoshard.report.rivals import chosen_text
from autoshard.report.simulations import form_text

Json = Mapping[str, Any]

_MARGIN = 9
"""Width in columns of the word before each line."""
PROVED_GAP = 1e-6
"""Gaps up to this one are rounding: such a plan is called optimal."""


def verdict(plan: Json, *, checked: str = "", ran: str = "", file: str = "") -> list[str]:
    """The verdict on a plan (the data of its plan.json), a line for each topic.

    checked: what a verification found, in a few words. ran: how train steps of it went. file: the path of the plan, for
    the line on what to do next.
    """
    lines = [
        ("plan", _subject(plan)),
        ("step", _step(plan)),
        ("form", form_text(plan["form"]) if plan.get("form") else ""),
        ("chosen", chosen_text(plan["rivals"]) if plan.get("rivals") else ""),
        ("memory", _memory(plan)),
        ("proof", _proof(plan)),
        ("checked", "; ".join(part for part in (checked, ran) if part)),
        ("next", f"autoshard show {file} (tables) or report (a page)" if file else ""),
    ]
    return [f"{name:<{_MARGIN}}{text}" for name, text in lines if text]


def checks_text(verification: Json) -> str:
    """The checks of a verification (`Verification.to_dict()`) in a few words."""
    checks = verification["checks"]
    states = [check["status"] for check in checks]
    if "failed" in states:
        wrong = next(check["name"] for check in checks if check["status"] == "failed")
        return f"THE PLAN IS WRONG: {wrong} (above, {states.count('failed')} of {len(states)} checks)"
    undone = states.count("not done")
    green = f"{states.count('ok')} of {len(states)} checks green"
    return f"{green}, {undone} not done (autoshard verify says why)" if undone else green


def losses_text(losses: Sequence[float]) -> str:
    """Losses of train steps in a few words."""
    if len(losses) < 2:
        return f"{len(losses)} train step, loss {losses[0]:.4f}"
    return f"{len(losses)} train steps, loss {losses[0]:.4f} -> {losses[-1]:.4f}"


def _subject(plan: Json) -> str:
    mesh = " x ".join(f"{axis}={size}" for axis, size in plan["mesh"]["axes"].items())
    text = f"{plan['program']['name']} on {plan['hardware']['name']}, mesh {mesh}"
    return f"{text}; objective overlap" if _is_overlap(plan) else text


def _is_overlap(plan: Json) -> bool:
    return (plan.get("options") or {}).get("objective") == "overlap"


def _estimate(plan: Json) -> str:
    """The seconds of a step as the line about it tells them."""
    step = plan.get("cost", {}).get("step_time")
    return seconds_text(plan["objective_s"] if step is None else step["estimate_s"])


def _step(plan: Json) -> str:
    step = plan.get("cost", {}).get("step_time")
    text = _estimate(plan)
    if (plan.get("form") or {}).get("seconds"):  # a simulated step has other seconds
        text += " by the planner's prices"
    if step is not None and step["mfu"].get("estimate") is not None:
        text += f", MFU {step['mfu']['estimate']:.1%}"
    priced = [row for row in plan.get("baselines", ()) if row["objective_s"] is not None]
    if not priced or not plan["objective_s"]:
        return text
    best = min(priced, key=lambda row: (row["objective_s"], row["name"]))
    return f"{text}; {best['name']}, the best baseline, costs {_times(best['objective_s'] / plan['objective_s'])}"


def _times(ratio: float) -> str:
    """A ratio of costs in words.

    >>> _times(1.4861), _times(0.9), _times(1.00001)
    ('1.49 times as much', '0.90 times as much', 'the same')
    """
    return "the same" if abs(ratio - 1) < 5e-4 else f"{ratio:.2f} times as much"


def _memory(plan: Json) -> str:
    memory = plan.get("memory")
    if not memory:
        return ""
    text = f"{bytes_text(memory['peak_bytes'])} per device at the peak"
    limit = plan.get("memory_limit") or {"bytes": None, "from": "device"}
    if limit["from"] == "stated" and limit["bytes"] is not None:
        text += f", of {bytes_text(limit['bytes'])} allowed"
    if "fits" not in memory:
        return text
    room = f"{bytes_text(memory['usable_bytes'])} that programs get"
    if memory["fits"]:
        return f"{text}; fits into {room}"
    if memory["peak_bytes"] > memory["usable_bytes"]:
        return f"{text}; DOES NOT FIT into {room}"
    return f"{text}; MAY NOT FIT: with the compiler's headroom {bytes_text(memory['allocation_bytes'])} of {room}"


def _proof(plan: Json) -> str:
    gap, bound = plan.get("gap"), plan.get("bound_s")
    if gap is None or bound is None:
        return "none: how much cheaper a plan could be is not known"
    stages = len(plan.get("stages", ()))
    what = f"plan of the last of {stages} stages" if stages > 1 else "plan under these statements"
    if plan["status"] == "optimal" or gap <= PROVED_GAP:
        text = f"optimal: no {what} costs less"
    else:
        cost = seconds_text(plan["objective_s"])
        if cost != _estimate(plan) and not _is_overlap(plan):
            cost += " if nothing overlaps"
        text = f"within {gap:.2%}: it costs {cost}, no {what} less than {seconds_text(bound)}"
    certificate = plan.get("certificate")
    if stages > 1 and plan["stages"][-1].get("certificate") is not None:
        return f"{text}; with a certificate"
    if certificate is None:
        return f"{text}; without a certificate"
    if certificate["of"] != "plan":
        return f"{text}; the certificate is of the optimum all at once"
    return f"{text}; with a certificate"
