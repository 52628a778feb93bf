"""Running softmax: totals that are rescaled whenever a running maximum grows, as in attention over blocks of keys.

    m' = max(m, max_k s_ik)                  the peak
    l' = l * exp(m - m') + sum_k exp(s_ik - m')
    o' = o * exp(m - m') + sum_k exp(s_ik - m') v_k

`l * exp(m)` and `o * exp(m)` are plain sums over the iterations. So each part of the loop may keep totals of its own,
relative to a peak of its own. The totals of the whole loop are then those of the parts, each times `exp(m_part - m)`,
added up.

This holds only for what is recognised here: weights are `exp` (or `exp2`) of something minus the *new* peak, and are
used linearly (products and contractions with values that do not depend on the loop's carries, sums, masks with zero,
transposes); the old total is multiplied by `exp` of the old peak minus the new one, and weights are added.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp


@dataclass(frozen=True, slots=True)
class Value:
    """How a value in the body of a loop depends on the loop.

    what: ``fixed`` (the same in all iterations), ``free`` (of this iteration alone), ``carry`` (a carry as it comes
    in), ``total`` (a carry after something was added to it), ``read`` (depends on a carry in another way); and for a
    running softmax ``old`` and ``peak`` (the maximum before and after, in another shape), ``below`` (something minus
    the peak), ``drop`` (the old peak minus the new one), ``weight`` and ``decay`` (their exponentials), ``decayed`` (a
    carry times the decay) and ``rescaled`` (weights added to that).
    slot: number of the carry. combiner: how a total grows. literal: a number that is written in the code. step: the
    number that a total has grown by, where it is a literal. peak: number of the carry that is the maximum. token: tells
    which of its next values, where a body computes several. dims: where the peak's dimensions larger than 1 lie in this
    value. base: ``exp`` or ``exp2``.
    """

    what: str
    slot: int = -1
    combiner: str = ""
    literal: int | float | complex | bool | None = None
    step: int | None = None
    peak: int = -1
    token: int = -1
    dims: tuple[int, ...] = ()
    base: str = ""

    def same_peak(self, other: "Value") -> bool:
        """Whether two values are relative to the same peak, whose dimensions lie alike in both."""
        return (self.peak, self.token, self.dims, self.base) == (other.peak, other.token, other.dims, other.base)


FREE = ("fixed", "free")
_OF_A_PEAK = ("old", "peak", "below", "drop", "weight", "decay", "decayed", "rescaled")


def wide_dims(aval: Any) -> tuple[int, ...]:
    """The dimensions larger than 1."""
    return tuple(d for d, n in enumerate(aval.shape) if n > 1)


def step_of_softmax(kind: str, eqn: Any, ins: Sequence[Value]) -> Value | None:
    """What an op makes of parts of a running softmax; None where it is no step of one."""
    if not any(v.what in _OF_A_PEAK or _is_peak(v) or v.what == "carry" for v in ins):
        return None
    if kind == "sub":
        return _less(eqn, ins)
    if kind in ("exp", "exp2") and ins[0].what in ("below", "drop"):
        return replace(ins[0], what="weight" if ins[0].what == "below" else "decay", base=kind)
    if kind in ("mul", "div", "add", "add_any"):
        return _arithmetic(kind, eqn, ins)
    if kind == "select_n":
        return _masked(ins)
    if kind == "dot_general":
        return _contracted(eqn, ins)
    if len(ins) != 1:
        return None
    return _reshaped(kind, eqn, ins[0])


def _is_peak(value: Value) -> bool:
    return value.what == "total" and value.combiner == "max"


def _as_peak(value: Value, aval: Any) -> Value | None:
    """A value as the new peak; None where it is something else."""
    if _is_peak(value):
        return Value("peak", peak=value.slot, token=value.token, dims=wide_dims(aval))
    return value if value.what == "peak" else None


def _as_old(value: Value, aval: Any) -> Value | None:
    """A value as the peak before the iteration; None where it is something else."""
    if value.what == "carry":
        return Value("old", peak=value.slot, dims=wide_dims(aval))
    return value if value.what == "old" else None


def _less(eqn: Any, ins: Sequence[Value]) -> Value | None:
    """Something minus the peak, or the old peak minus the new; operands have the rank of the result, and sizes of 1 are
    repeated."""
    rank = len(eqn.outvars[0].aval.shape)
    peak = _as_peak(ins[1], eqn.invars[1].aval)
    if peak is None or any(len(a.aval.shape) != rank for a in eqn.invars):
        return None
    if ins[0].what in FREE:
        return replace(peak, what="below")
    old = _as_old(ins[0], eqn.invars[0].aval)
    if old is None or (old.peak, old.dims) != (peak.peak, peak.dims):
        return None
    return replace(peak, what="drop")


def _arithmetic(kind: str, eqn: Any, ins: Sequence[Value]) -> Value | None:
    """Products with what is free, decay of a carry, sums of weights."""
    out = eqn.outvars[0].aval.shape
    shapes = [a.aval.shape for a in eqn.invars]
    for first, second, at in ((ins[0], ins[1], 0), (ins[1], ins[0], 1)):
        if len(shapes[at]) != len(out) or (kind == "div" and at):
            continue
        if kind in ("mul", "div") and first.what == "weight" and second.what in FREE:
            return first
        if shapes[at] != out or len(shapes[1 - at]) != len(out):
            continue
        if kind == "mul" and first.what == "carry" and second.what == "decay":
            return replace(second, what="decayed", slot=first.slot)
        if shapes[1 - at] != out:
            continue
        if kind in ("add", "add_any") and second.what == "weight" and first.what in ("weight", "decayed", "rescaled"):
            if not first.same_peak(second):
                return None
            return first if first.what == "weight" else replace(first, what="rescaled")
    return None


def _masked(ins: Sequence[Value]) -> Value | None:
    """A choice between weights and zeros."""
    weights = [v for v in ins[1:] if v.what == "weight"]
    zeros = [v for v in ins[1:] if v.what == "fixed" and v.literal is not None and v.literal == 0]
    if ins[0].what not in FREE or not weights or len(weights) + len(zeros) < len(ins) - 1:
        return None
    return weights[0] if all(v == weights[0] for v in weights) else None


def _contracted(eqn: Any, ins: Sequence[Value]) -> Value | None:
    """A contraction of weights with what is free, over dimensions along which the peak is the same."""
    at = next((k for k, v in enumerate(ins) if v.what == "weight"), None)
    if at is None or ins[1 - at].what not in FREE:
        return None
    contracting, batch = eqn.params["dimension_numbers"]
    if any(d in contracting[at] for d in ins[at].dims):
        return None
    ranks = [len(a.aval.shape) for a in eqn.invars]
    free = [[d for d in range(ranks[k]) if d not in contracting[k] and d not in batch[k]] for k in (0, 1)]
    skipped = len(batch[0]) + (len(free[0]) if at else 0)
    own = list(batch[at])
    placed = [own.index(d) if d in own else skipped + free[at].index(d) for d in ins[at].dims]
    return replace(ins[at], dims=tuple(placed))


def _reshaped(kind: str, eqn: Any, value: Value) -> Value | None:
    """Weights in another shape or type, or summed; peaks in another shape only."""
    aval = eqn.invars[0].aval
    value = _as_old(value, aval) or _as_peak(value, aval) or value
    if value.what not in ("old", "peak", "below", "drop", "weight", "decay"):
        return None
    if kind == "convert_element_type":
        float_ = jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating)
        return value if value.what in ("weight", "decay") and float_ else None
    if kind in ("neg", "reduce_sum") and value.what != "weight":
        return None
    placed = _PLACED[kind](eqn, value.dims) if kind in _PLACED else None
    return None if placed is None else replace(value, dims=tuple(placed))


Dims = Sequence[int]


def _summed(eqn: Any, dims: Dims) -> Dims | None:
    axes = eqn.params["axes"]
    return None if any(d in axes for d in dims) else [d - sum(a < d for a in axes) for d in dims]


def _same_elements(eqn: Any, dims: Dims) -> Dims | None:
    """A shape with other dimensions of size 1."""
    source, target = eqn.invars[0].aval, eqn.outvars[0].aval
    before, after = wide_dims(source), wide_dims(target)
    if [source.shape[d] for d in before] != [target.shape[d] for d in after]:
        return None
    if str(eqn.primitive.name) == "reshape" and eqn.params.get("dimensions") is not None:
        return None
    return [after[before.index(d)] for d in dims]


_PLACED: dict[str, Callable[[Any, Dims], Dims | None]] = {
    "neg": lambda eqn, dims: dims,
    "broadcast_in_dim": lambda eqn, dims: [eqn.params["broadcast_dimensions"][d] for d in dims],
    "transpose": lambda eqn, dims: [list(eqn.params["permutation"]).index(d) for d in dims],
    "reduce_sum": _summed,
    "reshape": _same_elements,
    "squeeze": _same_elements,
    "expand_dims": _same_elements,
}
"""Where dimensions lie after an op."""
