"""Shape inference on a copy of a model without its large weights, with numbers in place of symbolic dimensions."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from autoshard.errors import InputError
from autoshard.onnx.graph import all_graphs, subgraphs
from autoshard.onnx.installed import onnx_library

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

SMALL_ELEMENTS = 1024
"""Constants up to this size may be shapes, axes or indices that inference reads; larger ones stay behind."""


def symbols(proto: "ModelProto") -> tuple[str, ...]:
    """The symbolic dimensions that the model itself names, sorted."""
    return tuple(sorted({d.dim_param for d in _dims(proto) if d.dim_param}))


def check_shapes_asked(proto: "ModelProto", shapes: Mapping[str, int]) -> None:
    """`InputError` where numbers are given for symbols that the model does not have, or are no sizes."""
    if not shapes:
        return
    known = symbols(proto)
    for name, size in shapes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"shape {name}={size!r}: sizes are integers of at least 1")
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            listed = ", ".join(known[:12]) or "none"
            raise InputError(f"the model has no symbolic dimension {name!r}{hint} (it has: {listed})")


def inferred(proto: "ModelProto", shapes: Mapping[str, int]) -> "ModelProto":
    """The copy, with a value_info for every value whose type inference finds."""
    onnx = onnx_library()
    copy = without_weights(proto)
    if shapes:
        for dim in _dims(copy):
            if dim.dim_param in shapes:
                size = shapes[dim.dim_param]
                if size >= 2**63:
                    raise InputError(f"dimension {dim.dim_param!r} cannot have the size {size}: sizes are below 2**63")
                dim.dim_value = size
        for infos in _stale(copy):  # computed with the symbols; inference says them again with the numbers
            del infos[:]
    try:
        return onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except Exception as error:  # the library raises several kinds, and RuntimeError for what is inside
        message = " ".join(str(error).split())
        raise InputError(f"shape inference of the model failed: {message[:400]}") from None


def without_weights(proto: "ModelProto") -> "ModelProto":
    """A copy of a model whose large weights have type and shape only."""
    onnx = onnx_library()
    copy = onnx.ModelProto()
    for field, value in proto.ListFields():
        if field.name != "graph":
            target = getattr(copy, field.name)
            if field.is_repeated:
                target.extend(value)
            else:
                setattr(copy, field.name, value)
    _copy_graph(proto.graph, copy.graph)
    return copy


def _copy_graph(graph: "GraphProto", copy: "GraphProto") -> None:
    external = onnx_library().TensorProto.EXTERNAL
    for field, value in graph.ListFields():
        if field.name == "initializer":
            for tensor in value:
                elements = 1
                for size in tensor.dims:
                    elements *= size
                added = copy.initializer.add()
                if elements <= SMALL_ELEMENTS:
                    added.CopyFrom(tensor)
                else:
                    added.name, added.data_type = tensor.name, tensor.data_type
                    added.dims.extend(tensor.dims)
                    added.data_location = external
                    added.external_data.add(key="location", value="weights")
        elif field.is_repeated:
            getattr(copy, field.name).extend(value)
        else:
            setattr(copy, field.name, value)


def _dims(proto: "ModelProto") -> Iterator[Any]:
    for infos in _infos(proto):
        for info in infos:
            yield from info.type.tensor_type.shape.dim


def _infos(proto: "ModelProto") -> Iterator[Any]:
    for graph in all_graphs(proto.graph):
        yield from (graph.input, graph.output, graph.value_info)
    for function in proto.functions:
        yield function.value_info
        for node in function.node:
            for _, inner in subgraphs(node):
                for graph in all_graphs(inner):
                    yield from (graph.input, graph.output, graph.value_info)


def _stale(proto: "ModelProto") -> Iterator[Any]:
    """Lists of derived types."""
    for graph in all_graphs(proto.graph):
        yield graph.value_info
