"""Operators that move elements: transposes, reshapes, parts and wholes, lookups."""

from collections.abc import Sequence
from math import prod

from autoshard.onnx.graph import Dim
from autoshard.onnx.rules.rule import Axis, Call, Compound, OpRule, RankUnknown, Whole
from autoshard.rules.reshape import factorise


def transpose(call: Call) -> OpRule:
    """Axes change places."""
    rank = call.rank(0)
    order = call.attributes.get("perm") or range(rank)[::-1]
    return call.build([list(range(rank))], [list(order)])


def reshape(call: Call) -> OpRule:
    """Axes as products of factors that both shapes share as blocks (Reshape, Flatten, Squeeze, Unsqueeze).

    With symbolic sizes, axes that are equal from either end are the same; what lies between is compared where it has
    numbers only.
    """
    source, target = call.dims(0), call.out_dims()
    head = _equal_ends(source, target)
    tail = _equal_ends(source[head:][::-1], target[head:][::-1])
    middle_in, middle_out = source[head : len(source) - tail], target[head : len(target) - tail]
    left: list[Axis] = [("head", a) for a in range(head)]
    right = list(left)
    numbers_in = tuple(d for d in middle_in if isinstance(d, int))
    numbers_out = tuple(d for d in middle_out if isinstance(d, int))
    known = len(numbers_in) == len(middle_in) and len(numbers_out) == len(middle_out)
    if known and prod(numbers_in) == prod(numbers_out) > 0:
        cut_in, cut_out, whole = factorise(numbers_in, numbers_out)
        left += [_compound(c.parts, whole) for c in cut_in]
        right += [_compound(c.parts, whole) for c in cut_out]
    elif len(middle_in) == len(middle_out) == 1 and 0 not in source:  # equal, as all else is
        left.append("middle")
        right.append("middle")
    else:
        left += [Whole(("in", a)) for a in range(len(middle_in))]
        right += [Whole(("out", a)) for a in range(len(middle_out))]
    ends: list[Axis] = [("tail", a) for a in reversed(range(tail))]
    return call.build([[*left, *ends]], [[*right, *ends]])


