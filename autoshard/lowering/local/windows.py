"""Sliding windows: a dimension may be cut where the window covers one element at a time."""

from collections.abc import Sequence
from typing import Any

from autoshard.lowering.local.context import LocalOp, local

_NEUTRAL_PARAMETERS: dict[str, Any] = {
    "window_dimensions": 1,
    "window_strides": 1,
    "padding": (0, 0),
    "base_dilation": 1,
    "window_dilation": 1,
}


@local(
    "reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min",
    "select_and_gather_add", "select_and_scatter_add", "select_and_scatter",
)  # fmt: skip
def windowed(ctx: LocalOp, *operands: Any) -> Sequence[Any]:
    """The primitive unchanged; along a cut dimension its window must cover one element at a time."""
    for k, layout in enumerate(ctx.operand_layouts):
        for d in range(len(layout.dims)):
            if not ctx.operand_atoms(k, d):
                continue
            for name, neutral in _NEUTRAL_PARAMETERS.items():
                value = ctx.params.get(name)
                if value is not None and d < len(value) and _plain(value[d]) != neutral:
                    ctx.unsupported(f"dimension {d} is cut and has {name} {value[d]}")
    return ctx.bind(operands)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value
