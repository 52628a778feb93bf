"""The specs that a model leaves out, written into a copy of it (S1.5 to S1.7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoshard.errors import InputError
from autoshard.onnx.check import chosen_configurations, require_sound
from autoshard.onnx.files import ModelFile
from autoshard.onnx.graph import Dim
from autoshard.onnx.installed import onnx_library
from autoshard.onnx.placement import Placement, spec_of
from autoshard.onnx.specs import Configuration, NodeAnnotation, ShardingSpec, read_annotations, write_annotations
from autoshard.onnx.walk import Path, Visit, Walk

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


@dataclass(frozen=True)
class Completed:
    """A copy of a model with more specs.

    added: how many specs are new. left: (node, tensor) without a spec, because none follows. notes: what was assumed.
    """

    proto: "ModelProto"
    added: int
    left: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def infer(model: ModelFile, *, configuration: str | None = None) -> Completed:
    """Fill in missing specs: inputs from the node that makes the value, outputs from op and inputs.

    `InputError` where the annotations that are there contradict each other.
    """
    checked = require_sound(model, configuration)
    if not chosen_configurations(model, configuration):
        raise InputError(f"{model.name} declares no configuration of devices, so nothing can be inferred")
    copy = onnx_library().ModelProto()
    copy.CopyFrom(model.proto)
    added = 0
    left: dict[tuple[str, str], None] = {}
    for each in chosen_configurations(model, configuration):
        for visits in _by_node(Walk(model, each).run()):
            target = node_at(copy, visits[0].path, visits[0].index)
            new_specs, missing = _missing_specs(model, visits)
            add_specs(target, each, new_specs)
            added += len(new_specs)
            left.update(dict.fromkeys((visits[0].name, name) for name in missing))
    return Completed(copy, added, tuple(left), checked.notes)


def _by_node(visits: Sequence[Visit]) -> list[list[Visit]]:
    """The visits to each node: several where a function is called in several ways."""
    visits_of: dict[tuple[Path, int], list[Visit]] = {}
    for visit in visits:
        visits_of.setdefault((visit.path, visit.index), []).append(visit)
    return list(visits_of.values())


def _missing_specs(model: ModelFile, visits: Sequence[Visit]) -> tuple[list[ShardingSpec], list[str]]:
    """Specs for tensors that have none, and the tensors for which none follows, or different ones for several calls."""
    specs, missing = [], []
    for uses in zip(*((*v.inputs, *v.outputs) for v in visits), strict=True):
        first = uses[0]
        if first.spec is not None or first.tensor in [s.tensor for s in specs]:
            continue
        placed = {use.placed for use in uses}
        kinds = {visit.type(first.tensor).dims for visit in visits}
        placement = next(iter(placed))
        if len(placed) > 1 or placement is None:
            missing.append(first.tensor)
            continue
        dims = next(iter(kinds)) if len(kinds) == 1 else None
        specs.append(spec_of(placement, first.tensor, written_dims(model, placement, dims)))
    return specs, missing


def written_dims(model: ModelFile, placement: Placement, dims: Sequence[Dim] | None) -> list[Dim]:
    """Sizes as a spec may state them: without numbers that were put in for symbols and names that inference made up."""
    known = list(dims) if dims is not None else [None] * len(placement.cuts)
    replaced = set(model.shapes.values())
    return [None if n in replaced or (isinstance(n, str) and n.startswith("unk__")) else n for n in known]


def node_at(proto: "ModelProto", path: Path, index: int) -> "NodeProto":
    """The node of a model that was visited."""
    nodes: Any = proto.graph.node
    for at, name in path:
        if at < 0:
            nodes = next(f.node for f in proto.functions if f"{f.domain}::{f.name}" == name)
            continue
        plain, bracket, number = name.partition("[")
        attribute = next(a for a in nodes[at].attribute if a.name == plain)
        nodes = attribute.graphs[int(number[:-1])].node if bracket else attribute.g.node
    return nodes[index]


def add_specs(node: "NodeProto", configuration: Configuration, specs: Sequence[ShardingSpec]) -> None:
    """Add specs to a node's annotation for a configuration; those that are there stay as they are."""
    if not specs:
        return
    annotations = list(read_annotations(node))
    for at, annotation in enumerate(annotations):
        if annotation.configuration == configuration.name:
            annotations[at] = NodeAnnotation(annotation.configuration, (*annotation.specs, *specs), annotation.stage)
            break
    else:
        annotations.append(NodeAnnotation(configuration.name, tuple(specs)))
    write_annotations(node, annotations)
