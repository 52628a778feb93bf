"""Primitives of other packages, read as the JAX functions that they stand for.

Many packages have primitives only for how they are transformed: equinox's ``unvmap_any`` is ``any``, its
``select_if_vmap`` the first of two values. Such a primitive is defined by a function (``def_impl``) and lowered by that
same function, so what it computes can be read, sharded and priced like everything else.
"""

from functools import partial
from typing import Any

import jax

from autoshard.frontends.jax.facts import key_of
from autoshard.frontends.jax.kernels import is_kernel
from autoshard.rules import has_rule


class Implementations:
    """The functions behind primitives; each is traced once for its types and parameters."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def of(self, eqn: Any) -> Any | None:
        """The closed jaxpr of what an equation computes, or None.

        None where the primitive has a rule, where it has no implementation in terms of others, and where JAX lowers it
        to something else than that implementation: what runs is then not what would be read.
        """
        kind = str(eqn.primitive.name)
        if has_rule(kind) or is_kernel(kind):
            return None
        types = tuple((v.aval.shape, str(v.aval.dtype)) for v in eqn.invars)
        key = (eqn.primitive, types, key_of(eqn.params))
        try:
            if key not in self._known:
                self._known[key] = _implementation(eqn)
            return self._known[key]
        except TypeError:  # a parameter that cannot be hashed
            return _implementation(eqn)


def _implementation(eqn: Any) -> Any | None:
    impl = eqn.primitive.impl
    if isinstance(impl, partial) or eqn.effects:  # JAX's own: the primitive, compiled and called
        return None
    arguments = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]

    def stands_for(*values: Any) -> Any:
        return impl(*values, **eqn.params)

    def itself(*values: Any) -> Any:
        return eqn.primitive.bind(*values, **eqn.params)

    try:
        closed = jax.make_jaxpr(stands_for)(*arguments)
        if any(inner.primitive is eqn.primitive for inner in closed.jaxpr.eqns) or closed.effects:
            return None
        as_expected = [(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
        if [(a.shape, a.dtype) for a in closed.out_avals] != as_expected:
            return None
        return closed if _text(stands_for, arguments) == _text(itself, arguments) else None
    except Exception:  # code of others: one that takes arrays alone, or none that can be lowered here
        return None


def _text(function: Any, arguments: list[Any]) -> str:
    """StableHLO of a function of arrays, under a name that does not tell which one it is."""

    def same(*values: Any) -> Any:
        return function(*values)

    return str(jax.jit(same, keep_unused=True).trace(*arguments).lower(lowering_platforms=("cpu",)).as_text())
