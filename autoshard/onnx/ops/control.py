"""Ops that run subgraphs: branches and loops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.onnx.ops.registry import NeedsValueError, Node, op

MOST_UNROLLED = 16
"""Loops with a known, larger trip count become a `lax.scan`."""
MOST_TURNS = 4096
"""Turns that are written out one by one while a model is read, of a loop that is no scan."""


@op("If")
def if_(node: Node, condition: Any) -> Any:
    """If: the branch alone where the condition is known, else both as a `jax.lax.cond`."""
    known = node.known(0)
    assert node.run is not None
    if condition.size != 1:
        raise node.malformed(f"its condition has the shape {list(condition.shape)}; it is one truth value")
    for side in ("then_branch", "else_branch"):
        if len(node[side].output) != len(node.outputs):
            raise node.malformed(
                f"its results are {len(node.outputs)} in number, those of {side} {len(node[side].output)}"
            )
    if known is not None:
        return tuple(node.run(node["then_branch"] if bool(known.reshape(())) else node["else_branch"]))

    def branch(graph: Any) -> Any:
        return lambda: [_array(node, x) for x in node.run(graph)]  # type: ignore[misc]

    try:
        return tuple(lax.cond(condition.reshape(()), branch(node["then_branch"]), branch(node["else_branch"])))
    except TypeError as error:
        raise node.unsupported(f"its branches make results of different shapes or types: {error}") from error


@op("Loop")
def loop(node: Node, trips: Any, condition: Any, *states: Any) -> Any:
    """Unrolled where every turn's condition is known; a scan where many turns are known and no condition ends them."""
    body = node["body"]
    assert node.run is not None
    _fits_loop(node, body, len(states))
    count = _known(node, 0, "the trip count")
    go = _known(node, 1, "the condition")
    most = int(count.reshape(())) if count is not None else None
    running = True if go is None else bool(go.reshape(()))
    constant = _passes_condition(body)
    if most is not None and most > MOST_UNROLLED and constant and running:
        return _as_scan(node, most, states)
    if most is None and constant and running:
        raise node.malformed("it never ends: it has no trip count, and its condition stays true")
    values, made = list(states), []
    turn = 0
    carried = len(body.input) - 2
    while running and (most is None or turn < most):
        if turn == MOST_TURNS:
            raise node.unsupported(
                f"it runs more than {MOST_TURNS} turns under a condition that changes; give it a trip count, and hand "
                "the condition on as it is"
            )
        results = node.run(body, np.asarray(turn, np.int64), np.asarray(True), *values)
        after = results[0]
        if not isinstance(after, np.ndarray) and not constant:
            raise NeedsValueError(
                f"{node.where}: how often it runs depends on data (the condition {body.output[0].name!r} of its body); "
                "only loops with a known trip count are supported",
                body.output[0].name,
            )
        running = constant or bool(after.reshape(()))
        values, made = results[1 : 1 + carried], [*made, results[1 + carried :]]
        turn += 1
    if not made and len(body.output) > 1 + carried:
        raise node.unsupported("it never runs, and the shapes of its stacked results are not known then")
    stacked = [jnp.stack([_array(node, x) for x in column]) for column in zip(*made)]
    return (*values, *stacked)


def _known(node: Node, index: int, what: str) -> np.ndarray | None:
    if index >= len(node.inputs) or not node.inputs[index]:
        return None
    known = node.known(index)
    if known is None:
        raise NeedsValueError(
            f"{node.where}: {what} {node.inputs[index]!r} depends on data; only loops with a known trip count are "
            "supported",
            node.inputs[index],
        )
    return known


def _fits_loop(node: Node, body: Any, states: int) -> None:
    """An error where the body does not take the turn, the condition and every state, or does not hand all back."""
    if len(body.input) != 2 + states:
        raise node.malformed(
            f"its body takes {len(body.input)} values; it is given the turn, the condition and {states} states"
        )
    if len(body.output) < 1 + states or len(body.output) - 1 < len(node.outputs):
        raise node.malformed(
            f"its body makes {len(body.output)} values; it hands back the condition and {states} states, and the node "
            f"has {len(node.outputs)} results"
        )


