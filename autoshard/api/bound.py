"""Are the bounds of a plan proved, or that no plan exists? Networks are made again, and certificates judged on them.

The statements in the file are those that were asked for (`verify.plan.asked` compares them); the networks are made of
them by the rooms that made the plan, without the solver. What the certificates then prove is judged by
`verify.certificate`, which shares no code with either.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any

from autoshard.errors import AutoshardError, InfeasibleError, InputError, in_words
from autoshard.units import counted
from autoshard.verify import Check, Verification
from autoshard.verify.report import failed, not_done, ok

if TYPE_CHECKING:
    from autoshard.plan_record import AskedRecord, BoundProof, PlanRecord, RefusalRecord
    from autoshard.planning import Model, Problem
    from autoshard.planning.certified import Proved
    from autoshard.planning.stages import StagePlan
    from autoshard.verify.certificate import Verdict

BOUND = "no plan costs less than the bound"
NO_PLAN = "no plan exists"
ROUNDING = 1e-12
"""Relative differences between two sums of the same seconds."""
_NONE = "the plan has no certificate of its bound, which is taken on trust"
_DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError)


class _Refuted(Exception):
    """A certificate does not prove what the plan says."""


def check_bound(data: Mapping[str, Any]) -> Check:
    """The check of the content of a plan.json; *not done* where nothing in it proves the plan's bound."""
    from autoshard.plan_record import PlanRecord
    from autoshard.planning.model import build_model
    from autoshard.program.as_json import check_header
    from autoshard.questions.again import problem_of

    if data.get("certificate") is None and data.get("joint") is None:
        return not_done(BOUND, _NONE)
    try:
        plan = PlanRecord.from_dict(check_header(dict(data), "the plan"))
    except (AutoshardError, *_DAMAGE) as error:
        return failed(BOUND, [f"the plan, or the certificate in it, cannot be read: {in_words(error)}"])
    try:
        problem = problem_of(plan)
        trusted = _check_parts(plan, problem, data)
        problem = _as_proved(problem, (plan.certificate, *(stage.certificate for stage in plan.stages)))
        lines = [*_judged(plan, build_model(problem)), *trusted]
    except (_Refuted, InputError) as fault:
        return failed(BOUND, [str(fault)])
    except _DAMAGE as error:
        return failed(BOUND, [f"what the plan says of its stages is damaged: {in_words(error)}"])
    except AutoshardError as error:
        return not_done(BOUND, f"the network that the bound is about cannot be made again: {error}")
    own = plan.certificate if plan.joint is None else plan.stages[-1].certificate if plan.stages else None
    return not_done(BOUND, _NONE, *lines) if own is None else ok(BOUND, lines)


def check_refusal(data: Mapping[str, Any]) -> Check:
    """The check of the content of a refusal.json; *not done* where it carries no certificate."""
    from autoshard.api.refused import conflict_fault, told_faults, trust_line
    from autoshard.plan_record import RefusalRecord
    from autoshard.planning.model import build_model
    from autoshard.questions.again import problem_of

    try:
        refusal = RefusalRecord.from_dict(data)
    except (AutoshardError, *_DAMAGE) as error:
        return failed(NO_PLAN, [f"the refusal, or the certificate in it, cannot be read: {error}"])
    try:
        problem = problem_of(refusal)
        trusted = _check_parts(refusal, problem, data)
        problem = _as_proved(problem, (refusal.certificate,))
        model = build_model(problem)
    except _Refuted as fault:
        return failed(NO_PLAN, [str(fault)])
    except InfeasibleError as error:
        fault = conflict_fault(refusal, error.conflict)
        if fault:
            return failed(NO_PLAN, [fault])
        return not_done(
            NO_PLAN, "there is no network to judge a certificate on: making it again ends with the same finding",
            *str(error).splitlines(), trust_line(["reason, the words"]),
        )  # fmt: skip
    except AutoshardError as error:
        return not_done(NO_PLAN, f"the network that the refusal is about cannot be made again: {error}")
    except _DAMAGE as error:
        return failed(NO_PLAN, [f"the refusal is damaged: {in_words(error)}"])
    if refusal.certificate is None:
        return not_done(NO_PLAN, "the refusal has no certificate, and there may be plans")
    try:
        proved = _proved_none(refusal.certificate, model, refusal)
    except (_Refuted, InputError) as fault:
        return failed(NO_PLAN, [str(fault)])
    except _DAMAGE:
        return failed(NO_PLAN, ["the certificate speaks of memory that the network, made again, does not have"])
    try:
        faults, lines = told_faults(refusal, model.problem.leaving_counts_out(False))
    except _DAMAGE as error:
        return failed(NO_PLAN, [f"what the refusal says beside its certificate is damaged: {in_words(error)}"])
    return failed(NO_PLAN, faults) if faults else ok(NO_PLAN, [proved, *trusted, *lines])


