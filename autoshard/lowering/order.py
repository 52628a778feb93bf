"""One collective after the other, on platforms that do not order them themselves.

XLA for CPU starts whatever has its operands: collectives that do not depend on each other are in flight together. JAX
gives all of them one channel, so that two of a kind and group are taken for one another, and each blocks a thread of a
pool that has one for each device, so that programs stop for ever. Here every collective is made to depend on the one
before, in the order of the program; most do already. Control dependencies and optimization barriers do not reach the
thunks that run: what does is a value. An operand that has to wait is chosen by a bit that is computed from
an element of the last result, never set, and not known to be so by the compiler: it keeps every bit of itself.

A loop or branch with collectives counts as one. Inside of it the first waits for those of the iteration before, by
the carries or by a bit that is carried along.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from autoshard.frontends.jax.facts import open_jaxpr, scan_counts

COLLECTIVES = frozenset(
    {
        "psum", "psum2", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant", "all_gather_reduced",
        "reduce_scatter", "all_to_all", "ragged_all_to_all", "ppermute", "pbroadcast", "psend", "precv",
        "unreduced_psum", "unreduced_reduce_scatter",
    }
)  # fmt: skip

_INDEXED = {"dynamic_slice": 1, "gather": 1}
"""Ops whose result may not depend on operands from this one on: slices of everything start at 0 whatever they say."""


def in_order(function: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Any, ...]]:
    """The same function of arrays, for use inside of a `shard_map`, whose collectives wait for each other."""

    def ordered(*args: Any) -> tuple[Any, ...]:
        closed = jax.make_jaxpr(lambda *xs: tuple(function(*xs)))(*args)
        flow = Flow()
        waits = flow.waits(open_jaxpr(closed)[0], (False,) * len(args), before=False)
        return tuple(_run(closed, waits, args, None)[0])

    return ordered


# -- what depends on what ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waits:
    """What must be made to wait in one jaxpr, for all else waits already.

    operands: (equation, operand) of collectives that wait for the collective before.
    regions: of the equations that are loops or branches with collectives.
    ran: whether there is a collective in it. first: whether its first one waits for what was before the jaxpr.
    fresh: for each result, whether it depends on the last collective; where none ran, on what was before.
    """

    operands: frozenset[tuple[int, int]]
    regions: dict[int, "Region"]
    ran: bool
    first: bool
    fresh: tuple[bool, ...]


@dataclass(frozen=True)
class Region:
    """A loop or branch with collectives.

    bodies: of a scan its body, of a while its condition and body, of a cond its branches.
    bit: whether it carries a bit along, for lack of a value that says the same. first: as for `Waits`.
    fresh: for each result, whether it depends on the last collective inside.
    """

    bodies: tuple[Waits, ...]
    bit: bool
    first: bool
    fresh: tuple[bool, ...]


@dataclass
class Flow:
    """Follows through jaxprs what depends on the last collective; remembers what it has seen.

    It errs towards waiting once more: where a compiler could see that a value does not matter, it is not counted on.
    """

    _waits: dict[Any, Waits] = field(default_factory=dict)
    _holds: dict[int, bool] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)  # keeps jaxprs alive, whose ids are keys

    def waits(self, jaxpr: Any, fresh: Sequence[bool], *, before: bool) -> Waits:
        """fresh: for each argument, whether it depends on the last collective. before: whether there was one."""
        key = (id(jaxpr), tuple(fresh), before)
        if key not in self._waits:
            self._kept.append(jaxpr)
            self._waits[key] = self._follow(jaxpr, fresh, before)
        return self._waits[key]

    def _follow(self, jaxpr: Any, arguments: Sequence[bool], before: bool) -> Waits:
        fresh = {v for v, known in zip(jaxpr.invars, arguments, strict=True) if known and _size(v)}
        operands: set[tuple[int, int]] = set()
        regions: dict[int, Region] = {}
        ran = first = False
        for at, eqn in enumerate(jaxpr.eqns):
            known = [not isinstance(v, jax_core.Literal) and v in fresh for v in eqn.invars]
            if is_collective(eqn):
                for slots, results in _one_by_one(eqn):
                    if (before or ran) and not any(eqn.invars[k] in fresh for k in slots if _is_variable(eqn, k)):
                        operands.add((at, slots[0]))
                        first = first or not ran
                    ran, fresh = True, {eqn.outvars[k] for k in results}
            elif self.holds_collectives(eqn):
                regions[at] = region = self._region(eqn, known, before or ran)
                first = first or (region.first and not ran)
                ran, fresh = True, {v for v, depends in zip(eqn.outvars, region.fresh, strict=True) if depends}
            else:
                depends = self._results(eqn, known)
                fresh.update(v for v, d in zip(eqn.outvars, depends, strict=True) if d and _size(v))
        out = tuple(not isinstance(v, jax_core.Literal) and v in fresh for v in jaxpr.outvars)
        return Waits(frozenset(operands), regions, ran, first, out)

    def holds_collectives(self, eqn: Any) -> bool:
        return any(self._has_collectives(jaxpr) for jaxpr in _jaxprs(eqn))

    def _has_collectives(self, jaxpr: Any) -> bool:
        if id(jaxpr) not in self._holds:
            self._kept.append(jaxpr)
            found = any(is_collective(e) or self.holds_collectives(e) for e in jaxpr.eqns)
            self._holds[id(jaxpr)] = found
        return self._holds[id(jaxpr)]

    def _region(self, eqn: Any, known: Sequence[bool], before: bool) -> Region:
        kind, params = eqn.primitive.name, eqn.params
        if kind == "cond":
            return self._branches([open_jaxpr(b)[0] for b in params["branches"]], known[1:], before)
        if kind == "scan":
            n, k = scan_counts(params, len(eqn.invars))
            stacked = (False,) * (len(eqn.invars) - n - k)
            body, _ = self._body(open_jaxpr(params["jaxpr"])[0], (False,) * n, known[n : n + k], stacked, before)
            some = params["length"] > 0  # else a compiler sees that nothing happens
            fresh = body.fresh if some else (False,) * len(body.fresh)
            return Region((body,), body.first or not any(fresh), (body.first or not some) and before, fresh)
        if kind == "while":
            n, b = params["cond_nconsts"], params["body_nconsts"]
            test_consts, consts = (False,) * n, (False,) * b
            body, held = self._body(open_jaxpr(params["body_jaxpr"])[0], consts, known[n + b :], (), before)
            test = self.waits(open_jaxpr(params["cond_jaxpr"])[0], (*test_consts, *held), before=True)
            # What the condition communicates last is in none of the carries: the loop as a whole is, by the bit.
            fresh = (False,) * len(body.fresh) if test.ran or not body.ran else body.fresh
            first = test.first or body.first
            return Region((test, body), first or not any(fresh), first and before, fresh)
        # Some other call with collectives inside: taken as one that waits with all it is given.
        return Region((), False, before and not all(known), (True,) * len(eqn.outvars))

    def _body(
        self, jaxpr: Any, consts: Sequence[bool], carries: Sequence[bool], stacked: Sequence[bool], before: bool
    ) -> tuple[Waits, list[bool]]:
        """The body of a loop, and the carries that depend on the collectives before, in every iteration."""
        held = [known or not before for known in carries]
        while True:
            body = self.waits(jaxpr, (*consts, *held, *stacked), before=True)
            still = [h and depends for h, depends in zip(held, body.fresh, strict=False)]
            if still == held:
                return body, held
            held = still

    def _branches(self, jaxprs: Sequence[Any], known: Sequence[bool], before: bool) -> Region:
        bodies = tuple(self.waits(jaxpr, known, before=before) for jaxpr in jaxprs)
        fresh = tuple(all(b.fresh[k] or not (b.ran or before) for b in bodies) for k in range(len(bodies[0].fresh)))
        bit = any(b.first for b in bodies) or not any(fresh)
        return Region(bodies, bit, bit and before, fresh)

    def _results(self, eqn: Any, known: Sequence[bool]) -> Sequence[bool]:
        """Which results of an equation without collectives depend on one of the operands that do."""
        none = [False] * len(eqn.outvars)
        if not any(known):
            return none
        kind, params = eqn.primitive.name, eqn.params
        if kind == "cond":
            return self._branches([open_jaxpr(b)[0] for b in params["branches"]], known[1:], True).fresh
        if kind == "scan":
            n, k = scan_counts(params, len(eqn.invars))
            return self._repeated(
                open_jaxpr(params["jaxpr"])[0], known[:n], known[n : n + k], known[n + k :], params["length"]
            )
        if kind == "while":
            n, b = params["cond_nconsts"], params["body_nconsts"]
            return self._repeated(open_jaxpr(params["body_jaxpr"])[0], known[n : n + b], known[n + b :], (), None)
        if kind == "optimization_barrier":
            return known
        inner = list(_jaxprs(eqn))
        if len(inner) == 1 and len(inner[0].invars) == len(known) and len(inner[0].outvars) == len(none):
            if kind in _CALLS:
                return self.waits(inner[0], known, before=True).fresh
        if len(none) > 1:  # results may depend on some of the operands only
            return [all(known)] * len(none)
        if kind == "dynamic_update_slice":  # an update of everything leaves nothing of what was there
            return [known[1] or (known[0] and eqn.invars[0].aval.shape != eqn.invars[1].aval.shape)]
        return [any(known[: _INDEXED.get(kind)])]

    def _repeated(
        self, jaxpr: Any, consts: Sequence[bool], carries: Sequence[bool], stacked: Sequence[bool], times: int | None
    ) -> list[bool]:
        """Results of a loop that depend on what is known to after any number of iterations."""
        k, state = len(carries), list(carries)
        if times == 0:
            return [*state, *[False] * (len(jaxpr.outvars) - k)]
        seen: list[list[bool]] = []
        always = [True] * len(jaxpr.outvars)
        while state not in seen:
            seen.append(state)
            out = self.waits(jaxpr, (*consts, *state, *stacked), before=True).fresh
            always = [a and o for a, o in zip(always, out, strict=True)]
            state = list(out[:k])
        return always


_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call"})


def is_collective(eqn: Any) -> bool:
    """Whether an equation communicates; empty arrays do not."""
    return eqn.primitive.name in COLLECTIVES and any(_size(v) for v in eqn.invars)


def _one_by_one(eqn: Any) -> list[tuple[list[int], list[int]]]:
    """(operands, results) of each collective of an equation: a sum of several arrays is several."""
    if len(eqn.invars) == len(eqn.outvars):
        return [([k], [k]) for k, v in enumerate(eqn.invars) if _size(v)]
    return [(list(range(len(eqn.invars))), list(range(len(eqn.outvars))))]


def _is_variable(eqn: Any, slot: int) -> bool:
    return not isinstance(eqn.invars[slot], jax_core.Literal)


def _size(v: Any) -> int:
    return int(np.prod(getattr(v.aval, "shape", ())))


def _jaxprs(eqn: Any) -> list[Any]:
    found = []
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(item, "jaxpr", item)
            if isinstance(inner, jax_core.Jaxpr):
                found.append(inner)
    return found


# -- running it so -------------------------------------------------------------------------------------------


class _Chain:
    """The last collective, as a value: a result of it, or a bit made from one."""

    def __init__(self, bit: Any) -> None:
        self._bit, self._source = bit, None

    def after(self, result: Any) -> None:
        self._bit, self._source = None, result

    def after_bit(self, bit: Any) -> None:
        self._bit, self._source = bit, None

    def bit(self) -> Any:
        """False, and not known to be before the last collective has ended."""
        if self._bit is None:
            self._bit = _unset(self._source)
        return self._bit


def _unset(x: Any) -> Any:
    """False, computed from the first element of an array: no integer with its last bit set is zero."""
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
    """The same array, bit by bit."""
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended):
        return jax.random.wrap_key_data(_wait(jax.random.key_data(x), bit), impl=jax.random.key_impl(x))
    other = lax.convert_element_type(bit, x.dtype)  # no constant: of two equal ones a compiler takes either
    return lax.select(lax.broadcast(bit, x.shape), lax.broadcast(other, x.shape), x)


def _run(closed: Any, waits: Waits, args: Sequence[Any], bit: Any) -> tuple[list[Any], _Chain]:
    """Results of a jaxpr, and its last collective. bit: says that what was before has ended; None if nothing was."""
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
    parts = _one_by_one(eqn)
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
        if region.bit and not body.ran:  # a carry that does not change would be taken out of the loop
            chain.after(before)
        return (*_bit(region, chain), *out)

    return list(lax.while_loop(again, step, (bit, *init) if region.bit else tuple(init)))


def _cond(eqn: Any, operands: list[Any], region: Region, bit: Any) -> list[Any]:
    index, *rest = operands

    def branch(closed: Any, waits: Waits) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            before, given = (args[0], args[1:]) if region.bit else (None, args)
            out, chain = _run(closed, waits, given, before)
            return (*_bit(region, chain), *out)

        return run

    branches = [branch(c, w) for c, w in zip(eqn.params["branches"], region.bodies, strict=True)]
    return list(lax.switch(index, branches, *((bit, *rest) if region.bit else rest)))


def _bit(region: Region, chain: _Chain) -> tuple[Any, ...]:
    return (chain.bit(),) if region.bit else ()
