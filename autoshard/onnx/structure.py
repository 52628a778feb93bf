"""Faults of annotations that can be found without rules of operators (S1.9 to S1.18), and leftovers of other tools."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import prod
from typing import TYPE_CHECKING, Any

from autoshard.onnx.graph import Dim, node_name, subgraphs
from autoshard.onnx.problems import ERROR, WARNING, Finding, Problem
from autoshard.onnx.specs import (
    IR_VERSION,
    Configuration,
    NodeAnnotation,
    ShardedDim,
    ShardingSpec,
    read_annotations,
    read_configurations,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MAX_DEVICES = 1 << 20
"""The most devices of a configuration that is read: device sets have a bit for every device."""

Place = tuple[tuple[tuple[int, str], ...], str, int, Any]
"""Path and name of a scope, index of the node, and the node."""


def nodes_of_model(proto: "ModelProto") -> Iterator[Place]:
    """Every node of the graph, of the bodies in it, and of the functions."""
    for index, node in enumerate(proto.graph.node):
        yield from _node_and_bodies((), "", index, node)
    for function in proto.functions:
        name = f"{function.domain}::{function.name}"
        for index, node in enumerate(function.node):
            yield from _node_and_bodies(((-1, name),), f"function {name}", index, node)


def _node_and_bodies(path: tuple[tuple[int, str], ...], scope: str, index: int, node: "NodeProto") -> Iterator[Place]:
    yield path, scope, index, node
    if node.attribute:
        for attribute, body in subgraphs(node):
            where = f"{scope + ', ' if scope else ''}node {node_name(node, index)}.{attribute}"
            for inner, child in enumerate(body.node):
                yield from _node_and_bodies((*path, (index, attribute)), where, inner, child)


# -- the model ---------------------------------------------------------------------------------------------------------


def model_findings(proto: "ModelProto", annotated: bool) -> list[Finding]:
    """What is wrong with a model's configurations, and with its IR version where it has annotations."""
    configurations = read_configurations(proto)
    findings = []
    if (annotated or configurations) and proto.ir_version < IR_VERSION:
        findings.append(
            Finding(
                ERROR,
                "old-ir-version",
                f"the model has annotations and IR version {proto.ir_version}; readers of files before version "
                f"{IR_VERSION} may drop them",
                f"set ir_version to {IR_VERSION}",
            )
        )
    seen: set[str] = set()
    for index, configuration in enumerate(configurations):
        shown = repr(configuration.name) if configuration.name else f"#{index}"
        findings += [
            Finding(p.severity, p.code, p.message, p.advice, configuration=configuration.name or "")
            for p in _configuration_problems(configuration, shown, seen)
        ]
        seen.add(configuration.name or "")
    return findings


def _configuration_problems(configuration: Configuration, shown: str, seen: set[str]) -> Iterator[Problem]:
    if not configuration.name:
        yield Problem("configuration-without-name", ERROR, f"configuration {shown} has no name", "nodes need one")
    elif configuration.name in seen:
        yield Problem("configuration-twice", ERROR, f"two configurations are called {shown}", "rename one of them")
    if configuration.num_devices is None:
        yield Problem("no-device-count", ERROR, f"configuration {shown} has no num_devices", "it must be there")
        return
    if configuration.num_devices < 1:
        yield Problem(
            "device-count",
            ERROR,
            f"configuration {shown} has {configuration.num_devices} devices; it needs one at least",
        )
    elif configuration.num_devices > MAX_DEVICES:
        yield Problem(
            "device-count",
            ERROR,
            f"configuration {shown} has {configuration.num_devices} devices; autoshard looks at {MAX_DEVICES} at most",
        )
    if configuration.devices and len(configuration.devices) != configuration.num_devices:
        yield Problem(
            "device-names",
            ERROR,
            f"configuration {shown} has {configuration.num_devices} devices and names {len(configuration.devices)}",
            "name all of them, or none",
        )


def sound_configurations(proto: "ModelProto") -> list[Configuration]:
    """The configurations that can be used: they have a name of their own and a possible number of devices."""
    sound: dict[str, Configuration] = {}
    for each in read_configurations(proto):
        if each.name and each.name not in sound and each.num_devices and 0 < each.num_devices <= MAX_DEVICES:
            sound[each.name] = each
    return list(sound.values())


# -- a node ------------------------------------------------------------------------------------------------------------