def _check_parts(told: "AskedRecord", problem: "Problem", data: Mapping[str, Any]) -> list[str]:
    """`_Refuted` where axes are in larger parts than planning makes of them: plans on smaller ones are in no network.

    Returns a line where that cannot be said: a file may not tell whether parts were stated, and the answer to a
    question has those of the plan before it, cut further where the question says so.
    """
    from autoshard.planning import Problem

    of_question = any(change["pins"] or change["program"] for change in data.get("changed") or ())
    if of_question or "sub_axes" not in (data.get("options") or {}):
        return ["taken on trust: the parts into which axes are split"]
    stated = None if told.options is None else told.options.sub_axes
    due = Problem.make(
        problem.program, problem.mesh.mesh, problem.machine, pins=problem.pins, sub_axes=stated,
        restrictions=problem.restrictions,
    ).mesh  # fmt: skip
    for axis in due.mesh.axis_names:
        wanted, found = ([mesh.sizes[atom] for atom in mesh.atoms_of[axis]] for mesh in (due, problem.mesh))
        if not set(accumulate(wanted, mul)) <= set(accumulate(found, mul)):
            whole, parts = (" x ".join(map(str, sizes)) for sizes in (found, wanted))
            raise _Refuted(
                f"axis {axis} is planned as {whole}; statements and program split it into {parts}, and no plan that is "
                "cut by these parts is counted; solve again"
            )
    return []


def _as_proved(problem: "Problem", told: "Iterable[BoundProof | None]") -> "Problem":
    """The problem of the networks that certificates are about: without the stated counts of reshards, where they say
    so. Leaving statements out never makes the best plan dearer, and where it has none there is none with them.
    """
    return problem.leaving_counts_out(any(proof is not None and not proof.counts for proof in told))


def _proved_none(told: "BoundProof", model: "Model", refusal: "RefusalRecord") -> str:
    """A line on what the certificate of a refusal proves; `_Refuted` where it does not prove that there is no plan."""
    from autoshard.planning.certified import Proved
    from autoshard.questions.again import limit_of
    from autoshard.verify.certificate import CertificateFault

    proved, limit = Proved.from_dict(told.to_dict()), limit_of(refusal)
    if proved.limit is not None and (limit is None or proved.limit < limit):
        raise _Refuted(f"the certificate is about {proved.limit} bytes per device; the limit is {limit}")
    if not proved.shares:
        raise _Refuted("the certificate is about layers that decide for themselves")
    if model.problem.uncounted and model.repeats.shared:
        raise _Refuted("the certificate is about layers that share decisions, which those need not that are counted")
    if proved.weights:
        raise _Refuted("the certificate weighs links, which have no say in whether there is a plan")
    try:
        verdict, nodes = _verdict(proved, model)
    except CertificateFault as fault:
        raise _Refuted(f"the certificate does not prove that there is no plan: {fault}") from None
    if verdict.bound is not None:
        raise _Refuted("the certificate proves a bound, and not that there is no plan")
    within = "without its memory limit" if proved.limit is None else f"within {proved.limit} bytes per device"
    return f"no plan {within}: {_counts(verdict, nodes)}{_left_out(model)}"


def _left_out(model: "Model") -> str:
    """That stated counts are no part of a network, in words."""
    stated = any(r.most_reshards is not None for r in model.problem.restrictions)
    return ", counts of reshards left out" if model.problem.uncounted and stated else ""


def _counts(verdict: "Verdict", nodes: int) -> str:
    """What a certificate was judged by, in words."""
    parts = [counted(verdict.steps, "reduction"), counted(verdict.records, "set of messages", "sets of messages")]
    parts += [counted(verdict.nogoods, "nogood")] if verdict.nogoods else []
    last = counted(verdict.leaves, "leaf", "leaves")
    return f"{', '.join(parts)} and {last} judged on {counted(nodes, 'decision')}"


