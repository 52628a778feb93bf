"""The walk through a model that makes its JAX function.

A value that is a NumPy array is known now, and what is computed from such values is folded (`fold`); all others are JAX
values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from autoshard.errors import AutoshardError, UnsupportedError
from autoshard.onnx.attributes import as_proto, attributes_of
from autoshard.onnx.fold import can_fold, folded
from autoshard.onnx.ops.families import find
from autoshard.onnx.ops.registry import NeedsValueError, Node, NotMappedError, full_name, normal
from autoshard.onnx.ops.types import type_message
from autoshard.onnx.ops.unmapped import reason, unmapped
from autoshard.onnx.schema_check import check_schema

Values = dict[str, Any]


@dataclass(frozen=True)
class Scope:
    """The scope of nodes: the opset versions, the attributes of the function's call, and the values around it.

    top: whether it is the model's own graph, whose values are tagged with their names.
    """

    opsets: Mapping[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outer: Mapping[str, Any] = field(default_factory=dict)
    top: bool = False


@dataclass
class Walk:
    """Runs nodes on values. functions: the model's own, by domain, name and overload. notes: what users should know.

    weights: names of the stored tensors that are arguments.
    """

    functions: Mapping[tuple[str, str, str], Any]
    labels: Mapping[int, str] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)
    weights: frozenset[str] = frozenset()

    def nodes(self, nodes: Sequence[Any], values: Values, scope: Scope) -> None:
        """Run nodes in order; `values` gains their results."""
        for index, node in enumerate(nodes):
            if scope.top and node.op_type == "Constant" and node.output[0] in values:
                continue  # a weight
            label = self.labels.get(index) if scope.top else None
            with jax.named_scope(label) if label else nullcontext():
                results = self.node(node, [self._look(values, scope, n, node) for n in node.input], scope, values)
            for name, result in zip(node.output, results):
                if name:
                    values[name] = _tagged(result, name) if scope.top else result

    def node(self, node: Any, inputs: list[Any], scope: Scope, values: Values) -> list[Any]:
        """The results of one node."""
        domain = normal(node.domain)
        own = self.functions.get((domain, node.op_type, node.overload))
        if own is not None:
            return self._call(own, node, inputs, scope, {})
        version = self._version(node, domain, scope)
        attributes = attributes_of(node, version, scope.attributes)
        if domain == "" and node.op_type in WITHOUT_ELEMENTS:
            results_known = WITHOUT_ELEMENTS[node.op_type](attributes, inputs)
            if results_known is not None:
                return [results_known]
        if can_fold(node.op_type, version, inputs):
            results_known = folded(_alone(node, attributes), version, inputs)
            if results_known is not None:
                return list(results_known)
        mapped = find(domain, node.op_type, version)
        if mapped is None:
            told = unmapped(domain, node.op_type)
            body = None if told else _schema_body(_alone(node, attributes), domain, version, inputs)
            if body is None:
                raise _not_mapped(node, domain, version)
            where = f"{full_name(domain, node.op_type)} node {_name(node)!r}"
            check_schema(_alone(node, attributes), domain, version, inputs, scope.opsets, where)
            return self._call(body, node, inputs, scope, attributes)
        seen = Node(
            node.op_type, _name(node), version, attributes, tuple(node.input), tuple(node.output), domain=domain,
            run=lambda graph, *args: self.graph(graph, args, scope, values),
            constants=[x if isinstance(x, np.ndarray) else None for x in inputs],
        )  # fmt: skip
        operands = [self._argument(x, k in mapped.static, seen, k) for k, x in enumerate(inputs)]
        schema = (_alone(node, attributes), domain, version, inputs, scope.opsets, seen.where)
        if node.op_type in WITH_BODIES:
            check_schema(*schema)
        try:
            results = mapped.function(seen, *operands)
        except AutoshardError:
            raise
        except Exception as error:  # shapes that do not fit, types that an op does not take
            check_schema(*schema)  # which has the better message
            raise UnsupportedError(
                f"{seen.where} cannot be computed on {', '.join(map(_type_text, inputs))}: "
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            ) from error
        check_schema(*schema)
        return list(results) if isinstance(results, tuple) else [results]

    def graph(self, graph: Any, args: Sequence[Any], scope: Scope, values: Mapping[str, Any]) -> list[Any]:
        """The results of a subgraph; it sees the names around it."""
        from onnx import numpy_helper

        inner: Values = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        inner.update(zip((i.name for i in graph.input), args))
        below = Scope(scope.opsets, scope.attributes, {**scope.outer, **values})
        self.nodes(graph.node, inner, below)
        return [self._look(inner, below, o.name, None) for o in graph.output]

    def _call(
        self, body: Any, node: Any, inputs: Sequence[Any], scope: Scope, defaults: Mapping[str, Any]
    ) -> list[Any]:
        """A function of the model or of a schema, in the place of a node that calls it."""
        from autoshard.onnx.attributes import value_of

        arguments = {**{a.name: value_of(a) for a in body.attribute_proto}, **defaults}
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                arguments[attribute.name] = value_of(attribute)
            elif attribute.ref_attr_name in scope.attributes:
                arguments[attribute.name] = scope.attributes[attribute.ref_attr_name]
        opsets = {**scope.opsets, **{normal(o.domain): o.version for o in body.opset_import}}
        values: Values = dict.fromkeys(body.input)
        values.update(zip(body.input, inputs))
        below = Scope(opsets, arguments)
        self.nodes(body.node, values, below)
        return [values.get(name) for name in body.output]

    def _look(self, values: Values, scope: Scope, name: str, node: Any) -> Any:
        if not name:
            return None
        if name in values:
            return values[name]
        if name in scope.outer:
            return scope.outer[name]
        where = f"{full_name(node.domain, node.op_type)} node {_name(node)!r}" if node is not None else "a subgraph"
        raise UnsupportedError(f"{where} takes {name!r}, which no node before it makes")

    def _version(self, node: Any, domain: str, scope: Scope) -> int:
        if domain not in scope.opsets:
            raise UnsupportedError(
                f"{full_name(domain, node.op_type)} node {_name(node)!r}: the model imports no opset of domain "
                f"{domain or 'ai.onnx'!r} and has no function of that name"
            )
        return scope.opsets[domain]

    def _argument(self, x: Any, static: bool, node: Node, index: int) -> Any:
        if x is None or isinstance(x, list | tuple):
            return x
        if not static:
            return self.as_jax(x, node.where)
        if isinstance(x, np.ndarray):
            return x
        name = node.inputs[index]
        how, advice = "is computed from data", "make it a constant, or give the model a static shape"
        if name in self.weights:
            how = "is a weight whose numbers lie outside of the model's file, where planning does not look"
            advice = "keep small tensors in the file (onnx.save_model with size_threshold=1024)"
        raise NeedsValueError(
            f"{node.where}: input {index} ({name!r}) {how}, but it decides shapes and must be known when the model is "
            f"read; {advice}",
            name,
        )

    def as_jax(self, x: Any, where: str) -> Any:
        """A value as JAX computes with it; 64-bit numbers that do not fit into 32 bits are an error."""
        if not isinstance(x, np.ndarray):
            return x
        if x.dtype.kind in "OUS":
            raise UnsupportedError(f"{where}: strings cannot be computed with")
        return jnp.asarray(narrowed(x, where, self.notes))


def narrowed(x: np.ndarray, where: str, notes: set[str]) -> np.ndarray:
    """An array in the type that JAX computes in; where that is a narrower one, a note says so."""
    target = jax.dtypes.canonicalize_dtype(x.dtype)
    if target == x.dtype:
        return x
    if x.dtype.kind in "iu":
        limits = np.iinfo(target)
        if x.size and (int(x.min()) < limits.min or int(x.max()) > limits.max):
            raise UnsupportedError(
                f"{where}: {x.dtype} values from {x.min()} to {x.max()} do not fit into {target}; set jax_enable_x64"
            )
    notes.add(narrower(x.dtype))
    return x.astype(target)


def narrower(dtype: np.dtype) -> str:
    """A note where JAX computes a type in a narrower one; empty where it does not."""
    target = jax.dtypes.canonicalize_dtype(dtype)
    if target == dtype:
        return ""
    return f"{dtype} of the model is computed in {target}; set jax_enable_x64 for 64-bit types"


def _tagged(result: Any, name: str) -> Any:
    return checkpoint_name(result, name) if isinstance(result, jax.Array) else result


def _name(node: Any) -> str:
    return node.name or next((o for o in node.output if o), "")


def _type_text(x: Any) -> str:
    if x is None:
        return "nothing"
    return f"{x.dtype}[{','.join(map(str, x.shape))}]" if hasattr(x, "shape") else type(x).__name__


def _alone(node: Any, attributes: Mapping[str, Any]) -> Any:
    """The node with the call's attributes in place of its references to them."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    import onnx

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(a for a in node.attribute if not a.ref_attr_name)
    copy.attribute.extend(
        as_proto(a.name, attributes[a.name]) for a in node.attribute if a.ref_attr_name and a.name in attributes
    )
    return copy


