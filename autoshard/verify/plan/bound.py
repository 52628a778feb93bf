"""Do the claims about cost agree: objective, bound, gap and status of a plan, and what it says of other plans?

Results of searches that are not in the file (earlier stages, other meshes, baselines) are compared with all that the
file says about them; `taken_on_trust` lists what rests on the plan's word alone.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import isfinite, isqrt, prod, sqrt
from typing import Any, Final

from autoshard.verify.plan.cost import LEAST_STEP_S, RELATIVE, TICKS, same
from autoshard.verify.plan.program import Findings
from autoshard.verify.plan.statements import limit_of

CERTIFICATE: Final = "certificate"
"""The key of the proof of a bound; where a plan has none, its bound is taken on trust."""

COARSER: Final = 10.0
"""How many times longer the ticks of another stage may be: ticks are powers of ten, and the stages cost about as much.
"""
_SPREAD: Final = 5
"""Standard deviations of a sum of rounded terms that are allowed for."""
_WHY_ENDED: Final = re.compile(r"stopped|ended|found")
"""Words of notes that say why a search went no further; such a plan may be optimal without claiming it."""
_TRIED: Final = ("optimal", "feasible", "pruned", "alike", "cannot be", "none found", "out of time")
"""What may be said of a mesh that a search over meshes tried."""
_ALL_AT_ONCE: Final = re.compile(r"all at once costs ([0-9.e+-]+) s")


def check_claim(
    what: str, claim: Mapping[str, Any], plan: Any, findings: Findings, topic: str = "bound", coarser: float = 1.0
) -> None:
    """Check that a cost, its bound, gap and status agree.

    what: begins the messages. coarser: how many times longer than those of the plan the ticks of the claim may be.

    Bounds are counted in ticks and lowered by the most that rounding to ticks can add up to (`rounding_s`). So an
    optimal plan lies above its bound by about that, at most by twice that; one that lies no further above is optimal.
    """
    key, name = ("objective_s", "objective_s") if "objective_s" in claim else ("cost_s", "its cost")
    cost, bound, gap, status = (claim[k] for k in (key, "bound_s", "gap", "status"))
    rounding = float(plan["cost"]["rounding_s"])
    if not isfinite(cost) or not isfinite(bound) or bound < 0 or cost < 0:
        findings.add(topic, f"{what}{name} is {cost} and bound_s {bound}; both are numbers of seconds, 0 at least")
        return
    if bound > cost * (1 + RELATIVE):
        findings.add(topic, f"{what}bound_s {bound} is above {name} {cost}: the plan itself refutes it")
    true_gap = max(0.0, cost - bound) / max(cost, 1e-30)
    if not isfinite(gap) or not (same(gap, true_gap) or abs(gap - true_gap) < 1e-15):
        findings.add(topic, f"{what}gap is {gap} in the plan; {name} {cost} and bound_s {bound} give {true_gap}")
    if status not in ("optimal", "feasible"):
        findings.add(topic, f"{what}status is {status!r}; a plan is 'optimal' or 'feasible'")
    if status == "optimal" and cost - bound > 2 * coarser * rounding * (1 + RELATIVE) + RELATIVE * cost:
        findings.add(
            topic, f"{what}status is 'optimal', but {name} {cost} is above bound_s {bound} by more than the rounding"
        )
    near = rounding
    if coarser == 1.0:  # n roundings, each of at most half a tick, add up to at most n/2 ticks, about to sqrt(n/12)
        tick = max(cost, LEAST_STEP_S) / TICKS
        near = min(2 * rounding, rounding + _SPREAD * sqrt(rounding * tick / 6))
    if status == "feasible" and cost - bound <= near and not any(_WHY_ENDED.search(note) for note in plan["notes"]):
        findings.add(topic, f"{what}status is 'feasible', but bound_s {bound} meets {name} {cost} up to the rounding")


def check_bounds(plan: Any, findings: Findings) -> None:
    """Check what the plan claims of itself, of the optimum all at once, baselines, shared layers and other meshes."""
    check_claim("", plan, plan, findings)
    _check_joint(plan, findings)
    _check_baselines(plan, findings)
    _check_sharing(plan, findings)
    _check_meshes(plan, findings)


def _check_joint(plan: Any, findings: Findings) -> None:
    """The optimum all at once costs no more than the stages, which only demand more."""
    joint, stages = plan.get("joint"), plan.get("stages") or []
    if joint is None:
        if len(stages) > 1:
            findings.add("stages", f"{len(stages)} stages, and nothing is said of the optimum all at once")
        return
    if not stages:
        findings.add("stages", "joint is the optimum beside stages, and the plan has none")
        return
    check_claim("all at once: ", joint, plan, findings, "stages", COARSER)
    price = plan["objective_s"] - joint["cost_s"]
    if not _difference(joint["price_of_stages_s"], price, plan["objective_s"]):
        findings.add("stages", f"the stages are said to cost {joint['price_of_stages_s']} s more; it is {price} s")
    if joint["bound_s"] > plan["objective_s"] + 2 * plan["cost"]["rounding_s"]:
        findings.add("stages", f"all at once is said to cost at least {joint['bound_s']} s, the stages cost less")
    for note in plan["notes"]:
        told = _ALL_AT_ONCE.search(note)
        if told and not same(float(told[1]), joint["cost_s"], 1e-5):
            findings.add("stages", f"all at once costs {joint['cost_s']} s, the notes say {told[1]} s")


def _difference(told: Any, found: float, of: float) -> bool:
    """Whether a plan tells the difference of two figures, each about as large as `of`, as it is found."""
    return isfinite(told) and abs(told - found) <= RELATIVE * abs(of)


def _check_baselines(plan: Any, findings: Findings) -> None:
    """No baseline that keeps to the limit costs less than the bound, which holds for it as well."""
    limit = limit_of(plan)
    # the bound of a plan with stages holds for plans that keep its earlier stages, which baselines do not
    least = plan["bound_s"] if plan.get("joint") is None else float(plan["joint"]["bound_s"])
    for baseline in plan["baselines"]:
        cost, peak = baseline["objective_s"], baseline["peak_bytes"]
        if cost is None or (limit is not None and (peak is None or peak > limit)):
            continue
        if cost < least - 2 * plan["cost"]["rounding_s"] - RELATIVE * least:
            findings.add(
                "bound", f"baseline {baseline['name']} costs {cost} s, less than bound_s {least}: it refutes the bound"
            )


def _check_sharing(plan: Any, findings: Findings) -> None:
    sharing = plan.get("sharing")
    if sharing is None:
        return
    decisions, shared, bound = sharing["decisions"], sharing["shared"], sharing["bound_s"]
    if not 0 < shared < decisions:
        findings.add("sharing", f"{shared} of {decisions} decisions are said to be shared")
    if bound is None or sharing["price_at_most_s"] is None:
        if sharing["price_at_most_s"] is not bound:
            findings.add("sharing", "the price of sharing is the objective less its bound; only one of them is told")
        return
    if not 0 <= bound <= plan["objective_s"] * (1 + RELATIVE):
        findings.add("sharing", f"plans whose layers differ are said to cost {bound} s at least: this one costs less")
    price = plan["objective_s"] - bound
    if not _difference(sharing["price_at_most_s"], price, plan["objective_s"]):
        findings.add("sharing", f"sharing costs {sharing['price_at_most_s']} s at most in the plan; it is {price} s")


def _check_meshes(plan: Any, findings: Findings) -> None:
    """The search over meshes tried the plan's mesh, and found no cheaper plan on another."""
    search = plan.get("mesh_search")
    if search is None:
        return
    axes, tried = plan["mesh"]["axes"], search["tried"]
    if prod(axes.values()) != search["devices"] or list(axes) != list(search["axes"]):
        findings.add("mesh", f"a search of {search['devices']} devices along {search['axes']} found the mesh {axes}")
        return
    for attempt in tried:
        if prod(attempt["mesh"].values()) != search["devices"]:
            findings.add("mesh", f"mesh {_text(attempt['mesh'])} was tried, which has not {search['devices']} devices")
    every = sorted(_sizes(search["devices"], len(search["axes"])))
    if sorted(tuple(attempt["mesh"].values()) for attempt in tried) != every:
        findings.add(
            "mesh", f"{len(tried)} meshes were tried; {search['devices']} devices make {len(every)}, each once"
        )
    own = next((attempt for attempt in tried if list(attempt["mesh"].items()) == list(axes.items())), None)
    if own is None or not same(own["objective_s"], plan["objective_s"]):
        cost = "not told" if own is None else f"{own['objective_s']} s"
        findings.add("mesh", f"the plan costs {plan['objective_s']} s, what was tried on its mesh {cost}")
    elif own["peak_bytes"] != plan["memory"]["peak_bytes"]:
        findings.add(
            "mesh", f"the plan holds {plan['memory']['peak_bytes']} bytes, the mesh search says {own['peak_bytes']}"
        )
    _check_attempts(plan, search, findings)
    meshes = [list(attempt["mesh"].items()) for attempt in tried]
    for point in search["frontier"]:
        limit = point["memory_limit"]
        if list(point["mesh"].items()) not in meshes:
            findings.add("mesh", f"the frontier holds {_text(point['mesh'])}, which was not tried")
        if limit is not None and point["peak_bytes"] > limit:
            findings.add("mesh", f"the frontier holds a plan of {point['peak_bytes']} bytes within a limit of {limit}")
    for attempt, other in pairwise(search["frontier"]):
        if attempt["objective_s"] > other["objective_s"] or attempt["peak_bytes"] <= other["peak_bytes"]:
            findings.add("mesh", f"the frontier holds {_text(other['mesh'])}, which another of its points beats")