def _verdict(proved: "Proved", model: "Model") -> "tuple[Verdict, int]":
    """What a certificate proves on its network, made again, and how many decisions that has."""
    from autoshard.solver.factored import Factored
    from autoshard.solver.work import Infeasible
    from autoshard.verify.certificate import Factors, check_certificate

    try:
        network = proved.network(model)
    except Infeasible as why:
        raise _Refuted(f"the certificate is about a network that cannot be made: {why}") from None

    def kept(table: Any) -> Any:
        is_kept = isinstance(table, Factored)
        return Factors(table.base, table.rows, table.columns, table.scale) if is_kept else table

    edges = [(e.first, e.second, kept(e.costs)) for e in network.edges]
    usages = [[(u.start, u.stop, u.amounts) for u in own] for own in network.usages] or [[] for _ in network.costs]
    verdict = check_certificate(proved.certificate, network.costs, edges, usages, network.usage_limit)
    return verdict, network.n_nodes


def _judged(plan: "PlanRecord", model: "Model") -> Iterator[str]:
    """What the certificates prove, and what has none, in lines."""
    last: Model | None = model
    _check_shared(plan, model)
    if plan.certificate is not None:
        of_all = plan.certificate.of == "joint"
        claim = plan.joint if of_all else plan
        if claim is None:
            raise _Refuted("the certificate is of the optimum all at once, of which the plan says nothing")
        what = "the bound_s of all at once" if of_all else "bound_s"
        last = weighed = _weighed(plan.certificate, model)
        yield _proved(what, float(claim.bound_s), plan.certificate, weighed, plan)
    else:
        yield "not certified: the bound_s of all at once"
    if plan.joint is not None:
        for what, stage in _stages(plan, model):
            last = stage.model
            if stage.certificate is None or stage.model is None:
                yield f"not certified: the bound_s of {what}"
            else:
                yield _proved(f"the bound_s of {what}", stage.bound_s, stage.certificate, stage.model, plan)
    if last is not None:
        told, rounding = plan.rounding_s, last.encoded.rounding_s
        if not abs(told - rounding) <= 1e-9 * max(told, rounding):
            raise _Refuted(f"cost.rounding_s is {told}; the ticks of the network round by {rounding} s at most")


def _weighed(told: "BoundProof", model: "Model") -> "Model":
    """The model that counts what the certificate is about: a mean, where it has weights of links."""
    from autoshard.planning.certified import Proved
    from autoshard.planning.over_links import weighing

    weights = Proved.from_dict(told.to_dict()).weights
    if not weights:
        return model
    if model.problem.objective != "overlap":
        raise _Refuted(f"the certificate weighs links, which objective {model.problem.objective} does not count")
    return weighing(model, weights)


def _check_shared(plan: "PlanRecord", model: "Model") -> None:
    """A bound on plans whose layers are alike says so: how many decisions are those of another layer."""
    from autoshard.planning.sharing import unpriced

    due, told = unpriced(model), plan.sharing
    if due.shared if told is None else (told.decisions, told.shared) != (due.decisions, due.shared):
        found = "says of none" if told is None else f"says {told.shared} of {told.decisions}"
        raise _Refuted(
            f"in the network, {due.shared} of {due.decisions} decisions are shared between layers; the plan {found}"
        )


@dataclass(frozen=True)
class _Stage:
    """A stage with the model of its network; None where there is no certificate to judge on it."""

    bound_s: float
    certificate: "BoundProof | None"
    model: "Model | None"


def _stages(plan: "PlanRecord", model: "Model") -> "Iterator[tuple[str, _Stage]]":
    """Each stage, under its statements and the placements that the plan says it was decided under."""
    from autoshard.formulation.fixed import placed
    from autoshard.formulation.pieces import Left
    from autoshard.planning.model import build_model
    from autoshard.planning.stage_proofs import fixed_by_stage, left_out, placed_words
    from autoshard.program.as_json import plain

    problem, made = model.problem, _stages_of(plan, model)
    if [(wanted.priority, wanted.name) for wanted in made] != [(stage.priority, stage.name) for stage in plan.stages]:
        raise _Refuted(f"the plan has {len(plan.stages)} stages; its statements and names make {len(made)}, or others")
    left = Left(model.collected, problem.program)
    taken = [wanted.given for wanted in made]
    every = zip(made, plan.stages, fixed_by_stage(left, taken, plan.stages, problem), strict=True)
    for number, (wanted, stage, fixed) in enumerate(every):
        what = f"stage {number}"
        if plain(stage.left_out) != plain(left_out(left, wanted.given, fixed[-1], problem)):
            raise _Refuted(f"{what} is said to have left out what its statements do not propagate")
        _check_told(what, number, wanted, plan, problem)
        if number == len(made) - 1:
            atoms = frozenset(atom for each in made for atom in each.atoms)
            placed_here = placed_words(placed(plan.schedule, problem.program, atoms), problem, fixed)
            if plain(stage.placed) != plain(placed_here):
                raise _Refuted(f"{what} is said to have placed other than what the plan has there")
        its = None
        if stage.certificate is not None:
            part = problem if number == len(made) - 1 else problem.under(wanted.pins)
            if not stage.certificate.shares:
                part = replace(part, share_repeats=False)
            its = _weighed(stage.certificate, build_model(part, fixed=fixed, shared=model.shared))
        yield what, _Stage(float(stage.bound_s), stage.certificate, its)


