"""Elementwise operators, with and without broadcasting, and reductions (S1.20 to S1.33)."""

from collections.abc import Sequence

from autoshard.onnx.graph import Dim
from autoshard.onnx.rules.rule import Axis, Call, OpRule, Whole

COMBINERS = {
    "ReduceL1": "add",
    "ReduceL2": "l2",
    "ReduceLogSum": "logsum",
    "ReduceLogSumExp": "logsumexp",
    "ReduceMax": "max",
    "ReduceMean": "mean",
    "ReduceMin": "min",
    "ReduceProd": "mul",
    "ReduceSum": "add",
    "ReduceSumSquare": "add",
}


def unary(call: Call) -> OpRule:
    """Axes pass through; further inputs (limits of Clip, ratio of Dropout) are scalars, the same on every device."""
    axes = list(range(call.rank(0)))
    return call.build([axes], [axes] * call.present_outputs, elementwise=True)


def cast_like(call: Call) -> OpRule:
    """Of the second input only the element type is read."""
    axes = list(range(call.rank(0)))
    return call.build([axes, None], [axes], elementwise=True)


def broadcast_labels(shapes: Sequence[Sequence[Dim]], tag: str = "") -> tuple[list[list[Axis]], list[Axis]]:
    """Labels of shapes aligned at their last axes, and of the result; none for axes of size 1 that are repeated.

    >>> broadcast_labels([("M", 1), (1, "N")])
    ([[0, None], [None, 1]], [0, 1])
    """
    rank = max((len(s) for s in shapes), default=0)
    ones = [all(s[j - rank] == 1 for s in shapes if rank - j <= len(s)) for j in range(rank)]

    def label(axis: int) -> Axis:
        return (tag, axis) if tag else axis

    labels: list[list[Axis]] = []
    for shape in shapes:
        first = rank - len(shape)
        labels.append([None if n == 1 else label(first + a) for a, n in enumerate(shape)])
    return labels, [None if ones[j] else label(j) for j in range(rank)]


def n_ary(call: Call) -> OpRule:
    """Axes are aligned at the last one; those of size 1 are repeated (S1.23 to S1.28)."""
    shapes = [call.dims(i) for i in range(len(call.inputs))]
    if call.version < 7 and len(shapes) == 2 and len(shapes[1]) < len(shapes[0]):
        # before opset 7 the second input is aligned at an axis: that of channels for PRelu, else the attribute's
        at = int(call.attributes.get("axis", 1 if call.op == "PRelu" else len(shapes[0]) - len(shapes[1])))
        shapes[1] = (*shapes[1], *(1,) * (len(shapes[0]) - at - len(shapes[1])))
        labels, result = broadcast_labels(shapes)
        labels[1] = labels[1][: call.rank(1)]
        return call.build(labels, [result], elementwise=True)
    labels, result = broadcast_labels(shapes)
    return call.build(labels, [result], elementwise=True)


def reduction(call: Call) -> OpRule:
    """Kept axes pass, reduced ones are combined; retained as size 1 they are not cut, dropped they shift the others
    (S1.29 to S1.33).
    """
    rank = call.rank(0)
    axes = call.axes(rank)
    keep = int(call.attributes.get("keepdims", 1))
    if axes is None:  # not known which
        return call.build([call.whole_axes(0)], [])
    if not axes:
        if int(call.attributes.get("noop_with_empty_axes", 0)):
            return unary(call)
        axes = tuple(range(rank))
    labels = list(range(rank))
    result = [None if a in axes else a for a in labels if keep or a not in axes]
    rest = [call.whole_axes(i) for i in range(1, len(call.inputs)) if call.has(i)]
    return call.build([labels, *rest], [result], reduced=axes, combine=COMBINERS[call.op])


def arg_reduction(call: Call) -> OpRule:
    """ArgMax and ArgMin: places count from the start of the axis, so it is whole."""
    rank = call.rank(0)
    axis = call.axis(0, rank)
    keep = int(call.attributes.get("keepdims", 1))
    labels: list[Axis] = [Whole(a) if a == axis else a for a in range(rank)]
    return call.build([labels], [[None if a == axis else a for a in range(rank) if keep or a != axis]])


def quantize(call: Call) -> OpRule:
    """QuantizeLinear and DequantizeLinear: scales for the tensor, for an axis, or for blocks of one."""
    rank = call.rank(0)
    axes: list[Axis] = list(range(rank))
    scale = call.dims(1)
    if len(scale) == 1 and scale[0] != 1:
        small: list[Axis] = [call.axis(1, rank)]
    elif len(scale) == rank and rank > 1:
        blocked = call.axis(1, rank)
        axes[blocked] = Whole("blocked")
        small = [Whole("blocks") if a == blocked else a for a in range(rank)]
    else:
        small = [None] * len(scale)
    inputs = [axes, small] + ([small] if call.has(2) else [])
    return call.build(inputs, [axes])
