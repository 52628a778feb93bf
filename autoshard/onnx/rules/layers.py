"""Normalisations, softmax, pooling, attention: operators that look at a whole axis and leave others alone."""

from autoshard.onnx.rules.rule import Axis, Call, OpRule, Whole


def softmax(call: Call) -> OpRule:
    """Its axis is whole; before opset 13 every axis from it on, as one."""
    rank = call.rank(0)
    if call.version >= 13:
        whole = {call.axis(-1, rank)}
    else:
        whole = set(range(call.axis(1, rank), rank))
    labels: list[Axis] = [Whole(a) if a in whole else a for a in range(rank)]
    return call.build([labels], [labels])


def batch_normalization(call: Call) -> OpRule:
    """With statistics given it is elementwise per channel; in training batch and space are whole."""
    rank = call.rank(0)
    training = int(call.attributes.get("training_mode", 0)) or (call.version < 14 and call.present_outputs > 1)

    def axis(a: int) -> Axis:
        return "c" if a == 1 else Whole(a) if training else a

    labels = [axis(a) for a in range(rank)]
    return call.build([labels, ["c"], ["c"], ["c"], ["c"]], [labels, *[["c"]] * (call.present_outputs - 1)])


def instance_normalization(call: Call) -> OpRule:
    """Batch and channels pass, space is whole."""
    labels: list[Axis] = ["n", "c", *(Whole(a) for a in range(2, call.rank(0)))]
    return call.build([labels, ["c"], ["c"]], [labels])


def group_normalization(call: Call) -> OpRule:
    """Only the batch passes: groups of channels and space are whole."""
    labels: list[Axis] = ["n", *(Whole(a) for a in range(1, call.rank(0)))]
    return call.build([labels], [labels])


def layer_normalization(call: Call) -> OpRule:
    """Axes from `axis` on are whole; scale and bias are aligned at the last one (also RMSNormalization)."""
    rank = call.rank(0)
    first = call.axis(-1, rank)
    labels: list[Axis] = [Whole(a) if a >= first else a for a in range(rank)]
    rest: list[list[Axis] | None] = []
    for i in range(1, len(call.inputs)):
        dims = call.dims(i) if call.has(i) else None
        rest.append(
            None if dims is None else [None if n == 1 else labels[rank - len(dims) + a] for a, n in enumerate(dims)]
        )
    statistics = [None if a >= first else a for a in range(rank)]
    return call.build([labels, *rest], [labels, *[statistics] * (call.present_outputs - 1)])


def mean_variance_normalization(call: Call) -> OpRule:
    """The axes of the statistics are whole, the others pass."""
    rank = call.rank(0)
    axes = {int(a) % rank for a in call.attributes.get("axes") or (0, 2, 3)}
    labels: list[Axis] = [Whole(a) if a in axes else a for a in range(rank)]
    return call.build([labels], [labels])


def local_response(call: Call) -> OpRule:
    """Batch and space pass, channels are whole: neighbours are read."""
    labels: list[Axis] = [Whole(a) if a == 1 else a for a in range(call.rank(0))]
    return call.build([labels], [labels])


def pool(call: Call) -> OpRule:
    """Batch and channels pass, space is whole; indices of MaxPool count over everything, then nothing passes."""
    rank = call.rank(0)
    counted = call.op == "MaxPool" and len(call.outputs) > 1 and call.outputs[1] is not None
    passing = 0 if counted else 2
    source = [a if a < passing else Whole(("in", a)) for a in range(rank)]
    target = [a if a < passing else Whole(("out", a)) for a in range(rank)]
    return call.build([source], [target] * call.present_outputs)


def global_pool(call: Call) -> OpRule:
    """A reduction over space."""
    rank = call.rank(0)
    combine = {"GlobalAveragePool": "mean", "GlobalMaxPool": "max", "GlobalLpPool": "lp"}[call.op]
    labels = list(range(rank))
    result = [a if a < 2 else None for a in labels]
    return call.build([labels], [result], reduced=range(2, rank), combine=combine)


def region_pool(call: Call) -> OpRule:
    """Regions and channels are parallel."""
    source: list[Axis] = [Whole("n"), "c", Whole("h"), Whole("w")]
    regions: list[list[Axis]] = [["r", Whole("place")]] + ([["r"]] if call.has(2) else [])
    return call.build([source, *regions], [["r", "c", Whole("oh"), Whole("ow")]])


def grid_sample(call: Call) -> OpRule:
    """Batch and channels pass, and the axes of the grid; the image's space is whole."""
    space = call.rank(0) - 2
    source: list[Axis] = ["n", "c", *(Whole(("in", s)) for s in range(space))]
    grid: list[Axis] = ["n", *(("out", s) for s in range(space)), Whole("place")]
    return call.build([source, grid], [["n", "c", *(("out", s) for s in range(space))]])


def attention(call: Call) -> OpRule:
    """Batch is parallel, and heads where they are an axis and queries have as many as keys and values."""
    ranks = [call.rank(i) for i in range(3)]
    if ranks != [4, 4, 4]:
        shapes: list[list[Axis] | None] = [["b", *(Whole((i, a)) for a in range(1, r))] for i, r in enumerate(ranks)]
        each: list[Axis] = [Whole(("heads", i)) for i in range(3)]
        result: list[Axis] = ["b", *(Whole(("out", a)) for a in range(1, ranks[0]))]
    else:
        counts = [call.dims(i)[1] for i in range(3)]
        equal = counts[0] is not None and counts[0] == counts[1] == counts[2]
        each = ["h"] * 3 if equal else [Whole(("h", i)) for i in range(3)]
        shapes = [["b", each[i], Whole(("s", i)), Whole(("d", i))] for i in range(3)]
        result = ["b", each[0], Whole("out s"), Whole("out d")]
    for i in range(3, len(call.inputs)):
        shapes.append(_mask(call, i, each[{4: 1, 5: 2}.get(i, 0)]) if call.has(i) else None)
    outputs: list[list[Axis]] = [result]
    outputs += [
        ["b", each[{1: 1, 2: 2}.get(i, 0)], Whole(("s", "o", i)), Whole((i, "d"))]
        for i in range(1, call.present_outputs)
    ]
    return call.build(shapes, outputs)


def _mask(call: Call, index: int, heads: Axis) -> list[Axis]:
    """Masks are aligned at the last axis; past keys and values have all four; lengths have the batch."""
    dims = call.dims(index)
    if index == 6 and len(dims) == 1:
        return ["b"]
    names: list[Axis] = ["b", heads, Whole((index, "q")), Whole((index, "k"))]
    return [None if n == 1 else name for n, name in zip(dims, names[4 - len(dims) :], strict=True)]


def rotary(call: Call) -> OpRule:
    """Batch is parallel, and heads where they are an axis."""
    rank = call.rank(0)
    labels: list[Axis] = ["b", *("h" if rank == 4 and a == 1 else Whole(a) for a in range(1, rank))]
    inputs: list[list[Axis] | None] = [labels]
    for i in range(1, len(call.inputs)):
        if not call.has(i):
            inputs.append(None)
            continue
        dims = call.dims(i)
        batched = i == 3 or len(dims) == 3
        inputs.append([None if n == 1 else "b" if batched and a == 0 else Whole((i, a)) for a, n in enumerate(dims)])
    return call.build(inputs, [labels])