def _passes_condition(body: Any) -> bool:
    """Whether the body hands its condition on as it is, or makes a constant true."""
    from onnx import numpy_helper

    name = body.output[0].name
    stored = {t.name: t for t in body.initializer}
    stored |= {n.output[0]: a.t for n in body.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"}
    true = {
        key for key, t in stored.items() if numpy_helper.to_array(t).dtype == bool and numpy_helper.to_array(t).all()
    }
    seen = {body.input[1].name} | true
    for inner in body.node:
        if inner.op_type == "Identity" and inner.input[0] in seen:
            seen.add(inner.output[0])
    return name in seen


def _as_scan(node: Node, trips: int, states: tuple[Any, ...]) -> Any:
    body = node["body"]
    carried = len(body.input) - 2

    def step(carry: Any, turn: Any) -> Any:
        results = node.run(body, turn, np.asarray(True), *carry)  # type: ignore[misc]
        out = [_array(node, x) for x in results[1:]]
        return out[:carried], out[carried:]

    try:
        values, stacked = lax.scan(step, list(states), jnp.arange(trips, dtype=jnp.int32))
    except TypeError as error:
        raise node.unsupported(f"the shapes or types of its states change from turn to turn: {error}") from error
    return (*values, *stacked)


def _array(node: Node, x: Any) -> Any:
    if x is None or isinstance(x, list | tuple):
        raise node.unsupported("its body makes a sequence or an optional; only tensors are supported")
    return jnp.asarray(x)


@op("Scan", since=9)
def scan(node: Node, *inputs: Any) -> Any:
    """Scan since opset 9."""
    return tuple(_scan(node, inputs))


@op("Scan", since=8)
def scan_of_batches(node: Node, lengths: Any, *inputs: Any) -> Any:
    """Opset 8: everything has a batch axis first."""
    if lengths is not None:
        raise node.unsupported("sequences of different lengths (sequence_lens) are not supported")
    return tuple(jax.vmap(lambda *xs: _scan(node, xs))(*inputs))


def _scan(node: Node, inputs: tuple[Any, ...]) -> list[Any]:
    body = node["body"]
    count = node["num_scan_inputs"]
    if not 0 < count <= len(inputs) or len(body.input) != len(inputs) or len(body.output) < len(inputs) - count:
        raise node.malformed(
            f"num_scan_inputs is {count}, and its body takes {len(body.input)} values and makes {len(body.output)}; it "
            f"is given {len(inputs)} values, of which the first are states that it hands back and the last, at least "
            "one, are scanned"
        )
    states, scanned = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    outs = len(body.output) - len(states)
    backwards = node["scan_input_directions"] or node["directions"] or [0] * count
    axes = node["scan_input_axes"] or [0] * count
    xs = [
        jnp.flip(moved, 0) if back else moved
        for moved, back in zip((jnp.moveaxis(x, a, 0) for x, a in zip(scanned, axes)), backwards)
    ]

    def step(carry: Any, x: Any) -> Any:
        out = [_array(node, r) for r in node.run(body, *carry, *x)]  # type: ignore[misc]
        return out[: len(states)], out[len(states) :]

    try:
        values, ys = lax.scan(step, states, xs)
    except TypeError as error:
        raise node.unsupported(f"the shapes or types of its states change from turn to turn: {error}") from error
    turned = node["scan_output_directions"] or [0] * outs
    places = node["scan_output_axes"] or [0] * outs
    ys = [jnp.flip(y, 0) if back else y for y, back in zip(ys, turned)]
    return [*values, *(jnp.moveaxis(y, 0, a) for y, a in zip(ys, places))]