def _check_told(what: str, number: int, made: "StagePlan", plan: "PlanRecord", problem: "Problem") -> None:
    """What a stage says of itself: its axes, statements by name, and what of its statements it could not keep."""
    from autoshard.formulation.fixed import held
    from autoshard.formulation.pieces import pieces_of
    from autoshard.planning.stage_proofs import placed_of, relaxed_of, untold

    stage, mesh = plan.stages[number], problem.mesh
    axes = tuple(name for name in mesh.mesh.axis_names if set(mesh.atoms_of[name]) & made.atoms)
    if stage.axes != axes or (made.name and stage.statements != made.statements):
        raise _Refuted(
            f"{what} is said to place {', '.join(stage.axes)} for {'; '.join(stage.statements)}; it places "
            f"{', '.join(axes)} for {'; '.join(made.statements)}"
        )
    for piece in untold(plan.stages, number, problem):
        if piece.atom not in held(plan.schedule, piece.what, piece.key)[piece.index]:
            raise _Refuted(
                f"{what} did not keep {mesh.names[piece.atom]} on {piece.what} {piece.key}, which relaxed does not tell"
            )
    lost = set(pieces_of(placed_of(stage.left_out, problem)))
    for entry in stage.relaxed:
        if entry["source"] == "propagated" and not lost.issuperset(relaxed_of(entry, problem)):
            raise _Refuted(f"{what} is said to have relaxed {entry['name']}, which its statements do not propagate")


def _stages_of(plan: "PlanRecord", model: "Model") -> "Sequence[StagePlan]":
    """The stages that statements and names make; pins that the plan was found to have anyway make none."""
    from autoshard.constraints import MatchedPin
    from autoshard.questions.again import stages_again

    mesh = model.problem.mesh.mesh
    kept = [MatchedPin.from_dict(pin, mesh) for pin in (plan.changed[-1].kept if plan.changed else ())]
    pins = tuple(pin for pin in model.problem.pins if pin not in kept)
    return stages_again(plan, replace(model, problem=replace(model.problem, pins=pins)))


def _proved(what: str, claimed: float, told: "BoundProof", model: "Model", plan: "PlanRecord") -> str:
    """A line on what a certificate proves; `_Refuted` where that is less than what is claimed."""
    from autoshard.planning.certified import Proved
    from autoshard.questions.again import limit_of
    from autoshard.verify.certificate import CertificateFault

    proved, limit = Proved.from_dict(told.to_dict()), limit_of(plan)
    if proved.limit is not None and (limit is None or proved.limit < limit):
        raise _Refuted(f"{what}: the certificate is about {proved.limit} bytes per device; the limit is {limit}")
    try:
        verdict, nodes = _verdict(proved, model)
    except CertificateFault as fault:
        raise _Refuted(f"{what}: the certificate does not prove it: {fault}") from None
    if verdict.bound is None or proved.bound is None:
        raise _Refuted(f"{what}: the certificate says that there is no plan at all")
    if proved.bound > verdict.bound:
        raise _Refuted(f"{what} is said to be of {proved.bound} ticks, the certificate proves {verdict.bound}")
    encoded, bound = model.encoded, verdict.bound - proved.spared(model)
    shown = max(bound * encoded.tick_s - encoded.rounding_s, encoded.least_s)
    if claimed > shown * (1 + ROUNDING):
        raise _Refuted(f"{what} is {claimed}, the certificate proves {shown}")
    limited = "" if proved.limit is None else ", memory limit included"
    priced = ", reshards that count at a price" if any(proved.prices) else ""
    return f"{what} {claimed:.9g} s: {_counts(verdict, nodes)}{limited}{priced}{_left_out(model)}"


def with_bound(found: Verification, data: Mapping[str, Any]) -> Verification:
    """A verification with the check of the bound behind the first two checks."""
    if not found.ok:
        return found
    return replace(found, checks=(*found.checks[:2], check_bound(data), *found.checks[2:]))
