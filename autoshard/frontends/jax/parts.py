"""Loops in parts: a loop whose iterations do not wait for each other, rewritten as parts that run side by side.

    scan of L iterations of f  ->  scan of L/p iterations of p times f, for p parts of consecutive iterations

The p times are one more dimension of every value in the body (`jax.vmap`), and planned as any other: cut along it, each
device runs the iterations of its own part. Totals are kept by part, and combined behind the loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from autoshard.frontends.jax.facts import open_jaxpr, scan_counts
from autoshard.frontends.jax.independent import Slot, slots_of
from autoshard.frontends.jax.kernels import is_kernel

_CLOSED = frozenset({"shard_map"})


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that can run in parts. length: its iterations. parts: how many it runs in."""

    length: int
    parts: int


@dataclass
class Parts:
    """Rewrites the loops of a jaxpr.

    asked: parts of each loop in order of their places in the code; the last for all that follow. Each loop gets the
    largest number of parts that divides both its length and what is asked. kernels: names of jitted functions that are
    kernels. loops: what was found. marks: by the id of the body of a loop in parts, the number of the loop.
    """

    asked: Sequence[int]
    kernels: Sequence[str] = ()
    loops: list[Loop] = field(default_factory=list)
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)  # bodies stay alive, so that their ids are not given away

    def rewritten(self, closed: Any) -> Any:
        """A jaxpr (closed or open) with its loops in parts."""
        jaxpr, _ = open_jaxpr(closed)
        zeros: set[Any] = set()
        eqns = []
        for eqn in jaxpr.eqns:
            if _is_zero(eqn, zeros):
                zeros.update(eqn.outvars)
            eqns.append(self._equation(eqn, zeros))
        if all(new is old for new, old in zip(eqns, jaxpr.eqns, strict=True)):
            return closed
        new = jaxpr.replace(eqns=eqns)
        return closed.replace(jaxpr=new) if isinstance(closed, jax_core.ClosedJaxpr) else new

    def _equation(self, eqn: Any, zeros: set[Any]) -> Any:
        kind = str(eqn.primitive.name)
        if kind in _CLOSED or is_kernel(kind):
            return eqn
        slots = slots_of(eqn, self.kernels) if kind == "scan" and eqn.params["length"] > 1 else None
        if slots is None:
            return self._inside(eqn)
        number, length = len(self.loops), int(eqn.params["length"])
        asked = self.asked[min(number, len(self.asked) - 1)] if self.asked else 1
        parts = gcd(length, asked)
        if parts > 1:
            plain = [not isinstance(v, jax_core.Literal) and v in zeros for v in eqn.invars]
            try:
                new = _in_parts(eqn, slots, parts, plain)
            except NotImplementedError:  # an op that has no form for many iterations at once
                return self._inside(eqn)
            self.loops.append(Loop(length, parts))
            return self._marked(new, length // parts, (number, parts))
        self.loops.append(Loop(length, 1))
        return self._inside(eqn)

    def _marked(self, call: Any, trips: int, mark: tuple[int, int]) -> Any:
        """The call that holds a loop in parts, with loops inside of its body in parts too, and the loop's mark."""
        closed = call.params["jaxpr"]
        jaxpr = closed.jaxpr
        at = [k for k, e in enumerate(jaxpr.eqns) if str(e.primitive.name) == "scan" and e.params["length"] == trips]
        eqns = list(jaxpr.eqns)
        loop = self._inside(eqns[at[-1]])
        eqns[at[-1]] = loop
        self.marks[id(loop.params["jaxpr"])] = mark
        self._kept.append(loop.params["jaxpr"])
        return call.replace(params={**call.params, "jaxpr": closed.replace(jaxpr=jaxpr.replace(eqns=eqns))})

    def _inside(self, eqn: Any) -> Any:
        """The equation with the loops in its parameters in parts."""
        changed = {}
        for name, held in eqn.params.items():
            new = self._held(held)
            if new is not held:
                changed[name] = new
        return eqn.replace(params={**eqn.params, **changed}) if changed else eqn

    def _held(self, held: Any) -> Any:
        if isinstance(held, (jax_core.ClosedJaxpr, jax_core.Jaxpr)):
            return self.rewritten(held)
        if isinstance(held, tuple) and any(isinstance(x, jax_core.ClosedJaxpr) for x in held):
            new = tuple(self._held(x) for x in held)
            return held if all(a is b for a, b in zip(new, held, strict=True)) else new
        return held


def _is_zero(eqn: Any, zeros: set[Any]) -> bool:
    """Whether the result of an equation is all zeros."""
    if str(eqn.primitive.name) not in ("broadcast_in_dim", "convert_element_type"):
        return False
    atom = eqn.invars[0]
    if not isinstance(atom, jax_core.Literal):
        return atom in zeros
    return not np.asarray(atom.val).any()


def _in_parts(eqn: Any, slots: Sequence[Slot], parts: int, zeros: Sequence[bool]) -> Any:
    """A call that computes what the scan computes, its iterations in parts. zeros: operands that are all zeros."""
    params = eqn.params
    consts, carries = scan_counts(params, len(eqn.invars))
    length, backwards = int(params["length"]), bool(params["reverse"])
    trips = length // parts
    body = jax_core.jaxpr_as_fun(params["jaxpr"])
    totals = [j for j, slot in enumerate(slots) if slot.kind == "total"]
    counters = [j for j, slot in enumerate(slots) if slot.kind == "counter"]

    def tiled(x: Any) -> Any:
        return jnp.moveaxis(jnp.reshape(x, (parts, trips, *x.shape[1:])), 1, 0)

    def whole(y: Any) -> Any:
        return jnp.reshape(jnp.moveaxis(y, 0, 1), (length, *y.shape[2:]))

    def loop_in_parts(*operands: Any) -> list[Any]:
        fixed, inits, stacked = operands[:consts], operands[consts : consts + carries], operands[consts + carries :]
        counts = [_counts(inits[j], slots[j].step, length, backwards) for j in counters]

        def once(running: Sequence[Any], items: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            carried = list(inits)
            for j, value in zip((*totals, *counters), (*running, *items[: len(counters)]), strict=True):
                carried[j] = value
            outs = body(*fixed, *carried, *items[len(counters) :])
            return [outs[j] for j in totals], list(outs[carries:])

        start = [_start(inits[j], slots[j].combiner, parts) for j in totals]
        items = [tiled(x) for x in (*counts, *stacked)]
        ended, made = jax.lax.scan(jax.vmap(once), start, items, length=trips, reverse=backwards)
        outs = list(inits)
        for j in counters:
            outs[j] = inits[j] + np.array(slots[j].step * length, inits[j].dtype)
        for j, by_part in zip(totals, ended, strict=True):
            outs[j] = _combined(inits[j], by_part, slots[j].combiner, zeros[consts + j])
        return [*outs, *map(whole, made)]

    specs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    (call,) = jax.make_jaxpr(jax.jit(loop_in_parts))(*specs).jaxpr.eqns
    return eqn.replace(primitive=call.primitive, params=call.params)


def _counts(first: Any, step: int, length: int, backwards: bool) -> Any:
    """A counter's value in each iteration, in order of the stacked operands."""
    at = jax.lax.iota(first.dtype, length)
    if backwards:
        at = np.array(length - 1, first.dtype) - at
    return first + np.array(step, first.dtype) * at


def _start(init: Any, combiner: str, parts: int) -> Any:
    """What the total of each part begins with: nothing for a sum, since its beginning is added once, behind the loop."""
    shape = (parts, *init.shape)
    if combiner == "add":
        return jax.lax.full(shape, 0, init.dtype)
    return jax.lax.broadcast(init, (parts,))


def _combined(init: Any, by_part: Any, combiner: str, starts_at_zero: bool) -> Any:
    if combiner == "add":
        total = jax.lax.reduce(by_part, np.array(0, by_part.dtype), jax.lax.add, (0,))
        return total if starts_at_zero else init + total
    return jnp.max(by_part, axis=0) if combiner == "max" else jnp.min(by_part, axis=0)

