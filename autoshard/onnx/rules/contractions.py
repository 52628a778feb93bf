"""Products with a sum: MatMul and its kin, Gemm, Einsum, convolutions (S1.34 to S1.39)."""

from autoshard.onnx.graph import Dim
from autoshard.onnx.rules.elementwise import broadcast_labels
from autoshard.onnx.rules.rule import Axis, Call, Compound, OpRule, ShapesDisagree, Whole


def _product(call: Call, a: int, b: int) -> tuple[list[Axis], list[Axis], list[Axis]]:
    left, right = call.dims(a), call.dims(b)
    if not left or not right:
        raise ShapesDisagree(f"{call.op} takes no scalars")
    (batch_a, batch_b), batch = broadcast_labels([left[:-2], right[:-2]], "batch")
    rows: list[Axis] = ["m"] if len(left) > 1 else []
    columns: list[Axis] = ["n"] if len(right) > 1 else []
    return [*batch_a, *rows, "k"], [*batch_b, "k", *columns], [*batch, *rows, *columns]


def _per(call: Call, index: int, label: str) -> list[Axis]:
    """Axes of a scale or zero point: one for all, or one for each row or column."""
    dims = call.dims(index)
    if len(dims) == 1:
        return [None if dims[0] == 1 else label]
    return [None if n == 1 else Whole((index, a)) for a, n in enumerate(dims)]


def matmul(call: Call) -> OpRule:
    """``[m, k] times [k, n]``, summed over k; major axes are broadcast."""
    a, b, out = _product(call, 0, 1)
    return call.build([a, b], [out], reduced="k")


def matmul_integer(call: Call) -> OpRule:
    """As MatMul; a zero point is one number, or has one for each row of A or each column of B."""
    a, b, out = _product(call, 0, 1)
    points = [_per(call, i, label) if call.has(i) else None for i, label in ((2, "m"), (3, "n"))]
    return call.build([a, b, *points[: max(0, len(call.inputs) - 2)]], [out], reduced="k")


def qlinear_matmul(call: Call) -> OpRule:
    """As MatMul; what k gives is summed before it is quantized."""
    a, b, out = _product(call, 0, 3)
    left, right = [_per(call, i, "m") for i in (1, 2)], [_per(call, i, "n") for i in (4, 5)]
    return call.build([a, *left, b, *right, _per(call, 6, "m"), _per(call, 7, "m")], [out], reduced="k")


def gemm(call: Call) -> OpRule:
    """``A B + C``, with A and B transposed where asked; C is broadcast to ``[m, n]`` and added once (S1.39)."""
    a: list[Axis] = ["k", "m"] if call.attributes.get("transA", 0) else ["m", "k"]
    b: list[Axis] = ["n", "k"] if call.attributes.get("transB", 0) else ["k", "n"]
    inputs = [a, b]
    if call.has(2):
        dims = call.dims(2)
        if len(dims) > 2:
            raise ShapesDisagree(f"Gemm adds a tensor of rank {len(dims)}; it can be 2 at most")
        names = ["m", "n"][2 - len(dims) :]
        inputs.append([None if n == 1 else name for n, name in zip(dims, names, strict=True)])
    return call.build(inputs, [["m", "n"]], reduced="k")


def einsum(call: Call) -> OpRule:
    """Letters are factors; those that the result lacks are summed. A letter twice in one operand is a diagonal: whole.

    Axes under an ellipsis are aligned at the last one and broadcast.
    """
    equation = call.attributes.get("equation", "")
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(call.inputs):
        raise ShapesDisagree(f"Einsum {text!r} has {len(terms)} operands, the node {len(call.inputs)}")
    dims = [call.dims(i) for i in range(len(terms))]
    spread: list[tuple[Dim, ...]] = []
    for term, shape in zip(terms, dims, strict=True):
        before, dots, after = term.partition("...")
        extra = len(shape) - len(before) - len(after)
        if extra < 0 or (extra and not dots):
            raise ShapesDisagree(f"Einsum {text!r} has the operand {term!r} for a tensor of rank {len(shape)}")
        spread.append(shape[len(before) : len(before) + extra])
    hidden, hidden_out = broadcast_labels(spread, "...")
    letters = left.replace(",", "").replace("...", "")
    diagonal = {c for term in terms for c in term.replace("...", "") if term.count(c) > 1}
    if not arrow:
        right = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))

    def axis(letter: str, size: Dim = None) -> Axis:
        return None if size == 1 else Whole(letter) if letter in diagonal else letter

    inputs = []
    for term, shape, dots in zip(terms, dims, hidden, strict=True):
        before, _, after = term.partition("...")
        minor = shape[len(shape) - len(after) :]
        head = [axis(c, n) for c, n in zip(before, shape, strict=False)]
        inputs.append([*head, *dots, *(axis(c, n) for c, n in zip(after, minor, strict=True))])
    used = {a for labels in inputs for a in labels}
    before, dots_out, after = right.partition("...")
    result = [
        *(axis(c) if axis(c) in used else None for c in before),
        *(hidden_out if dots_out else []),
        *(axis(c) if axis(c) in used else None for c in after),
    ]
    summed = {a for a in used if a is not None and a not in result and not isinstance(a, Whole)}
    return call.build(inputs, [result], reduced=sorted(summed, key=str))


