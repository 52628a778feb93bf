"""An ONNX model as a JAX function of its weights and its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from autoshard.errors import InputError, UnsupportedError
from autoshard.onnx.graph import type_of
from autoshard.onnx.names import is_constant, labels_of, stored_tensors, taken_by
from autoshard.onnx.ops.families import find
from autoshard.onnx.ops.registry import normal
from autoshard.onnx.ops.types import jax_type, numpy_type
from autoshard.onnx.tracing import Scope, Values, Walk

OLDEST_OPSET = 7
_NO_TENSOR = "its type is {}; only tensors are supported"


@dataclass(frozen=True, eq=False)
class Imported:
    """A model as a function: ``function(weights, inputs) -> outputs``, dictionaries by ONNX names.

    weights, inputs: abstract arrays by name. constants: initializers that are no arguments. labels: index of a node ->
    the `jax.named_scope` in which its ops are traced. notes: what the user should know, from here and from tracing.
    """

    model: Any
    weights: Mapping[str, jax.ShapeDtypeStruct]
    inputs: Mapping[str, jax.ShapeDtypeStruct]
    constants: Mapping[str, np.ndarray]
    labels: Mapping[int, str]
    notes: set[str] = field(default_factory=set)

    @property
    def args(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments of the function: weights and inputs, by name."""
        return dict(self.weights), dict(self.inputs)

    def value_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arguments and of what nodes compute from them, by name."""
        shapes: dict[str, tuple[int, ...]] = {}

        def run(weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
            values = self._values(weights, inputs)[0]
            shapes.update((name, tuple(x.shape)) for name, x in values.items() if isinstance(x, jax.Array))

        jax.eval_shape(run, *self.args)
        return shapes

    def _values(self, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> tuple[Values, Walk]:
        walk = Walk(_functions(self.model), self.labels, self.notes, frozenset(self.weights))
        values: Values = dict(self.constants)  # arguments are never known, even where they are NumPy arrays
        values |= {name: walk.as_jax(x, f"argument {name!r}") for name, x in {**weights, **inputs}.items()}
        walk.nodes(self.model.graph.node, values, Scope(opsets_of(self.model), top=True))
        return values, walk

    def __call__(self, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        values, walk = self._values(weights, inputs)
        out: dict[str, Any] = {}
        for output in self.model.graph.output:
            if output.name not in values:
                raise InputError(f"output {output.name!r} of the graph is made by no node")
            value = values[output.name]
            if value is None or isinstance(value, list | tuple):
                raise UnsupportedError(
                    f"output {output.name!r} is a sequence or an optional; only tensors are supported"
                )
            out[output.name] = walk.as_jax(value, f"output {output.name!r}")
            self._compare(output, out[output.name])
        return out

    def _compare(self, output: Any, value: Any) -> None:
        """A note where an output does not have the type or the shape that the model declares."""
        stated = type_of(output)
        declared = stated.dims
        if stated.dtype != "?" and jax_type(output.type.tensor_type.elem_type) != value.dtype:
            self.notes.add(f"output {output.name!r} is declared as {stated.dtype} and is {value.dtype}")
        if declared is None:
            return
        fits = len(declared) == len(value.shape) and all(
            not isinstance(n, int) or n == m for n, m in zip(declared, value.shape, strict=True)
        )
        if not fits:
            shown = ", ".join("?" if n is None else str(n) for n in declared)
            self.notes.add(f"output {output.name!r} is declared as [{shown}] and is {list(value.shape)}")


def function(
    model: Any, shapes: Mapping[str, Any] | None = None, *, constants: Mapping[str, Any] | None = None
) -> Imported:
    """The function of a model (a message, or an `autoshard.onnx.Model`), with abstract arguments: weights are not read.

    shapes: sizes of symbolic dimensions by their name, or whole shapes by the name of an input.
    constants: values of inputs that decide shapes and so must be known.
    """
    model = getattr(model, "proto", model)
    graph = model.graph
    versions = opsets_of(model)
    if not graph.output:
        raise InputError("the model has no outputs: there is nothing to compute")
    fixed = {k: np.asarray(v) for k, v in (constants or {}).items()}
    stored = stored_tensors(graph)
    if graph.sparse_initializer:
        raise UnsupportedError("the model has sparse initializers; only dense ones are supported")
    static = _static_names(model, versions)
    weights: dict[str, jax.ShapeDtypeStruct] = {}
    known: dict[str, np.ndarray] = {}
    for name, tensor in stored.items():
        if is_constant(tensor, name in static):
            known[name] = _array(tensor)
        else:
            weights[name] = _abstract(tuple(tensor.dims), tensor.data_type, f"initializer {name!r}")
    used = {o.name for o in graph.output}.union(*(taken_by(node) for node in graph.node))
    inputs = {
        i.name: _abstract(_input_shape(i, shapes or {}), _tensor_type(i).elem_type, f"input {i.name!r}")
        for i in graph.input
        if i.name not in stored and i.name not in fixed
    }
    unknown = sorted(set(shapes or {}) - _dimension_names(graph) - set(inputs))
    if unknown:
        raise InputError(
            f"shapes: the model has no symbolic dimension and no input {unknown[0]!r}; its dimensions are "
            f"{', '.join(sorted(_dimension_names(graph))) or 'all static'}"
        )
    weights = {name: spec for name, spec in weights.items() if name in used}
    notes = _narrow_notes(model, {**weights, **inputs})
    return Imported(model, weights, inputs, {**known, **fixed}, labels_of(graph), notes)


def opsets_of(model: Any) -> dict[str, int]:
    """Versions of the opsets by domain; `UnsupportedError` for ones that are not known."""
    import onnx.defs

    versions = {normal(o.domain): o.version for o in model.opset_import}
    newest = onnx.defs.onnx_opset_version()
    version = versions.get("")
    if version is not None and not OLDEST_OPSET <= version <= newest:
        raise UnsupportedError(
            f"the model is of opset {version}; opsets {OLDEST_OPSET} to {newest} are supported "
            "(onnx.version_converter converts a copy, but drops sharding annotations)"
        )
    return versions


def _functions(model: Any) -> dict[tuple[str, str, str], Any]:
    return {(normal(f.domain), f.name, f.overload): f for f in model.functions}


# -- which tensors are arguments ----------------------------------------------------------------------------------


def _static_names(model: Any, versions: Mapping[str, int]) -> set[str]:
    """Names of values that nodes read only to learn shapes, axes and the like, so that they must be known."""
    static: set[str] = set()
    other: set[str] = {o.name for o in model.graph.output}
    for node in model.graph.node:
        domain = normal(node.domain)
        mapped = find(domain, node.op_type, versions[domain]) if domain in versions else None
        for k, name in enumerate(node.input):
            (static if mapped is not None and k in mapped.static else other).add(name)
    return static - other


def _array(tensor: Any) -> np.ndarray:
    from onnx import numpy_helper

    try:
        numpy_type(tensor.data_type)
    except InputError as error:
        raise InputError(f"tensor {tensor.name!r}: {error}") from None
    return np.asarray(numpy_helper.to_array(tensor))


def _abstract(shape: tuple[int, ...], number: int, what: str) -> jax.ShapeDtypeStruct:
    from onnx import TensorProto

    if number in (TensorProto.STRING, TensorProto.UNDEFINED):
        raise UnsupportedError(f"{what} holds {TensorProto.DataType.Name(number).lower()}s, which JAX has no type for")
    try:
        return jax.ShapeDtypeStruct(shape, jax_type(number))
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def _narrow_notes(model: Any, names: Mapping[str, Any]) -> set[str]:
    """Notes on the arguments that are computed in narrower types than the model states."""
    from autoshard.onnx.tracing import narrower

    graph = model.graph
    types = {name: tensor.data_type for name, tensor in stored_tensors(graph).items()}
    types |= {i.name: i.type.tensor_type.elem_type for i in graph.input}
    return {note for name in names if (note := narrower(numpy_type(types[name])))}


def _tensor_type(info: Any) -> Any:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedError(f"input {info.name!r}: " + _NO_TENSOR.format((kind or "unknown").removesuffix("_type")))
    return info.type.tensor_type


def _dimension_names(graph: Any) -> set[str]:
    return {
        d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim if d.dim_param
    }  # fmt: skip


def _input_shape(info: Any, shapes: Mapping[str, Any]) -> tuple[int, ...]:
    stated = shapes.get(info.name)
    tensor = _tensor_type(info)
    dims: Sequence[Any] = tensor.shape.dim
    if stated is not None and not isinstance(stated, int):
        whole = tuple(int(n) for n in stated)
        fits = len(whole) == len(dims) and all(
            not d.HasField("dim_value") or d.dim_value == n for d, n in zip(dims, whole, strict=False)
        )
        if tensor.HasField("shape") and not fits:
            raise InputError(f"shapes: input {info.name!r} is {_dims_text(dims)}, found {list(whole)}")
        return whole
    if not tensor.HasField("shape"):
        raise InputError(f"input {info.name!r} has no shape; give one, such as shapes: {{{info.name}: [1, 128]}}")
    out = []
    for d in dims:
        if d.HasField("dim_value"):
            out.append(d.dim_value)
        elif isinstance(shapes.get(d.dim_param), int):
            out.append(shapes[d.dim_param])
        elif d.dim_param in shapes:
            raise InputError(f"shapes: the dimension {d.dim_param!r} has one size, found {shapes[d.dim_param]!r}")
        else:
            what = f"dimension {d.dim_param!r}" if d.dim_param else "a dimension without a name"
            example = f"{{{d.dim_param}: 8}}" if d.dim_param else f"{{{info.name}: [...]}}"
            raise InputError(
                f"input {info.name!r} is {_dims_text(dims)}: the size of {what} is open; give it, "
                f"such as shapes: {example}"
            )
    return tuple(out)


def _dims_text(dims: Sequence[Any]) -> str:
    return "[" + ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in dims) + "]"
