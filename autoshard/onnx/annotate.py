"""Shardings over mesh axes, written into a copy of a model as specs on every tensor of its nodes (S1.41, S1.45)."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autoshard.errors import InputError, ShardingError
from autoshard.onnx.axes import lost, placement_of_sharding
from autoshard.onnx.files import ModelFile, save
from autoshard.onnx.graph import UNKNOWN, ValueType, all_tensors, node_name
from autoshard.onnx.infer import written_dims
from autoshard.onnx.installed import onnx_library
from autoshard.onnx.placement import Placement, all_devices, replicated, spec_of
from autoshard.onnx.specs import (
    IR_VERSION,
    Configuration,
    NodeAnnotation,
    read_annotations,
    read_configurations,
    write_annotations,
    write_configurations,
)
from autoshard.onnx.structure import nodes_of_model
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Given = TensorSharding | str
ORDER = "device i of configuration {name!r} is the one at row-major position i of the mesh {mesh}"


@dataclass(frozen=True)
class Annotated:
    """The annotated copy of a model. lost: what no spec can say, by value. annotated: how many nodes have specs."""

    proto: "ModelProto"
    lost: Mapping[str, tuple[str, ...]]
    annotated: int


def annotated(
    model: ModelFile,
    mesh: Mesh | Mapping[str, int],
    placements: Mapping[str, Given],
    uses: Mapping[tuple[str | int, int | str], Given] | None = None,
    *,
    configuration: str = "mesh",
    skip: Iterable[str] = (),
    stages: Mapping[str | int, int] | None = None,
) -> Annotated:
    """A copy of the model in which every node has a spec on each of its inputs and outputs.

    placements: the sharding that a value is kept in, by its name; values without one are replicated on all devices.
    uses: the sharding that a node needs an input in, after any reshard, by (name or index of the node, name or number
    of the input); without one it is that of the value. skip: nodes that get none, by name or by a value they make.
    stages: pipeline stages by node. Annotations for other configurations stay. Those for this one that are inside of
    functions and bodies go, as they are for the devices that it had before.
    """
    mesh = mesh if isinstance(mesh, Mesh) else Mesh.from_dict(mesh)
    writer = _Writer(model, mesh, placements, uses or {}, configuration)
    copy = onnx_library().ModelProto()
    copy.CopyFrom(model.proto)
    copy.ir_version = max(copy.ir_version, IR_VERSION)
    names = tuple(_coordinates(mesh, device) for device in range(mesh.size))
    mine = Configuration(configuration, mesh.size, names)
    others = [c for c in read_configurations(copy) if c.name != configuration]
    write_configurations(copy, [*others, mine])
    said = ORDER.format(name=configuration, mesh=mesh)
    if said not in copy.doc_string:
        copy.doc_string = f"{copy.doc_string}\n{said}" if copy.doc_string else said
    for node in _nodes_inside(copy):
        write_annotations(node, [a for a in read_annotations(node) if a.configuration != configuration])
    left_out = frozenset(skip)
    count = 0
    for index, node in enumerate(copy.graph.node):
        kept = [a for a in read_annotations(node) if a.configuration != configuration]
        stage = (stages or {}).get(index, (stages or {}).get(node.name)) if stages else None
        if node.name in left_out or any(o in left_out for o in node.output):
            alone = [] if stage is None else [NodeAnnotation(configuration, (), stage)]
            write_annotations(node, [*kept, *alone])
            continue
        write_annotations(node, [*kept, NodeAnnotation(configuration, writer.specs(node, index), stage)])
        count += 1
    writer.check_all_used()
    return Annotated(copy, dict(sorted(writer.lost.items())), count)


def annotated_inside(proto: "ModelProto", configuration: str) -> int:
    """How many nodes of functions and bodies have an annotation for a configuration."""
    return sum(any(a.configuration == configuration for a in read_annotations(n)) for n in _nodes_inside(proto))


def _nodes_inside(proto: "ModelProto") -> list["NodeProto"]:
    """The nodes of functions and bodies that are annotated."""
    return [node for path, _, _, node in nodes_of_model(proto) if path and node.device_configurations]


def write_annotated(proto: "ModelProto", model: ModelFile, path: str | os.PathLike[str]) -> None:
    """Write an annotated copy; `InputError` where its weights could not be found from there.

    Weights outside of the file stay where they are, so the copy must lie in the folder of the model it was made from.
    """
    external = onnx_library().TensorProto.EXTERNAL
    if any(t.data_location == external for t in all_tensors(proto)):
        home = None if model.path is None else model.path.absolute().parent.resolve()
        if home is not None and Path(path).absolute().parent.resolve() != home:
            raise InputError(
                f"cannot write {path}: the weights of {model.name} lie in files beside it, which are found from the "
                f"model's folder; write the result to {home}"
            )
    save(proto, path)


def _coordinates(mesh: Mesh, device: int) -> str:
    """The coordinates of a device as text, ``data=0,model=3``.

    >>> _coordinates(Mesh.from_dict({"data": 2, "model": 4}), 3)
    'data=0,model=3'
    """
    coordinates = []
    for axis, size in zip(reversed(mesh.axis_names), reversed(mesh.axis_sizes), strict=True):
        coordinates.append(f"{axis}={device % size}")
        device //= size
    return ",".join(reversed(coordinates))


class _Writer:
    """Works out the placements of all values and uses, and checks them when they are needed."""

    def __init__(
        self,
        model: ModelFile,
        mesh: Mesh,
        placements: Mapping[str, Given],
        uses: Mapping[tuple[str | int, int | str], Given],
        configuration: str,
    ) -> None:
        self.model, self.mesh, self.placements, self.uses = model, mesh, placements, uses
        self.everywhere = all_devices(mesh.size)
        self.lost: dict[str, tuple[str, ...]] = {}
        self.known: dict[tuple[Given, ValueType], tuple[Placement, tuple[str, ...]]] = {}
        self.seen_values: set[str] = set()
        self.seen_uses: set[tuple[str | int, int | str]] = set()

    def specs(self, node: "NodeProto", index: int) -> tuple:
        """One spec for every tensor of a node, inputs first."""
        of_tensor = {}
        for at, name in enumerate(node.input):
            if name:
                wanted = self._use(node, index, at, name)
                if name in of_tensor and wanted is not None and of_tensor[name] != wanted:
                    raise InputError(
                        f"node {node_name(node, index)} reads {name!r} twice, in two shardings; a node has one spec "
                        "for a tensor"
                    )
                if wanted is not None or name not in of_tensor:
                    of_tensor[name] = wanted if wanted is not None else self._value(name)
        for name in node.output:
            if name:
                of_tensor[name] = self._value(name)
        types = self.model.types
        return tuple(
            spec_of(placed, name, written_dims(self.model, placed, types.get(name, UNKNOWN).dims))
            for name, placed in of_tensor.items()
        )

    def _use(self, node: "NodeProto", index: int, at: int, name: str) -> Placement | None:
        for key in ((index, at), (index, name), (node.name, at), (node.name, name)):
            if key in self.uses and key[0] != "":
                self.seen_uses.add(key)
                return self._placement(name, self.uses[key])
        return None

    def _value(self, name: str) -> Placement:
        if name not in self.placements:
            return replicated(self.everywhere)
        self.seen_values.add(name)
        return self._placement(name, self.placements[name])

    def _placement(self, name: str, stated: Given) -> Placement:
        kind = self.model.types.get(name, UNKNOWN)
        key = (stated, kind)
        if key not in self.known:
            sharding = TensorSharding.from_text(stated) if isinstance(stated, str) else stated
            _check(sharding, self.mesh, name, kind)
            missing = tuple(w for w in lost(sharding) if w in ("pending partial sums", "priorities"))
            dims = written_dims(self.model, replicated(1), kind.dims)
            self.known[key] = placement_of_sharding(sharding, self.mesh, dims), missing
        placed, missing = self.known[key]
        if missing:
            self.lost[name] = missing
        return placed

    def check_all_used(self) -> None:
        """`InputError` where the caller named a value that the model lacks, or an input that no node reads."""
        unknown = [n for n in self.placements if n not in self.seen_values and not self._exists(n)]
        if unknown:
            raise InputError(f"{self.model.name} has no value {unknown[0]!r}; its values have the names of the file")
        unused = [key for key in self.uses if key not in self.seen_uses]
        if unused:
            raise InputError(f"{self.model.name} has no node {unused[0][0]!r} that reads input {unused[0][1]!r}")

    def _exists(self, name: str) -> bool:
        return name in self.model.types or any(name in node.output for node in self.model.graph.node)


def _check(sharding: TensorSharding, mesh: Mesh, name: str, kind: ValueType) -> None:
    if kind.dims is not None and len(kind.dims) != sharding.rank:
        raise ShardingError(f"{name!r} has rank {len(kind.dims)}, its sharding {sharding} is for rank {sharding.rank}")
    sharding.validate(mesh, kind.shape, what=repr(name))