def _sizes(devices: int, axes: int) -> Iterator[tuple[int, ...]]:
    """All ways to put so many devices along so many axes."""
    if axes < 2:
        yield (devices,) * axes
        return
    small = [n for n in range(1, isqrt(devices) + 1) if devices % n == 0]
    for first in {*small, *(devices // n for n in small)}:
        yield from ((first, *rest) for rest in _sizes(devices // first, axes - 1))


def _check_attempts(plan: Any, search: Any, findings: Findings) -> None:
    """No mesh that was tried has a cheaper plan, and the bound on all of them is the least of theirs."""
    tried = search["tried"]
    stopped = any("stopped" in note for note in plan["notes"])
    for attempt in tried:
        if attempt["status"] not in _TRIED:
            known = ", ".join(_TRIED)
            findings.add("mesh", f"mesh {_text(attempt['mesh'])} is {attempt['status']!r}: {known} are known")
        cost, bound = attempt["objective_s"], attempt["bound_s"]
        if cost is not None and bound is not None and bound > cost * (1 + RELATIVE):
            findings.add("mesh", f"mesh {_text(attempt['mesh'])} has a bound of {bound} s above its cost of {cost} s")
        solved = attempt["status"] in ("optimal", "feasible") and not stopped
        if solved and cost is not None and cost < plan["objective_s"] * (1 - RELATIVE):
            findings.add(
                "mesh", f"mesh {_text(attempt['mesh'])} has a plan of {cost} s, which is cheaper than this one"
            )
    known = [attempt["bound_s"] for attempt in tried if attempt["bound_s"] is not None]
    unknown = any(attempt["status"] == "out of time" and attempt["bound_s"] is None for attempt in tried)
    least = 0.0 if unknown else min(known, default=0.0)
    if not same(search["bound_s"], least) and search["bound_s"] != least:
        findings.add("mesh", f"no mesh is said to have a plan under {search['bound_s']} s; the bounds say {least} s")


def _text(axes: Mapping[str, int]) -> str:
    return " x ".join(f"{name}={size}" for name, size in axes.items())


def taken_on_trust(plan: Any) -> str:
    """The line that tells what rests on the plan's word alone."""
    return "taken on trust: " + ", ".join(_trusted(plan))


def _trusted(plan: Any) -> Iterator[str]:
    if CERTIFICATE not in plan:
        yield "that no plan costs less than bound_s (the file has no certificate of it)"
    stages = plan.get("stages") or []
    if len(stages) > 1:
        yield "cost and peak of the stages before the last"
    bare = [str(k) for k, stage in enumerate(stages) if stage.get("certificate") is None]
    if bare and plan.get("joint") is not None:
        yield f"the bounds of stages without a certificate (number {', '.join(bare)})"
    if stages and not stages[0]["name"]:
        yield "the optimum without pins that the first stage is compared with"
    if any(stage.get("relaxed") for stage in stages):
        yield "why stages could not keep something, and its price"
    if plan.get("joint") is not None:
        yield "the optimum all at once"
    if plan["baselines"]:
        yield "cost and peak of baselines"
    if (plan.get("sharing") or {}).get("bound_s") is not None:
        yield "the bound on plans whose layers differ"
    if plan.get("mesh_search") is not None:
        yield "what other meshes cost"
    if plan.get("rivals") is not None:
        yield "simulated seconds, and cost and peak of rivals that were not chosen"
    yield "notes"