def convolution(call: Call) -> OpRule:
    """Batch and output channels are parallel, input channels are summed; space is whole unless each point stands alone
    (kernel 1, stride 1, no padding). Groups are the major factor of both kinds of channels.
    """
    weight = 3 if call.op == "QLinearConv" else 1
    x, w = call.dims(0), call.dims(weight)
    space = len(x) - 2
    if space < 0 or len(w) != len(x):
        raise ShapesDisagree(f"{call.op} has an input of rank {len(x)} and a kernel of rank {len(w)}")
    groups = int(call.attributes.get("group", 1))
    transposed = call.op == "ConvTranspose"
    reading, making = (w[0], w[1]) if transposed else (w[1], w[0])
    outer, inner = "m", "c"
    channels: dict[str, Axis] = {"x": inner, "y": outer, "w0": outer, "w1": inner}
    if transposed:
        channels |= {"w0": inner, "w1": outer}
    if groups > 1:

        def per_group(label: str, total: Dim, each: Dim) -> Compound:
            size = each if each is not None else total // groups if isinstance(total, int) else None
            return Compound((("g", groups), (label, size)))

        if transposed:
            each = reading // groups if isinstance(reading, int) else None
            grouped_in, grouped_out = per_group(inner, None, each), per_group(outer, None, making)
            channels |= {"x": grouped_in, "w0": grouped_in, "y": grouped_out}
        else:
            each = making // groups if isinstance(making, int) else None
            grouped_in, grouped_out = per_group(inner, None, reading), per_group(outer, None, each)
            channels |= {"x": grouped_in, "w0": grouped_out, "y": grouped_out}
    points = [_stands_alone(call, w, s) for s in range(space)]
    xs = [("s", s) if points[s] else Whole(("x", s)) for s in range(space)]
    ys = [("s", s) if points[s] else Whole(("y", s)) for s in range(space)]
    kernel = [Whole(("k", s)) for s in range(space)]
    inputs: list[list[Axis] | None] = [["n", channels["x"], *xs]]
    weights = [channels["w0"], channels["w1"], *kernel]
    if weight == 3:
        inputs += [_one(call, 1), _one(call, 2), weights, _one(call, 4, channels["y"]), _one(call, 5, channels["y"])]
        inputs += [_one(call, 6), _one(call, 7)]
        bias = 8
    else:
        inputs.append(weights)
        bias = 2
    if call.op == "ConvInteger":
        inputs += [_one(call, i, label) for i, label in ((2, None), (3, channels["y"])) if i < len(call.inputs)]
    elif call.has(bias):
        inputs.append([channels["y"]])
    return call.build(inputs, [["n", channels["y"], *ys]], reduced=[inner])


def _one(call: Call, index: int, per: Axis = None) -> list[Axis] | None:
    """A scale or zero point: a scalar, or one for each output channel."""
    if not call.has(index):
        return None
    return [None if n == 1 else per if per is not None else Whole((index, a)) for a, n in enumerate(call.dims(index))]


def _stands_alone(call: Call, kernel: tuple[Dim, ...], dim: int) -> bool:
    space = len(kernel) - 2
    strides = call.attributes.get("strides") or [1] * space
    pads = call.attributes.get("pads") or [0] * (2 * space)
    auto = call.attributes.get("auto_pad", b"NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    more = call.attributes.get("output_padding") or [0] * space
    plain = kernel[2 + dim] == 1 and strides[dim] == 1 and more[dim] == 0 and not call.attributes.get("output_shape")
    return plain and pads[dim] == 0 == pads[space + dim] and auto in ("NOTSET", "VALID")
