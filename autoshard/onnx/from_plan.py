"""A plan of an imported model, written back as annotations of the model."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoshard.constraints.patterns import scopes
from autoshard.errors import InputError
from autoshard.onnx.annotate import Annotated, annotated, annotated_inside
from autoshard.onnx.check import check
from autoshard.onnx.files import ModelFile
from autoshard.onnx.graph import UNKNOWN, node_name, subgraphs
from autoshard.onnx.names import labels_of, names_of
from autoshard.onnx.problems import Finding
from autoshard.onnx.specs import read_annotations
from autoshard.program.schedule import PROGRAM, Use
from autoshard.sharding.layout import Layout

if TYPE_CHECKING:
    from onnx import ModelProto

    from autoshard.plan_record import PlanRecord

SHOWN = 20
"""How many values a line names."""


@dataclass(frozen=True)
class Export:
    """A model annotated with a plan.

    annotated: how many nodes have specs. folded: how many are no part of the program, as they are worked out when the
    model is read. unsaid: what no annotation can say, a line each.
    """

    proto: "ModelProto"
    annotated: int
    folded: int
    unsaid: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain data, for JSON."""
        return {"annotated": self.annotated, "folded": self.folded, "unsaid": list(self.unsaid)}


def annotate_plan(plan: "PlanRecord", model: ModelFile, *, configuration: str = "mesh") -> Export:
    """The model with the plan's placements as one configuration, whose older annotations are replaced.

    A value has the placement in which the ways to its uses begin; a node that takes it in another one has a spec that
    says so. Collectives between the ops that one node is made of cannot be said: such a node gets no specs, as long as
    the annotations make sense without them.
    """
    check_same_model(plan, model)
    reader = _Reader(plan, model)
    placements = {name: reader.text(layout) for name, layout in reader.kept.items()}
    uses, unsaid = reader.uses()
    unsaid = [*reader.unsaid, *unsaid]
    first = _first_outputs(model)
    skip = [name for index, name in first.items() if index in reader.folded]
    mesh = plan.schedule.mesh.mesh
    stages = _stages(model, configuration)
    made = annotated(model, mesh, placements, uses, configuration=configuration, skip=skip, stages=stages)
    wrong = _errors(made, model, configuration)
    told = {finding.node for finding in wrong}
    if wrong:  # of the placements in which such a node takes a value, the one that cuts least may make sense
        nodes = enumerate(model.graph.node)
        other, _ = reader.uses(least_cut={index for index, node in nodes if node_name(node, index) in told})
        again = annotated(model, mesh, placements, other, configuration=configuration, skip=skip, stages=stages)
        if not _errors(again, model, configuration):
            made, uses, wrong = again, other, ()
    if wrong:
        skip += [o for index, o in first.items() if node_name(model.graph.node[index], index) in told]
        fewer = {key: text for key, text in uses.items() if first.get(int(key[0])) not in skip}
        without = annotated(model, mesh, placements, fewer, configuration=configuration, skip=skip, stages=stages)
        clean = not _errors(without, model, configuration)
        made = without if clean else made
        what = "not expressible, left without annotations" if clean else "not expressible"
        unsaid += [f"{what}: {finding}" for finding in wrong]
    unsaid += [f"value {name!r}: {', '.join(what)}" for name, what in made.lost.items()]
    unsaid += reader.at_the_border(uses)
    if plan.program.host_inputs or plan.program.host_outputs:
        unsaid.append("which inputs and outputs live in host memory")
    if plan.program.orders:
        unsaid.append("placements in another order of the devices")
    bodies = [node_name(n, at) for at, n in enumerate(model.graph.node) if any(True for _ in subgraphs(n))]
    unsaid += [f"node {name}: what is inside of its bodies" for name in bodies]
    dropped = annotated_inside(model.proto, configuration)
    if dropped:
        unsaid.append(
            f"{dropped} annotations of functions and bodies for configuration {configuration!r}, which are left out: "
            "the plan places calls and whole bodies"
        )
    return Export(made.proto, made.annotated, len(reader.folded), tuple(unsaid))