# -- ops that are about values themselves, not about their elements -----------------------------------------------


def _constant(attributes: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
    types = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for key, dtype in types.items():
        if key in attributes:
            return np.asarray(attributes[key], dtype)
    if "value" in attributes:
        return np.asarray(attributes["value"])
    raise UnsupportedError(
        "a Constant holds neither a tensor nor numbers; strings and sparse tensors are not supported"
    )


def _shape(attributes: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
    shape = np.asarray(np.shape(inputs[0]), np.int64)
    end = attributes.get("end")
    return shape[slice(attributes.get("start"), end)]


def _size(attributes: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
    return np.asarray(np.prod(np.shape(inputs[0]), dtype=np.int64), np.int64)


WITH_BODIES = frozenset(("If", "Loop", "Scan"))
"""Ops whose mapping runs graphs inside of them: the schema is checked before, as a missing graph cannot be run."""

WITHOUT_ELEMENTS = {"Constant": _constant, "Shape": _shape, "Size": _size}
"""Ops whose results are known while a model is read, whatever the elements of their inputs are."""


# -- bodies that schemas have -------------------------------------------------------------------------------------


def _schema_body(node: Any, domain: str, version: int, inputs: Sequence[Any]) -> Any:
    """The function that ONNX defines an op by; None where there is none."""
    import onnx
    import onnx.defs

    try:
        schema: Any = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        at = _latest(schema.function_opset_versions, version)
        body = schema.get_function_with_opset_version(at)
    elif schema.has_context_dependent_function:
        at = _latest(schema.context_dependent_function_opset_versions, version)
        types = [type_message(x).SerializeToString() for x in inputs]
        body = schema.get_context_dependent_function_with_opset_version(at, node.SerializeToString(), types)
    else:
        return None
    if not body:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(body)
    return proto


def _latest(versions: Sequence[int], version: int) -> int:
    return max((v for v in versions if v <= version), default=min(versions))


def _not_mapped(node: Any, domain: str, version: int) -> NotMappedError:
    name = full_name(domain, node.op_type)
    output = next((o for o in node.output if o), "")
    why = reason(domain, node.op_type, output)
    return NotMappedError(f"{name} node {_name(node)!r} (opset {version}) cannot be planned: {why}", name)
