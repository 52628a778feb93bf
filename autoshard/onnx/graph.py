"""Graphs of a model: the types of their values, their tensors, and the check that their nodes are in order."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from autoshard.errors import InputError
from autoshard.onnx.installed import onnx_library
from autoshard.program.types import dtype_bytes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

MAX_ELEMENTS = 2**63 - 1
_NUMBERS = ("float_data", "double_data", "int32_data", "int64_data", "uint64_data")
"""The fields in which a tensor holds its numbers where it does not hold their bytes."""
Dim = int | str | None
"""Size of a dimension: a number, a symbol, or unknown."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """Element type (numpy's name, ``?`` where unknown) and dimensions; None where not even the rank is known.

    >>> ValueType("float32", (8, 3)).shape, ValueType("float32", (8, "n")).shape
    ((8, 3), None)
    """

    dtype: str
    dims: tuple[Dim, ...] | None

    @property
    def rank(self) -> int | None:
        """The number of dimensions; None where it is not known."""
        return None if self.dims is None else len(self.dims)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The dimensions where all are numbers, else None."""
        if self.dims is None:
            return None
        numbers = tuple(d for d in self.dims if isinstance(d, int))
        return numbers if len(numbers) == len(self.dims) else None

    def __str__(self) -> str:
        dims = "?" if self.dims is None else ",".join("?" if d is None else str(d) for d in self.dims)
        return f"{self.dtype}[{dims}]"


UNKNOWN = ValueType("?", None)


def dtype_name(element_type: int) -> str:
    """NumPy's name for an ONNX element type: ``float32``, ``bfloat16``, ``int4``; ``?`` where it has none."""
    onnx = onnx_library()
    try:
        name = onnx.TensorProto.DataType.Name(element_type).lower()
    except ValueError:
        return "?"
    return {"float": "float32", "double": "float64", "undefined": "?"}.get(str(name), str(name))


def type_of(info: Any) -> ValueType:
    """The type in a ValueInfoProto; sequences, maps and optionals have none."""
    if not info.type.HasField("tensor_type"):
        return UNKNOWN
    tensor = info.type.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return ValueType(dtype, None)
    return ValueType(dtype, tuple(_dim(d) for d in tensor.shape.dim))


def _dim(dim: Any) -> Dim:
    if dim.HasField("dim_value"):
        return dim.dim_value
    return dim.dim_param or None


def tensor_type(tensor: "TensorProto") -> ValueType:
    """Element type and dimensions of an initializer."""
    return ValueType(dtype_name(tensor.data_type), tuple(tensor.dims))


def initializer_types(graph: "GraphProto") -> dict[str, ValueType]:
    """Type of every initializer; sparse ones have that of the dense tensor."""
    types = {tensor.name: tensor_type(tensor) for tensor in graph.initializer}
    for sparse in graph.sparse_initializer:
        types[sparse.values.name] = ValueType(dtype_name(sparse.values.data_type), tuple(sparse.dims))
    return types


def value_types(graph: "GraphProto") -> dict[str, ValueType]:
    """The types that one graph states: of inputs, weights, value_info and outputs."""
    types: dict[str, ValueType] = {}
    for infos in (graph.output, graph.value_info, graph.input):
        for info in infos:
            kind = type_of(info)
            if kind.dims is not None or info.name not in types:
                types[info.name] = kind
    return types | initializer_types(graph)


def subgraphs(node: "NodeProto") -> Iterator[tuple[str, "GraphProto"]]:
    """The bodies of If, Loop and Scan, with the names of their attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for index, graph in enumerate(attribute.graphs):
            yield f"{attribute.name}[{index}]", graph


def all_graphs(graph: "GraphProto") -> Iterator["GraphProto"]:
    """A graph and every graph inside of it."""
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            if node.attribute:
                waiting += [inner for _, inner in subgraphs(node)]


def all_node_lists(proto: "ModelProto") -> Iterator[Any]:
    """The nodes of every graph and of every function."""
    for graph in all_graphs(proto.graph):
        yield graph.node
    for function in proto.functions:
        yield function.node
        for node in function.node:
            for _, inner in subgraphs(node):
                for graph in all_graphs(inner):
                    yield graph.node


def all_tensors(proto: "ModelProto") -> Iterator["TensorProto"]:
    """Every tensor of a model: weights, and constants in attributes."""
    for graph in all_graphs(proto.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
    for nodes in all_node_lists(proto):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


# -- is the graph valid? -------------------------------------------------------------------------------------------


def check_graph(proto: "ModelProto", name: str) -> None:
    """`InputError` where a graph is cyclic or unsorted, no node or two make a value, or a shape is impossible."""
    _check_functions(proto, name)
    _check_nodes(proto.graph, frozenset(), name)
    for function in proto.functions:
        where = f"{name}: function {function.name}"
        seen = set(function.input)
        _check_order(function.node, seen, where, function.input)
        for output in function.output:
            if output not in seen:
                raise InputError(f"{where}: nothing makes the output {output!r}")
        for node in function.node:
            for _, inner in subgraphs(node):
                known = {*function.input, *(o for n in function.node for o in n.output)}
                _check_nodes(inner, frozenset(known), where)
    for tensor in all_tensors(proto):
        _check_dims(tensor.dims, f"{name}: tensor {tensor.name!r}")
        _check_bytes(tensor, f"{name}: tensor {tensor.name!r}")


def _check_nodes(graph: "GraphProto", outer: frozenset[str], name: str) -> None:
    """Check one graph, then those inside of it, each with the values that it sees."""
    waiting = [(graph, outer)]
    while waiting:
        graph, outer = waiting.pop()
        weights = initializer_types(graph)
        inputs = [i.name for i in graph.input]
        twice = _repeated(inputs) or _repeated([t.name for t in graph.initializer])
        if twice is not None:
            raise InputError(f"{name}: two inputs or weights are called {twice!r}")
        for info in (*graph.input, *graph.output, *graph.value_info):
            kind = type_of(info)
            if kind.dims is not None:
                _check_dims([d for d in kind.dims if isinstance(d, int)], f"{name}: value {info.name!r}")
        known = {*outer, *inputs, *weights}
        _check_order(graph.node, known, name, (*inputs, *weights))
        for output in graph.output:
            if output.name not in known:
                raise InputError(f"{name}: nothing makes the output {output.name!r}")
        visible: frozenset[str] | None = None
        for node in graph.node:
            if node.attribute:
                for _, inner in subgraphs(node):
                    visible = frozenset(known) if visible is None else visible
                    waiting.append((inner, visible))


def _check_order(nodes: Any, known: set[str], name: str, there: Iterable[str]) -> None:
    """Check that every node comes after the makers of its inputs, and that none makes what is there already.

    known: the values that the nodes see; their outputs are added. there: inputs and weights of the graph itself.
    """
    makers: dict[str, int] | None = None
    made: set[str] = set()
    there = frozenset(there)
    for index, node in enumerate(nodes):
        for value in node.input:
            if value and value not in known:
                if makers is None:
                    makers = {output: at for at, other in enumerate(nodes) for output in other.output if output}
                _explain_order(nodes, makers, value, index, name)
        for value in node.output:
            if not value:
                continue
            if value in made:
                raise InputError(f"{name}: two nodes make the value {value!r}; names of values must be unique")
            if value in there:
                raise InputError(
                    f"{name}: node {node_name(node, index)} makes the value {value!r}, which is an input or weight; "
                    "names of values must be unique"
                )
            made.add(value)
            known.add(value)


def _explain_order(nodes: Any, makers: dict[str, int], value: str, index: int, name: str) -> None:
    where = node_name(nodes[index], index)
    if value not in makers:
        raise InputError(f"{name}: node {where} reads {value!r}, which nothing makes")
    path = _cycle(nodes, makers, index)
    if path:
        shown = " -> ".join(node_name(nodes[i], i) for i in path[:6]) + (" -> ..." if len(path) > 6 else "")
        raise InputError(f"{name}: the graph has a cycle: {shown}")
    maker = node_name(nodes[makers[value]], makers[value])
    raise InputError(
        f"{name}: nodes are not in topological order: {where} reads {value!r}, which {maker} makes later; "
        "sort them (onnx_ir.passes.common.TopologicalSortPass does)"
    )


def _cycle(nodes: Any, makers: dict[str, int], start: int) -> list[int]:
    """The nodes of a cycle through `start`, in the direction of the data; empty where there is none."""
    came: dict[int, int] = {start: -1}
    waiting = [start]
    while waiting:
        at = waiting.pop()
        for value in nodes[at].input:
            maker = makers.get(value)
            if maker == start:
                path = [start]
                while at >= 0:
                    path.append(at)
                    at = came[at]
                return path
            if maker is not None and maker not in came:
                came[maker] = at
                waiting.append(maker)
    return []


def _check_functions(proto: "ModelProto", name: str) -> None:
    """Check that no two functions have one name, that none calls itself, not even through others, and all calls."""
    functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in proto.functions}
    if len(functions) != len(proto.functions):
        twice = _repeated([f"{f.domain}::{f.name}" for f in proto.functions])
        raise InputError(f"{name}: the function {twice} is there twice")
    calls = {
        key: sorted(
            {
                called
                for nodes in _function_nodes(function)
                for node in nodes
                if (called := (node.domain, node.op_type, getattr(node, "overload", ""))) in functions
            }
        )
        for key, function in functions.items()
    }
    _check_calls(proto, functions, name)
    done: set[tuple[str, str, str]] = set()
    for root in calls:
        path: list[tuple[tuple[str, str, str], int]] = [(root, 0)]
        on_path = {root}
        while path:
            key, at = path.pop()
            if key in done:
                on_path.discard(key)
                continue
            if at < len(calls[key]):
                path.append((key, at + 1))
                called = calls[key][at]
                if called in on_path:
                    raise InputError(f"{name}: the function {called[0]}::{called[1]} calls itself")
                if called not in done:
                    on_path.add(called)
                    path.append((called, 0))
            else:
                done.add(key)
                on_path.discard(key)


def _check_calls(proto: "ModelProto", functions: dict[tuple[str, str, str], Any], name: str) -> None:
    """Check that no call has more inputs or outputs than its function."""
    for nodes in all_node_lists(proto) if functions else ():
        for index, node in enumerate(nodes):
            called = functions.get((node.domain, node.op_type, getattr(node, "overload", "")))
            for what in ("input", "output") if called is not None else ():
                has, takes = len(getattr(node, what)), len(getattr(called, what))
                if has > takes:
                    raise InputError(
                        f"{name}: node {node_name(node, index)} has {has} {what}s, and the function that it calls "
                        f"{takes}"
                    )


def _function_nodes(function: Any) -> Iterator[Any]:
    yield function.node
    for node in function.node:
        for _, inner in subgraphs(node):
            for graph in all_graphs(inner):
                yield graph.node


def _check_dims(dims: Any, what: str) -> None:
    if any(d < 0 for d in dims):
        raise InputError(f"{what} has the shape {list(dims)[:16]}; sizes cannot be negative")
    if prod(dims) > MAX_ELEMENTS:
        raise InputError(f"{what} has the shape {list(dims)[:16]}, more elements than can be counted")


def _check_bytes(tensor: "TensorProto", what: str) -> None:
    """`InputError` where the bytes of a tensor are not as many as its shape and type say; none at all are let pass."""
    dtype = dtype_name(tensor.data_type)
    if dtype in ("?", "string"):
        return
    needed = ceil(prod(tensor.dims) * dtype_bytes(dtype))
    stored = len(tensor.raw_data)
    if stored and stored != needed:
        raise InputError(
            f"{what} is {dtype}{list(tensor.dims)}, which takes {needed} bytes; it holds {stored}: the file may be "
            "damaged"
        )
    numbers = sum(len(getattr(tensor, name)) for name in _NUMBERS)
    count = prod(tensor.dims) * (2 if dtype.startswith("complex") else 1)
    if dtype_bytes(dtype) < 1:  # several in a byte
        count = needed
    if numbers and not stored and numbers != count:
        raise InputError(
            f"{what} is {dtype}{list(tensor.dims)}, which takes {count} numbers; it holds {numbers}: the file may be "
            "damaged"
        )


def _repeated(names: list[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def node_name(node: Any, index: int) -> str:
    """How messages call a node: its name, or its place and type.

    >>> from onnx import helper
    >>> node_name(helper.make_node("Relu", ["x"], ["y"]), 3)
    '#3 (Relu)'
    """
    return f"{node.name!r} ({node.op_type})" if node.name else f"#{index} ({node.op_type})"
