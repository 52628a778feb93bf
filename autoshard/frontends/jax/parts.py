"""Loops in parts: a loop whose iterations do not wait for each other, rewritten as parts that run side by side.

    scan of L iterations of f  ->  scan of L/p iterations of p times f, for p parts of consecutive iterations

The p copies of f are one more dimension of every value in the body (`jax.vmap`), which is planned as any other: where
it is cut, each device runs the iterations of its own parts. Every part keeps totals of its own; they are combined after
the loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from numbers import Integral
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from autoshard.errors import InputError
from autoshard.frontends.jax.facts import open_jaxpr, scan_counts, source_line
from autoshard.frontends.jax.independent import Refused, Slot, slots_of
from autoshard.frontends.jax.kernels import is_kernel
from autoshard.frontends.jax.slices import iotas, known_counts, with_blocks

_CLOSED = frozenset({"shard_map"})
"""Primitives whose bodies stay as they are."""

_REASONS = {
    "cond": "a branch by iteration (cond), and side by side all branches would be computed",
    "while": "a loop whose length is known only when it runs (while)",
}

AUTO = "auto"
"""The option ``loop_parts`` where planning finds the parts."""


def parts_given(asked: Any) -> tuple[int, ...]:
    """The option ``loop_parts``, checked: a number or several; none for None and ``auto``."""
    if asked is None or asked == AUTO:
        return ()
    numbers: tuple[Any, ...] = tuple(asked) if isinstance(asked, list | tuple) else (asked,)
    if not all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) > 0 for n in numbers):
        raise InputError(
            f"loop_parts: expected 'auto', a number of parts from 1, or a list with one for each loop, found {asked!r}"
        )
    return tuple(int(n) for n in numbers)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that can run in parts.

    length: its iterations. parts: how many it runs in. op: the id of its `scan` in the program, None where nobody needs
    its results.
    """

    length: int
    parts: int
    op: int | None = None


@dataclass
class Parts:
    """Rewrites the loops of a jaxpr.

    asked: parts of each loop, in the order in which loops stand in the code; the last number holds for all loops that
    follow. Each loop gets the largest number of parts that divides both its length and the number asked for. kernels:
    names of jitted functions that are kernels. found: the loops so far, each with the jaxpr of its rewritten body.
    otherwise: a sentence on each loop that does not run in as many parts as were asked for.
    """

    asked: Sequence[int]
    kernels: Sequence[str] = ()
    found: list[tuple[Loop, Any]] = field(default_factory=list)
    otherwise: list[str] = field(default_factory=list)

    def loops(self, bodies: Mapping[int, Any]) -> tuple[Loop, ...]:
        """The loops, with their ops. bodies: of every loop in the program, the jaxpr of its body by op id."""
        ops: dict[int, list[int]] = {}
        for op, body in bodies.items():
            ops.setdefault(id(body), []).append(op)  # one jaxpr may be the body of several loops
        return tuple(replace(loop, op=ops[id(body)].pop(0)) if ops.get(id(body)) else loop for loop, body in self.found)

    def notes(self) -> tuple[str, ...]:
        """What is not as it was asked: loops in fewer parts, and numbers for loops that there are not."""
        asked, loops = len(self.asked), len(self.found)
        beyond = () if asked <= max(loops, 1) else (f"{asked} numbers for {loops} such loops: the last are not used",)
        return tuple(dict.fromkeys((*self.otherwise, *beyond)))

    def rewritten(self, closed: Any) -> Any:
        """A jaxpr (closed or open) with its loops in parts."""
        jaxpr, _ = open_jaxpr(closed)
        zeros: set[Any] = set()
        counts: dict[Any, Any] = {}
        eqns = []
        for eqn in jaxpr.eqns:
            if _is_zero(eqn, zeros):
                zeros.update(eqn.outvars)
            counts.update(iotas(eqn))
            eqns.append(self._equation(eqn, zeros, counts))
        if all(new is old for new, old in zip(eqns, jaxpr.eqns, strict=True)):
            return closed
        new = jaxpr.replace(eqns=eqns)
        return closed.replace(jaxpr=new) if isinstance(closed, jax_core.ClosedJaxpr) else new

    def _equation(self, eqn: Any, zeros: set[Any], counts: Mapping[Any, Any]) -> Any:
        kind = str(eqn.primitive.name)
        if kind in _CLOSED or is_kernel(kind):
            return eqn
        slots = self._slots(eqn) if kind == "scan" and eqn.params["length"] > 1 else None
        if slots is None:
            return self._inside(eqn)
        number, length = len(self.found), int(eqn.params["length"])
        asked = self.asked[min(number, len(self.asked) - 1)] if self.asked else 1
        loop = Loop(length, gcd(length, asked))
        if loop.parts != asked:
            self.otherwise.append(
                f"{_told(eqn)} runs in {loop.parts}, not in {asked}: parts divide its length and the number asked for"
            )
        self.found.append((loop, None))  # its number is taken before those of the loops in its body
        if loop.parts > 1:
            plain = [not isinstance(v, jax_core.Literal) and v in zeros for v in eqn.invars]
            try:
                eqn = _in_parts(eqn, slots, loop.parts, plain, _known(eqn, slots, counts))
            except NotImplementedError:  # an op that has no form for many iterations at once
                loop = Loop(length, 1)
                self._stays_whole(eqn, "an op that has no form for many iterations at once")
        new, body = self._with_body(eqn) if loop.parts > 1 else _own_body(self._inside(eqn))
        self.found[number] = loop, body
        return new

    def _slots(self, eqn: Any) -> tuple[Slot, ...] | None:
        try:
            return slots_of(eqn, self.kernels)
        except Refused as refused:
            kind = str(refused)
            self._stays_whole(eqn, _REASONS.get(kind, kind))
            return None

    def _stays_whole(self, eqn: Any, reason: str) -> None:
        self.otherwise.append(f"{_told(eqn)} runs as it stands: its body has {reason}")

    def _with_body(self, call: Any) -> tuple[Any, Any]:
        """The call that holds a loop in parts, with the loops in its body in parts too; and the jaxpr of that body."""
        closed = call.params["jaxpr"]
        eqns = list(closed.jaxpr.eqns)
        (at,) = (k for k, eqn in enumerate(eqns) if str(eqn.primitive.name) == "scan")
        eqns[at] = self._inside(eqns[at])
        held = closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))
        return call.replace(params={**call.params, "jaxpr": held}), eqns[at].params["jaxpr"]

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


