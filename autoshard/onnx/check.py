"""Do the annotations of a model make sense? Each finding has its place, and is an error, a warning or "no rule"."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autoshard.errors import InputError
from autoshard.onnx.files import ModelFile
from autoshard.onnx.graph import node_name
from autoshard.onnx.problems import ERROR, NO_RULE, WARNING, Finding, Problem
from autoshard.onnx.specs import Configuration, read_configurations
from autoshard.onnx.structure import model_findings, node_problems, nodes_of_model, sound_configurations
from autoshard.onnx.walk import Faulty, Visit, Walk

if TYPE_CHECKING:
    from onnx import NodeProto

SHOWN_ERRORS = 5
"""How many errors a message lists."""


@dataclass(frozen=True)
class Checked:
    """The result of a check. notes: what it took for granted. annotated: how many nodes have annotations."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    annotated: int = 0

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make the annotations wrong."""
        return tuple(f for f in self.findings if f.severity == ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings that are legal, but may not be meant."""
        return tuple(f for f in self.findings if f.severity == WARNING)

    @property
    def no_rule(self) -> tuple[Finding, ...]:
        """Findings about ops without a rule."""
        return tuple(f for f in self.findings if f.severity == NO_RULE)

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not self.errors


def check(model: ModelFile, *, configuration: str | None = None, strict: bool = False) -> Checked:
    """Check every annotation of a model, or those for one configuration.

    strict: warnings are errors, and demands of proposal 0007 are checked even where an op does not need them.
    """
    asked = chosen_configurations(model, configuration)
    findings, faulty, annotated = structure_findings(model, configuration)
    notes: list[str] = []
    if annotated:
        for each in asked:
            visits = Walk(model, each, strict, faulty.get(each.name or "", frozenset())).run()
            findings += [f for visit in visits for f in _visit_findings(visit, each)]
            findings += _stage_findings(visits, each)
            notes += _notes(model, visits, each)
    if strict:
        findings = [replace(f, severity=ERROR) if f.severity == WARNING else f for f in findings]
    return Checked(tuple(dict.fromkeys(findings)), tuple(dict.fromkeys(notes)), annotated)


def require_sound(model: ModelFile, configuration: str | None) -> Checked:
    """Check a model; `InputError` with the first errors where there are any."""
    checked = check(model, configuration=configuration)
    if not checked.ok:
        raise _refused(model, "the annotations are malformed or contradict each other", checked.errors)
    return checked


def require_well_formed(model: ModelFile, configuration: Configuration) -> tuple[str, ...]:
    """`InputError` where annotations are malformed; else the nodes whose specs make no sense together."""
    name = configuration.name or ""
    findings, faulty, _ = structure_findings(model, name)
    visits = Walk(model, configuration, faulty=faulty.get(name, frozenset())).run()
    findings += [_finding(p, v.scope, v.node, v.index, name) for v in visits for p in v.faults]
    malformed = tuple(dict.fromkeys(f for f in findings if f.severity == ERROR))
    if malformed:
        raise _refused(model, "the annotations are malformed", malformed)
    return tuple(visit.name for visit in visits if not visit.outcome.fits)


def _refused(model: ModelFile, what: str, errors: tuple[Finding, ...]) -> InputError:
    shown = "\n".join(f"  {f}" for f in errors[:SHOWN_ERRORS])
    more = f"\n  and {len(errors) - SHOWN_ERRORS} more" if len(errors) > SHOWN_ERRORS else ""
    return InputError(f"{model.name}: {what}:\n{shown}{more}")


def chosen_configurations(model: ModelFile, configuration: str | None) -> list[Configuration]:
    """The sound configurations of a model, or the one that is asked for; `InputError` where it is not declared."""
    sound = sound_configurations(model.proto)
    if configuration is None:
        return sound
    declared = [c.name or "" for c in read_configurations(model.proto)]
    if configuration not in declared:
        listed = ", ".join(declared) or "none"
        raise InputError(f"{model.name} has no configuration {configuration!r}; it declares: {listed}")
    return [c for c in sound if c.name == configuration]


