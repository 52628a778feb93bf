"""Which collectives of a traced program wait for the one before anyway, and which must be made to wait."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
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


@dataclass(frozen=True)
class Waits:
    """What must be made to wait in one jaxpr; everything else waits already, by its operands.

    operands: (equation, operand) of collectives that must wait for the collective before.
    regions: of the equations that are loops or branches with collectives.
    ran: whether the jaxpr has a collective. first: whether its first collective must wait for the last one before the
    jaxpr.
    fresh: for each result, whether it depends on the last collective; where none ran, on the last one before the jaxpr.
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
    bit: whether the region carries a bit along, because no value of its own shows that the last collective has ended.
    first: as for `Waits`. fresh: for each result, whether it depends on the last collective inside.
    """

    bodies: tuple[Waits, ...]
    bit: bool
    first: bool
    fresh: tuple[bool, ...]


@dataclass
class Flow:
    """Follows through jaxprs which values depend on the last collective, and remembers its answers.

    It errs towards waiting once more: a value on which a compiler might see no real dependence does not count.
    """

    _waits: dict[Any, Waits] = field(default_factory=dict)
    _holds: dict[int, bool] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)  # keeps jaxprs alive, whose ids are keys

    def waits(self, jaxpr: Any, fresh: Sequence[bool], *, before: bool) -> Waits:
        """What must be made to wait in this jaxpr.

        fresh: for each argument, whether it depends on the last collective. before: whether there was one.
        """
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
                for slots, results in one_by_one(eqn):
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
        """Whether a jaxpr among the equation's parameters has a collective, at any depth."""
        return any(self._has_collectives(jaxpr) for jaxpr in _jaxprs(eqn))

    def _has_collectives(self, jaxpr: Any) -> bool:
        if id(jaxpr) not in self._holds:
            self._kept.append(jaxpr)
            holds = any(is_collective(e) or self.holds_collectives(e) for e in jaxpr.eqns)
            self._holds[id(jaxpr)] = holds
        return self._holds[id(jaxpr)]

    def _region(self, eqn: Any, known: Sequence[bool], before: bool) -> Region:
        kind, params = eqn.primitive.name, eqn.params
        if kind == "cond":
            return self._branches([open_jaxpr(b)[0] for b in params["branches"]], known[1:], before)
        if kind == "scan":
            n, k = scan_counts(params, len(eqn.invars))
            stacked = (False,) * (len(eqn.invars) - n - k)
            body, _ = self._body(open_jaxpr(params["jaxpr"])[0], (False,) * n, known[n : n + k], stacked, before)
            some = params["length"] > 0  # otherwise a compiler sees that the loop does nothing
            fresh = body.fresh if some else (False,) * len(body.fresh)
            return Region((body,), body.first or not any(fresh), (body.first or not some) and before, fresh)
        if kind == "while":
            n, b = params["cond_nconsts"], params["body_nconsts"]
            test_consts, consts = (False,) * n, (False,) * b
            body, held = self._body(open_jaxpr(params["body_jaxpr"])[0], consts, known[n + b :], (), before)
            test = self.waits(open_jaxpr(params["cond_jaxpr"])[0], (*test_consts, *held), before=True)
            # No carry depends on the last collective of the condition, so the loop shows its end by a bit.
            fresh = (False,) * len(body.fresh) if test.ran or not body.ran else body.fresh
            first = test.first or body.first
            return Region((test, body), first or not any(fresh), first and before, fresh)
        # Some other call with collectives inside: all of its operands are made to wait.
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
        if len(none) > 1:  # each result may depend on a part of the operands only
            return [all(known)] * len(none)
        if kind == "dynamic_update_slice":  # an update of the whole array leaves nothing of the operand
            return [known[1] or (known[0] and eqn.invars[0].aval.shape != eqn.invars[1].aval.shape)]
        return [any(known[: _INDEXED.get(kind)])]

    def _repeated(
        self, jaxpr: Any, consts: Sequence[bool], carries: Sequence[bool], stacked: Sequence[bool], times: int | None
    ) -> list[bool]:
        """Which results of a loop still depend on the last collective after any number of iterations."""
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


def one_by_one(eqn: Any) -> list[tuple[list[int], list[int]]]:
    """(operands, results) of each collective of an equation; one equation may sum several arrays."""
    if len(eqn.invars) == len(eqn.outvars):
        return [([k], [k]) for k, v in enumerate(eqn.invars) if _size(v)]
    return [(list(range(len(eqn.invars))), list(range(len(eqn.outvars))))]


def _is_variable(eqn: Any, slot: int) -> bool:
    return not isinstance(eqn.invars[slot], jax_core.Literal)


def _size(v: Any) -> int:
    return int(np.prod(getattr(v.aval, "shape", ())))


def _jaxprs(eqn: Any) -> list[Any]:
    jaxprs = []
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(item, "jaxpr", item)
            if isinstance(inner, jax_core.Jaxpr):
                jaxprs.append(inner)
    return jaxprs
