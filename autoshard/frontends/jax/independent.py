"""Loops whose iterations do not wait for each other: what each carry of a `scan` is to its body.

A carry is *fixed* (handed on untouched), a *counter* (an integer that grows by a number written in the code) or a
*total* (iterations add to it, or take the maximum or minimum with it, and read it for nothing else). A loop whose
carries are all of these, and whose other results come from its operands and counters, may run in parts side by side.
So may a running softmax (`autoshard.frontends.jax.rescaling`).

    s' = s + f(x_i)          a total of kind add          i' = i + 512        a counter
    s' = tanh(s + f(x_i))    none of them: every iteration waits for the one before
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import count
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from autoshard.frontends.jax.facts import is_extended, open_jaxpr, scalar_of, scan_counts
from autoshard.frontends.jax.kernels import is_kernel
from autoshard.frontends.jax.rescaling import Value, step_of_softmax
from autoshard.rules.kernels import CALLED_KERNELS

CALLS = {
    "jit": ("jaxpr",), "pjit": ("jaxpr",), "closed_call": ("call_jaxpr",), "core_closed_call": ("call_jaxpr",),
    "core_call": ("call_jaxpr",), "call": ("call_jaxpr",), "eval_jaxpr": ("call_jaxpr",),
    "custom_jvp_call": ("call_jaxpr",), "custom_vjp_call": ("call_jaxpr", "fun_jaxpr"),
    "custom_vjp_call_jaxpr": ("fun_jaxpr", "call_jaxpr"), "remat": ("jaxpr",), "remat2": ("jaxpr",),
    "checkpoint": ("jaxpr",),
}  # fmt: skip
"""Calls that are looked into, with the parameter that holds the callee."""

_NEVER = frozenset({
    "while", "shard_map", "sharding_constraint", "device_put", "layout_constraint", "reshard", "shard_alike",
    "rng_bit_generator", "rng_uniform", "custom_vmap_call", "custom_linear_solve",
})  # fmt: skip
"""What a body may not do with values that change from one iteration to the next: ops that give something else, or cost
more, on many iterations at once, and shardings that are stated for the values of one iteration."""

_SAME = frozenset({"copy", "copy_p", "name", "optimization_barrier", "stop_gradient"})
"""Ops that hand on what they get."""

_TOTALS = {"add": "add", "add_any": "add", "sub": "add", "max": "max", "min": "min"}


@dataclass(frozen=True, slots=True)
class Slot:
    """What a carry is.

    kind: ``fixed``, ``counter``, ``total`` or ``rescaled`` (a total of a running softmax). step: by how much a counter
    grows. combiner: how a total grows (``add``, ``max``, ``min``). Of a rescaled total, peak: the carry that is the
    maximum of the softmax; dims: where the peak's dimensions larger than 1 lie in the total; base: ``exp`` or ``exp2``.
    """

    kind: str
    step: int = 0
    combiner: str = ""
    peak: int = -1
    dims: tuple[int, ...] = ()
    base: str = ""


_FIXED, _FREE, _READ = Value("fixed"), Value("free"), Value("read")


class Refused(Exception):
    """The body does something that cannot be done for many iterations at once."""


def slots_of(eqn: Any, kernels: Sequence[str] = ()) -> tuple[Slot, ...] | None:
    """What the carries of a `scan` are; None where its iterations depend on each other.

    kernels: names of jitted functions that are kernels. Raises `Refused`, with the kind of an op, where the body has
    one that cannot run for many iterations side by side.
    """
    jaxpr, _ = open_jaxpr(eqn.params["jaxpr"])
    consts, carries = scan_counts(eqn.params, len(eqn.invars))
    stacked = len(eqn.invars) - consts - carries
    if eqn.effects or not eqn.params["length"]:
        return None
    known: dict[int, Slot] = {}
    while True:
        ins = [_FIXED] * consts
        ins += [_carry_in(j, known.get(j)) for j in range(carries)]
        outs = _Flow(kernels).run(jaxpr, [*ins, *[_FREE] * stacked])
        settled = {j: slot for j in range(carries) if j not in known and (slot := _settled(outs[j], j, jaxpr, consts))}
        if not settled:
            break
        known |= settled
    for j in range(carries):
        out = outs[j]
        if j in known:
            continue
        if out.what == "rescaled" and out.slot == j and _peaks(outs[out.peak], out):
            known[j] = Slot("rescaled", peak=out.peak, dims=out.dims, base=out.base)
        elif out.what == "total" and out.slot == j:
            known[j] = Slot("total", combiner=out.combiner)
        else:
            return None
    if any(out.what not in ("fixed", "free") for out in outs[carries:]):
        return None
    changes = stacked or any(slot.kind == "counter" for slot in known.values())
    return tuple(known[j] for j in range(carries)) if changes else None


def _peaks(out: Value, rescaled: Value) -> bool:
    """Whether a carry's next value is the very maximum that a rescaled total is relative to."""
    return out.what == "total" and out.slot == rescaled.peak and out.token == rescaled.token


