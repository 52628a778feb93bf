"""Names of a model and of the program made from it: which value is which, and which ops belong to a node."""

from glob import escape
from math import prod
from typing import Any

from autoshard.onnx.graph import dtype_name

MOST_CONSTANT = 1024
"""Tensors of whole numbers with at most so many elements are taken for shapes, axes and indices, not for weights."""
_BRACKETS = str.maketrans("()[]", "____")


def stored_tensors(graph: Any) -> dict[str, Any]:
    """The tensors that a graph stores, by name: initializers, and those of Constant nodes."""
    tensors = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            tensors.update((node.output[0], a.t) for a in node.attribute if a.name == "value" and a.HasField("t"))
    return tensors


def is_constant(tensor: Any, static: bool = False) -> bool:
    """Whether a stored tensor is a constant of the program, no argument. static: whether its value decides shapes."""
    from onnx import TensorProto

    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    if static or tensor.data_type == TensorProto.STRING:
        return True
    count = prod(tensor.dims)
    name = dtype_name(tensor.data_type)
    return count == 1 or (name.startswith(("int", "uint", "bool")) and count <= MOST_CONSTANT)


def names_of(model: Any) -> dict[str, str]:
    """ONNX name of the main graph -> the pattern that addresses its value in the program (`constraints.patterns`)."""
    graph = model.graph
    stored = stored_tensors(graph)
    names = {name: "@" + escape(name) for node in graph.node for name in node.output if name}
    names |= {i.name: f"inputs/{i.name}" for i in graph.input if i.name not in stored}
    return names | {name: f"weights/{name}" for name, tensor in stored.items() if not is_constant(tensor)}


def labels_of(graph: Any) -> dict[int, str]:
    """A distinct name for every node, for the `jax.named_scope` in which its ops are traced."""
    seen: set[str] = set()
    out: dict[int, str] = {}
    for index, node in enumerate(graph.node):
        plain = f"{node.op_type}_{index}"
        label = "/".join(step for step in node.name.translate(_BRACKETS).split("/") if step) or plain
        if label in seen:
            label = f"{label}~{index}"
        seen.add(label)
        out[index] = label
    return out


def live_names(graph: Any) -> set[str]:
    """Names of the values that the outputs of a graph depend on."""
    live = {o.name for o in graph.output}
    for node in reversed(graph.node):
        if live.intersection(node.output):
            live.update(taken_by(node))
    return live


def taken_by(node: Any) -> set[str]:
    """The names of the values that a node reads, also inside of its subgraphs."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            names |= {o.name for o in graph.output}
            for inner in graph.node:
                names |= taken_by(inner)
    return names