def _errors(made: Annotated, model: ModelFile, configuration: str) -> tuple[Finding, ...]:
    return check(ModelFile(made.proto, model.path, model.shapes), configuration=configuration).errors


def _first_outputs(model: ModelFile) -> dict[int, str]:
    """Index of a node -> the first value that it makes."""
    named = ((index, next((o for o in node.output if o), "")) for index, node in enumerate(model.graph.node))
    return {index: name for index, name in named if name}


def check_same_model(plan: "PlanRecord", model: ModelFile) -> None:
    """`InputError` where the plan is not of this model: other arguments, or values that the model does not make."""
    program = plan.program
    paths = names_of(model.proto)
    known = {path: name for name, path in paths.items()}
    lacking = [path for path in program.input_names if path not in known]
    lacking += [tag for value in program.values for tag in value.tags if tag not in paths]
    sizes = []
    for path, value in zip(program.input_names, program.body.args, strict=False):
        stated = model.types.get(known.get(path, ""), UNKNOWN).shape
        planned = program.type_of(value).shape
        if stated is not None and stated != planned:
            sizes.append(f"{path} is {list(planned)} in the plan and {list(stated)} now")
    if lacking or sizes:
        what = sizes[0] if sizes else f"it has no value {lacking[0].rpartition('/')[2]!r}, which the plan places"
        raise InputError(f"{model.name} is not the model that was planned: {what}; solve again")


def _listed(which: list[str]) -> str:
    more = f", and {len(which) - SHOWN} more" if len(which) > SHOWN else ""
    return ", ".join(which[:SHOWN]) + more


def _stages(model: ModelFile, configuration: str) -> dict[str | int, int]:
    """The pipeline stages that nodes state for a configuration, by index: a plan has none, so they stay."""
    return {
        index: annotation.stage
        for index, node in enumerate(model.graph.node)
        for annotation in read_annotations(node)
        if annotation.configuration == configuration and annotation.stage is not None
    }


