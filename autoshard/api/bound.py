"""Checking a plan's bound: its network is made again, and its certificate is judged on that network.

The statements in the file are those that were asked for (`verify.plan.asked` compares them). The rooms that made the
plan make the network from them again, without the solver. `verify.certificate`, which shares no code with either, then
judges what the certificate proves.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoshard.errors import AutoshardError
from autoshard.verify import Check, Verification
from autoshard.verify.report import failed, not_done, ok

BOUND = "no plan costs less than the bound"
ROUNDING = 1e-12
"""Largest relative difference between two sums of the same seconds that counts as rounding."""


def check_bound(data: Mapping[str, Any]) -> Check:
    """The check of the bound in a plan.json; *not done* where the file has no certificate."""
    proof = data.get("certificate")
    if proof is None:
        return not_done(BOUND, "the plan has no certificate of its bound, which is taken on trust")
    from autoshard.plan_record import PlanRecord
    from autoshard.planning.certified import Proved
    from autoshard.planning.model import build_model
    from autoshard.program.as_json import check_header
    from autoshard.questions.again import limit_of, problem_of
    from autoshard.verify.certificate import CertificateFault, check_certificate

    try:
        proved = Proved.from_dict(proof)
        plan = PlanRecord.from_dict(check_header(dict(data), "the plan"))
        limit = limit_of(plan)
        if proved.limit is not None and (limit is None or proved.limit < limit):
            return failed(BOUND, [f"the certificate is about {proved.limit} bytes per device; the limit is {limit}"])
        model = build_model(problem_of(plan))
        network = proved.network(model)
    except AutoshardError as error:
        return not_done(BOUND, f"the network that the bound is about cannot be made again: {error}")
    edges = [(e.first, e.second, e.costs) for e in network.edges]
    usages = [[(u.start, u.stop, u.amounts) for u in own] for own in network.usages] or [[] for _ in network.costs]
    try:
        verdict = check_certificate(proved.certificate, network.costs, edges, usages, network.usage_limit)
    except CertificateFault as fault:
        return failed(BOUND, [f"the certificate does not prove it: {fault}"])
    if verdict.bound is None:
        return failed(BOUND, ["the certificate says that there is no plan at all"])
    tick, rounding = model.encoded.tick_s, model.encoded.rounding_s
    shown = max(verdict.bound * tick - rounding, model.encoded.least_s)
    what, claim = "bound_s", data
    if proof.get("of") == "joint":
        what, claim = "the bound_s of all at once", data["joint"] or {}
    claimed = float(claim.get("bound_s", float("inf")))
    if claimed > shown * (1 + ROUNDING):
        return failed(BOUND, [f"{what} is {claimed}, the certificate proves {shown}"])
    return ok(
        BOUND,
        [
            f"{what} {claimed:.9g} s: {verdict.steps} reductions, {verdict.records} sets of messages and "
            f"{verdict.leaves} leaves judged on {network.n_nodes} decisions"
            + ("" if network.usage_limit is None else ", memory limit included")
        ],
    )


def with_bound(found: Verification, data: Mapping[str, Any]) -> Verification:
    """A verification with the check of the bound behind the first two checks."""
    if not found.ok:
        return found
    return replace(found, checks=(*found.checks[:2], check_bound(data), *found.checks[2:]))
