"""Ops whose results have a shape that depends on data: they are worked out while the model is read, or not at all."""

from typing import Any

from autoshard.onnx.ops.registry import Node, op


@op("NonZero", "Unique", "NonMaxSuppression", "MelWeightMatrix", static=range(5))
def only_known(node: Node, *inputs: Any) -> Any:
    """Never reached where the inputs are known: ONNX's own reference has worked the results out then."""
    raise node.unsupported("its result could not be worked out while the model is read")