class _Reader:
    """Finds the layouts of a plan by the model's own names."""

    def __init__(self, plan: "PlanRecord", model: ModelFile) -> None:
        self.plan, self.model = plan, model
        program = plan.program
        values: dict[str, int] = {}
        for value in program.values:
            for tag in value.tags:
                values.setdefault(tag, value.id)
        paths = names_of(model.proto)
        inputs = dict(zip(program.input_names, program.body.args, strict=False))
        for name, path in paths.items():
            if path in inputs:
                values[name] = inputs[path]
        self.values = {name: value for name, value in values.items() if value in plan.schedule.definitions}
        self.unsaid: list[str] = []
        self.kept = {name: self._kept(name, value) for name, value in self.values.items() if name in paths}
        self.folded = {
            index
            for index, node in enumerate(model.graph.node)
            if not any(o in self.values for o in node.output)
        }  # fmt: skip

    def _kept(self, name: str, value: int) -> Layout:
        """The layout in which the ways to a value's uses begin; where that is unreduced, the one it is reduced to."""
        schedule, program = self.plan.schedule, self.plan.program
        form = schedule.form_before_use(value)
        if not form.unreduced:
            return form
        targets = [r.target for use, r in schedule.uses.items() if use.value_in(program) == value]
        whole = [t for t in dict.fromkeys(targets) if not t.unreduced]
        if len(set(targets)) != 1:  # one that stays unreduced is told as a use
            self.unsaid.append(f"value {name!r}: partial sums that its uses finish in {len(set(targets))} ways")
        return whole[0] if whole else Layout(form.dims, ())

    def text(self, layout: Layout) -> str:
        return layout.text(self.plan.schedule.mesh)

    def uses(self, least_cut: Collection[int] = ()) -> tuple[dict[tuple[str | int, int | str], str], list[str]]:
        """Inputs that nodes take in another placement than they are kept in, and what cannot be said of nodes.

        least_cut: nodes of which, where they take a value in several placements, the one that cuts least is told.
        """
        of_node = self._ops_of_nodes()
        uses: dict[tuple[str | int, int | str], str] = {}
        unsaid: list[str] = []
        for index, node in enumerate(self.model.graph.node):
            ops = of_node.get(index, ())
            mine = {self.values[n]: n for n in node.input if n in self.values}
            made = {self.values[n] for n in node.output if n in self.values}
            inside = 0
            for value, name in mine.items():
                wanted = self._wanted(ops, value)
                if len(wanted) > 1:
                    told = " and ".join(sorted(self.text(w) for w in wanted))
                    unsaid.append(f"node {node.name or index!r} takes {name!r} in several placements: {told}")
                if index in least_cut and len(wanted) > 1:
                    wanted = {min(wanted, key=lambda w: (sum(map(len, w.dims)), self.text(w)))}
                if wanted and self.kept[name] not in wanted:
                    uses[(index, name)] = self.text(sorted(wanted, key=self.text)[0])
            for op in ops:
                for slot, value in enumerate(op.operands):
                    reshard = self.plan.schedule.uses.get(Use(op.id, slot))
                    inside += bool(value not in mine and reshard is not None and reshard.steps)
                inside += sum(1 for v in op.results if v not in made and v in self.plan.schedule.shared)
            if inside:
                unsaid.append(f"node {node.name or index!r}: {inside} reshards between the ops that it is made of")
        return uses, unsaid

    def at_the_border(self, uses: Mapping[tuple[str | int, int | str], str]) -> list[str]:
        """Where arguments lie and outputs end up, as far as no node says it: nodes have the only specs."""
        schedule, program = self.plan.schedule, self.plan.program
        taken: dict[str, set[str]] = {}
        for index, node in enumerate(self.model.graph.node):
            for name in node.input:
                if name in self.kept:
                    taken.setdefault(name, set()).add(uses.get((index, name), self.text(self.kept[name])))
        arguments, arrive, leave = set(program.body.args), [], []
        for name, value in self.values.items():
            lies = schedule.definitions[value]
            silent = set() if any(lies.dims) else {self.text(lies)}  # what no node has a spec for is whole
            if value in arguments and taken.get(name, silent) != {self.text(lies)}:
                arrive.append(f"{name!r} as {self.text(lies)}")
        for slot, output in enumerate(program.output_names):
            reshard = schedule.uses.get(Use(PROGRAM, slot))
            name = output.removeprefix("out/")
            if reshard is not None and name in self.kept and reshard.target != self.kept[name]:
                leave.append(f"{name!r} as {self.text(reshard.target)}")
        told = (
            ("arguments that arrive otherwise than nodes take them", arrive),
            ("outputs that are handed back otherwise than nodes make them", leave),
        )
        return [f"{what}: {_listed(which)}" for what, which in told if which]

    def _wanted(self, ops: Any, value: int) -> set[Layout]:
        """The layouts in which the ops of a node take a value."""
        schedule, layouts = self.plan.schedule, set()
        for op in ops:
            for slot, operand in enumerate(op.operands):
                if operand == value:
                    reshard = schedule.uses.get(Use(op.id, slot))
                    layouts.add(schedule.form_before_use(value) if reshard is None else reshard.target)
        return layouts

    def _ops_of_nodes(self) -> Mapping[int, list[Any]]:
        by_label = {label: index for index, label in labels_of(self.model.graph).items()}
        of_node: dict[int, list[Any]] = {}
        for op in self.plan.program.body.ops:
            steps = scopes(op.source)[0]
            for end in range(len(steps), 0, -1):
                index = by_label.get("/".join(steps[:end]))
                if index is not None:
                    of_node.setdefault(index, []).append(op)
                    break
        return of_node
