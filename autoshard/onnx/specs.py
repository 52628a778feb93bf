"""The annotations of a model as plain data, read from its messages and written to them.

A required field that is missing is None here, where protobuf would read 0 or an empty string. Writing what was read
gives the same message again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from autoshard.onnx.graph import Dim

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

IR_VERSION = 11
"""The first IR version with annotations; readers of older files may drop them."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A set of devices, numbered from 0, to which nodes refer by its name. devices: names of the devices, if any."""

    name: str | None
    num_devices: int | None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a cut axis: `size` elements in `shards` shards. Several parts, major to minor, make a fused axis."""

    shards: int | None
    size: Dim = None


@dataclass(frozen=True, slots=True)
class ShardedDim:
    """An axis that is cut."""

    axis: int | None
    parts: tuple[Part, ...]

    @property
    def shards(self) -> int:
        """Into how many shards the axis is divided; 0 where a part does not say."""
        return prod(p.shards or 0 for p in self.parts)


@dataclass(frozen=True, slots=True)
class ShardingSpec:
    """Where the shards of one tensor of a node lie.

    device: entry i holds shard i: a device, or a key of `groups`, whose devices all hold it. Shards count with the
    first of `dims` outermost.
    """

    tensor: str | None
    device: tuple[int, ...]
    groups: tuple[tuple[int | None, tuple[int, ...]], ...] = ()
    dims: tuple[ShardedDim, ...] = ()

    @property
    def shards(self) -> int:
        """Into how many shards the tensor is divided."""
        return prod(d.shards for d in self.dims)

    def __str__(self) -> str:
        """``x[0: 2 of 8] on {0,1} {2,3}``."""
        groups = {key: members for key, members in self.groups if key is not None}

        def entry(device: int) -> str:
            return "{" + ",".join(map(str, groups[device])) + "}" if device in groups else str(device)

        dims = ", ".join(
            f"{d.axis}: " + " * ".join(f"{p.shards}" + (f" of {p.size}" if p.size is not None else "") for p in d.parts)
            for d in self.dims
        )
        shown = " ".join(entry(d) for d in self.device[:16]) + (" ..." if len(self.device) > 16 else "")
        return f"{self.tensor}[{dims}] on {shown or 'no device'}"


@dataclass(frozen=True, slots=True)
class NodeAnnotation:
    """What one node says for one configuration."""

    configuration: str | None
    specs: tuple[ShardingSpec, ...] = ()
    stage: int | None = None

    def spec(self, tensor: str) -> ShardingSpec | None:
        """The (first) spec of a tensor."""
        return next((s for s in self.specs if s.tensor == tensor), None)


def read_configurations(proto: "ModelProto") -> tuple[Configuration, ...]:
    """The device configurations of a model."""
    return tuple(
        Configuration(_given(c, "name"), _given(c, "num_devices"), tuple(c.device)) for c in proto.configuration
    )


def read_annotations(node: "NodeProto") -> tuple[NodeAnnotation, ...]:
    """What a node says, one entry for each configuration it names, in its own order."""
    return tuple(
        NodeAnnotation(
            _given(c, "configuration_id"),
            tuple(read_spec(s) for s in c.sharding_spec),
            _given(c, "pipeline_stage"),
        )
        for c in node.device_configurations
    )


def read_spec(message: Any) -> ShardingSpec:
    """A ShardingSpecProto as data."""
    return ShardingSpec(
        _given(message, "tensor_name"),
        tuple(message.device),
        tuple((_given(g, "key"), tuple(g.value)) for g in message.index_to_device_group_map),
        tuple(
            ShardedDim(
                _given(d, "axis"),
                tuple(Part(_given(p, "num_shards"), _part_size(p)) for p in d.simple_sharding),
            )
            for d in message.sharded_dim
        ),
    )


def _given(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _part_size(message: Any) -> Dim:
    which = message.WhichOneof("dim")
    return None if which is None else getattr(message, which)


def write_configurations(proto: "ModelProto", configurations: Iterable[Configuration]) -> None:
    """Put these configurations in the place of those that a model has."""
    del proto.configuration[:]
    for configuration in configurations:
        message = proto.configuration.add()
        _set(message, name=configuration.name, num_devices=configuration.num_devices)
        message.device.extend(configuration.devices)


def write_annotations(node: "NodeProto", annotations: Iterable[NodeAnnotation]) -> None:
    """Put these annotations in the place of those that a node has."""
    del node.device_configurations[:]
    for annotation in annotations:
        message = node.device_configurations.add()
        _set(message, configuration_id=annotation.configuration, pipeline_stage=annotation.stage)
        for spec in annotation.specs:
            write_spec(message.sharding_spec.add(), spec)


def write_spec(message: Any, spec: ShardingSpec) -> None:
    """Fill an empty ShardingSpecProto."""
    _set(message, tensor_name=spec.tensor)
    message.device.extend(spec.device)
    for key, members in spec.groups:
        group = message.index_to_device_group_map.add()
        _set(group, key=key)
        group.value.extend(members)
    for dim in spec.dims:
        cut = message.sharded_dim.add()
        _set(cut, axis=dim.axis)
        for part in dim.parts:
            entry = cut.simple_sharding.add()
            _set(entry, num_shards=part.shards)
            if isinstance(part.size, str):
                entry.dim_param = part.size
            elif part.size is not None:
                entry.dim_value = part.size


def _set(message: Any, **fields: Any) -> None:
    for name, value in fields.items():
        if value is not None:
            setattr(message, name, value)