def structure_findings(model: ModelFile, configuration: str | None) -> tuple[list[Finding], dict[str, Faulty], int]:
    """The part of the check that needs no rules of ops.

    Returns the findings, the faulty specs by configuration, and the number of annotated nodes.
    """
    proto = model.proto
    declared = [c.name for c in read_configurations(proto) if c.name]
    known = {c.name or "": c for c in sound_configurations(proto)}
    findings: list[Finding] = []
    faulty: dict[str, set] = {}
    annotated = 0
    for path, scope, index, node in nodes_of_model(proto):
        if not node.device_configurations:
            continue
        annotated += 1
        for name, problem in node_problems(node, known, declared):
            if problem.severity == ERROR:
                faulty.setdefault(name, set()).add((path, index, problem.tensor))
            if configuration in (None, name) or name not in declared:
                findings.append(_finding(problem, scope, node, index, name))
    findings = model_findings(proto, bool(annotated)) + findings
    return findings, {name: frozenset(specs) for name, specs in faulty.items()}, annotated


def _finding(problem: Problem, scope: str, node: "NodeProto", index: int, configuration: str) -> Finding:
    tensor = problem.tensor or (node.input[problem.operand] if problem.operand >= 0 else "")
    return Finding(
        problem.severity,
        problem.code,
        problem.message,
        problem.advice,
        scope,
        node_name(node, index),
        tensor,
        problem.axis,
        configuration,
        node.op_type,
    )


def _visit_findings(visit: Visit, configuration: Configuration) -> list[Finding]:
    problems = [*visit.faults, *visit.outcome.problems]
    findings = [_finding(p, visit.scope, visit.node, visit.index, configuration.name or "") for p in problems]
    return [_with_origin(f, visit) for f in findings]


def _with_origin(finding: Finding, visit: Visit) -> Finding:
    """The finding; an error about an input without a spec also says where its placement came from."""
    use = next((u for u in visit.inputs if u.tensor == finding.tensor), None)
    if finding.severity != ERROR or use is None or use.spec is not None or use.placed is None or use.placed.is_whole:
        return finding
    text = f"{finding.message} ({finding.tensor!r} has no spec here and comes as its maker leaves it)"
    return replace(finding, message=text)


def _stage_findings(visits: list[Visit], configuration: Configuration) -> list[Finding]:
    """Warnings about values that lead back to an earlier pipeline stage."""
    made: dict[tuple, tuple[int, str]] = {}
    findings = []
    for visit in visits:
        stage = visit.annotation.stage if visit.annotation else None
        if stage is None:
            continue
        for use in visit.inputs:
            before = made.get((visit.path, use.tensor))
            if before is not None and before[0] > stage:
                problem = Problem(
                    "stage-backward",
                    WARNING,
                    f"stage {stage} reads what stage {before[0]} (node {before[1]}) makes",
                    "let stages grow along the graph",
                    tensor=use.tensor,
                )
                findings.append(_finding(problem, visit.scope, visit.node, visit.index, configuration.name or ""))
        for use in visit.outputs:
            made[visit.path, use.tensor] = (stage, visit.name)
    return findings


def _notes(model: ModelFile, visits: list[Visit], configuration: Configuration) -> list[str]:
    """What was taken for granted: where unannotated inputs lie, and that symbolic sizes divide."""
    said = {u.tensor for v in visits if not v.path for u in v.inputs if u.spec is not None}
    read = {u.tensor for v in visits if not v.path for u in v.inputs}
    silent = sorted(({*model.inputs, *model.initializers} & read) - said)
    notes = []
    if silent:
        shown = ", ".join(silent[:6]) + (", ..." if len(silent) > 6 else "")
        notes.append(
            f"configuration {configuration.name!r}: taken as replicated on all {configuration.num_devices} devices, as "
            f"no spec says where they lie: {shown}"
        )
    for visit in visits:
        for use in (*visit.inputs, *visit.outputs):
            dims = visit.type(use.tensor).dims
            if use.spec is None or use.placed is None or dims is None:
                continue
            for axis, count in enumerate(use.placed.counts):
                if count > 1 and isinstance(dims[axis], str):
                    notes.append(f"taken as true: {dims[axis]} is divisible by {count}")
    return notes