def _equal_ends(a: Sequence[Dim], b: Sequence[Dim]) -> int:
    """How many sizes are the same from the start; unknown ones are not."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y or x is None:
            break
        count += 1
    return count


def _compound(parts: Sequence[tuple[object, int]], whole: Sequence[object]) -> Axis:
    if not parts:
        return None
    return Compound(tuple((Whole(label) if label in whole else label, size) for label, size in parts))


def squeeze(call: Call) -> OpRule:
    """Axes of size 1 go; the others pass."""
    rank = call.rank(0)
    axes = call.axes(rank)
    if axes is None or (not axes and None in call.dims(0)):
        return reshape(call)
    gone = axes or tuple(a for a, n in enumerate(call.dims(0)) if n == 1)
    return call.build([list(range(rank))], [[a for a in range(rank) if a not in gone]])


def unsqueeze(call: Call) -> OpRule:
    """Axes of size 1 come; the others pass."""
    rank = call.rank(0)
    axes = call.attributes.get("axes") or call.constants.get(1)
    if axes is None:
        return reshape(call)
    total = rank + len(axes)
    new = {int(a) % total for a in axes}
    old = iter(range(rank))
    return call.build([list(range(rank))], [[None if a in new else next(old) for a in range(total)]])


def concat(call: Call) -> OpRule:
    """The joined axis is whole."""
    rank = call.rank(0)
    axis = call.axis(0, rank)
    inputs = [[Whole(("in", i)) if a == axis else a for a in range(rank)] for i in range(len(call.inputs))]
    return call.build(inputs, [[Whole("out") if a == axis else a for a in range(rank)]])


def split(call: Call) -> OpRule:
    """The axis that is split is whole."""
    rank = call.rank(0)
    axis = call.axis(0, rank)
    labels: list[Axis] = [Whole("in") if a == axis else a for a in range(rank)]
    parts = [[Whole(("out", i)) if a == axis else a for a in range(rank)] for i in range(call.present_outputs)]
    return call.build([labels], parts)


def slices(call: Call) -> OpRule:
    """Axes of which everything is taken pass; those that are cut short, or turned round, are whole."""
    rank = call.rank(0)
    if call.version < 10:
        starts, axes = call.attributes.get("starts", ()), call.attributes.get("axes")
        steps: Sequence[int] | None = [1] * len(starts)
        axes = tuple(range(len(starts))) if axes is None else axes
    else:
        axes = call.constants.get(3) if call.has(3) else tuple(range(_length(call, 1, rank)))
        steps = call.constants.get(4) if call.has(4) else [1] * rank
    touched = {a % rank for a in axes} if axes is not None else set(range(rank))
    forward = {a % rank for a, s in zip(axes, steps, strict=False) if s == 1} if axes and steps else set()
    try:
        same = _same_sizes(call.dims(0), call.out_dims())
    except RankUnknown:
        same = set()
    passing = [a for a in range(rank) if a not in touched or (a in forward and a in same)]
    return _passing(call, passing)


def _length(call: Call, index: int, default: int) -> int:
    dims = call.dims(index)
    return dims[0] if dims and isinstance(dims[0], int) else default


def _same_sizes(source: Sequence[Dim], target: Sequence[Dim]) -> set[int]:
    pairs = zip(source, target, strict=False)
    return {a for a, (x, y) in enumerate(pairs) if x == y and x is not None}


def _passing(call: Call, passing: Sequence[int]) -> OpRule:
    """These axes pass, the others are whole on both sides."""
    rank = call.rank(0)
    source = [a if a in passing else Whole(("in", a)) for a in range(rank)]
    target = [a if a in passing else Whole(("out", a)) for a in range(rank)]
    return call.build([source], [target])


def pad(call: Call) -> OpRule:
    """Axes without padding pass."""
    rank = call.rank(0)
    pads = call.attributes.get("pads") or call.attributes.get("paddings") or call.constants.get(1)
    axes = call.constants.get(3) if call.has(3) else tuple(range(rank))
    if pads is None or axes is None:
        return _passing(call, ())
    half = len(pads) // 2
    padded = {a % rank for a, low, high in zip(axes, pads[:half], pads[half:], strict=False) if low or high}
    return _passing(call, [a for a in range(rank) if a not in padded])


def tile(call: Call) -> OpRule:
    """Axes that are repeated once pass."""
    repeats = call.constants.get(1)
    rank = call.rank(0)
    return _passing(call, [a for a in range(rank) if repeats is not None and a < len(repeats) and repeats[a] == 1])


def expand(call: Call) -> OpRule:
    """Axes of size 1 are repeated, the others pass."""
    source, target = call.dims(0), call.out_dims()
    first = len(target) - len(source)
    labels: list[Axis] = [None if n == 1 else first + a for a, n in enumerate(source)]
    return call.build([labels], [list(range(len(target)))])


def resize(call: Call) -> OpRule:
    """Axes that are not resized pass, and those whose scale is 1; not where a part of the input is cropped.

    A size that is kept is not enough: 5 elements scaled by 1.1 are 5 elements in other places.
    """
    rank = call.rank(0)
    axes = [a % rank for a in call.attributes.get("axes", range(rank))]
    passing = set(range(rank)) - set(axes)
    if _text(call, "coordinate_transformation_mode") != "tf_crop_and_resize":
        passing |= _of_scale_1(call, axes)
    return _passing(call, sorted(passing))


def _of_scale_1(call: Call, axes: Sequence[int]) -> set[int]:
    """The axes whose scale is known to be 1: by the scales, or by sizes that are those of the input."""
    at = 2 if call.op == "Resize" and call.version >= 11 else 1
    scales = call.attributes.get("scales") or call.reals.get(at)
    if scales:
        return {a for a, scale in zip(axes, scales, strict=False) if scale == 1}
    if at == 1 or not call.has(3) or (call.has(at) and at not in call.reals):
        return set()
    if _text(call, "keep_aspect_ratio_policy") not in ("", "stretch"):
        return set()  # the scale may be that of another axis
    try:
        return _same_sizes(call.dims(0), call.out_dims()) & set(axes)
    except RankUnknown:
        return set()


def _text(call: Call, name: str) -> str:
    text = call.attributes.get(name, "")
    return text.decode() if isinstance(text, bytes) else text


def gather(call: Call) -> OpRule:
    """The axis that is looked up in is whole; the axes of the indices take its place."""
    rank = call.rank(0)
    axis = call.axis(0, rank)
    data: list[Axis] = [Whole("looked up") if a == axis else a for a in range(rank)]
    indices = [("index", a) for a in range(call.rank(1))]
    return call.build([data, indices], [[*data[:axis], *indices, *data[axis + 1 :]]])


def gather_elements(call: Call) -> OpRule:
    """Axes of equal size beside the one that is looked up in are the same for data, indices and result."""
    data, indices = call.dims(0), call.dims(1)
    axis = call.axis(0, len(data))
    shared = _same_sizes(data, indices) - {axis}
    left = [a if a in shared else Whole(("in", a)) for a in range(len(data))]
    right = [a if a in shared else ("index", a) if a == axis else Whole(("index", a)) for a in range(len(data))]
    return call.build([left, right], [right])


def scatter_elements(call: Call) -> OpRule:
    """Axes of equal size beside the one that is written along are the same for all."""
    data, indices = call.dims(0), call.dims(1)
    axis = call.axis(0, len(data))
    shared = _same_sizes(data, indices) - {axis}
    left = [a if a in shared else Whole(("in", a)) for a in range(len(data))]
    right = [a if a in shared else Whole(("index", a)) for a in range(len(data))]
    return call.build([left, right, right], [left])


def gather_nd(call: Call) -> OpRule:
    """Batch axes are shared, the last axis of the indices and the axes that it looks up in are whole."""
    data, indices = call.rank(0), call.dims(1)
    batch = int(call.attributes.get("batch_dims", 0))
    depth = indices[-1] if indices else None
    if not isinstance(depth, int):
        return call.build([call.whole_axes(0), call.whole_axes(1)], [])
    labels: list[Axis] = [Whole(a) if batch <= a < batch + depth else a for a in range(data)]
    rows: list[Axis] = [a if a < batch else ("index", a) for a in range(len(indices) - 1)]
    return call.build([labels, [*rows, Whole("depth")]], [[*rows, *labels[batch + depth :]]])


def scatter_nd(call: Call) -> OpRule:
    """Only axes that the indices do not name pass."""
    data, indices = call.rank(0), call.dims(1)
    depth = indices[-1] if indices else None
    if not isinstance(depth, int):
        return call.build([call.whole_axes(0), call.whole_axes(1), call.whole_axes(2)], [])
    labels: list[Axis] = [Whole(a) if a < depth else a for a in range(data)]
    updates = [*(Whole(("row", a)) for a in range(len(indices) - 1)), *labels[depth:]]
    return call.build([labels, call.whole_axes(1), updates], [labels])


def one_hot(call: Call) -> OpRule:
    """The axes of the indices pass; the new axis is whole."""
    rank = call.rank(0)
    axis = call.axis(-1, rank + 1)
    labels: list[Axis] = list(range(rank))
    rest = [call.whole_axes(i) for i in range(1, len(call.inputs))]
    return call.build([labels, *rest], [[*labels[:axis], Whole("depth"), *labels[axis:]]])


def made(call: Call) -> OpRule:
    """A tensor made from nothing: every device can make its block (ConstantOfShape, Constant)."""
    kind = call.outputs[0] if call.outputs else None
    if kind is None or kind.dims is None:
        raise RankUnknown("output 0")
    return call.build([], [list(range(len(kind.dims)))])


def shape_of(call: Call) -> OpRule:
    """Only the shape of the input is read, however it is cut (Shape, Size)."""
    return call.build([None], [])


def one_axis_whole(default: int, name: str = "axis", inputs: int = 1):
    """One axis, given by an attribute, is whole; the others pass. The outputs' axis may have another size."""

    def rule(call: Call) -> OpRule:
        rank = call.rank(0)
        axis = call.axis(default, rank, name)
        labels: list[Axis] = [Whole("in") if a == axis else a for a in range(rank)]
        results: list[Axis] = [Whole("out") if a == axis else a for a in range(rank)]
        rest = [call.whole_axes(i) for i in range(inputs, len(call.inputs)) if call.has(i)]
        return call.build([labels, *rest], [results] * call.present_outputs)

    return rule