def _told(eqn: Any) -> str:
    return f"the loop of {eqn.params['length']} iterations at {source_line(eqn) or 'an unknown line'}"


def _own_body(eqn: Any) -> tuple[Any, Any]:
    return eqn, eqn.params["jaxpr"]


def _is_zero(eqn: Any, zeros: set[Any]) -> bool:
    """Whether the result of an equation is all zeros."""
    if str(eqn.primitive.name) not in ("broadcast_in_dim", "convert_element_type"):
        return False
    atom = eqn.invars[0]
    if not isinstance(atom, jax_core.Literal):
        return atom in zeros
    return not np.asarray(atom.val).any()


def _known(eqn: Any, slots: Sequence[Slot], counts: Mapping[Any, Any]) -> dict[int, Any]:
    """Operands of a body whose values in all iterations are known: counters, and what counts iterations."""
    consts, carries = scan_counts(eqn.params, len(eqn.invars))
    length, backwards = int(eqn.params["length"]), bool(eqn.params["reverse"])
    out = {
        consts + j: known_counts(eqn.invars[consts + j], slot.step, length, backwards)
        for j, slot in enumerate(slots)
        if slot.kind == "counter"
    }
    for k, atom in enumerate(eqn.invars[consts + carries :], consts + carries):
        out[k] = None if isinstance(atom, jax_core.Literal) else counts.get(atom)
    return {k: values for k, values in out.items() if values is not None}


