"""What the annotations of a model state for a plan: a sharding over the axes of the plan's mesh for values by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoshard.errors import InputError, ShardingError
from autoshard.onnx.axes import sharding_of
from autoshard.onnx.check import require_well_formed
from autoshard.onnx.names import live_names
from autoshard.onnx.placement import placement_of
from autoshard.onnx.specs import Configuration, NodeAnnotation, ShardingSpec, read_annotations, read_configurations
from autoshard.onnx.structure import nodes_of_model
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

if TYPE_CHECKING:
    from autoshard.onnx.files import ModelFile

Stated = tuple[str, TensorSharding, str]
"""Name of a value, its sharding, and the node that says so."""


NO_VALUE = "they are worked out while the model is read, or lead to no output"
"""Reasons why an annotation states nothing for a plan: its value is not in the program."""
_DIFFER = "nodes take them in different placements"
_BETWEEN = "they say how a node takes what another one makes"
_INSIDE = "they are inside of functions or of bodies of If, Loop and Scan"


@dataclass(frozen=True, slots=True)
class StatedShardings:
    """What annotations state. shardings: by value. left: reason -> names of values for which nothing is stated.

    stages: how many nodes state a pipeline stage. senseless: nodes whose specs make no sense together.
    """

    shardings: tuple[Stated, ...]
    left: Mapping[str, tuple[str, ...]]
    stages: int = 0
    senseless: tuple[str, ...] = ()


def stated_shardings(
    model: "ModelFile", mesh: Mesh, shapes: Mapping[str, tuple[int, ...]], *, configuration: str | None = None
) -> StatedShardings:
    """The sharding of every value that a node annotates: of a result as it is made, of an input as it is taken.

    shapes: of all values, by name; annotations of other values are left out. An input or weight that nodes annotate
    differently is left open. Raises `InputError` where an annotation is malformed, or no sharding over the mesh's axes.
    """
    chosen = chosen_configuration(model, configuration)
    if chosen.num_devices != mesh.size:
        raise InputError(
            f"{model.name}: configuration {chosen.name!r} has {chosen.num_devices} devices, the mesh {mesh} has "
            f"{mesh.size}; plan on a mesh of as many, or set annotations: ignore"
        )
    senseless = require_well_formed(model, chosen)
    live = live_names(model.graph)
    outer = {*model.inputs, *model.initializers}
    made: list[Stated] = []
    taken: dict[str, dict[TensorSharding, str]] = {}
    left: dict[str, dict[str, None]] = {}
    for index, node in enumerate(model.graph.node):
        where = f"{model.name}: node {node.name or f'{index} ({node.op_type})'}"
        for spec in _specs(read_annotations(node), chosen):
            name = spec.tensor or ""
            if name not in shapes or name not in live:
                left.setdefault(NO_VALUE, {})[name] = None
                continue
            sharding = _sharding(spec, shapes[name], mesh, f"{where}: the annotation of {name!r}")
            if name in node.output:
                made.append((name, sharding, where))
            elif name in outer:
                taken.setdefault(name, {}).setdefault(sharding, where)
            else:
                left.setdefault(_BETWEEN, {})[name] = None
    left |= {_INSIDE: dict.fromkeys(_inside(model, chosen))}
    left |= {_DIFFER: dict.fromkeys(name for name, placed in taken.items() if len(placed) > 1)}
    alike = [(name, *next(iter(placed.items()))) for name, placed in taken.items() if len(placed) == 1]
    told = {name for name, _, _ in made}
    unsaid = {why: tuple(n for n in names if n not in told) for why, names in left.items()}
    stages = sum(
        any(a.configuration == chosen.name and a.stage is not None for a in read_annotations(node))
        for _, _, _, node in nodes_of_model(model.proto)
    )
    kept = {why: names for why, names in unsaid.items() if names}
    return StatedShardings((*alike, *made), kept, stages, senseless)


def _inside(model: "ModelFile", chosen: Configuration) -> list[str]:
    """The values that are annotated in functions and bodies."""
    nodes = (node for path, _, _, node in nodes_of_model(model.proto) if path)
    return [spec.tensor or "" for node in nodes for spec in _specs(read_annotations(node), chosen)]


def chosen_configuration(model: "ModelFile", name: str | None) -> Configuration:
    """The configuration of that name, or the only one."""
    known = read_configurations(model.proto)
    names = [str(c.name) for c in known]
    if name is not None:
        for each in known:
            if each.name == name:
                return each
        raise InputError(f"{model.name} has no configuration {name!r}; it has: {', '.join(names) or 'none'}")
    if len(known) != 1:
        raise InputError(
            f"{model.name} has {len(known)} device configurations ({', '.join(names)}): say which, such as "
            f"configuration: {names[0]}"
            if known
            else f"{model.name} has no device configuration, and so no annotations; set annotations: ignore"
        )
    return known[0]


def _specs(annotations: tuple[NodeAnnotation, ...], chosen: Configuration) -> list[ShardingSpec]:
    return [s for a in annotations if a.configuration == chosen.name for s in a.specs]


def _sharding(spec: ShardingSpec, dims: tuple[Any, ...], mesh: Mesh, what: str) -> TensorSharding:
    try:
        return sharding_of(placement_of(spec, dims), mesh, len(dims), what=what)
    except ShardingError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{what} has faults ({error}); autoshard check lists them") from None