def cumulative(call: Call) -> OpRule:
    """CumSum and CumProd: the axis is an input."""
    rank = call.rank(0)
    axes = call.constants.get(1)
    whole = {int(a) % rank for a in axes} if axes else set(range(rank))
    labels: list[Axis] = [Whole(a) if a in whole else a for a in range(rank)]
    return call.build([labels], [labels])


def leading_pass(count: int, *, last: int | None = None):
    """The first `count` axes pass (with `last`: all but so many at the end), the others are whole."""

    def rule(call: Call) -> OpRule:
        rank = call.rank(0)
        passing = rank - last if last is not None else min(count, rank)
        return _passing(call, range(passing))

    return rule


def reverse_sequence(call: Call) -> OpRule:
    """The axis of time is whole, the others pass."""
    rank = call.rank(0)
    batch = int(call.attributes.get("batch_axis", 1))
    time = int(call.attributes.get("time_axis", 0))
    labels: list[Axis] = [Whole(a) if a == time else a for a in range(rank)]
    return call.build([labels, [batch]], [labels])


def determinant(call: Call) -> OpRule:
    """Determinants of the last two axes."""
    batch: list[Axis] = list(range(call.rank(0) - 2))
    return call.build([[*batch, Whole("row"), Whole("column")]], [batch])


def deformed(call: Call) -> OpRule:
    """DeformConv: the batch alone is parallel; offsets and masks have it too."""
    inputs: list[list[Axis] | None] = []
    for i in range(len(call.inputs)):
        batched = i in (0, 2, 4)
        axes: list[Axis] = [
            "n" if batched and a == 0 else Whole((i, a)) for a in range(call.rank(i) if call.has(i) else 0)
        ]
        inputs.append(axes if call.has(i) else None)
    return call.build(inputs, [["n", *(Whole(("out", a)) for a in range(1, call.rank(0)))]])
