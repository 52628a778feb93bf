"""Convolutions: batch, features and groups are factors; spatial dimensions mostly must be whole."""

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Compound, Label, read
from autoshard.rules.registry import rule


@rule(
    "conv_general_dilated",
    local_care="feature_group_count (batch_group_count) is divided by the number of shards of the group factor",
)
def conv_general_dilated(call: Call) -> ShardingRule:
    """``NCHW, OIHW -> NCHW`` is ``([b, i, y, x], [o, i, u, v])->([b, o, p, q])``, reduction i, all but b, i, o whole.

    - Feature groups are the major factor of the input's and the output's features; with batch groups
      (gradients of grouped convolutions) they are the major factor of the input's batch.
    - A spatial dimension is a parallel factor where the window is 1 and nothing strides, pads or
      dilates (1x1 convolutions), and a reduction factor where the window is the whole input and the
      output 1 (their weight gradients). Else input, window and output must be whole, but where the output has
      the size of the input and nothing strides, neighbours can exchange halos.
    """
    lhs, rhs = call.operands
    out = call.results[0]
    numbers = call.param("dimension_numbers")
    lhs_spec, rhs_spec, out_spec = (tuple(read(numbers, name)) for name in ("lhs_spec", "rhs_spec", "out_spec"))
    feature_groups, batch_groups = call.param("feature_group_count"), call.param("batch_group_count")

    left: list[Label | Compound] = [None] * lhs.rank
    kernel: list[Label | Compound] = [None] * rhs.rank
    result: list[Label | Compound] = [None] * out.rank
    groups = feature_groups * batch_groups  # XLA allows only one of the two to exceed 1
    out_features = Compound((("group", groups), ("out", rhs.shape[rhs_spec[0]] // groups)))
    left[lhs_spec[0]] = Compound((("group", batch_groups), ("batch", lhs.shape[lhs_spec[0]] // batch_groups)))
    left[lhs_spec[1]] = Compound((("group", feature_groups), ("in", rhs.shape[rhs_spec[1]])))
    kernel[rhs_spec[0]] = result[out_spec[1]] = out_features
    kernel[rhs_spec[1]] = "in"
    result[out_spec[0]] = "batch"

    reduction: list[Label] = ["in"]
    halos: list[tuple[int, int, Label, int, int]] = []
    whole: list[Label] = []
    windows = zip(
        call.param("window_strides"), call.param("padding"), call.param("lhs_dilation"), call.param("rhs_dilation"),
        strict=True,
    )  # fmt: skip
    for s, (stride, padding, lhs_dilation, rhs_dilation) in enumerate(windows):
        i, k, o = lhs_spec[s + 2], rhs_spec[s + 2], out_spec[s + 2]
        size, window, out_size = lhs.shape[i], rhs.shape[k], out.shape[o]
        plain = tuple(padding) == (0, 0) and lhs_dilation == 1
        if plain and stride == 1 and window == 1:
            left[i] = result[o] = ("space", s)
            kernel[k] = ("window", s)
        elif plain and rhs_dilation == 1 and size == window and out_size == 1:
            left[i] = kernel[k] = ("space", s)
            result[o] = ("out space", s)
            reduction.append(("space", s))
        else:
            left[i], kernel[k] = ("space", s), ("window", s)
            result[o] = ("space", s) if size == out_size else ("out space", s)
            whole += [left[i], kernel[k], result[o]]
            if size == out_size and stride == lhs_dilation == 1 and min(padding) >= 0:
                halos.append((0, i, ("space", s), *padding))
    return call.build(
        [left, kernel], [result], reduction=reduction, need_replication=whole, linear=((0,), (1,)), halos=halos
    )