def _in_parts(eqn: Any, slots: Sequence[Slot], parts: int, zeros: Sequence[bool], known: Mapping[int, Any]) -> Any:
    """A call that computes what the scan computes, its iterations in parts.

    zeros: for each operand whether it is all zeros. known: of some operands of the body, the values in all iterations.
    """
    params = eqn.params
    consts, carries = scan_counts(params, len(eqn.invars))
    length, backwards = int(params["length"]), bool(params["reverse"])
    trips = length // parts
    same = [*range(consts), *(consts + j for j, slot in enumerate(slots) if slot.kind == "fixed")]
    jaxpr, arrays = open_jaxpr(params["jaxpr"])
    jaxpr, blocks = with_blocks(jaxpr, same, known, length)
    totals = [j for j, slot in enumerate(slots) if slot.kind in ("total", "rescaled")]
    peaks = {slot.peak for slot in slots if slot.kind == "rescaled"}
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
            first = len(items) - len(blocks)
            body = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(jaxpr, [*arrays, *items[first:]]))
            outs = body(*fixed, *carried, *items[len(counters) : first])
            return [outs[j] for j in totals], list(outs[carries:])

        start = [_start(inits[j], slots[j].combiner, parts, j in peaks) for j in totals]
        items = [tiled(x) for x in (*counts, *stacked, *(b.of(operands[b.operand], length) for b in blocks))]
        ended, made = jax.lax.scan(jax.vmap(once), start, items, length=trips, reverse=backwards)
        outs = list(inits)
        for j in counters:
            outs[j] = inits[j] + _wrapped(slots[j].step * length, inits[j].dtype)
        by_part = dict(zip(totals, ended, strict=True))
        for j in totals:
            if slots[j].kind == "total":
                outs[j] = _combined(inits[j], by_part[j], slots[j].combiner, zeros[consts + j])
        for j in totals:
            if slots[j].kind == "rescaled":
                k = slots[j].peak
                peak = Peak(inits[k], by_part[k], outs[k])
                outs[j] = rescaled_total(inits[j], by_part[j], slots[j], peak, zeros[consts + j])
        return [*outs, *map(whole, made)]

    specs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    (call,) = jax.make_jaxpr(jax.jit(loop_in_parts))(*specs).jaxpr.eqns
    return eqn.replace(primitive=call.primitive, params=call.params)


def _counts(first: Any, step: int, length: int, backwards: bool) -> Any:
    """A counter's value in each iteration, in order of the stacked operands."""
    at = jax.lax.iota(first.dtype, length)
    if backwards:
        at = _wrapped(length - 1, first.dtype) - at
    return first + _wrapped(step, first.dtype) * at


def _wrapped(number: int, dtype: Any) -> Any:
    """A number in an integer type that may be too narrow for it, modulo 2**bits as the adding-up in a loop gives it."""
    bits = jnp.iinfo(dtype).bits
    return np.array(number % 2**bits, f"uint{max(8, bits)}").astype(dtype)


def _start(init: Any, combiner: str, parts: int, is_peak: bool) -> Any:
    """What the total of each part begins with; 0 for a sum, to which the loop's own beginning is added at the end.

    The peak of a softmax begins with a finite number: relative to minus infinity, a part in which all scores are masked
    would be NaN.
    """
    shape = (parts, *init.shape)
    if combiner in ("add", ""):
        return jax.lax.full(shape, 0, init.dtype)
    if is_peak:
        init = jax.lax.max(init, jax.lax.full(init.shape, jnp.finfo(init.dtype).min, init.dtype))
    return jax.lax.broadcast(init, (parts,))


def _combined(init: Any, by_part: Any, combiner: str, starts_at_zero: bool) -> Any:
    if combiner == "add":
        total = jax.lax.reduce(by_part, np.array(0, by_part.dtype), jax.lax.add, (0,))
        return total if starts_at_zero else init + total
    return jnp.max(by_part, axis=0) if combiner == "max" else jnp.min(by_part, axis=0)


class Peak(NamedTuple):
    """The maximum of a running softmax: before the loop, of each part, and of all."""

    before: Any
    by_part: Any
    of_all: Any


def rescaled_total(init: Any, by_part: Any, slot: Slot, peak: Peak, starts_at_zero: bool) -> Any:
    """The total of a running softmax relative to the peak of all parts, from the totals of the parts, each relative to
    its own peak.
    """
    power = jax.lax.exp if slot.base == "exp" else jax.lax.exp2

    def factor(old: Any, shape: tuple[int, ...], dims: Sequence[int]) -> Any:
        by = power(old - jnp.broadcast_to(peak.of_all, old.shape)).astype(init.dtype)
        wide = jnp.reshape(by, [n for n in by.shape if n > 1]) if by.ndim > len(dims) else by
        order = sorted(range(len(dims)), key=lambda k: dims[k])
        return jax.lax.broadcast_in_dim(jnp.transpose(wide, order), shape, [dims[k] for k in order])

    dims = [0, *(d + 1 for d in slot.dims)]
    total = _combined(init, by_part * factor(peak.by_part, by_part.shape, dims), "add", True)
    return total if starts_at_zero else init * factor(peak.before, init.shape, slot.dims) + total