def _carry_in(slot: int, known: Slot | None) -> Value:
    if known is None:
        return Value("carry", slot)
    return _FIXED if known.kind == "fixed" else _FREE


def _settled(out: Value, slot: int, jaxpr: Any, consts: int) -> Slot | None:
    """What a carry is that others may read: untouched, or a counter."""
    if out.what == "carry" and out.slot == slot:
        return Slot("fixed")
    aval = jaxpr.invars[consts + slot].aval
    if aval.shape:
        return None
    if out.what == "total" and out.slot == slot and out.step is not None and jnp.issubdtype(aval.dtype, np.integer):
        return Slot("counter", step=out.step)
    return None


class _Flow:
    """Follows values through the equations of a body."""

    def __init__(self, kernels: Sequence[str]) -> None:
        self.kernels = kernels
        self._tokens = count()

    def run(self, jaxpr: Any, ins: Sequence[Value]) -> list[Value]:
        env: dict[Any, Value] = dict.fromkeys(jaxpr.constvars, _FIXED)
        env.update(zip(jaxpr.invars, ins, strict=True))

        def of(atom: Any) -> Value:
            if not isinstance(atom, jax_core.Literal):
                return env[atom]
            aval: Any = atom.aval
            plain = not aval.shape and not is_extended(aval.dtype)
            return Value("fixed", literal=scalar_of(atom.val)) if plain else _FIXED

        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outvars, self._equation(eqn, [of(a) for a in eqn.invars]), strict=True))
        return [of(a) for a in jaxpr.outvars]

    def _equation(self, eqn: Any, ins: list[Value]) -> list[Value]:
        kind = str(eqn.primitive.name)
        if eqn.effects:
            raise Refused(kind)
        if all(v.what == "fixed" for v in ins):
            zero = kind in ("broadcast_in_dim", "convert_element_type") and ins[0].literal is not None
            return [Value("fixed", literal=0) if zero and ins[0].literal == 0 else _FIXED] * len(eqn.outvars)
        if kind in _NEVER or is_kernel(kind) or self._is_called_kernel(kind, eqn) or _draws_otherwise(kind, eqn):
            raise Refused(kind)
        if kind in CALLS:
            callee = next((eqn.params[p] for p in CALLS[kind] if p in eqn.params), None)
            if callee is None:
                raise Refused(kind)
            return self.run(open_jaxpr(callee)[0], ins)
        if kind == "scan":
            return self._scan(eqn, ins)
        if kind == "cond":
            return self._cond(eqn, ins)
        if any(hasattr(p, "eqns") or hasattr(p, "jaxpr") for p in eqn.params.values()) and kind not in _WITH_CODE:
            raise Refused(kind)
        if kind in _SAME or (kind == "convert_element_type" and eqn.params["new_dtype"] == eqn.invars[0].aval.dtype):
            return ins
        out = self._total(kind, ins) or step_of_softmax(kind, eqn, ins)
        if out is not None:
            return [out]
        waits = any(v.what not in ("fixed", "free") for v in ins)
        return [_READ if waits else _FREE] * len(eqn.outvars)

    def _is_called_kernel(self, kind: str, eqn: Any) -> bool:
        return kind in CALLED_KERNELS and any(fnmatchcase(str(eqn.params.get("name")), name) for name in self.kernels)

    def _total(self, kind: str, ins: Sequence[Value]) -> Value | None:
        """The carry that an op adds to (or takes the maximum with); None where it does something else."""
        if kind in ("scatter-add", "scatter_add") and ins[0].what in ("carry", "total"):
            others, first, combiner = ins[1:], ins[0], "add"
        elif kind in _TOTALS:
            at = [k for k, v in enumerate(ins) if v.what in ("carry", "total")]
            if len(at) != 1 or (kind == "sub" and at != [0]):
                return None
            first, others, combiner = ins[at[0]], [v for k, v in enumerate(ins) if k != at[0]], _TOTALS[kind]
        else:
            return None
        if any(v.what not in ("fixed", "free") for v in others) or first.combiner not in ("", combiner):
            return None
        step = others[0].literal if combiner == "add" and first.what == "carry" and len(others) == 1 else None
        whole = type(step) is int
        return Value(
            "total", first.slot, combiner, token=next(self._tokens),
            step=None if not whole else -int(step) if kind == "sub" else int(step),  # type: ignore[arg-type]
        )  # fmt: skip

    def _scan(self, eqn: Any, ins: Sequence[Value]) -> list[Value]:
        """An inner loop. A total of the outer loop may be a total of the inner one too."""
        consts, carries = scan_counts(eqn.params, len(eqn.invars))
        jaxpr, _ = open_jaxpr(eqn.params["jaxpr"])
        taken = [v if v.what in ("fixed", "free") else _READ for v in ins]
        inner = [*taken[:consts], *[_READ if v is _READ else _FREE for v in taken[consts : consts + carries]]]
        self.run(jaxpr, [*inner, *[_READ if v is _READ else _FREE for v in taken[consts + carries :]]])  # may refuse
        at = [k for k, v in enumerate(ins) if v.what not in ("fixed", "free")]
        if not at:
            return [_FREE] * len(eqn.outvars)
        slots = None
        if all(consts <= k < consts + carries and ins[k].what in ("carry", "total") for k in at):
            slots = slots_of(eqn, self.kernels)
        if slots is None:
            return [_READ] * len(eqn.outvars)
        outs = [_FREE] * len(eqn.outvars)
        for k in at:
            slot, value = slots[k - consts], ins[k]
            if slot.kind == "fixed":
                # the inner body may read the total, and so may all results of the inner loop depend on it
                return [_READ] * len(eqn.outvars)
            combiner = slot.combiner if slot.kind == "total" else ""
            if not combiner or value.combiner not in ("", combiner):
                return [_READ] * len(eqn.outvars)
            outs[k - consts] = replace(value, what="total", combiner=combiner, step=None)
        return outs

    def _cond(self, eqn: Any, ins: Sequence[Value]) -> list[Value]:
        """A branch that all iterations choose alike: otherwise many iterations at once would compute all branches."""
        if ins[0].what != "fixed":
            raise Refused("cond")
        waits = any(v.what not in ("fixed", "free") for v in ins)
        for branch in eqn.params["branches"]:
            self.run(open_jaxpr(branch)[0], [v if v.what == "fixed" else _FREE for v in ins[1:]])
        return [_READ if waits else _FREE] * len(eqn.outvars)


_WITH_CODE = frozenset({
    "scatter", "scatter-add", "scatter_add", "scatter-sub", "scatter-mul", "scatter-max", "scatter-min", "reduce",
    "reduce_window", "select_and_scatter", "select_and_scatter_add", "select_and_gather_add", "sort",
    "scatter_mul", "scatter_max", "scatter_min", "scatter_sub",
})  # fmt: skip
"""Primitives with a scalar function among their parameters, which says how elements are combined."""


def _draws_otherwise(kind: str, eqn: Any) -> bool:
    """Whether an op draws other random bits for many keys at once than for each key by itself."""
    if not kind.startswith("random_"):
        return False
    return any(is_extended(v.aval.dtype) and str(v.aval.dtype) != "key<fry>" for v in (*eqn.invars, *eqn.outvars))