def node_problems(
    node: "NodeProto", known: Mapping[str, Configuration], declared: Sequence[str]
) -> Iterator[tuple[str, Problem]]:
    """(configuration, problem) for everything that is wrong with a node's annotations, whatever its shapes are.

    known: sound configurations by name. declared: the names that the model declares, sound or not.
    """
    seen: set[str] = set()
    for annotation in read_annotations(node):
        name = annotation.configuration or ""
        if not name:
            yield "", Problem("no-configuration-id", ERROR, "an annotation names no configuration", "it must name one")
        elif name in seen:
            yield (
                name,
                Problem("annotation-twice", ERROR, f"two annotations are for the configuration {name!r}", "join them"),
            )
        elif name not in declared:
            near = get_close_matches(name, declared, n=2, cutoff=0.6)
            listed = ", ".join(map(repr, declared[:8])) or "none (extracting or merging models drops them)"
            advice = f"did you mean {', '.join(near)}?" if near else "declare it, with its number of devices"
            message = f"the configuration {name!r} is not declared; the model declares {listed}"
            yield name, Problem("unknown-configuration", ERROR, message, advice)
        seen.add(name)
        for problem in _annotation_problems(node, annotation, known.get(name)):
            yield name, problem


def _annotation_problems(
    node: "NodeProto", annotation: NodeAnnotation, configuration: Configuration | None
) -> Iterator[Problem]:
    if annotation.stage is not None and annotation.stage < 0:
        yield Problem(
            "negative-stage", ERROR, f"the pipeline stage is {annotation.stage}; stages count from 0", "write 0 or more"
        )
    tensors = {name for name in (*node.input, *node.output) if name}
    seen: set[str] = set()
    for spec in annotation.specs:
        if not spec.tensor:
            yield Problem("no-tensor-name", ERROR, "a spec names no tensor", "it must name an input or output")
        elif spec.tensor not in tensors:
            suffix = [t for t in tensors if t.endswith(spec.tensor) or spec.tensor.endswith(t)]
            near = sorted(suffix) or get_close_matches(spec.tensor, sorted(tensors), n=2, cutoff=0.6)
            advice = f"did you mean {', '.join(near)}? " if near else ""
            message = f"a spec is for {spec.tensor!r}, which is neither input nor output of the node"
            yield Problem(
                "unknown-tensor",
                ERROR,
                message,
                advice + "tools that rename values leave such specs",
                tensor=spec.tensor,
            )
        elif spec.tensor in seen:
            yield Problem("spec-twice", ERROR, f"two specs are for {spec.tensor!r}", "keep one", tensor=spec.tensor)
        seen.add(spec.tensor or "")
        for code, severity, message, advice, axis in _spec_faults(spec, configuration):
            yield Problem(code, severity, message, advice, axis=axis, tensor=spec.tensor or "")


Fault = tuple[str, str, str, str, int | None]


def _spec_faults(spec: ShardingSpec, configuration: Configuration | None) -> Iterator[Fault]:
    devices = configuration.num_devices if configuration else None
    yield from _device_faults(spec, devices)
    sound = True
    for dim in spec.dims:
        for fault in _dim_faults(dim):
            sound = False
            yield fault
    if not spec.device:
        yield "no-device", ERROR, "the spec names no device", "list one for each shard", None
    elif sound and spec.dims and len(spec.device) != spec.shards:
        message = f"the axes are cut in {spec.shards} shards and {len(spec.device)} devices or groups are listed"
        yield "device-list-length", ERROR, message, "list one for each shard", None
    elif not spec.dims and len(spec.device) > 1:
        message = f"no axis is cut and {len(spec.device)} devices are listed: read as replicated on them"
        yield "plain-devices", WARNING, message, "write one group, or the axis that is cut", None


def _device_faults(spec: ShardingSpec, devices: int | None) -> Iterator[Fault]:
    keys: set[int] = set()
    for key, group in spec.groups:
        if key is None:
            yield "group-without-key", ERROR, "a group of devices has no key", "it must have one", None
        elif key in keys:
            yield "group-twice", ERROR, f"two groups have the key {key}", "rename one of them", None
        else:
            keys.add(key)
        if not group:
            yield "empty-group", ERROR, f"the group {key} has no devices", "list them, or drop the group", None
        if len(set(group)) != len(group):
            yield "device-twice", ERROR, f"the group {key} lists a device twice", "list each once", None
        wrong = [d for d in group if d < 0 or (devices is not None and d >= devices)]
        if wrong:
            message = f"the group {key} has the device {wrong[0]}; devices are {_range(devices)}"
            yield "unknown-device", ERROR, message, "list devices of the configuration", None
        if key is not None and devices is not None and 0 <= key < devices:
            message = f"the key {key} is also the number of a device: read as the group"
            yield "key-is-device", WARNING, message, "use a negative key", None
    for entry in dict.fromkeys(spec.device):
        if entry in keys:
            continue
        if entry < 0:
            message = f"the entry {entry} has no group; negative entries do not count from the back"
            yield "undefined-group", ERROR, message, "define the group", None
        elif devices is not None and entry >= devices:
            message = f"the spec has the device {entry}; devices are {_range(devices)}"
            yield "unknown-device", ERROR, message, "list devices of the configuration", None


def _range(devices: int | None) -> str:
    return "counted from 0" if devices is None else f"0..{devices - 1}"


