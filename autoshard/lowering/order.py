"""One collective after the other, on platforms that do not order them themselves.

XLA for CPU starts an op as soon as its operands are ready, so collectives that do not depend on each other are in
flight together. JAX gives all of them one channel, so two collectives of the same kind and group may be taken for one
another. Each also blocks a thread of a pool with one thread per device, so a program may never end. Here every
collective is made to depend on the one before, in the order of the program; most do already.

Control dependencies and optimization barriers do not reach the thunks that run; values do. An operand that has to wait
is passed through a select whose condition is a bit. The bit is computed from an element of the last result; it is never
set, which the compiler cannot know. So the operand keeps every bit of itself.

A loop or branch with collectives counts as one collective. Its first one waits for those of the iteration before, by
the carries or by a bit that is carried along.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from autoshard.frontends.jax.facts import open_jaxpr, scan_counts
from autoshard.lowering.flow import Flow, Region, Waits, is_collective, one_by_one


def in_order(function: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Any, ...]]:
    """The same function of arrays, for use inside of a `shard_map`; its collectives wait for each other."""

    def ordered(*args: Any) -> tuple[Any, ...]:
        closed = jax.make_jaxpr(lambda *xs: tuple(function(*xs)))(*args)
        flow = Flow()
        waits = flow.waits(open_jaxpr(closed)[0], (False,) * len(args), before=False)
        return tuple(_run(closed, waits, args, None)[0])

    return ordered


# -- what depends on what ------------------------------------------------------------------------------------


class _Chain:
    """The last collective, represented by one of its results or by a bit made from one."""

    def __init__(self, bit: Any) -> None:
        self._bit, self._source = bit, None

    def after(self, result: Any) -> None:
        self._bit, self._source = None, result

    def after_bit(self, bit: Any) -> None:
        self._bit, self._source = bit, None

    def bit(self) -> Any:
        """A bit that is False; the compiler cannot know its value before the last collective has ended."""
        if self._bit is None:
            self._bit = _unset(self._source)
        return self._bit


def _unset(x: Any) -> Any:
    """False, computed from the first element of an array: an integer with its last bit set is never zero."""
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended):
        x = jax.random.key_data(x)
    element = lax.squeeze(lax.slice(x, (0,) * x.ndim, (1,) * x.ndim), range(x.ndim))
    if jax.numpy.issubdtype(x.dtype, np.complexfloating):
        element = lax.real(element)
    if jax.numpy.issubdtype(x.dtype, np.inexact):
        element = lax.bitcast_convert_type(lax.convert_element_type(element, np.float32), np.int32)
    else:
        element = lax.convert_element_type(element, np.int32)
    return lax.eq(lax.bitwise_or(element, np.int32(1)), np.int32(0))


def _wait(x: Any, bit: Any) -> Any:
    """The same array, available only once `bit` is."""
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended):
        return jax.random.wrap_key_data(_wait(jax.random.key_data(x), bit), impl=jax.random.key_impl(x))
    other = lax.convert_element_type(bit, x.dtype)  # not x itself: a compiler drops a select of two equal operands
    return lax.select(lax.broadcast(bit, x.shape), lax.broadcast(other, x.shape), x)


def _run(closed: Any, waits: Waits, args: Sequence[Any], bit: Any) -> tuple[list[Any], _Chain]:
    """Results of a jaxpr, and its last collective.

    bit: available once the last collective before the jaxpr has ended; None where there was none.
    """
    (jaxpr, consts), chain = open_jaxpr(closed), _Chain(bit)
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(v: Any) -> Any:
        return v.val if isinstance(v, jax_core.Literal) else env[v]

    for at, eqn in enumerate(jaxpr.eqns):
        operands = [read(v) for v in eqn.invars]
        if is_collective(eqn):
            out = _collective(eqn, operands, [k for e, k in waits.operands if e == at], chain)
        elif at in waits.regions:
            out = _region(eqn, operands, waits.regions[at], chain)
        else:
            out = _bind(eqn, operands)
        env.update(zip(eqn.outvars, out, strict=True))
    return [read(v) for v in jaxpr.outvars], chain


def _bind(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = ((), bound) if isinstance(bound, dict) else bound  # older JAX: (functions, params)
    out = eqn.primitive.bind(*functions, *operands, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _collective(eqn: Any, operands: list[Any], waiting: Sequence[int], chain: _Chain) -> list[Any]:
    parts = one_by_one(eqn)
    if len(parts) == 1:
        for k in waiting:
            operands[k] = _wait(operands[k], chain.bit())
        out = _bind(eqn, operands)
        chain.after(out[parts[0][1][0]])
        return out
    out = list(operands)
    for (k,), _ in parts:
        operand = _wait(operands[k], chain.bit()) if k in waiting else operands[k]
        (out[k],) = _bind(eqn, [operand])
        chain.after(out[k])
    return out


def _region(eqn: Any, operands: list[Any], region: Region, chain: _Chain) -> list[Any]:
    bit = chain.bit() if region.first else np.zeros((), bool)
    run = {"scan": _scan, "while": _while, "cond": _cond}.get(eqn.primitive.name)
    if run is None:
        out = _bind(eqn, [_wait(x, bit) for x in operands] if region.first else operands)
    else:
        out = run(eqn, operands, region, bit)
    if region.bit:
        chain.after_bit(out.pop(0))
    else:
        chain.after(out[region.fresh.index(True)])
    return out


def _scan(eqn: Any, operands: list[Any], region: Region, bit: Any) -> list[Any]:
    p = eqn.params
    n, k = scan_counts(p, len(eqn.invars))
    consts, init, xs = operands[:n], operands[n : n + k], operands[n + k :]

    def body(carry: Any, x: Any) -> Any:
        before, carried = (carry[0], carry[1:]) if region.bit else (None, carry)
        out, chain = _run(p["jaxpr"], region.bodies[0], [*consts, *carried, *x], before)
        return (*_bit(region, chain), *out[:k]), tuple(out[k:])

    start = (bit, *init) if region.bit else tuple(init)
    carry, ys = lax.scan(body, start, tuple(xs), length=p["length"], reverse=p["reverse"], unroll=p["unroll"])
    return [*carry, *ys]


def _while(eqn: Any, operands: list[Any], region: Region, bit: Any) -> list[Any]:
    p = eqn.params
    n, b = p["cond_nconsts"], p["body_nconsts"]
    for_test, for_body, init = operands[:n], operands[n : n + b], operands[n + b :]
    test, body = region.bodies

    def parts(carry: Any) -> tuple[Any, Any]:
        return (carry[0], carry[1:]) if region.bit else (None, carry)

    def again(carry: Any) -> Any:
        before, carried = parts(carry)
        return _run(p["cond_jaxpr"], test, [*for_test, *carried], before)[0][0]

    def step(carry: Any) -> Any:
        before, carried = parts(carry)
        out, chain = _run(p["body_jaxpr"], body, [*for_body, *carried], before)
        if region.bit and not body.ran:  # a compiler would move a carry that does not change out of the loop
            chain.after(before)
        return (*_bit(region, chain), *out)

    return list(lax.while_loop(again, step, (bit, *init) if region.bit else tuple(init)))


def _cond(eqn: Any, operands: list[Any], region: Region, bit: Any) -> list[Any]:
    index, *rest = operands

    def branch(closed: Any, waits: Waits) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            before, inputs = (args[0], args[1:]) if region.bit else (None, args)
            out, chain = _run(closed, waits, inputs, before)
            return (*_bit(region, chain), *out)

        return run

    branches = [branch(c, w) for c, w in zip(eqn.params["branches"], region.bodies, strict=True)]
    return list(lax.switch(index, branches, *((bit, *rest) if region.bit else rest)))


def _bit(region: Region, chain: _Chain) -> tuple[Any, ...]:
    return (chain.bit(),) if region.bit else ()
