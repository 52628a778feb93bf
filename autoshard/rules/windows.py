"""Pooling: reductions over sliding windows, and the primitives of their gradients."""

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call, Label
from autoshard.rules.registry import rule


def _slides(call: Call) -> list[int]:
    """Dimensions along which the window has a size, stride or dilation other than 1, or padding."""
    rank = len(call.param("window_dimensions"))
    ones = (1,) * rank
    columns = zip(
        call.param("window_dimensions"),
        call.param("window_strides"),
        call.params.get("base_dilation") or ones,
        call.params.get("window_dilation") or ones,
        call.param("padding"),
        strict=True,
    )
    return [d for d, (*numbers, padding) in enumerate(columns) if numbers != [1] * 4 or tuple(padding) != (0, 0)]


def _windowed(call: Call, shapes: str, linear: tuple[tuple[int, ...], ...] = ()) -> ShardingRule:
    """A rule with windowed dimensions whole.

    shapes: a letter for each operand, then each result: ``x`` the shape before pooling, ``y`` after it, ``.`` a scalar.
    """
    slides = set(_slides(call))
    rank = len(call.param("window_dimensions"))
    labels: dict[str, list[Label]] = {
        "x": list(range(rank)),
        "y": [("window", d) if d in slides else d for d in range(rank)],
        ".": [],
    }
    operands, results = shapes.split(">")
    whole = [label for d in slides for label in (labels["x"][d], labels["y"][d])]
    return call.build(
        [labels[c] for c in operands], [labels[c] for c in results], need_replication=whole, linear=linear
    )


@rule("reduce_window_sum")
def reduce_window_sum(call: Call) -> ShardingRule:
    """Windowed dimensions must be whole; linear."""
    return _windowed(call, "x>y", ((0,),))


@rule("reduce_window_max", "reduce_window_min")
def reduce_window_extremum(call: Call) -> ShardingRule:
    """Windowed dimensions must be whole."""
    return _windowed(call, "x>y")


@rule("reduce_window")
def reduce_window(call: Call) -> ShardingRule:
    """Any reducer; operands are n arrays, then n scalar initial values."""
    n = len(call.results)
    return _windowed(call, "x" * n + "." * (len(call.operands) - n) + ">" + "y" * n)


@rule("select_and_scatter_add")
def select_and_scatter_add(call: Call) -> ShardingRule:
    """Gradient of max pooling: source (pooled shape) and operand give the operand's shape; linear in the source."""
    return _windowed(call, "yx>x", ((0,),))


@rule("select_and_gather_add")
def select_and_gather_add(call: Call) -> ShardingRule:
    """Tangent of max pooling: tangents and operand give the pooled shape; linear in the tangents."""
    return _windowed(call, "xx>y", ((0,),))


@rule("select_and_scatter")
def select_and_scatter(call: Call) -> ShardingRule:
    """As `select_and_scatter_add` with any combiner: operand, source, scalar initial value."""
    return _windowed(call, "xy.>x")