def _dim_faults(dim: ShardedDim) -> Iterator[Fault]:
    if dim.axis is None:
        yield "no-axis", ERROR, "a sharded_dim has no axis; protobuf alone would read 0", "write it", None
    if not dim.parts:
        yield "no-simple-sharding", ERROR, "a sharded_dim has no simple_sharding", "write in how many shards", dim.axis
    for part in dim.parts:
        if part.shards is None:
            yield "no-shard-count", ERROR, "a simple_sharding has no num_shards", "write in how many shards", dim.axis
        elif part.shards < 1:
            yield "shard-count", ERROR, f"num_shards is {part.shards}; it is at least 1", "1 is: not cut", dim.axis
        if isinstance(part.size, int) and part.size < 0:
            yield "dim-value", ERROR, f"dim_value is {part.size}; sizes cannot be negative", "", dim.axis


# -- against the shape -------------------------------------------------------------------------------------------------


def axis_problems(spec: ShardingSpec, dims: Sequence[Dim] | None, shapes: Mapping[str, int]) -> list[Problem]:
    """What is wrong with the axes of a spec for a tensor of these dimensions.

    shapes: numbers that were put in for symbols, which specs may still name.
    """
    return [
        Problem(code, severity, message, advice, axis=axis, tensor=spec.tensor or "")
        for code, severity, message, advice, axis in _axis_faults(spec, dims, shapes)
    ]


def _axis_faults(spec: ShardingSpec, dims: Sequence[Dim] | None, shapes: Mapping[str, int]) -> Iterator[Fault]:
    if not spec.dims:
        return
    if dims is None:
        message = "the rank is not known: its axes cannot be checked"
        yield "rank-unknown", WARNING, message, "declare the shape (value_info)", spec.dims[0].axis
        return
    rank = len(dims)
    order: list[int] = []
    for dim in spec.dims:
        if dim.axis is None:
            continue
        if not -rank <= dim.axis < rank:
            message = f"the axis {dim.axis} does not exist: the tensor has rank {rank}"
            yield "axis-range", ERROR, message, f"axes are {-rank}..{rank - 1}" if rank else "", dim.axis
            continue
        axis = dim.axis % rank
        if axis in order:
            yield "axis-twice", ERROR, f"the axis {axis} is cut twice", "use one entry with several parts", dim.axis
        elif order and axis < order[-1]:
            message = "axes are not listed in ascending order: shards are read with the first one listed outermost"
            yield "axis-order", WARNING, message, "list them in ascending order", dim.axis
        order.append(axis)
        yield from _size_faults(dim, axis, dims[axis], shapes)


def _simple_fault(stated: Dim, axis: int, size: Dim) -> Fault | None:
    """What is wrong with the size that a spec states for a whole axis."""
    if isinstance(stated, int) and isinstance(size, int) and stated != size:
        return "dim-value", ERROR, f"the spec says that the axis has size {stated}; it has {size}", "correct it", axis
    if isinstance(stated, str) and size is not None and stated != size:
        message = f"the spec calls the size of the axis {stated!r}; it is {size}"
        return "dim-param", ERROR, message, "use the symbol of the axis, or its size", axis
    if isinstance(stated, int) and isinstance(size, str):
        message = f"the spec says that the axis has size {stated}; the model calls it {size!r}"
        return "dim-assumed", WARNING, message, f"--shape {size}={stated} checks with it", axis
    return None


def _fused_fault(numbers: Sequence[Dim], axis: int, size: Dim) -> Fault | None:
    """What is wrong with the sizes of the parts of a fused axis."""
    if sum(n is None for n in numbers) > 1:
        return "fused-size", ERROR, "a fused axis needs the sizes of its parts", "write dim_value", axis
    whole = [n for n in numbers if isinstance(n, int)]
    total = prod(whole)
    if not isinstance(size, int) or not (None in numbers or len(whole) == len(numbers)):
        return None
    if total == size if len(whole) == len(numbers) else total > 0 and size % total == 0:
        return None
    shown = " x ".join("?" if n is None else str(n) for n in numbers)
    return "fused-size", ERROR, f"the parts {shown} do not make up the axis of size {size}", "correct them", axis


def _size_faults(dim: ShardedDim, axis: int, size: Dim, shapes: Mapping[str, int]) -> Iterator[Fault]:
    parts = dim.parts
    if not parts or any(p.shards is None or p.shards < 1 for p in parts):
        return
    numbers = [shapes.get(p.size, p.size) if isinstance(p.size, str) else p.size for p in parts]
    fault = _simple_fault(numbers[0], axis, size) if len(parts) == 1 else _fused_fault(numbers, axis, size)
    if fault is not None:
        yield fault
        if fault[1] == ERROR:
            return
    sizes = [size] if len(parts) == 1 else numbers
    for part, n in zip(parts, sizes, strict=True):
        if isinstance(n, int) and n % (part.shards or 1):
            message = (
                f"{n} elements do not divide in {part.shards} shards: read as blocks of {-(-n // (part.shards or 1))}"
            )
            advice = "trailing shards are short or empty; other readers may differ"
            yield "uneven-shards", WARNING, message, advice, axis
